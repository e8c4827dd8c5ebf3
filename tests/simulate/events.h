// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace sluice::simulate {

// Something that must not happen.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Virtual time: what happens next, and when. Events at the same time run in the order in which they
// were planned.
class Events {
 public:
  explicit Events(std::int64_t start_us, bool traces) : now_us_(start_us), traces_(traces) {}

  std::int64_t now_us() const { return now_us_; }

  void At(std::int64_t time_us, std::function<void()> what) {
    events_.emplace(std::max(time_us, now_us_), std::move(what));
  }
  void After(std::int64_t micros, std::function<void()> what) {
    At(now_us_ + micros, std::move(what));
  }

  // Runs the next event if it is due by then.
  bool Step(std::int64_t until_us) {
    if (events_.empty() || events_.begin()->first > until_us) return false;
    auto event = events_.extract(events_.begin());
    now_us_ = event.key();
    event.mapped()();
    return true;
  }

  // Prints a line of the trace.
  template <typename... Parts>
  void Trace(const Parts&... parts) {
    if (!traces_) return;
    std::printf("%12.6f  %s\n", static_cast<double>(now_us_ - kEpochUs) / 1e6,
                text::Cat(parts...).c_str());
  }
  bool traces() const { return traces_; }

  // 22:13:55 in UTC.
  static constexpr std::int64_t kEpochUs = 1'700'000'035'000'000;

 private:
  std::int64_t now_us_;
  const bool traces_;
  std::multimap<std::int64_t, std::function<void()>> events_;
};

}  // namespace sluice::simulate
