// SPDX-License-Identifier: Apache-2.0
#include "store/lease/pool.h"

#include <gtest/gtest.h>

namespace sluice::lease {
namespace {

using namespace std::chrono_literals;

// A slot begins then, and a window.
constexpr TimePoint kStart{400'000h};

const Limit kWindow = *Limit::Parse("algorithm=fixed_window,limit=1000,window=10s");
const Limit kBucket = *Limit::Parse("algorithm=token_bucket,capacity=1000,refill=1000,period=1s");

// 100 units may lie in leases.
Ask First(std::uint64_t id, std::int64_t want) {
  return {.id = id, .seq = 1, .want = want, .capacity = 100};
}

Ask Next(const Ask& before, std::int64_t keep = 0) {
  Ask ask = before;
  ++ask.seq;
  ask.ack = before.seq;
  ask.keep = keep;
  return ask;
}

TEST(Pool, TakesWhatItGivesFromTheLimit) {
  Pool pool(kWindow);
  const Reply reply = pool.Answer(First(1, 60), kStart);
  EXPECT_EQ(reply.stock, 60);
  EXPECT_EQ(reply.capacity, 60);
  EXPECT_EQ(reply.free, 940);
  EXPECT_FALSE(pool.Take(941, kStart));
  EXPECT_TRUE(pool.Take(940, kStart));
}

TEST(Pool, NeverHasMoreInLeasesThanMayLie) {
  Pool pool(kWindow);
  EXPECT_EQ(pool.Answer(First(1, 80), kStart).capacity, 80);
  EXPECT_EQ(pool.Answer(First(2, 80), kStart).capacity, 20);
  EXPECT_EQ(pool.head.capacity, 100);
  // The first one keeps no more than its share, so that the other one gets its own.
  EXPECT_EQ(pool.Answer(Next(First(1, 80)), kStart + 100ms).capacity, 50);
  EXPECT_EQ(pool.Answer(Next(First(2, 80), 20), kStart + 200ms).capacity, 50);
  EXPECT_EQ(pool.head.capacity, 100);
}

TEST(Pool, GivesLessAsItRunsOut) {
  Pool pool(kWindow);
  ASSERT_TRUE(pool.Take(980, kStart));
  EXPECT_EQ(pool.Answer(First(1, 80), kStart).stock, 10);
  EXPECT_EQ(pool.Answer(Next(First(1, 80), 10), kStart).stock, 5);
}

TEST(Pool, IgnoresWhatComesTwiceOrLate) {
  Pool pool(kWindow);
  const Ask first = First(1, 60);
  const Ask second = Next(first, 20);
  ASSERT_EQ(pool.Answer(first, kStart).stock, 60);
  ASSERT_EQ(pool.Answer(second, kStart).stock, 40);
  EXPECT_EQ(pool.Answer(second, kStart).status, Reply::Status::kStale);
  EXPECT_EQ(pool.Answer(first, kStart).status, Reply::Status::kStale);
  EXPECT_EQ(pool.Free(kStart), 900);
}

TEST(Pool, TakesBackWhatALostAnswerGave) {
  Pool pool(kWindow);
  const Ask first = First(1, 60);
  pool.Answer(first, kStart);
  Ask second = Next(first, 0);
  pool.Answer(second, kStart);
  EXPECT_EQ(pool.Free(kStart), 880);
  Ask third = Next(second, 0);
  third.ack = first.seq;
  EXPECT_EQ(pool.Answer(third, kStart).stock, 60);
  EXPECT_EQ(pool.Free(kStart), 880) << "60 that were used, and 60 that were given again";
}

TEST(Pool, BooksTotalsOfWhatIsGivenBack) {
  Pool pool(kWindow);
  Ask ask = First(1, 60);
  pool.Answer(ask, kStart);
  ask = Next(ask, 30);
  ask.want = 30;
  ask.back = 30;
  pool.Answer(ask, kStart);
  EXPECT_EQ(pool.Free(kStart), 970);
  ask = Next(ask, 30);
  pool.Answer(ask, kStart);
  EXPECT_EQ(pool.Free(kStart), 970) << "the same total";
}

TEST(Pool, EndsALeaseThatWantsNothing) {
  Pool pool(kBucket);
  Ask ask = First(1, 60);
  const Reply reply = pool.Answer(ask, kStart);
  EXPECT_GT(reply.flow, 0);
  ask = Next(ask);
  ask.want = 0;
  ask.back = reply.stock;
  pool.Answer(ask, kStart);
  EXPECT_TRUE(pool.leases.empty());
  EXPECT_EQ(pool.head.capacity, 0);
  EXPECT_EQ(pool.Free(kStart), 999)
      << "with its flow; there was no room for the unit that was coming";
}

TEST(Pool, KnowsNothingOfWhatItLost) {
  Pool pool(kWindow);
  Ask ask = First(1, 60);
  ask.seq = 5;
  ask.ack = 4;
  ask.back = 60;
  EXPECT_EQ(pool.Answer(ask, kStart).status, Reply::Status::kVoid);
  EXPECT_EQ(pool.Free(kStart), 1000);
  // It went back in time: the last answer is unknown.
  pool.Answer(First(2, 60), kStart);
  Ask later = First(2, 60);
  later.seq = 4;
  later.ack = 3;
  EXPECT_EQ(pool.Answer(later, kStart).status, Reply::Status::kVoid);
  EXPECT_TRUE(pool.leases.empty());
}

TEST(Pool, TakesNothingBackOfALeaseThatItVoids) {
  Pool pool(kBucket);
  ASSERT_TRUE(pool.Take(1000, kStart));
  const Ask first = First(1, 30);
  ASSERT_EQ(pool.Answer(first, kStart).flow, 24);
  const Ask second = Next(first, 1);
  ASSERT_EQ(pool.Answer(second, kStart + 60ms).slot, kStart + 80ms);
  const std::int64_t at_end = Pool(pool).Free(kStart + 160ms);
  // It went back in time, in either slot.
  Ask later = Next(second, 1);
  later.seq = 4;
  later.ack = 3;
  for (const Micros when : {70ms, 90ms}) {
    Pool voids = pool;
    EXPECT_EQ(voids.Answer(later, kStart + when).status, Reply::Status::kVoid);
    EXPECT_TRUE(voids.leases.empty());
    EXPECT_EQ(voids.Free(kStart + 160ms), at_end) << "its holder may grant its flow yet";
  }
}

TEST(Pool, GivesFlowOfTheSlotInWhichTheLastOtherLeaseExpired) {
  Pool pool(kBucket);
  pool.Answer(First(1, 30), kStart);
  const Ask other = First(2, 30);
  pool.Answer(other, kStart + 100ms);
  Ask last = Next(other);
  last.want = 0;
  pool.Answer(last, kStart + 200ms);
  const TimePoint now = kStart + 1'050ms;
  const Reply reply = pool.Answer(First(3, 30), now);
  EXPECT_EQ(pool.leases.size(), 1);
  EXPECT_EQ(reply.slot, SlotOf(now));
  EXPECT_EQ(reply.flow, 24);
}

TEST(Pool, VoidsTheLeasesOfAWindowWhenItEnds) {
  Pool pool(kWindow);
  const Ask ask = First(1, 60);
  EXPECT_EQ(pool.Answer(ask, kStart + 9'900ms).expiry, kStart + 10s);
  EXPECT_EQ(pool.Free(kStart + 10s), 1000);
  Ask late = Next(ask);
  late.back = 60;
  EXPECT_EQ(pool.Answer(late, kStart + 10s).status, Reply::Status::kVoid);
  EXPECT_EQ(pool.Free(kStart + 10s), 1000);
}

TEST(Pool, FillsABucketOnlyUpToWhatLeasesHaveNoRoomFor) {
  Pool pool(kBucket);
  pool.Answer(First(1, 60), kStart);
  EXPECT_EQ(pool.Free(kStart + 500ms), 940);
  EXPECT_EQ(pool.Free(kStart + 1s - 1us), 940);
  EXPECT_EQ(pool.Free(kStart + 1s), 940) << "it has expired, and its room is empty";
  EXPECT_EQ(pool.Free(kStart + 1s + 60ms), 1000);
}

TEST(Pool, CountsFlowAsItsOwnUntilItIsDue) {
  Pool pool(kBucket);
  ASSERT_TRUE(pool.Take(1000, kStart));
  Ask ask = First(1, 30);
  ask.dice = 0;
  const Reply reply = pool.Answer(ask, kStart);
  EXPECT_EQ(reply.stock, 0);
  EXPECT_EQ(reply.slot, kStart);
  EXPECT_EQ(reply.flow, 24) << "of 80 in the slot: what 30 in 100 ms need";
  EXPECT_TRUE(reply.saturated);
  // The store gets the other 56.
  EXPECT_EQ(pool.Free(kStart + 40ms), 28);
  EXPECT_EQ(pool.Free(kStart + 80ms), 56);
  EXPECT_EQ(pool.Free(kStart + 90ms), 66);
}

TEST(Pool, GivesTheNextSlotsFlowJustBeforeItBegins) {
  Pool pool(kBucket);
  ASSERT_TRUE(pool.Take(1000, kStart));
  const Ask first = First(1, 30);
  ASSERT_EQ(pool.Answer(first, kStart).flow, 24);
  const Ask second = Next(first, 1);
  EXPECT_EQ(pool.Answer(second, kStart + 59ms).flow, 0);
  const Reply ahead = pool.Answer(Next(second, 1), kStart + 60ms);
  EXPECT_EQ(ahead.flow, 24);
  EXPECT_EQ(ahead.slot, kStart + 80ms);
}

TEST(Pool, LeavesSomeFlowToThoseWithoutALease) {
  Pool pool(kBucket);
  EXPECT_EQ(pool.Answer(First(1, 500), kStart).flow, 78) << "63 of 64 parts of 80";
}

TEST(Pool, GivesWhatIsLeftOfASlot) {
  Pool pool(kBucket);
  ASSERT_TRUE(pool.Take(1000, kStart));
  const Reply reply = pool.Answer(First(1, 30), kStart + 50ms);
  EXPECT_EQ(reply.flow - DueAfter(reply.flow, 50ms), 9);
  EXPECT_EQ(pool.Free(kStart + 80ms), 80 - 9 - reply.stock);
}

TEST(Leases, AreForFixedWindowsAndBuckets) {
  const auto eligible = [](std::string_view text) { return IsEligible(*Limit::Parse(text)); };
  EXPECT_TRUE(eligible("algorithm=fixed_window,limit=1000,window=10s"));
  EXPECT_TRUE(eligible("algorithm=token_bucket,capacity=1000,refill=1000,period=1s"));
  EXPECT_TRUE(eligible("algorithm=gcra,burst=1000,count=1000,period=1s"));
  EXPECT_FALSE(eligible("algorithm=leaky_bucket,capacity=1000,leak=1000,period=1s"));
  EXPECT_FALSE(eligible("algorithm=sliding_window,limit=1000,window=10s"));
  EXPECT_FALSE(eligible("algorithm=concurrency,limit=1000,ttl=10s"));
  // Ticks of a millisecond.
  EXPECT_FALSE(eligible("algorithm=token_bucket,capacity=1000003,refill=1000003,period=1d"));
}

}  // namespace
}  // namespace sluice::lease
