// SPDX-License-Identifier: Apache-2.0
// What a store tells of a state besides the decision, in the terms of its kernel:
//   bucket   level, time          fixed window   start, count
//   counter  window, previous, current
//   log      units in the window, and the times of the newest and of the oldest of them; all zero
//            if there are none
#pragma once

#include "core/bucket.h"
#include "core/fixed_window.h"
#include "core/window_counter.h"
#include "core/window_log.h"
#include "sluice/store.h"

namespace sluice::core {

// As the state is at `now`; null for an untouched budget.
inline SeenState See(const Limit& limit, const BucketState* state, TimePoint now) {
  const BucketState seen = Decide(limit, state, now, 0).next;
  return {.now_us = now.time_since_epoch().count(), .a = seen.level, .b = seen.time};
}

inline SeenState See(const Limit& limit, const WindowState* state, TimePoint now) {
  const WindowState seen = Decide(limit, state, now, 0).next;
  return {.now_us = now.time_since_epoch().count(), .a = seen.start, .b = seen.count};
}

inline SeenState See(const Limit& limit, const CounterState* state, TimePoint now) {
  const CounterState seen = Decide(limit, state, now, 0).next;
  return {.now_us = now.time_since_epoch().count(),
          .a = seen.window,
          .b = seen.previous,
          .c = seen.current};
}

inline SeenState See(const LogFacts& facts, TimePoint now) {
  if (facts.used == 0) return {.now_us = now.time_since_epoch().count()};
  return {.now_us = now.time_since_epoch().count(),
          .a = facts.used,
          .b = facts.newest,
          .c = facts.oldest};
}

}  // namespace sluice::core
