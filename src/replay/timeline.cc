// SPDX-License-Identifier: Apache-2.0
#include "replay/timeline.h"

#include <array>

namespace sluice::replay {
namespace {

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kMinute = 60 * kSecond;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;

// Readable widths, each a multiple of the one before, so that rows merge exactly. The last covers
// all of time.
constexpr std::array<std::int64_t, 36> kWidths = {1,
                                                  2,
                                                  10,
                                                  20,
                                                  100,
                                                  200,
                                                  1'000,
                                                  2'000,
                                                  10'000,
                                                  20'000,
                                                  100'000,
                                                  200'000,
                                                  kSecond,
                                                  2 * kSecond,
                                                  10 * kSecond,
                                                  20 * kSecond,
                                                  kMinute,
                                                  2 * kMinute,
                                                  10 * kMinute,
                                                  20 * kMinute,
                                                  kHour,
                                                  2 * kHour,
                                                  6 * kHour,
                                                  12 * kHour,
                                                  kDay,
                                                  2 * kDay,
                                                  10 * kDay,
                                                  20 * kDay,
                                                  100 * kDay,
                                                  200 * kDay,
                                                  1'000 * kDay,
                                                  2'000 * kDay,
                                                  10'000 * kDay,
                                                  20'000 * kDay,
                                                  100'000 * kDay,
                                                  200'000 * kDay};

}  // namespace

std::int64_t Timeline::width_us() const { return kWidths[step_]; }

void Timeline::Add(std::int64_t time_us, bool allowed) {
  Counts& row = rows_[time_us / width_us()];
  ++(allowed ? row.allowed : row.denied);
  while (rows_.rbegin()->first - rows_.begin()->first >= kRowsMax) Widen();
}

void Timeline::Widen() {
  const std::int64_t factor = kWidths[step_ + 1] / kWidths[step_];
  std::map<std::int64_t, Counts> wider;
  for (const auto& [number, counts] : rows_) {
    Counts& row = wider[number / factor];
    row.allowed += counts.allowed;
    row.denied += counts.denied;
  }
  rows_ = std::move(wider);
  ++step_;
}

}  // namespace sluice::replay
