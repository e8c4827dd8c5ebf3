// SPDX-License-Identifier: Apache-2.0
// What becomes of a state when the numbers of its limit change: what was used stays used, so that a
// raised limit takes effect at once and a lowered one never grants more. If more was used than the
// new limit ever grants, the state keeps that as a debt: changing a limit back and forth hands
// nothing out.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/bucket.h"
#include "core/fixed_window.h"
#include "core/window_counter.h"
#include "sluice/limit.h"

namespace sluice::core {

// From a limit of the same unit, rate and tick.
inline BucketState Carry(const Limit& from, const BucketState& state, const Limit& to) {
  return {.level = to.whole() - std::min(from.whole() - state.level, kExactMax),
          .time = state.time};
}

// From a limit of the same window.
inline WindowState Carry(const WindowState& state) { return state; }
inline CounterState Carry(const CounterState& state, const Limit& to) {
  return {.window = state.window,
          .previous = std::min(state.previous, CountMax(to)),
          .current = std::min(state.current, CountMax(to))};
}

// From any other limit: a state from which `used` units were taken at `now`, perhaps more than the
// limit grants.
inline BucketState UsedBucket(const Limit& to, TimePoint now, std::int64_t used) {
  const std::int64_t bearable = std::min(used, kExactMax / to.unit());
  return {.level = to.whole() - bearable * to.unit(), .time = Instant(to, now, 0).ticks()};
}

inline WindowState UsedWindow(const Limit& to, TimePoint now, std::int64_t used) {
  const std::int64_t ticks = Instant(to, now, 0).ticks();
  return {.start = ticks - ticks % to.unit(), .count = used};
}

inline CounterState UsedCounter(const Limit& to, TimePoint now, std::int64_t used) {
  return {.window = Instant(to, now, 0).ticks() / to.unit(),
          .previous = 0,
          .current = std::min(used, CountMax(to))};
}

}  // namespace sluice::core
