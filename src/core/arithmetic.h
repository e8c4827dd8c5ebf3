// SPDX-License-Identifier: Apache-2.0
// Arithmetic that all kernels share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/time.h"

namespace sluice::core {

// Up to this, integers are exact in a Redis script, too.
inline constexpr std::int64_t kExactMax = (std::int64_t{1} << 53) - 1;

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

// Microseconds since the epoch.
constexpr std::int64_t Us(TimePoint at) { return at.time_since_epoch().count(); }

constexpr bool InRange(std::int64_t value, std::int64_t max) { return value >= 0 && value <= max; }

// The moment of a decision in the limit's own ticks. Time never runs backwards for a state: a
// moment before `newest` counts as `newest`, and all waits start there.
class Instant {
 public:
  Instant(const Limit& limit, TimePoint now, std::int64_t newest_tick)
      : tick_(limit.tick().count()),
        now_us_(std::max(now.time_since_epoch().count(), newest_tick * tick_)),
        // Division costs more than the rest of a bucket decision, and most limits tick in us.
        ticks_(tick_ == 1 ? now_us_ : now_us_ / tick_) {}

  std::int64_t ticks() const { return ticks_; }

  // The wait until `ticks` ticks from now begin. It is shorter than that many whole ticks by the
  // part of the current one that has passed. Waits that no int64 holds, beyond 292,000 years,
  // saturate.
  Micros Until(std::int64_t ticks) const {
    if (ticks == 0 || tick_ == 1) return Micros{ticks};
    const __int128 wait = static_cast<__int128>(ticks) * tick_ - now_us_ % tick_;
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    return Micros{wait > kMax ? kMax : static_cast<std::int64_t>(wait)};
  }

 private:
  std::int64_t tick_;
  std::int64_t now_us_;
  std::int64_t ticks_;
};

// The latest time that a state can have, in ticks.
inline std::int64_t LastTick(const Limit& limit) {
  return kTimeMax.time_since_epoch() / limit.tick();
}

// A decision and the state that follows it.
template <typename State>
struct Step {
  Decision decision;
  State next;  // To be stored if and only if the decision is allowed and the cost above zero.
};

// Units that are given back as if they had never been taken.
struct Untaken {
  TimePoint now;
  TimePoint taken;  // When they were taken.
  std::int64_t units;
  std::int64_t held;  // What is on hold afterwards; a bucket holds less for as long.
};

// The numbers that a kernel computes with; see Limit.
struct Arithmetic {
  Micros tick;
  std::int64_t unit;
  std::int64_t rate;
};

inline constexpr std::array kTicks = {Micros{1}, Micros{1'000}, Micros{1'000'000}};

}  // namespace sluice::core
