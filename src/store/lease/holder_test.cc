// SPDX-License-Identifier: Apache-2.0
#include "store/lease/holder.h"

#include <gtest/gtest.h>

#include <optional>

#include "store/lease/pool.h"

namespace sluice::lease {
namespace {

using namespace std::chrono_literals;
using Verdict = Holder::Verdict;

constexpr TimePoint kServer{400'000h};  // A slot begins then, and a window.
constexpr TimePoint kOwn{1h};

const Limit kWindow = *Limit::Parse("algorithm=fixed_window,limit=10000,window=60s");
const Limit kBucket = *Limit::Parse("algorithm=token_bucket,capacity=10000,refill=10000,period=1s");

// A holder whose answers come at once; its clock and the server's go alike.
class HolderTest : public testing::Test {
 protected:
  void Use(const Limit& limit) {
    pool.emplace(limit);
    holder.emplace(limit, Holder::Options{.capacity = limit.amount() / 100, .seed = 1});
  }
  TimePoint ServerNow() const { return kServer + (now - kOwn); }

  std::optional<Ask> NextAsk() { return holder->NextAsk(server, now); }
  Verdict Take(std::int64_t cost = 1) { return holder->Take(cost, server, now); }
  void Answer(const Ask& ask, const Reply& reply) {
    server.Learn(reply.now, now, now);
    holder->OnReply(reply, ask.id, ask.seq, now, server, now);
  }
  void Serve() {
    const auto ask = NextAsk();
    if (!ask) return;
    ++asks;
    Answer(*ask, pool->Answer(*ask, ServerNow()));
  }
  // A request each so often.
  std::int64_t Run(Micros lasts, Micros each) {
    std::int64_t granted = 0;
    for (const TimePoint end = now + lasts; now < end; now += each) {
      granted += Take() == Verdict::kGranted ? 1 : 0;
      Serve();
    }
    return granted;
  }

  std::optional<Pool> pool;
  std::optional<Holder> holder;
  ServerClock server;
  TimePoint now = kOwn;
  std::int64_t asks = 0;
};

TEST_F(HolderTest, NeverLeasesWhatIsSeldomAskedFor) {
  Use(kWindow);
  EXPECT_EQ(Run(10s, 25ms), 0);
  EXPECT_EQ(asks, 0);
}

TEST_F(HolderTest, LeasesWhatIsAskedForOften) {
  Use(kWindow);
  EXPECT_GT(Run(10s, 1ms), 9'500);
  EXPECT_LT(asks, 300);
  EXPECT_GT(pool->Free(ServerNow()), 9);
}

TEST_F(HolderTest, GivesBackWhatAnIdleKeyHas) {
  Use(kWindow);
  const std::int64_t granted = Run(1s, 1ms);
  ASSERT_TRUE(holder->live());
  for (int i = 0; i < 10; ++i) {
    now += 20ms;
    Serve();
  }
  EXPECT_FALSE(holder->live());
  EXPECT_EQ(pool->Free(ServerNow()), 10'000 - granted) << "what it did not use";
}

TEST_F(HolderTest, GivesAllBackWhenItCloses) {
  Use(kWindow);
  const std::int64_t granted = Run(1s, 1ms);
  holder->Close();
  Serve();
  EXPECT_FALSE(holder->live());
  EXPECT_EQ(pool->Free(ServerNow()), 10'000 - granted);
  Run(1s, 1ms);
  EXPECT_FALSE(holder->live());
}

TEST_F(HolderTest, GrantsNothingOnceItMayHaveExpired) {
  Use(kWindow);
  Run(1s, 1ms);
  ASSERT_GT(holder->Left(server, now), 0);
  // Its answer may have come at the end of its life already, and clocks drift.
  now += 985ms;
  EXPECT_EQ(Take(), Verdict::kAskStore);
  EXPECT_FALSE(holder->live());
}

TEST_F(HolderTest, ForgetsWhatTheStoreDoesNotKnow) {
  Use(kWindow);
  Run(1s, 1ms);
  pool.emplace(kWindow);
  Run(900ms, 1ms);
  EXPECT_TRUE(holder->live()) << "it has begun anew";
  EXPECT_EQ(pool->leases.size(), 1U);
}

TEST_F(HolderTest, IgnoresAnAnswerThatIsTooLate) {
  Use(kWindow);
  Run(1s, 1ms);
  const std::uint64_t id = holder->id();
  std::optional<Ask> ask;
  while (!ask) {
    now += 1ms;
    Take();
    ask = NextAsk();
  }
  const Reply reply = pool->Answer(*ask, ServerNow());
  const std::int64_t left = holder->Left(server, now);
  now += Holder::kTimeout;
  EXPECT_FALSE(NextAsk()) << "but gives it up";
  Answer(*ask, reply);
  EXPECT_EQ(holder->Left(server, now), left);
  EXPECT_EQ(holder->id(), id);
}

TEST_F(HolderTest, UsesFlowWhenItIsDueAndNotBefore) {
  Use(kBucket);
  ASSERT_TRUE(pool->Take(10'000, ServerNow()));
  // Asked for ten times what there is.
  Run(1s, 10us);
  std::int64_t granted = 0;
  const TimePoint begin = now;
  for (; now < begin + 1s; now += 10us) {
    granted += Take() == Verdict::kGranted ? 1 : 0;
    ASSERT_LE(granted, 101 + (now - begin) / 100us);
    Serve();
  }
  EXPECT_GT(granted, 9'700);
}

TEST_F(HolderTest, DeniesUntilItsNextUnitIsDue) {
  Use(kBucket);
  ASSERT_TRUE(pool->Take(10'000, ServerNow()));
  Run(1s, 10us);
  while (Take() != Verdict::kDenied) {
    Serve();
    now += 1us;
  }
  const Decision denied = holder->Describe(false, 1, server, now);
  EXPECT_FALSE(denied.allowed);
  EXPECT_EQ(denied.limit, 10'000);
  EXPECT_EQ(denied.remaining, 0);
  EXPECT_GT(denied.retry_after, 0us);
  EXPECT_LE(denied.retry_after, 110us);
  EXPECT_EQ(denied.reset_after, 1s);
}

TEST_F(HolderTest, SaysWhatIsLeftInTheStoreAndHere) {
  Use(kWindow);
  const std::int64_t asked = Run(500ms, 1ms);
  const Decision decision = holder->Describe(true, 1, server, now);
  EXPECT_TRUE(decision.allowed);
  EXPECT_EQ(decision.remaining, pool->Free(ServerNow()) + holder->Left(server, now));
  EXPECT_LE(decision.remaining, 10'000 - asked);
  EXPECT_GE(decision.reset_after, 60s - 500ms);
  EXPECT_LE(decision.reset_after, 60s - 490ms);
}

}  // namespace
}  // namespace sluice::lease
