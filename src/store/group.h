// SPDX-License-Identifier: Apache-2.0
// Charges of one state add up: a request charges each of its states once, on one limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/bucket.h"
#include "sluice/store.h"
#include "store/validate.h"

namespace sluice {

inline bool IsSameState(const Charge& a, const Charge& b) {
  return a.key == b.key && a.name == b.name && (!a.name.empty() || *a.limit == *b.limit);
}

// The states of a request's charges.
struct StateGroup {
  std::array<std::uint8_t, kChargesMax> first;  // By charge: the first charge of its state.
  std::array<std::int64_t, kChargesMax> cost;   // By first charge: of all charges of its state.
};

// Fills `group` for charges that are each valid. `same(i, j)` returns whether charges i and j have
// one state. Returns what is wrong with their sum: two limits under one name, or a check that costs
// more than the limit can ever grant. Any other sum is capped at the most that can be taken or
// given back.
template <typename Same>
std::optional<Error> AddUp(std::span<const Charge> charges, Action action, const Same& same,
                           StateGroup& group) {
  for (std::size_t i = 0; i < charges.size(); ++i) {
    std::size_t first = 0;
    while (first < i && (group.first[first] != first || !same(first, i))) ++first;
    group.first[i] = static_cast<std::uint8_t>(first);
    const std::int64_t cost = CostOf(charges[i], action);
    if (first == i) {
      group.cost[i] = cost;
      continue;
    }
    const Limit& limit = *charges[i].limit;
    if (limit != *charges[first].limit) return TwoLimitsUnderOneName(charges[first], charges[i]);
    const std::int64_t sum = group.cost[first] + cost;
    if (sum > limit.amount() && !MayExceed(action)) return InvalidCost(charges[i], sum);
    group.cost[first] = std::min(sum, MostOf(charges[i], action));
  }
  return std::nullopt;
}

// What is wrong with a request, regardless of the state of the store.
inline std::optional<Error> FirstInvalidInGroup(const Request& request) {
  auto invalid = FirstInvalid(request);
  if (invalid || request.charges.size() == 1) return invalid;
  StateGroup group;
  const auto same = [&](std::size_t i, std::size_t j) {
    return IsSameState(request.charges[i], request.charges[j]);
  };
  return AddUp(request.charges, request.action, same, group);
}

}  // namespace sluice
