// SPDX-License-Identifier: Apache-2.0
#include "clock/forward_clock.h"

#include <time.h>

namespace sluice {
namespace {

class SystemBootClock final : public Clock {
 public:
  TimePoint Now() const override {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return TimePoint{Micros{now.tv_sec * 1'000'000 + now.tv_nsec / 1'000}};
  }
};

}  // namespace

const Clock& BootClock() {
  static const SystemBootClock clock;
  return clock;
}

ForwardClock::ForwardClock(const Clock& wall, const Clock& pace) : wall_(wall), pace_(pace) {
  const TimePoint now = wall.Now();
  if (!CanBeTrue(now)) return;
  believed_ = true;
  ahead_us_ = (now - pace.Now()).count();
}

Micros ForwardClock::CatchUp() {
  const TimePoint wall = wall_.Now();
  believed_.store(CanBeTrue(wall), std::memory_order_relaxed);
  if (!CanBeTrue(wall)) return Micros{0};
  const Micros behind = wall - Now();
  if (behind <= Micros{0}) return Micros{0};
  ahead_us_.fetch_add(behind.count(), std::memory_order_relaxed);
  return behind;
}

}  // namespace sluice
