// SPDX-License-Identifier: Apache-2.0
// The kernel of CALENDAR: a fixed window whose bounds are those of a calendar in a time zone. What
// the clocks of the zone show is data that the limit refers to; it may change while states live,
// and differ between those who share them. Therefore a state knows its window, and:
//
//   A window is over when one begins, by the data at hand, that is not before its end.
//
// So windows never overlap and never move back, and nobody is granted one twice. When data differs,
// a window may last longer, until the next bound that all agree to be after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "core/arithmetic.h"
#include "sluice/limit.h"

namespace sluice::core {

// Limit::refill of a calendar: what describes its windows, as a number below 2^53.
struct CalendarTerms {
  Every every;
  int anchor;  // Minute of the day, day of the week from Monday (0), day, or 32 * month + day.
  std::uint64_t zone;  // zones::Zone::key

  std::int64_t ToNumber() const;
  static std::optional<CalendarTerms> FromNumber(std::int64_t number);

  // The anchor as it is written, and back; nothing if it is not one of this kind of window. An
  // empty text stands for the first of all.
  std::string AnchorText() const;
  static std::optional<int> AnchorFrom(Every every, std::string_view text);
  static std::string_view AnchorForm(Every every);
};

std::string_view NameOf(Every every);
std::optional<Every> EveryFrom(std::string_view name);

// How long a window is at most, if no clock is changed.
Micros NominalSpan(Every every);

// In microseconds; half-open.
struct CalendarWindow {
  std::int64_t start;
  std::int64_t end;

  friend bool operator==(const CalendarWindow&, const CalendarWindow&) = default;
};

// core/kernel.h describes the members that all kernels have.
struct Calendar {
  // Takes 144 bits in the memory store: 52 for the start, and 46 for each of the others.
  struct State {
    std::int64_t start;
    std::int64_t length;
    std::int64_t count;  // Above limit.amount() if that was lowered below what was used.

    std::int64_t end() const { return start + length; }

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr char kScriptKind = 'k';
  static constexpr bool kSeenComplete = true;
  static constexpr std::int64_t kAmountMax = (std::int64_t{1} << 46) - 1;
  static constexpr std::int64_t kLengthMax = (std::int64_t{1} << 46) - 1;

  static std::expected<Arithmetic, std::string> Fit(std::int64_t, std::int64_t, Micros span) {
    return Arithmetic{.tick = kTicks.front(), .unit = span / kTicks.front(), .rate = 0};
  }

  // The window that contains a moment, in microseconds. The first begins with the epoch.
  static CalendarWindow WindowAt(const Limit& limit, std::int64_t at_us);

  static Step<State> Decide(const Limit& limit, const State* state, TimePoint now,
                            std::int64_t cost) {
    const std::int64_t at = std::max(Us(now), state ? state->start : 0);
    CalendarWindow window = WindowAt(limit, at);
    const bool lasts = state && window.start < state->end();

    Step<State> step;
    step.next = lasts ? *state : StateOf(window, 0);
    const bool allowed = cost <= limit.amount() - step.next.count || cost == 0;
    if (allowed) step.next.count += cost;
    // By other data it may end later.
    if (lasts && state->end() > window.end) window = WindowAt(limit, state->end() - 1);
    step.decision.allowed = allowed;
    step.decision.limit = limit.amount();
    step.decision.remaining = std::max<std::int64_t>(0, limit.amount() - step.next.count);
    step.decision.reset_after = Micros{window.end - at};
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
    if (Us(untaken.taken) >= next.start) next.count -= std::min(untaken.units, next.count);
    return next;
  }

  static State Overdraw(const Limit& limit, const State& state, TimePoint now, std::int64_t units) {
    State next = Decide(limit, &state, now, 0).next;
    next.count += std::min(units, kAmountMax - next.count);
    return next;
  }

  static std::int64_t UsedUnits(const Limit& limit, const State& state, TimePoint now) {
    return Decide(limit, &state, now, 0).next.count;
  }

  static bool Recovered(const Limit& limit, const State& state, TimePoint now) {
    // A state that got everything back may be dated after `now`, if the clock was set back since.
    if (Us(now) < state.start) return false;
    return state.count == 0 || WindowAt(limit, Us(now)).start >= state.end();
  }

  static std::int64_t RecoveryTicks(const Limit& limit) { return limit.unit(); }

  static std::int64_t NewestTick(const Limit&, const State& state) { return state.start; }

  static std::optional<State> Carry(const Limit& from, const State& state, const Limit& to) {
    return from.refill() == to.refill() ? std::optional(state) : std::nullopt;
  }

  static State Start(const Limit& to, TimePoint now, std::int64_t used) {
    return StateOf(WindowAt(to, Us(now)), std::min(used, kAmountMax));
  }

  static bool IsSound(const Limit& limit, const State& state, TimePoint) {
    return InRange(state.start, LastTick(limit)) && state.length >= 1 &&
           InRange(state.length, kLengthMax) && InRange(state.count, kAmountMax);
  }

  static std::int64_t LeftAt(const Limit& limit, std::int64_t now_us) {
    return WindowAt(limit, now_us).end;
  }

  static State UsedUntil(const Limit& limit, std::int64_t units, std::int64_t until_us) {
    const std::int64_t ends = WindowAt(limit, until_us).start;
    return StateOf(WindowAt(limit, std::max<std::int64_t>(0, ends - 1)), units);
  }

 private:
  static State StateOf(const CalendarWindow& window, std::int64_t count) {
    return {.start = window.start, .length = window.end - window.start, .count = count};
  }
};

}  // namespace sluice::core
