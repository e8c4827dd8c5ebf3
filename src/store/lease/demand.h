// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "sluice/time.h"

namespace sluice::lease {

// How much is asked for, as an average that follows within 100 ms.
class Demand {
 public:
  static constexpr Micros kHorizon{100'000};
  static constexpr Micros kSample{20'000};

  void Add(std::int64_t units, TimePoint now) {
    Update(now);
    units_ += static_cast<double>(units);
    ++requests_;
  }

  void Update(TimePoint now) {
    const Micros took = now - since_;
    if (took < kSample) return;
    const double seconds = static_cast<double>(took.count()) / 1e6;
    const double part = 1 - std::exp(-static_cast<double>(took.count()) / kHorizon.count());
    units_a_second_ += part * (units_ / seconds - units_a_second_);
    requests_a_second_ += part * (static_cast<double>(requests_) / seconds - requests_a_second_);
    units_ = 0;
    requests_ = 0;
    since_ = now;
  }

  double units_a_second() const { return units_a_second_; }
  double requests_a_second() const { return requests_a_second_; }

 private:
  TimePoint since_;
  double units_ = 0;
  std::int64_t requests_ = 0;
  double units_a_second_ = 0;
  double requests_a_second_ = 0;
};

}  // namespace sluice::lease
