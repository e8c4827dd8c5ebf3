// SPDX-License-Identifier: Apache-2.0
// The kernel of TOKEN_BUCKET, LEAKY_BUCKET and GCRA.
//
// Capacity C, refilled r/p tokens per tick in lowest terms. The level counts in 1/p of a token, so
// refilling adds whole numbers and no fraction is ever lost. All products stay below 2^53 (see
// Limit::tick), except elapsed * r, which is taken in 128 bits before it is capped at C * p.
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
struct Bucket {
  struct State {
    // At most limit.whole(). Negative after the limit was lowered below what was used: a debt, at
    // most kExactMax below limit.whole().
    std::int64_t level;
    std::int64_t time;  // In ticks; when the level was last written.

    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr char kScriptKind = 'b';
  static constexpr bool kSeenComplete = true;
  static constexpr std::int64_t kAmountMax = kExactMax;

  static std::expected<Arithmetic, std::string> Fit(std::int64_t amount, std::int64_t refill,
                                                    Micros period);

  static std::int64_t LevelAt(const Limit& limit, const State& state, std::int64_t ticks) {
    const std::int64_t missing = limit.whole() - state.level;
    const __int128 refilled = static_cast<__int128>(ticks - state.time) * limit.rate();
    return refilled >= missing ? limit.whole() : state.level + static_cast<std::int64_t>(refilled);
  }

  [[gnu::always_inline]] static Step<State> Decide(const Limit& limit, const State* state,
                                                   TimePoint now, std::int64_t cost) {
    const Instant instant(limit, now, state ? state->time : 0);
    const std::int64_t whole = limit.whole();
    const std::int64_t before = state ? LevelAt(limit, *state, instant.ticks()) : whole;
    const std::int64_t needed = cost * limit.unit();
    const bool allowed = before >= needed || cost == 0;
    const std::int64_t level = allowed ? before - needed : before;

    Step<State> step;
    step.next = {.level = level, .time = instant.ticks()};
    step.decision.allowed = allowed;
    step.decision.limit = limit.amount();
    step.decision.remaining = std::max<std::int64_t>(0, level) / limit.unit();
    step.decision.reset_after = instant.Until(CeilDiv(whole - level, limit.rate()));
    if (!allowed) {
      step.decision.retry_after = instant.Until(CeilDiv(needed - before, limit.rate()));
    } else if (limit.algorithm() == Algorithm::kLeakyBucket) {
      step.decision.delay = instant.Until(CeilDiv(whole - before, limit.rate()));
    }
    return step;
  }

  static std::optional<State> GiveBack(const Limit& limit, const State& state, TimePoint now,
                                       std::int64_t units) {
    const Instant instant(limit, now, state.time);
    const std::int64_t level = LevelAt(limit, state, instant.ticks());
    const std::int64_t missing = limit.whole() - level;
    if (missing == 0 || units == 0) return std::nullopt;
    // The product is sure to fit only if it is less than `missing`.
    const bool all = units >= CeilDiv(missing, limit.unit());
    return State{.level = level + (all ? missing : units * limit.unit()), .time = instant.ticks()};
  }

  static State Capped(const Limit& limit, const State& state, TimePoint now, std::int64_t held) {
    const Instant instant(limit, now, state.time);
    const std::int64_t room = limit.whole() - std::min(held, limit.amount()) * limit.unit();
    // Above the cap only if the limit was lowered while units were on hold.
    const std::int64_t cap = std::max(room, state.level);
    return {.level = std::min(cap, LevelAt(limit, state, instant.ticks())),
            .time = instant.ticks()};
  }

  // The state is that of `now`; see Capped.
  static State Untake(const Limit& limit, const State& state, const Untaken& untaken) {
    const std::int64_t room =
        limit.whole() - std::min(untaken.held, limit.amount()) * limit.unit() - state.level;
    if (room <= 0) return state;
    // The product is sure to fit only if it is less than the room.
    const bool all = untaken.units >= CeilDiv(room, limit.unit());
    return {.level = state.level + (all ? room : untaken.units * limit.unit()), .time = state.time};
  }

  static State Overdraw(const Limit& limit, const State& state, TimePoint now, std::int64_t units) {
    const Instant instant(limit, now, state.time);
    const std::int64_t level = LevelAt(limit, state, instant.ticks());
    const std::int64_t lowest = limit.whole() - kExactMax;
    const bool bearable = units <= (level - lowest) / limit.unit();
    return {.level = bearable ? level - units * limit.unit() : lowest, .time = instant.ticks()};
  }

  static std::int64_t UsedUnits(const Limit& limit, const State& state, TimePoint now) {
    const Instant instant(limit, now, state.time);
    return CeilDiv(limit.whole() - LevelAt(limit, state, instant.ticks()), limit.unit());
  }

  static bool Recovered(const Limit& limit, const State& state, TimePoint now) {
    const Instant instant(limit, now, state.time);
    // A bucket that was filled by giving back may be dated after `now`, if the clock was set back
    // since.
    return LevelAt(limit, state, instant.ticks()) == limit.whole() &&
           Instant(limit, now, 0).ticks() >= state.time;
  }

  static std::int64_t RecoveryTicks(const Limit& limit) {
    return CeilDiv(limit.whole(), limit.rate());
  }

  static std::int64_t NewestTick(const Limit&, const State& state) { return state.time; }

  static std::optional<State> Carry(const Limit& from, const State& state, const Limit& to) {
    if (from.unit() != to.unit() || from.rate() != to.rate() || from.tick() != to.tick()) {
      return std::nullopt;
    }
    return State{.level = to.whole() - std::min(from.whole() - state.level, kExactMax),
                 .time = state.time};
  }

  static State Start(const Limit& to, TimePoint now, std::int64_t used) {
    const std::int64_t bearable = std::min(used, kExactMax / to.unit());
    return {.level = to.whole() - bearable * to.unit(), .time = Instant(to, now, 0).ticks()};
  }

  static bool IsSound(const Limit& limit, const State& state, TimePoint) {
    return state.level <= limit.whole() && state.level >= limit.whole() - kExactMax &&
           InRange(state.time, LastTick(limit));
  }
};

}  // namespace sluice::core
