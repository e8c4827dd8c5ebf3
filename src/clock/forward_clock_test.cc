// SPDX-License-Identifier: Apache-2.0
#include "clock/forward_clock.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{1'000'000s};

TEST(ForwardClock, KeepsThePaceWhateverTheWallClockDoes) {
  ManualClock wall(kStart);
  ManualClock pace(TimePoint{7s});
  ForwardClock clock(wall, pace);
  EXPECT_EQ(clock.Now(), kStart);
  pace.Advance(5us);
  EXPECT_EQ(clock.Now(), kStart + 5us);
  for (const Micros step : {Micros{-1h}, Micros{1h}}) {
    wall.Set(kStart + step);
    EXPECT_EQ(clock.Now(), kStart + 5us);
  }
}

TEST(ForwardClock, CatchesUpButNeverGoesBack) {
  ManualClock wall(kStart);
  ManualClock pace;
  ForwardClock clock(wall, pace);
  wall.Advance(-1h);
  EXPECT_EQ(clock.CatchUp(), 0us);
  EXPECT_EQ(clock.Now(), kStart);
  wall.Advance(3h);
  EXPECT_EQ(clock.CatchUp(), 2h);
  EXPECT_EQ(clock.Now(), kStart + 2h);
  EXPECT_EQ(clock.CatchUp(), 0us);
  pace.Advance(1s);
  EXPECT_EQ(clock.Now(), kStart + 2h + 1s);
}

TEST(ForwardClock, DoesNotFollowAClockThatCannotBeRight) {
  ManualClock wall(kStart);
  ManualClock pace;
  ForwardClock clock(wall, pace);
  for (const TimePoint wrong : {kTimeMax + 1us, kTimeMax, ForwardClock::kBelievedMax + 1us,
                                TimePoint{-1us}, TimePoint{Micros::max()}}) {
    wall.Set(wrong);
    EXPECT_EQ(clock.CatchUp(), 0us);
    EXPECT_FALSE(clock.believed());
    EXPECT_EQ(clock.Now(), kStart);
  }
  wall.Set(kStart + 1h);
  EXPECT_EQ(clock.CatchUp(), 1h);
  EXPECT_TRUE(clock.believed());
  wall.Set(ForwardClock::kBelievedMax);
  clock.CatchUp();
  EXPECT_TRUE(clock.believed());
}

TEST(ForwardClock, StartsWithTheEpochIfTheWallClockCannotBeRight) {
  ManualClock wall(kTimeMax + 1us);
  ManualClock pace(TimePoint{7s});
  ForwardClock clock(wall, pace);
  EXPECT_FALSE(clock.believed());
  EXPECT_EQ(clock.Now(), TimePoint{7s});
  wall.Set(kStart);
  clock.CatchUp();
  EXPECT_TRUE(clock.believed());
  EXPECT_EQ(clock.Now(), kStart);
}

TEST(ForwardClock, IsTheWallClockWhileNobodySetsThat) {
  ForwardClock clock(SystemClock(), BootClock());
  const TimePoint before = SystemClock().Now();
  EXPECT_GE(clock.Now(), before - 1s);
  EXPECT_LE(clock.Now(), SystemClock().Now() + 1s);
  const TimePoint earlier = clock.Now();
  EXPECT_GE(clock.Now(), earlier);
}

}  // namespace
}  // namespace sluice
