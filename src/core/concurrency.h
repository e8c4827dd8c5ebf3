// SPDX-License-Identifier: Apache-2.0
// The kernel of CONCURRENCY: at most so many units on hold at a time. The holds themselves are kept
// by the store, each as a record of its own; the state is only their sum.
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
struct Concurrency {
  struct State {
    std::int64_t held;   // Above limit.amount() if that was lowered since.
    std::int64_t until;  // When the last of them expires.

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr char kScriptKind = 'n';
  static constexpr bool kSeenComplete = false;
  static constexpr std::int64_t kAmountMax = kExactMax;

  static std::expected<Arithmetic, std::string> Fit(std::int64_t amount, std::int64_t, Micros ttl);

  static std::int64_t HeldAt(const State* state, std::int64_t now_us) {
    return state && state->until > now_us ? state->held : 0;
  }

  // `retry_after` is the longest that a denied hold may have to wait: only the records know when
  // enough of them will have expired.
  static Step<State> Decide(const Limit& limit, const State* state, TimePoint now,
                            std::int64_t cost) {
    const std::int64_t now_us = now.time_since_epoch().count();
    const std::int64_t held = HeldAt(state, now_us);
    const std::int64_t room = limit.amount() - held;
    Step<State> step;
    step.decision.allowed = cost <= room || cost == 0;
    step.decision.limit = limit.amount();
    step.decision.remaining = std::max<std::int64_t>(0, step.decision.allowed ? room - cost : room);
    const std::int64_t until = state ? std::max(state->until, now_us) : now_us;
    step.decision.reset_after = Micros{until - now_us};
    if (!step.decision.allowed) step.decision.retry_after = step.decision.reset_after;
    step.next = {.held = held, .until = until > now_us ? until : 0};
    return step;
  }

  // What is on hold is released, not given back.
  static std::optional<State> GiveBack(const Limit&, const State&, TimePoint, std::int64_t) {
    return std::nullopt;
  }
  static State Untake(const Limit&, const State& state, const Untaken&) { return state; }
  static State Overdraw(const Limit&, const State& state, TimePoint, std::int64_t) { return state; }

  static std::int64_t UsedUnits(const Limit&, const State& state, TimePoint now) {
    return HeldAt(&state, now.time_since_epoch().count());
  }

  static bool Recovered(const Limit&, const State& state, TimePoint now) {
    return state.until <= now.time_since_epoch().count();
  }

  static std::int64_t RecoveryTicks(const Limit&) { return 0; }

  // Nothing orders holds but their own expiry.
  static std::int64_t NewestTick(const Limit&, const State&) { return 0; }

  static std::optional<State> Carry(const Limit&, const State& state, const Limit&) {
    return state;
  }

  // What another limit counted as used occupies nothing, except for what is on hold.
  static State Start(const Limit&, TimePoint, std::int64_t) { return {}; }

  static bool IsSound(const Limit&, const State& state, TimePoint) {
    return InRange(state.held, kExactMax) && InRange(state.until, kExactMax);
  }

  static std::int64_t LeftAt(const Limit& limit, std::int64_t now_us) {
    return now_us + limit.span().count();
  }

  static State UsedUntil(const Limit&, std::int64_t units, std::int64_t until_us) {
    return {.held = units, .until = until_us};
  }
};

}  // namespace sluice::core
