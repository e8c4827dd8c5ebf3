// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service/engine.h"
#include "service/hold_ticket.h"

namespace sluice::service {

// What a client keeps of its hold.
struct MadeHold {
  std::string id;
  bool holds = false;  // Whether anything is on hold.
  TimePoint expires;
};

// Counts a hold that was made. Error: that of HoldTicket::ToText.
Expected<MadeHold> CountMade(Engine& engine, const Catalog& catalog, const HoldTicket& ticket);

// Counts one that was released on states of these names by somebody who only knows its id.
void CountReleased(Engine& engine, const Catalog& catalog, std::string_view id,
                   std::span<const std::string_view> states);

// What a client asks about a hold that it has: to settle, release or extend it.
//
//   auto call = std::make_unique<HoldCall>(engine.catalog());
//   if (auto open = call->Open(id); !open) Refuse(open.error());
//   if (auto settled = call->Settle(250); !settled) Refuse(settled.error());
//   HoldCall& it = *call;
//   it.Run(engine, [call = std::move(call)] { Answer(*call); });
//
// Not thread-safe.
class HoldCall {
 public:
  explicit HoldCall(std::shared_ptr<const Catalog> catalog) : catalog_(std::move(catalog)) {}
  HoldCall(const HoldCall&) = delete;
  HoldCall& operator=(const HoldCall&) = delete;

  // With the id that was returned when the hold was made. Error: kInvalidRequest.
  Expected<void> Open(std::string_view ticket);

  // What to do, between Open and Run. After Settle(), every rule has cost what was held; permits
  // then say otherwise, for all rules or for one. A rule whose cost comes from an attribute costs a
  // unit for each permit. Errors: kInvalidCost; kNotFound if the hold is not on that rule.
  void Release();
  void Settle();
  Expected<void> Settle(std::int64_t permits);
  Expected<void> SettleRule(std::string_view rule, std::int64_t permits);
  void Extend(std::optional<Micros> ttl);  // None: as long as it was made for.

  // `done` is called as by Engine::Apply.
  template <std::invocable Done>
  void Run(Engine& engine, Done done) {
    Gather();
    if (requests_.empty()) {
      Conclude(engine);
      return done();
    }
    engine.ApplyParts(requests_,
                      [this, &engine, done = std::move(done)](const Engine::Span&) mutable {
                        Conclude(engine);
                        done();
                      });
  }

  const HoldTicket& ticket() const { return ticket_; }
  const Catalog& catalog() const { return *catalog_; }

  // After Run. The numbers afterwards, over all budgets that count; without numbers if the hold is
  // on none.
  const Expected<Decision>& decision() const { return decision_; }
  Source source() const { return source_; }
  const HoldTerms& terms() const { return terms_; }
  bool limited() const { return !charges_.empty(); }

  // A budget that counts.
  struct Outcome {
    const HoldTicket::Part& part;
    const Limit& limit;  // As it is now.
    const Decision& decision;
    std::int64_t actual;  // What it cost, if it was settled.
  };
  std::vector<Outcome> outcomes() const;

 private:
  void Gather();
  void Conclude(Engine& engine);
  void Count(Engine& engine) const;

  std::shared_ptr<const Catalog> catalog_;
  HoldTicket ticket_;
  std::vector<std::int64_t> actual_;  // By part, those that count first.
  Action action_ = Action::kSettle;
  bool releases_ = false;
  Micros ttl_{0};

  std::vector<Charge> charges_;  // By part; none if there is nothing to ask.
  std::size_t counting_ = 0;     // How many of them count.
  std::vector<Decision> each_;
  HoldTerms terms_;
  std::vector<HoldTerms> shadow_terms_;
  std::vector<Request> requests_;  // One for all that count, one for each other.
  Expected<Decision> decision_ = Decision{};
  Source source_ = Source::kStore;
};

}  // namespace sluice::service
