// SPDX-License-Identifier: Apache-2.0
#include "daemon/outage.h"

#include <gtest/gtest.h>

namespace sluice::daemon {
namespace {

using namespace std::chrono_literals;

TEST(Outage, IsToldAtOnceThenOnceAMinuteAndWhenItIsOver) {
  Outage outage;
  Outage::Steady::time_point now{1h};
  EXPECT_EQ(outage.Worked(now), std::nullopt) << "nothing was wrong";
  EXPECT_TRUE(outage.Failed(now));
  for (int minute = 0; minute < 3; ++minute) {
    for (int second = 0; second < 59; ++second) EXPECT_FALSE(outage.Failed(now += 1s)) << second;
    EXPECT_FALSE(outage.Failed(now + 1s - 1ns));
    EXPECT_TRUE(outage.Failed(now += 1s));
  }
  EXPECT_EQ(outage.Worked(now += 1s), 3min + 1s);
  EXPECT_EQ(outage.Worked(now += 1s), std::nullopt) << "it is told once";
}

TEST(Outage, ThatBeginsAnewIsToldAtOnce) {
  Outage outage;
  Outage::Steady::time_point now{1h};
  EXPECT_TRUE(outage.Failed(now));
  EXPECT_TRUE(outage.Worked(now += 1s));
  EXPECT_TRUE(outage.Failed(now += 1s));
  EXPECT_EQ(outage.Worked(now += 5s), 5s);
}

}  // namespace
}  // namespace sluice::daemon
