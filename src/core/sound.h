// SPDX-License-Identifier: Apache-2.0
// Whether the arithmetic may trust a state that comes from outside, such as from a file or from
// Redis: every number is in the range that the kernels keep it in, so that none of their sums and
// products overflows. What its numbers mean is not judged.
#pragma once

#include <cstdint>

#include "core/bucket.h"
#include "core/fixed_window.h"
#include "core/window_counter.h"
#include "core/window_log.h"
#include "sluice/limit.h"

namespace sluice::core {

inline bool InRange(std::int64_t value, std::int64_t max) { return value >= 0 && value <= max; }

// The last moment that a state can be from, in ticks.
inline std::int64_t LastTick(const Limit& limit) {
  return kTimeMax.time_since_epoch() / limit.tick();
}

inline bool IsSound(const Limit& limit, const BucketState& state) {
  return state.level <= limit.whole() && state.level >= limit.whole() - kExactMax &&
         InRange(state.time, LastTick(limit));
}

inline bool IsSound(const Limit& limit, const WindowState& state) {
  return InRange(state.start, LastTick(limit)) && state.start % limit.unit() == 0 &&
         InRange(state.count, kExactMax);
}

inline bool IsSound(const Limit& limit, const CounterState& state) {
  const std::int64_t most = CountMax(limit);
  return InRange(state.window, LastTick(limit) / limit.unit()) && InRange(state.previous, most) &&
         InRange(state.current, most);
}

// `newest` is -1 if there is no entry.
inline bool IsSound(const Limit& limit, const LogFacts& facts) {
  const bool entries = facts.used == 0 || (InRange(facts.oldest, facts.newest) &&
                                           facts.oldest > facts.now_us - limit.span().count());
  return entries && InRange(facts.used, kExactMax) && facts.newest >= -1 &&
         facts.newest <= kTimeMax.time_since_epoch().count() && InRange(facts.leaves, facts.now_us);
}

}  // namespace sluice::core
