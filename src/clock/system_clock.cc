// SPDX-License-Identifier: Apache-2.0
// The only place that reads the wall clock.
#include "sluice/time.h"

namespace sluice {
namespace {

class WallClock final : public Clock {
 public:
  TimePoint Now() const override {
    return std::chrono::floor<Micros>(std::chrono::system_clock::now());
  }
};

}  // namespace

const Clock& SystemClock() {
  static const WallClock clock;
  return clock;
}

}  // namespace sluice
