// SPDX-License-Identifier: Apache-2.0
#include "store/memory/sketch.h"

#include <gtest/gtest.h>

#include "store/memory/evaluate.h"
#include "store/memory/shard.h"

namespace sluice::memory {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kStartUs = 1'700'000'000'000'000;
constexpr TimePoint kStart{Micros{kStartUs}};

TEST(Sketch, DecidesAsTheExactLimiterDoesUnlessItMustRound) {
  for (const Algorithm algorithm : {Algorithm::kTokenBucket, Algorithm::kFixedWindow}) {
    const Limit limit = *Limit::Make(algorithm, 100, 100, 10s);
    Bound bound;
    for (int i = 0; i < 100; ++i) {
      const Decision decision = Decide(limit, bound, kStart, 1);
      ASSERT_TRUE(decision.allowed) << i;
      ASSERT_EQ(decision.remaining, 99 - i);
      bound = Take(limit, bound, kStart, 1);
    }
    const Decision denied = Decide(limit, bound, kStart, 1);
    EXPECT_FALSE(denied.allowed);
    EXPECT_FALSE(Decide(limit, bound, kStart + denied.retry_after - 1us, 1).allowed);
    EXPECT_TRUE(Decide(limit, bound, kStart + denied.retry_after, 1).allowed);
    EXPECT_EQ(Decide(limit, bound, kStart + denied.reset_after, 0).remaining, 100);
  }
}

TEST(Sketch, SharesWhenItMustAndForgetsOnlyWhatIsOfOne) {
  Sketch sketch(1);
  const Limit limit = *Limit::Make(Algorithm::kTokenBucket, 10, 10, 60s);
  const auto identity = [](std::uint32_t i) {
    return Identity{.hash = i * 0x9e3779b97f4a7c15, .check = i | i << 14};
  };
  const auto take = [&](std::uint32_t i, std::int64_t units) {
    sketch.Raise(identity(i), Take(limit, sketch.Find(identity(i), kStartUs), kStart, units),
                 kStartUs);
  };
  const auto left = [&](std::uint32_t i) {
    return Decide(limit, sketch.Find(identity(i), kStartUs), kStart, 0).remaining;
  };
  for (std::uint32_t i = 0; i < 8; ++i) take(i, 1 + i % 2);
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(left(i), 9 - i % 2);
  EXPECT_LT(left(8), 10) << "it could only share";
  take(8, 3);
  EXPECT_LE(left(8), 6);
  EXPECT_EQ(sketch.Forget(identity(8), kStartUs), Sketch::Forgot::kShared);

  int forgotten = 0;
  for (std::uint32_t i = 0; i < 8; ++i) {
    if (sketch.Forget(identity(i), kStartUs) != Sketch::Forgot::kAll) continue;
    ++forgotten;
    EXPECT_EQ(left(i), 10);
  }
  EXPECT_GE(forgotten, 6);
  EXPECT_LE(left(8), 6) << "that of others stays";
  const std::int64_t later = sketch.until_us();
  EXPECT_EQ(sketch.Find(identity(8), later), Bound{}) << "all is recovered";
}

TEST(Sketch, TakesOverFromASlotAndHandsBackToOne) {
  Totals totals{.keys = Total(100),
                .holds = Total(100),
                .log_entries_max = 100,
                .sketch_lines = Sketch::LinesFor(1)};
  Shard shard;
  shard.set_totals(&totals);
  const Identity identity{.hash = 7, .check = 9};
  for (const Algorithm from : {Algorithm::kTokenBucket, Algorithm::kSlidingWindow}) {
    for (const Algorithm to : {Algorithm::kLeakyBucket, Algorithm::kFixedWindow,
                               Algorithm::kSlidingWindow, Algorithm::kSlidingWindowCounter}) {
      const Limit ten = *Limit::Make(from, 10, 10, 1h);
      const Limit twenty = *Limit::Make(to, 20, 20, 1h);
      const Evaluation four = Evaluate(ten, nullptr, kStart, 4);
      shard.Commit(nullptr, identity, ten, four.next, kStart, 4);
      shard.MoveToSketch(shard.Find(identity), twenty, kStart, kStart);
      EXPECT_EQ(shard.keys(), 0);
      EXPECT_EQ(Decide(twenty, shard.BoundOf(identity, kStart), kStart, 0).remaining, 16);
      const Slot* const slot = shard.MoveFromSketch(identity, twenty, kStart);
      ASSERT_NE(slot, nullptr);
      EXPECT_EQ(Evaluate(twenty, slot, kStart, 0).decision.remaining, 16) << twenty.ToString();
      shard.Erase(shard.Find(identity));
      EXPECT_EQ(shard.ForgetInSketch(identity, kStart), Sketch::Forgot::kAll);
    }
  }
  EXPECT_EQ(totals.log_entries, 0);
}

TEST(Sketch, DeniesWhatItCouldNotRemember) {
  const Limit slow = *Limit::Parse("algorithm=token_bucket,capacity=100000,refill=1,period=1d");
  EXPECT_TRUE(Decide(slow, Bound{}, kStart, 1'000).allowed);
  const Decision denied = Decide(slow, Bound{}, kStart, 100'000);
  EXPECT_FALSE(denied.allowed) << "full again after the year 2112";
  EXPECT_GT(denied.retry_after, 0us);
  EXPECT_LT(denied.remaining, 100'000);
  EXPECT_TRUE(Decide(slow, Bound{}, kStart, denied.remaining).allowed);
}

}  // namespace
}  // namespace sluice::memory
