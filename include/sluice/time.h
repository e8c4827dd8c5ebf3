// SPDX-License-Identifier: Apache-2.0
// Time as the library sees it: whole microseconds since the Unix epoch.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sluice {

using Micros = std::chrono::microseconds;
using TimePoint = std::chrono::sys_time<Micros>;

// The largest time and the longest period or window. Their sum stays below 2^53, up to which a
// Redis script represents integers exactly. 2^52 microseconds reach into the year 2112.
inline constexpr Micros kSpanMax{std::int64_t{1} << 52};
inline constexpr TimePoint kTimeMax{kSpanMax - Micros{1}};

// How long a hold may last.
inline constexpr Micros kHoldTtlMin{std::chrono::milliseconds{1}};
inline constexpr Micros kHoldTtlMax{std::chrono::hours{24}};

// A source of time. Implementations are safe to call from any thread and do not block.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The operating system's wall clock. The object lives as long as the program.
const Clock& SystemClock();

// A clock that moves only when it is set: for tests, simulations and replays.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimePoint start = TimePoint{}) : now_us_(start.time_since_epoch().count()) {}

  TimePoint Now() const override {
    return TimePoint{Micros{now_us_.load(std::memory_order_relaxed)}};
  }
  void Set(TimePoint now) {
    now_us_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  void Advance(Micros by) { now_us_.fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> now_us_;
};

}  // namespace sluice
