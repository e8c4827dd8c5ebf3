// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "sluice/time.h"

namespace sluice::lease {

// What is known of a server's clock: no moment, but two that it lies between. The own clock, by
// which `now` is given, never goes back, and drifts from the server's by less than a sixty-fourth.
class ServerClock {
 public:
  // The server's clock showed `server` between `sent` and `received`. Returns false if that
  // contradicts what was known: it was set, or it is another server's.
  bool Learn(TimePoint server, TimePoint sent, TimePoint received) {
    const Micros took = received - sent;
    const TimePoint latest = server + took + Drift(took);
    const TimePoint low = std::max(server, Low(received));
    const TimePoint high = std::min(latest, High(received));
    const bool agrees = !known_ || low <= high;
    low_ = known_ && agrees ? low : server;
    high_ = known_ && agrees ? high : latest;
    at_ = received;
    known_ = true;
    return agrees;
  }

  // Not later, and not earlier, than what the server's clock shows. Requires that anything was
  // learned.
  TimePoint Low(TimePoint now) const { return low_ + (now - at_) - Drift(now - at_); }
  TimePoint High(TimePoint now) const { return high_ + (now - at_) + Drift(now - at_); }

  bool known() const { return known_; }

 private:
  static Micros Drift(Micros elapsed) { return elapsed / 64 + Micros{1}; }

  bool known_ = false;
  TimePoint at_;
  TimePoint low_;
  TimePoint high_;
};

}  // namespace sluice::lease
