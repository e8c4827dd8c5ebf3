// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "sluice/store.h"

namespace sluice {

// An id that nobody guesses: 128 random bits as 32 hexadecimal digits.
std::string NewHoldId();

// The operations on holds, one at a time: for those that outlive a scope, and for what each charge
// has cost. Like ScopedHold, they work with every store and wait for its answer. `terms` names the
// hold; what the store says of it is in there afterwards.
//
//   const sluice::Charge charges[] = {{.key = "ann", .limit = &*tokens, .cost = 800}};
//   sluice::HoldTerms terms{.id = id, .ttl = 1min};
//   if (const auto made = sluice::Hold(store, charges, terms); !made || !made->allowed) return;
Expected<Decision> Hold(Store& store, std::span<const Charge> charges, HoldTerms& terms);

// The cost of each charge is what it has really cost. Errors are those of the store.
Expected<Decision> Settle(Store& store, std::span<const Charge> charges, HoldTerms& terms);

// Settles for 0, whatever the costs are.
Expected<Decision> Release(Store& store, std::span<const Charge> charges, HoldTerms& terms);

// For another ttl of the terms. Error: kHoldLost.
Expected<Decision> Extend(Store& store, std::span<const Charge> charges, HoldTerms& terms);

// Gives back the costs without naming a hold; see Action::kGive.
Expected<Decision> Give(Store& store, std::span<const Charge> charges);

// Units that are held for as long as this object lives, and are then released or settled:
//
//   const auto jobs = sluice::Limit::Concurrency({.limit = 50, .ttl = 30s});
//   auto slot = sluice::ScopedHold::Take(store, {.key = "jobs", .limit = &*jobs});
//   if (slot && slot->allowed()) Work();
//
// Works with every store, and waits for its answers. It must not outlive the store, nor be
// destroyed on one of the store's own threads. If the process dies, the hold expires.
class ScopedHold {
 public:
  struct Options {
    std::string id = {};  // NewHoldId if empty.
    Micros ttl{0};        // See HoldTerms.
    OnExpiry on_expiry = OnExpiry::kCharge;
  };

  // A denial is a hold that is not allowed(). Errors: those of the store for Action::kHold.
  static Expected<ScopedHold> Take(Store& store, std::span<const Charge> charges,
                                   const Options& options);
  static Expected<ScopedHold> Take(Store& store, const Charge& charge, const Options& options);
  static Expected<ScopedHold> Take(Store& store, const Charge& charge) {
    return Take(store, charge, Options{});
  }

  // Settles the hold if nobody did; what it cost is 0, unless SettleAtEnd was called. If the store
  // fails then, the hold lasts until it expires. If a GuardedStore let it pass undecided, there is
  // nothing to settle or extend, and nobody is asked.
  ~ScopedHold();
  ScopedHold(ScopedHold&&) noexcept;
  ScopedHold& operator=(ScopedHold&&) noexcept;

  bool allowed() const { return decision_.allowed; }
  const Decision& decision() const { return decision_; }
  const std::string& id() const;

  // It lasts for another `ttl` from now on; zero as when it was taken. Error: kHoldLost.
  Expected<Decision> Extend(Micros ttl = Micros{0});

  // Ends it: each charge has cost `actual`. Returns the numbers afterwards. If it fails, the
  // destructor tries again.
  Expected<Decision> Settle(std::int64_t actual);
  Expected<Decision> Release() { return Settle(0); }

  // What each charge will have cost when this object is destroyed.
  void SettleAtEnd(std::int64_t actual);

 private:
  struct State;
  ScopedHold(std::unique_ptr<State> state, const Decision& decision);

  std::unique_ptr<State> state_;  // Null after a move.
  Decision decision_;
};

}  // namespace sluice
