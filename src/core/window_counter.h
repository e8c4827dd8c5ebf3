// SPDX-License-Identifier: Apache-2.0
// The kernel of SLIDING_WINDOW_COUNTER: the counts of two epoch-aligned windows, the older one
// weighted by how much of it the sliding window still covers. In integers: with e ticks of the
// current window W passed, weighted = previous * (W - e) + current * W, compared against N * W.
#pragma once

#include <algorithm>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>

#include "core/arithmetic.h"
#include "sluice/limit.h"

namespace sluice::core {

// core/kernel.h describes the members that all kernels have.
struct WindowCounter {
  // Takes 144 bits in the memory store: 52 for the window, and 46 for each count.
  struct State {
    std::int64_t window;    // Number of the current window since the epoch.
    std::int64_t previous;  // Above limit.amount(), but not CountMax, after that was lowered;
                            // as is `current`.
    std::int64_t current;

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr char kScriptKind = 'c';
  static constexpr bool kSeenComplete = true;
  static constexpr std::int64_t kAmountMax = (std::int64_t{1} << 46) - 1;

  // The largest count that the arithmetic can handle; anything above it has the same effect.
  static std::int64_t CountMax(const Limit& limit) {
    return std::min(kAmountMax, 256 * limit.amount());
  }

  static std::expected<Arithmetic, std::string> Fit(std::int64_t amount, std::int64_t,
                                                    Micros window);

  // The counts as seen from window number `window`, which is not before the state's own.
  static State CountsIn(std::int64_t window, const State* state) {
    if (state && state->window == window) return *state;
    const bool adjacent = state && state->window == window - 1;
    return {.window = window, .previous = adjacent ? state->current : 0, .current = 0};
  }

  // Ticks from `elapsed` in the current window until a denied request of `cost` fits.
  static std::int64_t TicksUntilFit(const Limit& limit, const State& counts, std::int64_t elapsed,
                                    std::int64_t cost) {
    const std::int64_t window = limit.unit();
    // In this window only the weight of `previous` falls. The request fits once
    // previous * (W - e) <= room * W, that is from e = W - floor(room * W / previous) on.
    const std::int64_t room = limit.amount() - cost - counts.current;
    if (room >= 0) return window - room * window / counts.previous - elapsed;
    // In the next window it is `current` whose weight falls.
    const std::int64_t room_next = limit.amount() - cost;
    return window - elapsed + window - room_next * window / counts.current;
  }

  [[gnu::always_inline]] static Step<State> Decide(const Limit& limit, const State* state,
                                                   TimePoint now, std::int64_t cost) {
    const std::int64_t window = limit.unit();
    const Instant instant(limit, now, state ? state->window * window : 0);
    const std::int64_t elapsed = instant.ticks() % window;
    State counts = CountsIn(instant.ticks() / window, state);

    const std::int64_t before = counts.previous * (window - elapsed) + counts.current * window;
    const std::int64_t free = limit.whole() - before;
    // Free may be negative: a clock set back inside the window raises the weight of `previous`.
    const bool allowed = cost * window <= free || cost == 0;

    Step<State> step;
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

  // From the current window first.
  static std::optional<State> GiveBack(const Limit& limit, const State& state, TimePoint now,
                                       std::int64_t units) {
    State next = Decide(limit, &state, now, 0).next;
    const std::int64_t of_current = std::min(units, next.current);
    const std::int64_t of_previous = std::min(units - of_current, next.previous);
    if (of_current + of_previous == 0) return std::nullopt;
    next.current -= of_current;
    next.previous -= of_previous;
    return next;
  }

  // Only from the window in which they were taken.
  static State Untake(const Limit& limit, const State& state, const Untaken& untaken) {
    State next = Decide(limit, &state, untaken.now, 0).next;
    const std::int64_t window = Instant(limit, untaken.taken, 0).ticks() / limit.unit();
    if (window == next.window) {
      next.current -= std::min(untaken.units, next.current);
    } else if (window == next.window - 1) {
      next.previous -= std::min(untaken.units, next.previous);
    }
    return next;
  }

  static State Overdraw(const Limit& limit, const State& state, TimePoint now, std::int64_t units) {
    State next = Decide(limit, &state, now, 0).next;
    next.current += std::min(units, CountMax(limit) - next.current);
    return next;
  }

  static std::int64_t UsedUnits(const Limit& limit, const State& state, TimePoint now) {
    const std::int64_t window = limit.unit();
    const Instant instant(limit, now, state.window * window);
    const State counts = CountsIn(instant.ticks() / window, &state);
    const std::int64_t elapsed = instant.ticks() % window;
    return CeilDiv(counts.previous * (window - elapsed), window) + counts.current;
  }

  static bool Recovered(const Limit& limit, const State& state, TimePoint now) {
    const std::int64_t windows = state.current > 0 ? 2 : state.previous > 0 ? 1 : 0;
    // A state that got everything back may be dated after `now`, if the clock was set back since.
    return Instant(limit, now, 0).ticks() >= (state.window + windows) * limit.unit();
  }

  static std::int64_t RecoveryTicks(const Limit& limit) { return limit.unit(); }

  static std::int64_t NewestTick(const Limit& limit, const State& state) {
    return state.window * limit.unit();
  }

  static std::optional<State> Carry(const Limit& from, const State& state, const Limit& to) {
    if (from.span() != to.span()) return std::nullopt;
    return State{.window = state.window,
                 .previous = std::min(state.previous, CountMax(to)),
                 .current = std::min(state.current, CountMax(to))};
  }

  static State Start(const Limit& to, TimePoint now, std::int64_t used) {
    return {.window = Instant(to, now, 0).ticks() / to.unit(),
            .previous = 0,
            .current = std::min(used, CountMax(to))};
  }

  static bool IsSound(const Limit& limit, const State& state, TimePoint) {
    const std::int64_t most = CountMax(limit);
    return InRange(state.window, LastTick(limit) / limit.unit()) && InRange(state.previous, most) &&
           InRange(state.current, most);
  }

  static std::int64_t LeftAt(const Limit& limit, std::int64_t now_us) {
    const std::int64_t window = limit.span().count();
    return now_us - now_us % window + 2 * window;
  }

  static State UsedUntil(const Limit& limit, std::int64_t units, std::int64_t until_us) {
    const std::int64_t windows = until_us / limit.span().count();
    return {.window = std::max<std::int64_t>(0, windows - 2),
            .previous = 0,
            .current = std::min(units, CountMax(limit))};
  }
};

}  // namespace sluice::core
