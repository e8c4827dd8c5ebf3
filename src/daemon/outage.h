// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

namespace sluice::daemon {

// Decides when to log an outage: when it begins, once a minute while it lasts, and when it is over.
// The caller has the clock and writes the lines.
class Outage {
 public:
  using Steady = std::chrono::steady_clock;

  static constexpr std::chrono::minutes kLineEvery{1};

  // It failed. Returns whether to log it.
  bool Failed(Steady::time_point now) {
    if (since_ && now < next_line_) return false;
    if (!since_) since_ = now;
    next_line_ = now + kLineEvery;
    return true;
  }

  // It worked. Returns how long it did not, if the outage has just ended.
  std::optional<Steady::duration> Worked(Steady::time_point now) {
    if (!since_) return std::nullopt;
    const Steady::duration lasted = now - *since_;
    since_.reset();
    return lasted;
  }

 private:
  std::optional<Steady::time_point> since_;
  Steady::time_point next_line_;  // During an outage.
};

}  // namespace sluice::daemon
