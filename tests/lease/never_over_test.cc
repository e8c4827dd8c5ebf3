// SPDX-License-Identifier: Apache-2.0
// The promises of leases, over random histories of whole fleets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "lease/fleet.h"

namespace sluice::lease {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kHistories = 150;

// A wrong version is noticed within so many.
constexpr std::uint64_t kHistoriesToNotice = 100;

TEST(Leases, NeverGrantMoreThanTheLimitInAnyHistory) {
  for (const std::uint64_t first : Seeds()) {
    std::int64_t local = 0;
    std::int64_t requests = 0;
    for (std::uint64_t seed = first; seed < first + kHistories; ++seed) {
      const History history = AnyHistory(seed);
      PoolSide store(history.limit);
      const Outcome outcome = Fleet(history, store).Run();
      ASSERT_EQ(outcome.over, "") << "seed " << seed << ", " << history.limit.ToString();
      ASSERT_LE(outcome.lying_max, history.capacity) << "seed " << seed;
      local += outcome.local;
      requests += outcome.requests;
    }
    EXPECT_GT(local, requests / 3) << "leases decided much of it";
  }
}

TEST(Leases, GrantNoMoreThanWhatWasLostWhenTheStoreLosesWrites) {
  for (const std::uint64_t first : Seeds()) {
    for (std::uint64_t seed = first; seed < first + kHistories; ++seed) {
      const History history = LossyHistory(seed);
      PoolSide store(history.limit);
      const Outcome outcome = Fleet(history, store).Run();
      ASSERT_EQ(outcome.over, "") << "seed " << seed << ", " << history.limit.ToString();
    }
  }
}

// A store that does something wrong each time it is asked.
class WrongSide : public PoolSide {
 public:
  WrongSide(const Limit& limit, std::function<void(Pool&)> wrong)
      : PoolSide(limit), wrong_(std::move(wrong)) {}
  Reply Answer(const Ask& ask, TimePoint now) override {
    if (wrong_) wrong_(pool);
    return PoolSide::Answer(ask, now);
  }

 private:
  const std::function<void(Pool&)> wrong_;
};

void ExpectNoticed(const std::function<void(Pool&)>& wrong, const Tampering& tampering) {
  for (std::uint64_t seed = 1; seed <= kHistoriesToNotice; ++seed) {
    const History history = AnyHistory(seed);
    WrongSide store(history.limit, wrong);
    if (!Fleet(history, store, tampering).Run().over.empty()) return;
  }
  FAIL() << "not noticed within " << kHistoriesToNotice << " histories";
}

TEST(WrongLeases, ThatOutliveTheirWindowAreNoticed) {
  ExpectNoticed({}, {.reply = [](Reply& reply) { reply.expiry += 1s; }});
}

TEST(WrongLeases, WhoseUnitsAreGivenBackTwiceAreNoticed) {
  ExpectNoticed({}, {.ask = [](Ask& ask) { ask.back *= 2; }});
}

TEST(WrongLeases, WhoseAnswersCountAsLostAreNoticed) {
  ExpectNoticed({}, {.ask = [](Ask& ask) { ask.ack = 0; }});
}

TEST(WrongLeases, WhoseFlowIsUsedBeforeItIsDueAreNoticed) { ExpectNoticed({}, {.ahead = 10ms}); }

TEST(WrongLeases, OfABucketThatFillsUpAllTheSameAreNoticed) {
  ExpectNoticed(
      [](Pool& pool) {
        pool.head.capacity = 0;
        for (auto& [id, lease] : pool.leases) lease.capacity = 0;
      },
      {});
}

TEST(WrongLeases, WhoseSpillIsTakenBackThoughTheBucketWasFullAreNoticed) {
  ExpectNoticed(
      [](Pool& pool) {
        for (auto& [id, lease] : pool.leases) {
          lease.full = false;
          lease.told = pool.head.slot + 10s;
        }
      },
      {.reply = [](Reply& reply) { reply.full = false; }});
}

// What is given up to be decided locally, and what is gained.
struct Promise {
  double admitted = 0.99;
  double operations = 1;
  double fair = 0;  // What the worst instance gets of its share.
};

const Limit kWindow = *Limit::Parse("algorithm=fixed_window,limit=1000000,window=60s");
const Limit kBucket = *Limit::Parse("algorithm=token_bucket,capacity=10000,refill=10000,period=1s");

History Of(const Limit& limit, double demand, std::size_t instances = 4) {
  return {.limit = limit,
          .capacity = limit.amount() / 100,
          .instances = instances,
          .demand = demand,
          .parts = std::vector<double>(instances, 1.0),
          .one_way_min = 100us,
          .one_way_max = 2'500us,
          .drift = 0.01,
          .lasts = 6s};
}

void Expect(const Promise& promise, const History& history) {
  PoolSide store(history.limit);
  const Outcome outcome = Fleet(history, store).Run();
  EXPECT_EQ(outcome.over, "");
  EXPECT_LE(outcome.lying_max, history.capacity);
  EXPECT_GE(outcome.share(), promise.admitted);
  EXPECT_LE(outcome.operations(), promise.operations);
  const auto worst = static_cast<double>(*std::ranges::min_element(outcome.admitted_by));
  EXPECT_GE(worst * static_cast<double>(history.instances),
            promise.fair * static_cast<double>(outcome.admitted));
}

TEST(Leases, OfAWindowCostAHundredthOfTheOperations) {
  History history = Of(kWindow, 2);
  history.lasts = 61s;
  Expect({.admitted = 0.999, .operations = 0.01, .fair = 0.97}, history);
}

TEST(Leases, OfABucketThatIsAskedForMoreThanItHasCostAHundredthOfTheOperations) {
  Expect({.admitted = 0.995, .operations = 0.01, .fair = 0.97}, Of(kBucket, 5));
}

TEST(Leases, OfABucketFollowItsDemand) {
  for (const double demand : {0.5, 0.9, 1.1, 1.5}) {
    Expect({.admitted = 0.995, .operations = 0.06, .fair = 0.97}, Of(kBucket, demand));
  }
}

TEST(Leases, FollowDemandThatMoves) {
  History history = Of(kBucket, 1.5);
  history.parts = {90, 5, 3, 2};
  history.shift = 5s;
  history.lasts = 20s;
  Expect({.admitted = 0.99, .operations = 0.03}, history);
  history.limit = kWindow;
  history.capacity = kWindow.amount() / 100;
  history.demand = 1.2;
  history.lasts = 61s;
  Expect({.admitted = 0.999, .operations = 0.01}, history);
}

TEST(Leases, WorkForFiftyInstances) {
  Expect({.admitted = 0.99, .operations = 0.06}, Of(kBucket, 5, 50));
}

TEST(Leases, LoseLittleToLostMessagesAndToInstancesThatDie) {
  History history = Of(kBucket, 5, 8);
  history.lost = 0.01;
  Expect({.admitted = 0.98}, history);
  history = Of(kBucket, 1.5, 8);
  history.lives = 6s;
  Expect({.admitted = 0.98}, history);
}

}  // namespace
}  // namespace sluice::lease
