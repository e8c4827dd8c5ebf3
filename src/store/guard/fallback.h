// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

#include "sluice/guarded_store.h"
#include "sluice/memory_store.h"
#include "sluice/store.h"
#include "store/guard/last_seen.h"
#include "store/guard/ledger.h"
#include "store/guard/overload.h"

namespace sluice::guard {

// One instance's share of a limit among `instances`: amount / instances, at least 1, refilled at
// exactly rate / instances. Error: kInvalidLimit, if its numbers are too large for exact
// arithmetic.
Expected<Limit> ShareOf(const Limit& limit, std::int64_t instances);

// Decides in place of a store, by each charge's policy.
class Fallback {
 public:
  enum class Holds : std::uint8_t { kNo, kYes };

  // Uses `local`, `instances` and `on_overload`. Counts what it decides in `stats`, which must
  // outlive it. `holds`: whether units of shares may be put on hold.
  Fallback(const GuardedStore::Options& options, GuardedStore::Stats& stats, Holds holds);

  // The policy that applies to a charge.
  OnStoreFailure PolicyOf(const Charge& charge, Cause cause) const;

  // Answers a valid request that the store did not answer because of `error` and `cause`. Returns
  // how many units were taken locally for good: none by a hold.
  std::int64_t Decide(Request& request, const Error& error, Cause cause);

  // Answers with the error.
  void FailClosed(Request& request, const Error& error, Cause cause);

  // Settles or extends a hold that was made here. `parts`: what it holds of shares, or what that
  // has cost. The numbers of all other charges are those of untouched budgets.
  void DecideOnHold(Request& request, std::span<const Ledger::Debt> parts);

  // Answers a settle that the store will hear of later: with the numbers of untouched budgets.
  static void AnswerKept(Request& request);

  // The store has this much left of the charge's budget, as far as is known. From now on, the local
  // share has at most its part of that left.
  void StartFrom(const Charge& charge, const LastSeen::Left& left);

  // Units taken locally from this charge's state that count as used now. May exceed the share, if
  // that has shrunk since.
  std::int64_t Used(const Charge& charge);

  void Reset(const Charge& charge);

  // When a hold that is made now expires.
  TimePoint ExpiryOf(const Request& request) const;

  void SetInstances(std::int64_t instances);
  std::int64_t instances() const { return instances_; }
  std::int64_t keys() const { return local_.GetStats().keys; }

 private:
  // Local state always has a name, so that it stays with its key when shares change.
  struct Share {
    Limit limit;
    std::array<char, 33> name;
  };

  // Points into both.
  static Charge LocalCharge(const Charge& charge, const Share& share);

  std::optional<Share> FindShare(const Limit& limit);
  Expected<Decision> DecideLocally(const Request& request, Cause cause, std::span<Decision> each);

  struct FingerprintHash {
    std::size_t operator()(const Limit& limit) const { return limit.fingerprint(); }
  };

  const OnStoreFailure on_overload_;
  const Clock* const clock_;
  const Holds holds_;
  MemoryStore local_;
  GuardedStore::Stats& stats_;
  std::int64_t instances_;
  std::unordered_map<Limit, Share, FingerprintHash> shares_;
};

}  // namespace sluice::guard
