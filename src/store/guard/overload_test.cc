// SPDX-License-Identifier: Apache-2.0
#include "store/guard/overload.h"

#include <gtest/gtest.h>

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

class OverloadTest : public testing::Test {
 protected:
  Cause Judge(bool failing = false) { return overload.Judge(failing, 1, now); }

  Overload overload{{.silence = 1s, .calm_after = 5s, .begins_with = 3}};
  TimePoint now{1h};
};

TEST_F(OverloadTest, AStoreThatAnswersIsOverloadedAndNotGone) {
  for (int i = 0; i < 10; ++i) overload.Asked(now);
  for (int i = 0; i < 10; ++i) {
    now += 999ms;  // However late they are.
    EXPECT_EQ(Judge(), Cause::kOverload);
    overload.Answered(now);
  }
}

TEST_F(OverloadTest, OneThatSaysNothingForLongIsGoneUntilItIsHeardAgain) {
  overload.Asked(now);
  overload.Asked(now);
  now += 1s - 1us;
  EXPECT_EQ(Judge(), Cause::kOverload);
  now += 1us;
  EXPECT_EQ(Judge(), Cause::kOutage);
  overload.Failed(now);
  EXPECT_EQ(Judge(), Cause::kOutage) << "a failure is no sign of life";
  now += 1h;
  overload.Answered(now);
  EXPECT_EQ(Judge(), Cause::kOverload);
}

TEST_F(OverloadTest, ErrorsThatOpenTheBreakerAreAnOutage) {
  overload.Asked(now);
  overload.Answered(now);
  EXPECT_EQ(Judge(true), Cause::kOutage);
  EXPECT_FALSE(overload.active());
  EXPECT_EQ(Judge(), Cause::kOverload);
}

TEST_F(OverloadTest, NothingIsHeardOfAStoreThatNobodyAsks) {
  overload.Asked(now);
  overload.Answered(now);
  now += 1h;
  EXPECT_EQ(Judge(), Cause::kOverload);
  overload.Asked(now);
  EXPECT_EQ(Judge(), Cause::kOverload) << "it has had no time to answer";
  now += 1s;
  EXPECT_EQ(Judge(), Cause::kOutage);
}

TEST_F(OverloadTest, WaitsInVainAddUp) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Judge(), Cause::kOverload) << i;
    overload.Asked(now);
    now += 250ms;
    overload.Failed(now);
    now += 1h;  // While the breaker is open.
  }
  EXPECT_EQ(Judge(), Cause::kOutage);
  overload.Asked(now);
  overload.Answered(now);
  EXPECT_EQ(Judge(), Cause::kOverload);
}

TEST_F(OverloadTest, BeginsOnceAndEndsWhenItHasBeenCalm) {
  for (int i = 0; i < 10; ++i) {
    Judge();
    EXPECT_FALSE(overload.active()) << "now and then an answer is late";
    now += 5s;
  }
  Judge();
  now += 2s;
  Judge();
  EXPECT_FALSE(overload.active());
  now += 2s;
  Judge();
  EXPECT_TRUE(overload.active());
  EXPECT_TRUE(overload.last_change()->begins);
  EXPECT_EQ(overload.Judge(false, 5, now), Cause::kOverload);
  EXPECT_EQ(overload.changes(), 1);
  now += 5s - 1us;
  overload.EndIfCalm(now);
  EXPECT_TRUE(overload.active());
  now += 1us;
  overload.EndIfCalm(now);
  EXPECT_FALSE(overload.active());
  EXPECT_FALSE(overload.last_change()->begins);
  EXPECT_EQ(overload.last_change()->number, 1);
  EXPECT_EQ(overload.last_change()->decisions, 8);
  EXPECT_EQ(overload.last_change()->lasted, 4s);
  overload.EndIfCalm(now + 1h);
  EXPECT_EQ(overload.changes(), 2);
  overload.Judge(false, 3, now);
  EXPECT_EQ(overload.last_change()->number, 2);
  EXPECT_EQ(overload.overloads(), 2);
}

TEST(Overload, ManyDeadlinesFitIntoASilence) {
  EXPECT_EQ(Overload::For(20ms).silence, 1s);
  EXPECT_EQ(Overload::For(1s).silence, 10s);
}

}  // namespace
}  // namespace sluice::guard
