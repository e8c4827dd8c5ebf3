// SPDX-License-Identifier: Apache-2.0
#include "zones/offsets.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::zones {

Offsets::Offsets(std::int32_t first, const std::vector<Change>& changes) : first_(first) {
  changes_.reserve(changes.size());
  std::int32_t offset = first;
  for (const Change& change : changes) {
    if (!changes_.empty() && changes_.back().at == change.at) {
      // Two rules that meet, as where one period of daylight saving time follows another.
      changes_.pop_back();
      offset = changes_.empty() ? first : changes_.back().offset;
    }
    // Some changes are of the zone's name only.
    if (change.offset != offset) changes_.push_back(change);
    offset = change.offset;
  }
}

std::int32_t Offsets::At(std::int64_t utc) const {
  const auto next = std::ranges::upper_bound(changes_, utc, {}, &Change::at);
  return next == changes_.begin() ? first_ : std::prev(next)->offset;
}

std::int64_t Offsets::FirstMoment(std::int64_t local) const {
  // No clock is further from UTC, so before this moment none has shown it.
  constexpr std::int64_t kOffsetMax = 26 * 3600;
  auto next = std::ranges::upper_bound(changes_, local - kOffsetMax, {}, &Change::at);
  while (true) {
    const std::int32_t offset = next == changes_.begin() ? first_ : std::prev(next)->offset;
    const std::int64_t moment = local - offset;
    if (next == changes_.end() || moment < next->at) {
      return next == changes_.begin() ? moment : std::max(moment, std::prev(next)->at);
    }
    ++next;
  }
}

}  // namespace sluice::zones
