// SPDX-License-Identifier: Apache-2.0
// The wall clock as a service can rely on it.
#pragma once

#include <atomic>
#include <cstdint>

#include "sluice/time.h"

namespace sluice {

// Is right when it is made, and then goes on at the pace of a clock that nobody sets. A wall clock
// that was set back is not followed: time held for states from ahead would lock their keys out for
// as long. One that was set forward is, when told to.
class ForwardClock final : public Clock {
 public:
  // Both outlive it: `wall` is to be followed, `pace` is never set.
  ForwardClock(const Clock& wall, const Clock& pace);

  TimePoint Now() const override {
    return pace_.Now() + Micros{ahead_us_.load(std::memory_order_relaxed)};
  }

  // From one thread at a time. Returns by how much the wall clock was ahead, which it then is not.
  Micros CatchUp();

 private:
  const Clock& wall_;
  const Clock& pace_;
  std::atomic<std::int64_t> ahead_us_;  // Of the wall clock before the other.
};

// Microseconds since the system started, which count on while it sleeps.
const Clock& BootClock();

}  // namespace sluice
