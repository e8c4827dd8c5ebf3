// SPDX-License-Identifier: Apache-2.0
// The kernel of SLIDING_WINDOW_COUNTER: the counts of two epoch-aligned windows, the older one
// weighted by how much of it the sliding window still covers. In integers: with e ticks of the
// current window W passed, weighted = previous * (W - e) + current * W, compared against N * W.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/instant.h"
#include "sluice/decision.h"
#include "sluice/limit.h"

namespace sluice::core {

struct CounterState {
  std::int64_t window;    // Number of the current window since the epoch.
  std::int64_t previous;  // Above limit.amount(), but not CountMax, after that was lowered;
                          // as is `current`.
  std::int64_t current;

  friend bool operator==(const CounterState&, const CounterState&) = default;
};

// A stored state is 144 bits: a 52-bit window number and two counts of 46 bits.
inline constexpr std::int64_t kCounterAmountMax = (std::int64_t{1} << 46) - 1;

// The largest count that the arithmetic bears; more is as good as this.
inline std::int64_t CountMax(const Limit& limit) {
  return std::min(kCounterAmountMax, 256 * limit.amount());
}

struct CounterStep {
  Decision decision;
  CounterState
      next;  // To be stored if and only if the decision is allowed and the cost above zero.
};

// The counts as seen from window number `window`, which is not before the state's own.
inline CounterState CountsIn(std::int64_t window, const CounterState* state) {
  if (state && state->window == window) return *state;
  const bool adjacent = state && state->window == window - 1;
  return {.window = window, .previous = adjacent ? state->current : 0, .current = 0};
}

// Ticks from `elapsed` in the current window until a denied request of `cost` fits.
inline std::int64_t TicksUntilFit(const Limit& limit, const CounterState& counts,
                                  std::int64_t elapsed, std::int64_t cost) {
  const std::int64_t window = limit.unit();
  // In this window only the weight of `previous` falls. The request fits once
  // previous * (W - e) <= room * W, that is from e = W - floor(room * W / previous) on.
  const std::int64_t room = limit.amount() - cost - counts.current;
  if (room >= 0) return window - room * window / counts.previous - elapsed;
  // In the next window `current` has become the one whose weight falls.
  const std::int64_t room_next = limit.amount() - cost;
  return window - elapsed + window - room_next * window / counts.current;
}

// `state` is null for an untouched budget; 0 <= cost <= limit.amount().
inline CounterStep Decide(const Limit& limit, const CounterState* state, TimePoint now,
                          std::int64_t cost) {
  const std::int64_t window = limit.unit();
  const Instant instant(limit, now, state ? state->window * window : 0);
  const std::int64_t elapsed = instant.ticks() % window;
  CounterState counts = CountsIn(instant.ticks() / window, state);

  const std::int64_t before = counts.previous * (window - elapsed) + counts.current * window;
  const std::int64_t free = limit.whole() - before;
  // Free may be negative: a clock set back inside the window raises the weight of `previous`.
  const bool allowed = cost * window <= free || cost == 0;

  CounterStep step;
  step.decision.allowed = allowed;
  step.decision.limit = limit.amount();
  if (allowed) {
    counts.current += cost;
    step.decision.remaining = std::max<std::int64_t>(0, free - cost * window) / window;
  } else {
    step.decision.remaining = std::max<std::int64_t>(0, free) / window;
    step.decision.retry_after = instant.Until(TicksUntilFit(limit, counts, elapsed, cost));
  }
  const std::int64_t windows_to_forget = counts.current > 0 ? 2 : counts.previous > 0 ? 1 : 0;
  step.decision.reset_after =
      instant.Until(windows_to_forget == 0 ? 0 : windows_to_forget * window - elapsed);
  step.next = counts;
  return step;
}

// The state once up to `units` of what was taken are back, of the current window first; none if
// nothing was taken in either.
inline std::optional<CounterState> GiveBack(const Limit& limit, const CounterState& state,
                                            TimePoint now, std::int64_t units) {
  CounterState next = Decide(limit, &state, now, 0).next;
  const std::int64_t of_current = std::min(units, next.current);
  const std::int64_t of_previous = std::min(units - of_current, next.previous);
  if (of_current + of_previous == 0) return std::nullopt;
  next.current -= of_current;
  next.previous -= of_previous;
  return next;
}

// Whole units used at a moment, rounded up; without an upper bound, as after a lowered limit.
inline std::int64_t UsedUnits(const Limit& limit, const CounterState& state, TimePoint now) {
  const std::int64_t window = limit.unit();
  const Instant instant(limit, now, state.window * window);
  const CounterState counts = CountsIn(instant.ticks() / window, &state);
  const std::int64_t elapsed = instant.ticks() % window;
  return CeilDiv(counts.previous * (window - elapsed), window) + counts.current;
}

// Whether the state equals an untouched budget by now, so that it may be dropped.
inline bool Recovered(const Limit& limit, const CounterState& state, TimePoint now) {
  const std::int64_t windows = state.current > 0 ? 2 : state.previous > 0 ? 1 : 0;
  // One that all was given back to may be from after `now`, if the clock was set back since.
  return Instant(limit, now, 0).ticks() >= (state.window + windows) * limit.unit();
}

}  // namespace sluice::core
