// SPDX-License-Identifier: Apache-2.0
#include "clock/held_reading.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr timespec At(std::int64_t seconds, std::int64_t ns) {
  return {.tv_sec = seconds, .tv_nsec = ns};
}

TEST(HeldReading, HoldsNothingAtFirst) {
  EXPECT_FALSE(HeldReading().Holds(0));
  EXPECT_FALSE(HeldReading().Holds(1));
}

TEST(HeldReading, HoldsUntilItsMicrosecondIsOver) {
  HeldReading held;
  held.Keep(At(7, 5'400), 1'000, 2'000);  // Two ticks a nanosecond, and 600 ns left.
  EXPECT_EQ(held.now(), TimePoint{7s + 5us});
  EXPECT_TRUE(held.Holds(1'000));
  EXPECT_TRUE(held.Holds(2'199));
  EXPECT_FALSE(held.Holds(2'200));
}

TEST(HeldReading, EndsIfTheCounterGoesBack) {
  HeldReading held;
  held.Keep(At(7, 5'000), 1'000, 2'000);
  EXPECT_FALSE(held.Holds(999));
  EXPECT_FALSE(held.Holds(0));
}

TEST(HeldReading, HoldsNothingWhileTheRateIsNotKnown) {
  HeldReading held;
  held.Keep(At(7, 5'000), 1'000, 0);
  EXPECT_EQ(held.now(), TimePoint{7s + 5us});
  EXPECT_FALSE(held.Holds(1'000));
}

TEST(HeldReading, RoundsDownBefore1970) {
  HeldReading held;
  held.Keep(At(-1, 999'999'999), 0, 0);
  EXPECT_EQ(held.now(), TimePoint{-1us});
}

TEST(TicksPerMicro, IsALittleLessThanMeasured) {
  EXPECT_EQ(TicksPerMicro({1'000, 50}, {25'601'000, 10'000'050}), 2'550U);
  EXPECT_EQ(TicksPerMicro({0, 0}, {2'560'000'000, 1'000'000'000}), 2'550U);
}

TEST(TicksPerMicro, IsNotKnownTooSoon) {
  EXPECT_EQ(TicksPerMicro({0, 0}, {25'600'000, 9'999'999}), 0U);
}

TEST(TicksPerMicro, IsNotBelievedIfTheCounterWasChanged) {
  EXPECT_EQ(TicksPerMicro({1'000, 0}, {1'000, 10'000'000}), 0U);
  EXPECT_EQ(TicksPerMicro({1'000, 0}, {999, 10'000'000}), 0U);
  EXPECT_EQ(TicksPerMicro({0, 0}, {90'000'000, 10'000'000}), 0U);
}

// In steps much shorter than what a reading is held for, and for longer than the rate takes to
// measure.
TEST(SystemClock, IsNeverOlderThanAnotherReading) {
  const auto read = [] {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return TimePoint{std::chrono::seconds{now.tv_sec} + Micros{now.tv_nsec / 1'000}};
  };
  // The two may be read in either order, if they are read at once.
  constexpr Micros kAtOnce{1};
  const TimePoint start = read();
  while (read() < start + 50ms) {
    const TimePoint before = read();
    const TimePoint now = SystemClock().Now();
    const TimePoint after = read();
    ASSERT_GE(now, before - kAtOnce);
    ASSERT_LE(now, after + kAtOnce);
  }
}

}  // namespace
}  // namespace sluice
