// SPDX-License-Identifier: Apache-2.0
#include "store/guard/local_holds.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

const Limit kLimit = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
constexpr TimePoint kStart{1h};

Charge On(std::string_view key) { return {.key = key, .limit = &kLimit, .cost = 2}; }

LocalHolds::Hold Until(TimePoint expires, std::string_view key = "k",
                       OnExpiry on_expiry = OnExpiry::kCharge) {
  return {.units = Ledger::DebtOf(On(key)), .on_expiry = on_expiry, .expires = expires};
}

TEST(LocalHolds, AreFoundByIdAndState) {
  LocalHolds holds(8, 1 << 20, {});
  holds.Add("a", Until(kStart));
  EXPECT_NE(holds.Find("a", On("k")), nullptr);
  EXPECT_EQ(holds.Find("b", On("k")), nullptr);
  EXPECT_EQ(holds.Find("a", On("other")), nullptr);
  holds.Add("a", Until(kStart + 1s));
  EXPECT_EQ(holds.Find("a", On("k"))->expires, kStart) << "it stays as it is";
  EXPECT_EQ(holds.live(), 1U);
  holds.Forget("a", On("k"));
  EXPECT_TRUE(holds.empty());
  EXPECT_EQ(holds.next_due(), TimePoint::max());
}

TEST(LocalHolds, ExpireAtTheirMomentAndAreRememberedForAMinute) {
  LocalHolds holds(8, 1 << 20, {});
  holds.Add("a", Until(kStart + 2s));
  holds.Add("b", Until(kStart + 1s, "b", OnExpiry::kRelease));
  EXPECT_EQ(holds.next_due(), kStart + 1s);
  EXPECT_TRUE(holds.Expire(kStart + 2s - 1us, 8).empty()) << "what is released is not taken";
  EXPECT_EQ(holds.live(), 1U);
  const auto taken = holds.Expire(kStart + 2s, 8);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken.front().key, "k");
  EXPECT_EQ(taken.front().units, 2);
  EXPECT_EQ(holds.Find("a", On("k"))->status, LocalHolds::Status::kExpired);
  EXPECT_EQ(holds.next_due(), kStart + 61s);
  EXPECT_TRUE(holds.Expire(kStart + 62s, 8).empty());
  EXPECT_TRUE(holds.empty());
}

TEST(LocalHolds, LetSomeExpireAtATime) {
  LocalHolds holds(8, 1 << 20, {});
  for (const char* id : {"a", "b", "c"}) holds.Add(id, Until(kStart));
  EXPECT_EQ(holds.Expire(kStart, 2).size(), 2U);
  EXPECT_EQ(holds.next_due(), kStart);
  EXPECT_EQ(holds.Expire(kStart, 2).size(), 1U);
}

TEST(LocalHolds, DoNotExpireOnceTheyAreSettled) {
  LocalHolds holds(8, 1 << 20, {});
  holds.Add("a", Until(kStart));
  holds.Extend("a", On("k"), kStart + 5s);
  holds.SetStatus("a", On("k"), LocalHolds::Status::kSettled);
  EXPECT_EQ(holds.live(), 0U);
  EXPECT_TRUE(holds.Expire(kStart + 5s, 8).empty());
  EXPECT_EQ(holds.next_due(), kStart + 65s);
}

TEST(LocalHolds, AreBoundedInNumberAndBytes) {
  LocalHolds two(2, 1 << 20, {});
  two.Add("a", Until(kStart));
  EXPECT_TRUE(two.HasRoom());
  two.Add("b", Until(kStart));
  EXPECT_FALSE(two.HasRoom());
  two.Forget("a", On("k"));
  EXPECT_TRUE(two.HasRoom());
  LocalHolds small(8, 1'000, {});
  const std::string key(1'000, 'x');
  small.Add("a", Until(kStart, key));
  EXPECT_FALSE(small.HasRoom());
}

}  // namespace
}  // namespace sluice::guard
