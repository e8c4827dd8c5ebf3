// SPDX-License-Identifier: Apache-2.0
#include "store/guard/kept_settles.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

const Limit kLimit = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
constexpr TimePoint kStart{1h};

Charge On(std::string_view key, std::int64_t cost = 2) {
  return {.key = key, .limit = &kLimit, .cost = cost};
}

KeptSettles::Settle For(std::string_view id, TimePoint until = kStart + 1s,
                        std::string_view key = "k", std::int64_t cost = 2) {
  return {.id = std::string(id), .parts = {Ledger::DebtOf(On(key, cost))}, .until = until};
}

TEST(KeptSettles, TheFirstOfAHoldCounts) {
  KeptSettles settles(8, 1 << 20);
  EXPECT_TRUE(settles.Add(For("a")));
  EXPECT_TRUE(settles.Add(For("a", kStart + 1s, "k", 9)));
  EXPECT_TRUE(settles.Add(For("a", kStart + 1s, "shadow")));
  const auto taken = settles.Take(8, kStart);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].parts.front().units, 2);
  EXPECT_EQ(taken[1].parts.front().key, "shadow");
  EXPECT_TRUE(settles.Add(For("a"))) << "it may come back";
  EXPECT_EQ(settles.size(), 1U);
}

TEST(KeptSettles, AreTakenInTheOrderInWhichTheyCame) {
  KeptSettles settles(8, 1 << 20);
  for (const char* id : {"c", "a", "b"}) settles.Add(For(id));
  EXPECT_EQ(settles.Take(1, kStart).front().id, "c");
  settles.Add(For("c"));
  const auto rest = settles.Take(8, kStart);
  ASSERT_EQ(rest.size(), 3U);
  EXPECT_EQ(rest[0].id, "a");
  EXPECT_EQ(rest[2].id, "c");
}

TEST(KeptSettles, AreDroppedWhenItIsTooLate) {
  KeptSettles settles(8, 1 << 20);
  settles.Add(For("a", kStart));
  settles.Add(For("b", kStart + 1us));
  const auto taken = settles.Take(8, kStart);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken.front().id, "b");
  EXPECT_EQ(settles.too_late(), 1);
}

TEST(KeptSettles, AreForgottenWhenTheStoreKnows) {
  KeptSettles settles(8, 1 << 20);
  settles.Forget("a", On("k"));
  settles.Add(For("a"));
  settles.Forget("a", On("other"));
  EXPECT_EQ(settles.size(), 1U);
  settles.Forget("a", On("k"));
  EXPECT_EQ(settles.size(), 0U);
  EXPECT_TRUE(settles.Add(For("a")));
}

TEST(KeptSettles, AreBoundedInNumberAndBytes) {
  KeptSettles one(1, 1 << 20);
  EXPECT_TRUE(one.Add(For("a")));
  EXPECT_FALSE(one.Add(For("b")));
  KeptSettles small(8, 1'000);
  const std::string key(1'000, 'x');
  EXPECT_TRUE(small.Add(For("a", kStart + 1s, key)));
  EXPECT_FALSE(small.Add(For("b")));
  small.Take(1, kStart);
  EXPECT_TRUE(small.Add(For("b")));
}

}  // namespace
}  // namespace sluice::guard
