// SPDX-License-Identifier: Apache-2.0
// What a store tells of a state besides the decision, in the terms of its kernel:
//   bucket   level, time          fixed window   start, count
//   counter  window, previous, current
//   log      units in the window, and the times of the newest and of the oldest of them; all zero
//            if there are none
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

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

// The decision on a state that was seen, at a later `now` of the same clock, if nobody has taken
// from it since. Of a log, too little was seen for that.
inline Decision Decide(const Limit& limit, const SeenState& seen, TimePoint now,
                       std::int64_t cost) {
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra: {
      const BucketState state{.level = seen.a, .time = seen.b};
      return Decide(limit, &state, now, cost).decision;
    }
    case Algorithm::kFixedWindow: {
      const WindowState state{.start = seen.a, .count = seen.b};
      return Decide(limit, &state, now, cost).decision;
    }
    case Algorithm::kSlidingWindowCounter: {
      const CounterState state{.window = seen.a, .previous = seen.b, .current = seen.c};
      return Decide(limit, &state, now, cost).decision;
    }
    case Algorithm::kSlidingWindow:
      break;
  }
  std::unreachable();
}

// What a request of this cost, which the limit can grant, would get from a state that was only
// looked at; `look` is the decision of cost 0 on it. All but whether and when it would pass stays
// as it is, since nothing is taken. If the store did not tell of its state, and of a log from which
// several units would have to leave, the wait may be longer than the smallest that is enough.
inline Decision Foresee(const Limit& limit, const Decision& look, const SeenState& seen,
                        std::int64_t cost) {
  Decision foreseen = look;
  foreseen.allowed = cost <= look.remaining;
  const bool is_known = seen.now_us >= 0;
  if (limit.algorithm() != Algorithm::kSlidingWindow && is_known) {
    const Decision exact = Decide(limit, seen, TimePoint{Micros{seen.now_us}}, cost);
    foreseen.retry_after = exact.retry_after;
    foreseen.delay = exact.delay;
  } else if (!foreseen.allowed) {
    const bool oldest_is_enough = is_known && seen.a + cost - limit.amount() == 1;
    const Micros oldest_leaves = limit.span() + Micros{seen.c - std::max(seen.now_us, seen.b)};
    foreseen.retry_after = oldest_is_enough ? oldest_leaves : look.reset_after;
  }
  return foreseen;
}

// Whole units that count as used in a state as it was seen, perhaps more than the limit grants.
inline std::int64_t UsedUnits(const Limit& limit, const SeenState& seen) {
  const TimePoint now{Micros{seen.now_us}};
  switch (limit.algorithm()) {
    case Algorithm::kTokenBucket:
    case Algorithm::kLeakyBucket:
    case Algorithm::kGcra:
      return UsedUnits(limit, BucketState{.level = seen.a, .time = seen.b}, now);
    case Algorithm::kFixedWindow:
      return seen.b;
    case Algorithm::kSlidingWindowCounter:
      return UsedUnits(limit, CounterState{.window = seen.a, .previous = seen.b, .current = seen.c},
                       now);
    case Algorithm::kSlidingWindow:
      return seen.a;
  }
  std::unreachable();
}

// What is known of a log that was seen, at a later `now` of the same clock, but for `leaves`. Once
// the oldest has left, and until the newest has, `used` is more than is left of it.
inline LogFacts FactsOf(const Limit& limit, const SeenState& seen, std::int64_t now_us) {
  const bool all_left = seen.b + limit.span().count() <= now_us;
  return {.now_us = std::max(now_us, seen.b),
          .used = all_left ? 0 : seen.a,
          .newest = seen.b,
          .oldest = seen.c,
          .leaves = 0};
}

// LogFacts::leaves of the decision, a denial, that left the log as it was seen.
inline std::int64_t LeavesOf(const Limit& limit, const SeenState& seen, const Decision& denial) {
  return std::max(seen.now_us, seen.b) + (denial.retry_after - limit.span()).count();
}

}  // namespace sluice::core
