// SPDX-License-Identifier: Apache-2.0
// What every store checks in a request before it looks at any state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/algorithms.h"
#include "core/bucket.h"
#include "sluice/store.h"

namespace sluice {

// Whether a request of this kind may cost more than its limit ever grants.
inline bool MayExceed(Action action) { return action != Action::kCheck && action != Action::kHold; }

// Whether the costs of a request of this kind mean nothing.
inline bool IgnoresCost(Action action) {
  return action == Action::kReset || action == Action::kExtend || action == Action::kListHolds;
}

Error NeedsHold(const Charge& charge);
Error HoldLost(std::string_view id);
Error HoldConflict(std::string_view id);
Error TooManyHolds(const Charge& charge);

inline bool IsValid(const Charge& charge, TimePoint now, Action action = Action::kCheck) {
  return charge.key.size() - 1 < kKeyBytesMax && charge.name.size() <= kNameBytesMax &&
         (charge.cost >= 0 || IgnoresCost(action)) &&
         (charge.cost <= charge.limit->amount() || MayExceed(action)) && now >= TimePoint{} &&
         now <= kTimeMax;
}

// Explains why IsValid returned false.
Error Invalid(const Charge& charge, TimePoint now, Action action = Action::kCheck);

inline std::int64_t MostOf(const Charge& charge, Action action) {
  const bool unbounded = action == Action::kGive || action == Action::kSettle;
  return unbounded ? core::kExactMax : charge.limit->amount();
}

// The most that a charge can take or give back, so that sums of costs stay small. No debit takes
// more than a full budget holds, but more than that can be used: after the limit was lowered, or
// because a hold was settled for more.
inline std::int64_t CostOf(const Charge& charge, Action action = Action::kCheck) {
  return IgnoresCost(action) ? 0 : std::min(charge.cost, MostOf(charge, action));
}

// What is wrong with asking this of a limit that can only be held.
inline std::optional<Error> NotOffered(const Charge& charge, Action action) {
  const bool refused = action == Action::kDebit || action == Action::kGive ||
                       (action == Action::kCheck && charge.cost > 0);
  if (!refused || !core::NeedsHold(*charge.limit)) return std::nullopt;
  return NeedsHold(charge);
}

// `cost`, of this charge and others of its state, is negative, or more than its limit can ever
// grant. Names the limit.
Error InvalidCost(const Charge& charge, std::int64_t cost);

bool IsHoldId(std::string_view id);

inline bool IsAboutHold(Action action) {
  return action == Action::kHold || action == Action::kSettle || action == Action::kExtend;
}

// What is wrong with the terms of a request about a hold, or with the id of one to be listed.
std::optional<Error> InvalidTerms(const Request& request);

inline bool HasValidShape(const Request& request) {
  const std::size_t size = request.charges.size();
  const bool lists = request.action == Action::kListHolds;
  return IsAboutHold(request.action) == (request.hold != nullptr) &&
         lists == (request.listed != nullptr) && size > 0 && size <= (lists ? 1 : kChargesMax) &&
         (request.each.empty() || request.each.size() == size) &&
         (request.seen.empty() || request.seen.size() == size);
}

// Explains why HasValidShape returned false.
Error InvalidShape(const Request& request);

// What is wrong with a request, as far as that is known without its states.
std::optional<Error> FirstInvalid(const Request& request);

Error TwoLimitsUnderOneName(const Charge& a, const Charge& b);

}  // namespace sluice
