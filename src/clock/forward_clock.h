// SPDX-License-Identifier: Apache-2.0
// A wall clock that a service can rely on.
#pragma once

#include <atomic>
#include <cstdint>

#include "sluice/time.h"

namespace sluice {

// Starts with the wall clock's time, and then advances at the pace of a clock that nobody sets. If
// the wall clock is set back, it does not follow: holding time still for states from the future
// would lock their keys out for as long. If the wall clock is set forward, it follows on CatchUp,
// unless the reading cannot be true.
class ForwardClock final : public Clock {
 public:
  // The latest time that is believed. There is no arithmetic beyond kTimeMax: a clock that gets to
  // here by mistake has ten years left.
  static constexpr TimePoint kBelievedMax = kTimeMax - std::chrono::years{10};

  // Both must outlive it. It follows `wall`; `pace` is never set. If the wall clock's reading
  // cannot be true, time starts at the epoch until it can.
  ForwardClock(const Clock& wall, const Clock& pace);

  TimePoint Now() const override {
    return pace_.Now() + Micros{ahead_us_.load(std::memory_order_relaxed)};
  }

  // Call from one thread at a time. Catches up with the wall clock; returns by how much it was
  // ahead.
  Micros CatchUp();

  // Whether the last reading of the wall clock can be true.
  bool believed() const { return believed_.load(std::memory_order_relaxed); }

 private:
  static bool CanBeTrue(TimePoint wall) { return wall >= TimePoint{} && wall <= kBelievedMax; }

  const Clock& wall_;
  const Clock& pace_;
  std::atomic<std::int64_t> ahead_us_ = 0;  // By how much the wall clock is ahead of `pace`.
  std::atomic<bool> believed_ = false;
};

// Microseconds since the system started, including the time it was suspended.
const Clock& BootClock();

}  // namespace sluice
