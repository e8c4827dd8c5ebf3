// SPDX-License-Identifier: Apache-2.0
// Times as protobuf has them.
#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "sluice/time.h"

namespace sluice::grpc {

// The maximum of google.protobuf.Duration, some 10,000 years: JSON cannot represent more.
inline constexpr std::int64_t kDurationSecondsMax = 315'576'000'000;

// Not for negative times.
inline void Set(google::protobuf::Duration& out, Micros duration) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
  const std::chrono::nanoseconds rest = duration - seconds;
  const bool fits = seconds.count() < kDurationSecondsMax;
  out.set_seconds(fits ? seconds.count() : kDurationSecondsMax);
  out.set_nanos(fits ? static_cast<std::int32_t>(rest.count()) : 0);
}

inline void Set(google::protobuf::Timestamp& out, TimePoint time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const std::chrono::nanoseconds rest = time - seconds;
  out.set_seconds(seconds.time_since_epoch().count());
  out.set_nanos(static_cast<std::int32_t>(rest.count()));
}

}  // namespace sluice::grpc
