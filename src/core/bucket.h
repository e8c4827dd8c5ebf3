// SPDX-License-Identifier: Apache-2.0
// The kernel of TOKEN_BUCKET, LEAKY_BUCKET and GCRA.
//
// Capacity C, refilled r/p tokens per tick in lowest terms. The level counts in 1/p of a token, so
// refilling adds whole numbers and no fraction is ever lost. All products stay below 2^53 (see
// Limit::tick), except elapsed * r, which is taken in 128 bits before it is capped at C * p.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/instant.h"
#include "sluice/decision.h"
#include "sluice/limit.h"

namespace sluice::core {

// Below this, integers are exact in a Redis script, too.
inline constexpr std::int64_t kExactMax = (std::int64_t{1} << 53) - 1;

struct BucketState {
  // At most limit.whole(). Negative after the limit was lowered below what was used: a debt, of no
  // more than kExactMax less than whole.
  std::int64_t level;
  std::int64_t time;  // In ticks; when the level was last written.

  friend bool operator==(const BucketState&, const BucketState&) = default;
};

struct BucketStep {
  Decision decision;
  BucketState next;  // To be stored if and only if the decision is allowed and the cost above zero.
};

inline std::int64_t LevelAt(const Limit& limit, const BucketState& state, std::int64_t ticks) {
  const std::int64_t missing = limit.whole() - state.level;
  const __int128 refilled = static_cast<__int128>(ticks - state.time) * limit.rate();
  return refilled >= missing ? limit.whole() : state.level + static_cast<std::int64_t>(refilled);
}

// `state` is null for an untouched budget; 0 <= cost <= limit.amount().
inline BucketStep Decide(const Limit& limit, const BucketState* state, TimePoint now,
                         std::int64_t cost) {
  const Instant instant(limit, now, state ? state->time : 0);
  const std::int64_t whole = limit.whole();
  const std::int64_t before = state ? LevelAt(limit, *state, instant.ticks()) : whole;
  const std::int64_t needed = cost * limit.unit();
  const bool allowed = before >= needed || cost == 0;
  const std::int64_t level = allowed ? before - needed : before;

  BucketStep step;
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

// The state once up to `units` of what was taken are back; none if nothing is missing.
inline std::optional<BucketState> GiveBack(const Limit& limit, const BucketState& state,
                                           TimePoint now, std::int64_t units) {
  const Instant instant(limit, now, state.time);
  const std::int64_t level = LevelAt(limit, state, instant.ticks());
  const std::int64_t missing = limit.whole() - level;
  if (missing == 0 || units == 0) return std::nullopt;
  // Only where all of it fits is the product sure to.
  const bool all = units >= CeilDiv(missing, limit.unit());
  return BucketState{.level = level + (all ? missing : units * limit.unit()),
                     .time = instant.ticks()};
}

// Whole units used at a moment, rounded up; without an upper bound, as after a lowered limit.
inline std::int64_t UsedUnits(const Limit& limit, const BucketState& state, TimePoint now) {
  const Instant instant(limit, now, state.time);
  return CeilDiv(limit.whole() - LevelAt(limit, state, instant.ticks()), limit.unit());
}

// Whether the state equals an untouched budget by now, so that it may be dropped.
inline bool Recovered(const Limit& limit, const BucketState& state, TimePoint now) {
  const Instant instant(limit, now, state.time);
  // One that was filled by giving back may be from after `now`, if the clock was set back since.
  return LevelAt(limit, state, instant.ticks()) == limit.whole() &&
         Instant(limit, now, 0).ticks() >= state.time;
}

}  // namespace sluice::core
