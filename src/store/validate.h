// SPDX-License-Identifier: Apache-2.0
// What every store checks in a request before it looks at any state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "core/bucket.h"
#include "sluice/store.h"

namespace sluice {

inline bool IsValid(const Charge& charge, TimePoint now, Action action = Action::kCheck) {
  return charge.key.size() - 1 < kKeyBytesMax && charge.name.size() <= kNameBytesMax &&
         (charge.cost >= 0 || action == Action::kReset) &&
         (charge.cost <= charge.limit->amount() || action != Action::kCheck) &&
         now >= TimePoint{} && now <= kTimeMax;
}

// Explains why IsValid returned false.
Error Invalid(const Charge& charge, TimePoint now, Action action = Action::kCheck);

// The most that a charge can take or give back, so that sums of costs stay small. No debit takes
// more than a full budget holds, but more than that can be used after the limit was lowered.
inline std::int64_t CostOf(const Charge& charge, Action action = Action::kCheck) {
  if (action == Action::kReset) return 0;
  const std::int64_t most = action == Action::kGive ? core::kExactMax : charge.limit->amount();
  return std::min(charge.cost, most);
}

// `cost`, of this charge and others of its state, is negative, or more than its limit can ever
// grant. Names the limit.
Error InvalidCost(const Charge& charge, std::int64_t cost);

inline bool HasValidShape(const Request& request) {
  const std::size_t size = request.charges.size();
  return size > 0 && size <= kChargesMax && (request.each.empty() || request.each.size() == size) &&
         (request.seen.empty() || request.seen.size() == size);
}

// Explains why HasValidShape returned false.
Error InvalidShape(const Request& request);

// What is wrong with a request, as far as that is known without its states.
std::optional<Error> FirstInvalid(const Request& request);

Error TwoLimitsUnderOneName(const Charge& a, const Charge& b);

}  // namespace sluice
