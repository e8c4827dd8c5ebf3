// SPDX-License-Identifier: Apache-2.0
// The kernel of FIXED_WINDOW: one count per epoch-aligned window. A burst at the end of one window
// and another at the start of the next both pass; that is a property of this algorithm.
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
struct FixedWindow {
  struct State {
    std::int64_t start;  // In ticks; a multiple of the window.
    std::int64_t count;  // Above limit.amount() if that was lowered below what was used.

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr char kScriptKind = 'w';
  static constexpr bool kSeenComplete = true;
  static constexpr std::int64_t kAmountMax = kExactMax;

  static std::expected<Arithmetic, std::string> Fit(std::int64_t, std::int64_t, Micros window) {
    return Arithmetic{.tick = kTicks.front(), .unit = window / kTicks.front(), .rate = 0};
  }

  [[gnu::always_inline]] static Step<State> Decide(const Limit& limit, const State* state,
                                                   TimePoint now, std::int64_t cost) {
    const Instant instant(limit, now, state ? state->start : 0);
    const std::int64_t elapsed = instant.ticks() % limit.unit();
    const std::int64_t start = instant.ticks() - elapsed;
    const std::int64_t before = state && state->start == start ? state->count : 0;
    const bool allowed = cost <= limit.amount() - before || cost == 0;

    Step<State> step;
    step.next = {.start = start, .count = allowed ? before + cost : before};
    step.decision.allowed = allowed;
    step.decision.limit = limit.amount();
    step.decision.remaining = std::max<std::int64_t>(0, limit.amount() - step.next.count);
    step.decision.reset_after = instant.Until(limit.unit() - elapsed);
    if (!allowed) step.decision.retry_after = step.decision.reset_after;
    return step;
  }

  // Only from the current window.
  static std::optional<State> GiveBack(const Limit& limit, const State& state, TimePoint now,
                                       std::int64_t units) {
    State next = Decide(limit, &state, now, 0).next;
    const std::int64_t given = std::min(units, next.count);
    if (given == 0) return std::nullopt;
    next.count -= given;
    return next;
  }

  // Only from the current window.
  static State Untake(const Limit& limit, const State& state, const Untaken& untaken) {
    State next = Decide(limit, &state, untaken.now, 0).next;
    const std::int64_t taken = Instant(limit, untaken.taken, 0).ticks();
    if (taken - taken % limit.unit() == next.start) {
      next.count -= std::min(untaken.units, next.count);
    }
    return next;
  }

  static State Overdraw(const Limit& limit, const State& state, TimePoint now, std::int64_t units) {
    State next = Decide(limit, &state, now, 0).next;
    next.count += std::min(units, kExactMax - next.count);
    return next;
  }

  static std::int64_t UsedUnits(const Limit& limit, const State& state, TimePoint now) {
    return Decide(limit, &state, now, 0).next.count;
  }

  static bool Recovered(const Limit& limit, const State& state, TimePoint now) {
    // A state that got everything back may be dated after `now`, if the clock was set back since.
    const std::int64_t ticks = Instant(limit, now, 0).ticks();
    return ticks >= state.start + (state.count > 0 ? limit.unit() : 0);
  }

  static std::int64_t RecoveryTicks(const Limit& limit) { return limit.unit(); }

  static std::int64_t NewestTick(const Limit&, const State& state) { return state.start; }

  static std::optional<State> Carry(const Limit& from, const State& state, const Limit& to) {
    return from.span() == to.span() ? std::optional(state) : std::nullopt;
  }

  static State Start(const Limit& to, TimePoint now, std::int64_t used) {
    const std::int64_t ticks = Instant(to, now, 0).ticks();
    return {.start = ticks - ticks % to.unit(), .count = used};
  }

  static bool IsSound(const Limit& limit, const State& state, TimePoint) {
    return InRange(state.start, LastTick(limit)) && state.start % limit.unit() == 0 &&
           InRange(state.count, kExactMax);
  }

  static std::int64_t LeftAt(const Limit& limit, std::int64_t now_us) {
    const std::int64_t window = limit.span().count();
    return now_us - now_us % window + window;
  }

  static State UsedUntil(const Limit& limit, std::int64_t units, std::int64_t until_us) {
    const std::int64_t windows = until_us / limit.span().count();
    return {.start = std::max<std::int64_t>(0, windows - 1) * limit.unit(), .count = units};
  }
};

}  // namespace sluice::core
