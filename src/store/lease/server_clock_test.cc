// SPDX-License-Identifier: Apache-2.0
#include "store/lease/server_clock.h"

#include <gtest/gtest.h>

namespace sluice::lease {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kOwn{1h};
constexpr TimePoint kServer{480'000h};

TEST(ServerClock, LiesBetweenWhatTheRoundTripAllows) {
  ServerClock clock;
  EXPECT_FALSE(clock.known());
  EXPECT_TRUE(clock.Learn(kServer, kOwn, kOwn + 3ms));
  EXPECT_LE(clock.Low(kOwn + 3ms), kServer);
  EXPECT_GE(clock.High(kOwn + 3ms), kServer + 3ms);
  EXPECT_LE(clock.High(kOwn + 3ms), kServer + 4ms);
}

TEST(ServerClock, IsKnownLessWellAsTimePasses) {
  ServerClock clock;
  clock.Learn(kServer, kOwn, kOwn);
  EXPECT_LE(clock.Low(kOwn + 1s), kServer + 990ms);
  EXPECT_GE(clock.High(kOwn + 1s), kServer + 1010ms);
  EXPECT_LE(clock.High(kOwn + 1s), kServer + 1020ms);
}

TEST(ServerClock, KeepsTheBestOfAllThatItLearned) {
  ServerClock clock;
  clock.Learn(kServer, kOwn, kOwn + 1ms);
  EXPECT_TRUE(clock.Learn(kServer + 10ms, kOwn + 5ms, kOwn + 50ms));
  EXPECT_LE(clock.High(kOwn + 50ms), kServer + 52ms) << "a slow answer says less";
  EXPECT_GE(clock.Low(kOwn + 50ms), kServer + 48ms);
}

TEST(ServerClock, NoticesThatTheServersClockWasSet) {
  ServerClock clock;
  clock.Learn(kServer, kOwn, kOwn + 1ms);
  EXPECT_FALSE(clock.Learn(kServer + 1s, kOwn + 2ms, kOwn + 3ms));
  EXPECT_GE(clock.High(kOwn + 3ms), kServer + 1s) << "and believes the new one";
  EXPECT_FALSE(clock.Learn(kServer, kOwn + 4ms, kOwn + 5ms));
}

}  // namespace
}  // namespace sluice::lease
