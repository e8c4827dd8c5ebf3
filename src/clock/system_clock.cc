// SPDX-License-Identifier: Apache-2.0
// The only place that reads the wall clock.
#include "clock/held_reading.h"
#include "sluice/time.h"

namespace sluice {
namespace {

class WallClock final : public Clock {
 public:
  TimePoint Now() const override { return ReadClock<CLOCK_REALTIME>(); }
};

}  // namespace

const Clock& SystemClock() {
  static const WallClock clock;
  return clock;
}

}  // namespace sluice
