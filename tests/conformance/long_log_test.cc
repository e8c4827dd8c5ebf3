// SPDX-License-Identifier: Apache-2.0
// Sliding window logs with many entries: no call does more than a bounded part of the work of
// forgetting them, and every decision is exact meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "conformance/traffic.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "support/redis_server.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class LongLog : public testing::Test {
 protected:
  static constexpr std::int64_t kRemovedMax = 32;  // EXPIRED_MAX of the script.

  static Charge ChargeOf(const Limit& limit, std::int64_t cost) {
    return {.key = "k", .limit = &limit, .name = "n", .cost = cost};
  }

  // Asks both stores, which must agree.
  Decision Ask(const Limit& limit, std::int64_t cost, std::int64_t now) {
    const Charge charge = ChargeOf(limit, cost);
    std::vector<SeenState> seen(1);
    std::vector<SeenState> expected_seen(1);
    Request expected{.charges = {&charge, 1}, .now = At(now), .seen = expected_seen};
    memory_.Apply({&expected, 1}, [] {});
    Request request{.charges = {&charge, 1}, .now = At(now), .seen = seen};
    std::promise<void> done;
    redis_->Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
    EXPECT_TRUE(request.outcome) << request.outcome.error().message;
    EXPECT_EQ(request.outcome.value(), expected.outcome.value());
    EXPECT_EQ(seen, expected_seen);
    return expected.outcome.value();
  }

  // One entry per microsecond.
  void Fill(const Limit& limit, std::int64_t from, int entries) {
    const Charge charge = ChargeOf(limit, 1);
    std::vector<Request> requests;
    for (int i = 0; i < entries; ++i) {
      requests.push_back({.charges = {&charge, 1}, .now = At(from + i)});
    }
    memory_.Apply(requests, [] {});
    std::promise<void> done;
    redis_->Apply(requests, [&] { done.set_value(); });
    done.get_future().wait();
    for (const Request& request : requests)
      ASSERT_TRUE(request.outcome && request.outcome->allowed);
  }

  std::int64_t Entries() const { return std::stoll(server_.Cli("zcard 'sluice:{k}:n'")); }
  std::string Calls() const { return server_.Cli("info commandstats"); }

  const testing_support::RedisServer server_;
  const std::unique_ptr<RedisStore> redis_ =
      RedisStore::Create({.uri = server_.Uri("?timeout=60s&connect_timeout=60s")}).value();
  MemoryStore memory_{MemoryStore::Options{.recovered_kept_for = Micros::max()}};
};

TEST_F(LongLog, ShedsABoundedPartOfWhatHasExpiredWithEachCharge) {
  const Limit limit = *Limit::Parse("algorithm=sliding_window,limit=5000,window=1s");
  constexpr int kEntries = 2'000;
  constexpr int kExpired = 1'500;
  Fill(limit, kStartUs, kEntries);
  ASSERT_EQ(Entries(), kEntries);
  std::int64_t now = kStartUs + 1'000'000 + kExpired - 1;
  std::int64_t before = kEntries;
  std::int64_t charges = 0;
  for (; charges < kExpired; ++charges) {
    const Decision decision = Ask(limit, 1, now);
    EXPECT_EQ(decision.remaining, 5'000 - (kEntries - kExpired) - charges - 1);
    const std::int64_t entries = Entries();
    EXPECT_LE(before - entries, kRemovedMax);
    if (before <= kEntries - kExpired + charges + 1) break;
    EXPECT_LT(entries, before);
    before = entries;
    // The first is a new entry; the others merge with it, and remove as many.
  }
  EXPECT_LT(charges, kExpired / 20);
  EXPECT_EQ(Entries(), kEntries - kExpired + 1) << "in the end all that has expired is gone";
  // A denial waits for the oldest that still counts, whatever is still stored.
  const Decision denied = Ask(limit, 5'000, now);
  EXPECT_FALSE(denied.allowed);
}

TEST_F(LongLog, IsFreedInTheBackgroundWhenAllOfItHasExpired) {
  const Limit limit = *Limit::Parse("algorithm=sliding_window,limit=5000,window=1s");
  const Limit bucket = *Limit::Parse("algorithm=token_bucket,capacity=5000,refill=1,period=1s");
  Fill(limit, kStartUs, 500);
  server_.Cli("config resetstat");
  EXPECT_EQ(Ask(limit, 3, kStartUs + 2'000'000).remaining, 4'997);
  EXPECT_EQ(Entries(), 1);
  EXPECT_THAT(Calls(), HasSubstr("cmdstat_unlink:calls=1,"));
  EXPECT_THAT(Calls(), Not(HasSubstr("cmdstat_zrem")));

  // Likewise if its algorithm changes, or it is reset.
  Fill(limit, kStartUs + 3'000'000, 500);
  EXPECT_EQ(Ask(bucket, 1, kStartUs + 3'000'500).remaining, 4'499);
  EXPECT_THAT(Calls(), HasSubstr("cmdstat_unlink:calls=3,"));
  EXPECT_TRUE(redis_->Reset(ChargeOf(limit, 1)).value());
  EXPECT_THAT(Calls(), HasSubstr("cmdstat_unlink:calls=4,"));
  EXPECT_THAT(Calls(), Not(HasSubstr("cmdstat_del:")));
}

// What a charge has moved out of the window does not come back with a longer one, although it may
// still be stored.
TEST_F(LongLog, ForgetsWhatHasExpiredAlthoughItIsStillThere) {
  const Limit narrow = *Limit::Parse("algorithm=sliding_window,limit=5000,window=1s");
  const Limit wide = *Limit::Parse("algorithm=sliding_window,limit=5000,window=1h");
  Fill(narrow, kStartUs, 500);
  const std::int64_t now = kStartUs + 1'000'000 + 400;
  EXPECT_EQ(Ask(narrow, 1, now).remaining, 5'000 - 99 - 1);
  ASSERT_GT(Entries(), 101) << "not all are gone";
  EXPECT_EQ(Ask(wide, 0, now + 1).remaining, 5'000 - 100);
  EXPECT_EQ(Ask(narrow, 0, now + 2).remaining, 5'000 - 98);
  EXPECT_EQ(Ask(wide, 1, now + 3).remaining, 5'000 - 101);
  EXPECT_EQ(Ask(wide, 5'000, now + 3).allowed, false);
}

TEST_F(LongLog, IsExactWhateverBecomesOfItsLimit) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    (void)memory_.Reset(ChargeOf(*Limit::Parse("limit=1,window=1s"), 0));
    server_.Cli("flushall");
    std::vector<Limit> limits;
    for (const std::int64_t window : {1'000L, 1'500L, 10'000L, 3'600'000'000L}) {
      for (const std::int64_t amount : {200, 1'000}) {
        limits.push_back(*Limit::Make(Algorithm::kSlidingWindow, amount, 1, Micros{window}));
      }
    }
    limits.push_back(*Limit::Make(Algorithm::kFixedWindow, 500, 1, Micros{10'000}));
    std::size_t current = 0;
    std::int64_t now = kStartUs;
    for (int step = 0; step < 3'000; ++step) {
      if (random.OneIn(100)) {
        current = static_cast<std::size_t>(
            random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
      }
      now += random.OneIn(60) ? random.Between(0, 2'000) : random.Between(0, 3);
      const Limit& limit = limits[current];
      const std::int64_t cost = random.OneIn(10) ? random.Between(0, limit.amount()) : 1;
      Ask(limit, cost, now);
      if (testing::Test::HasFailure()) {
        FAIL() << "step " << step << " " << limit.ToString() << " cost " << cost;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
