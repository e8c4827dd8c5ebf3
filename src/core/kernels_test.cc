// SPDX-License-Identifier: Apache-2.0
// What the conformance suite does not cover: properties shown by example, and the kernels' own
// types.
#include <gtest/gtest.h>

#include "core/kernel.h"

namespace sluice::core {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow{Micros{1'700'000'000'000'000}};

Decision DecideOn(const Log& log, const Limit& limit, TimePoint now, std::int64_t cost) {
  const auto state = WindowLog::Look(limit, log, now, cost);
  return WindowLog::Decide(limit, &state, now, cost).decision;
}

TEST(Bucket, KeepsFractionsOfATokenExactly) {
  // One request per 0.99 of a token's time: flooring would grant half of the rate (defect 1).
  const Limit limit = *Limit::TokenBucket({.capacity = 1, .refill = 10, .period = 1s});
  Bucket::State state = Bucket::Decide(limit, nullptr, kNow, 1).next;
  int admitted = 1;
  for (int i = 1; i < 10'000; ++i) {
    const auto step = Bucket::Decide(limit, &state, kNow + i * 99ms, 1);
    if (!step.decision.allowed) continue;
    state = step.next;
    ++admitted;
  }
  EXPECT_EQ(admitted, 5'000) << "every second one: a capacity of 1 stores no second token";

  const Limit deeper = *Limit::TokenBucket({.capacity = 2, .refill = 10, .period = 1s});
  state = Bucket::Decide(deeper, nullptr, kNow, 1).next;
  admitted = 1;
  for (int i = 1; i < 10'000; ++i) {
    const auto step = Bucket::Decide(deeper, &state, kNow + i * 99ms, 1);
    if (!step.decision.allowed) continue;
    state = step.next;
    ++admitted;
  }
  EXPECT_EQ(admitted, 2 + 9'999 * 99 / 100) << "with room for the remainder, 99 % pass";
}

TEST(Bucket, TimeToFullIsNotTheRetryTime) {
  // Defect 11: 10 s until full, but the next request fits after 0.1 s.
  const Limit limit = *Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s});
  const Bucket::State empty{.level = 0, .time = kNow.time_since_epoch().count()};
  const Decision denied = Bucket::Decide(limit, &empty, kNow, 1).decision;
  EXPECT_EQ(denied.retry_after, 100ms);
  EXPECT_EQ(denied.reset_after, 10s);
}

TEST(Bucket, AClockThirtySecondsBehindTakesNothingAway) {
  // Defect 10.
  const Limit limit = *Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s});
  const auto first = Bucket::Decide(limit, nullptr, kNow, 1);
  const auto behind = Bucket::Decide(limit, &first.next, kNow - 30s, 1);
  EXPECT_EQ(behind.decision.remaining, 98);
  EXPECT_EQ(behind.next.time, first.next.time);
}

TEST(Bucket, HoldsTheLargestNumbersWithoutOverflow) {
  constexpr std::int64_t kMax = (std::int64_t{1} << 53) - 1;
  const Limit limit = *Limit::TokenBucket({.capacity = kMax, .refill = kMax, .period = 1us});
  const auto first = Bucket::Decide(limit, nullptr, TimePoint{}, kMax);
  EXPECT_TRUE(first.decision.allowed);
  EXPECT_EQ(first.decision.remaining, 0);
  EXPECT_EQ(Bucket::Decide(limit, &first.next, kTimeMax, kMax).decision.remaining, 0);
  EXPECT_EQ(Bucket::Decide(limit, &first.next, kTimeMax, 0).decision.remaining, kMax);
}

TEST(LeakyBucket, AnEmptyBucketHasNoStoredCredit) {
  const Limit limit = *Limit::LeakyBucket({.capacity = 1, .leak = 1, .period = 1s});
  const auto first = Bucket::Decide(limit, nullptr, kNow, 1);
  EXPECT_FALSE(Bucket::Decide(limit, &first.next, kNow + 1s - 1us, 1).decision.allowed);
  EXPECT_TRUE(Bucket::Decide(limit, &first.next, kNow + 1s, 1).decision.allowed);
  // Nor does a long pause make room for two.
  const auto later = Bucket::Decide(limit, &first.next, kNow + 1h, 1);
  EXPECT_FALSE(Bucket::Decide(limit, &later.next, kNow + 1h, 1).decision.allowed);
}

TEST(LeakyBucket, CallersThatWaitTheirDelayLeaveAtAConstantRate) {
  const Limit limit = *Limit::LeakyBucket({.capacity = 5, .leak = 2, .period = 1s});
  std::optional<Bucket::State> state;
  for (int i = 0; i < 5; ++i) {
    const auto step = Bucket::Decide(limit, state ? &*state : nullptr, kNow, 1);
    EXPECT_EQ(step.decision.delay, i * 500ms);
    state = step.next;
  }
}

TEST(FixedWindow, LetsADoubledBurstPassAtABoundary) {
  const Limit limit = *Limit::FixedWindow({.limit = 10, .window = 10s});
  const TimePoint boundary{Micros{1'700'000'010'000'000}};
  const auto before = FixedWindow::Decide(limit, nullptr, boundary - 1us, 10);
  const auto after = FixedWindow::Decide(limit, &before.next, boundary, 10);
  EXPECT_TRUE(before.decision.allowed && after.decision.allowed)
      << "20 within 2 us: a property of this algorithm";
  EXPECT_FALSE(FixedWindow::Decide(limit, &after.next, boundary + 1us, 1).decision.allowed);
}

TEST(SlidingWindowCounter, DecidesTheDocumentedExamples) {
  const Limit limit = *Limit::SlidingWindowCounter({.limit = 10, .window = 1min});
  const WindowCounter::State state{.window = 28'333'333, .previous = 8, .current = 3};
  const TimePoint start{Micros{28'333'333 * 60'000'000LL}};
  EXPECT_EQ(WindowCounter::Decide(limit, &state, start + 30s, 0).decision.remaining, 3)
      << "8 * 0.5 + 3 = 7";
  EXPECT_TRUE(WindowCounter::Decide(limit, &state, start + 30s, 1).decision.allowed);
  EXPECT_FALSE(WindowCounter::Decide(limit, &state, start + 6s, 1).decision.allowed)
      << "8 * 0.9 + 3 = 10.2";
}

TEST(Log, MergesEqualTimesAndForgetsWhatTheWindowHasLeft) {
  const Limit limit = *Limit::SlidingWindow({.limit = 1'000'000, .window = 1s});
  Log log;
  for (int i = 0; i < 1000; ++i) log.Add(limit.span(), kNow, 2);
  EXPECT_EQ(log.entries().size(), 1u);
  EXPECT_EQ(DecideOn(log, limit, kNow, 0).remaining, 1'000'000 - 2'000);
  for (int i = 1; i <= 10'000; ++i) log.Add(limit.span(), kNow + i * 10ms, 1);
  EXPECT_EQ(log.entries().size(), 100u);
  EXPECT_LE(log.capacity(), 400u) << "room is given back";
  EXPECT_EQ(DecideOn(log, limit, kNow + 100s, 0).remaining, 1'000'000 - 100);
}

TEST(Log, SurvivesTotalsBeyondSixtyFourBits) {
  constexpr std::int64_t kMax = (std::int64_t{1} << 53) - 1;
  const Limit limit = *Limit::SlidingWindow({.limit = kMax, .window = 1us});
  Log log;
  for (int i = 0; i < 5'000; ++i) {
    ASSERT_TRUE(DecideOn(log, limit, kNow + i * 1us, kMax).allowed);
    log.Add(limit.span(), kNow + i * 1us, kMax);
    ASSERT_EQ(DecideOn(log, limit, kNow + i * 1us, 0).remaining, 0);
  }
}

}  // namespace
}  // namespace sluice::core
