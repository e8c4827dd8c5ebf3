// SPDX-License-Identifier: Apache-2.0
// The wall clock as a service can rely on it.
#pragma once

#include <atomic>
#include <cstdint>

#include "sluice/time.h"

namespace sluice {

// Is right when it is made, and then goes on at the pace of a clock that nobody sets. A wall clock
// that was set back is not followed: time held for states from ahead would lock their keys out for
// as long. One that was set forward is, when told to, unless what it reads cannot be true.
class ForwardClock final : public Clock {
 public:
  // The latest time that is believed. There is no arithmetic beyond kTimeMax: a clock that is taken
  // to here by mistake goes on for ten years before it gets there.
  static constexpr TimePoint kBelievedMax = kTimeMax - std::chrono::years{10};

  // Both outlive it: `wall` is to be followed, `pace` is never set. If what the wall clock reads
  // cannot be true, time starts with the epoch until it can.
  ForwardClock(const Clock& wall, const Clock& pace);

  TimePoint Now() const override {
    return pace_.Now() + Micros{ahead_us_.load(std::memory_order_relaxed)};
  }

  // From one thread at a time. Returns by how much the wall clock was ahead, which it then is not.
  Micros CatchUp();

  // Whether what the wall clock read when last looked at can be true.
  bool believed() const { return believed_.load(std::memory_order_relaxed); }

 private:
  static bool CanBeTrue(TimePoint wall) { return wall >= TimePoint{} && wall <= kBelievedMax; }

  const Clock& wall_;
  const Clock& pace_;
  std::atomic<std::int64_t> ahead_us_ = 0;  // Of the wall clock before the other.
  std::atomic<bool> believed_ = false;
};

// Microseconds since the system started, which count on while it sleeps.
const Clock& BootClock();

}  // namespace sluice
