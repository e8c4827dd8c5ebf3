// SPDX-License-Identifier: Apache-2.0
// A memory store without room for all its keys: the sketch decides on the others.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/model.h"
#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "sluice/memory_store.h"
#include "store/memory/memory_store_impl.h"
#include "store/memory/sketch.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using memory::Bound;
using memory::Sketch;

constexpr TimePoint kStart{Micros{kStartUs}};

// Chance decides which keys share a cell. So tests must not depend on it, or must fix the seed.
constexpr Seed kSeed = {1, 2};

Limit TenAMinute(Algorithm algorithm) { return SimpleLimit(algorithm, 10, 10, 60s); }

class FloodTest : public testing::TestWithParam<Algorithm> {
 protected:
  static constexpr int kKeysMax = 2'000;

  Decision Check(const std::string& key, std::int64_t cost = 1) {
    return store_.Check({.key = key, .limit = &limit_, .cost = cost}).value();
  }

  // How many of a thousand new keys get each of `requests`.
  int Admitted(int requests) {
    int admitted = 0;
    for (int i = 0; i < 1'000; ++i) {
      const std::string key = "honest" + std::to_string(i);
      bool all = true;
      for (int n = 0; n < requests; ++n) all = Check(key).allowed && all;
      admitted += all ? 1 : 0;
    }
    return admitted;
  }

  ManualClock clock_{kStart};
  MemoryStore store_{{.clock = &clock_, .keys_max = kKeysMax}};
  Limit limit_ = TenAMinute(GetParam());
};

// The first keysMax of these fill the table.
TEST_P(FloodTest, OfKeysThatAskOnceLeavesNewcomersTheirBudgets) {
  for (int i = 0; i < 11 * kKeysMax; ++i) {
    ASSERT_TRUE(Check("flood" + std::to_string(i)).allowed) << i;
  }
  EXPECT_EQ(Admitted(3), 1'000);
}

TEST_P(FloodTest, OfKeysThatTakeAllTheyGetLeavesNewcomersTheirBudgets) {
  for (int i = 0; i < 11 * kKeysMax; ++i) {
    const std::string key = "flood" + std::to_string(i);
    for (int n = 0; n < 10; ++n) Check(key);
    EXPECT_FALSE(Check(key).allowed);
  }
  const int admitted = Admitted(3);
  RecordProperty("admitted", admitted);
  EXPECT_GE(admitted, 990);
  EXPECT_GT(store_.GetStats().overflow_decisions, 10 * kKeysMax);
  for (int i = 0; i < 11 * kKeysMax; ++i) {
    EXPECT_FALSE(Check("flood" + std::to_string(i)).allowed) << "it stays denied";
  }
}

TEST_P(FloodTest, OfManyMoreIsDeniedRatherThanGrantedTwice) {
  constexpr int kKeys = 40 * kKeysMax;
  std::map<int, int> admitted;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < kKeys; i += 7) {
      admitted[i] += Check("flood" + std::to_string(i)).allowed ? 1 : 0;
    }
  }
  for (const auto& [key, count] : admitted) ASSERT_LE(count, 10) << key;
}

TEST_P(FloodTest, LeavesTheBudgetsOfOtherLimitsAlone) {
  const Limit day = SimpleLimit(GetParam(), 5, 5, 24h);
  for (int i = 0; i < 11 * kKeysMax; ++i) {
    const std::string key = "flood" + std::to_string(i);
    store_.Check({.key = key, .limit = &day, .cost = 5}).value();
  }
  EXPECT_GE(Admitted(3), 990);
}

// Each client has two states here, so these are twenty times keysMax.
TEST_P(FloodTest, OfClientsUnderTwoLimitsLeavesNewcomersTheirBudgets) {
  // So many that the spare cells of a small store do not matter.
  constexpr int kKeys = 20'000;
  MemoryStore::Impl store({.clock = &clock_, .keys_max = kKeys}, kSeed);
  const Limit day = SimpleLimit(GetParam(), 100, 100, 24h);
  const auto allowed = [&](const std::string& key, std::int64_t cost) {
    const std::array charges = {Charge{.key = key, .limit = &limit_, .cost = cost},
                                Charge{.key = key, .limit = &day, .cost = cost}};
    Request request{.charges = charges};
    return store.Decide(request, clock_.Now())->allowed;
  };
  for (int i = 0; i < 10 * kKeys; ++i) allowed("flood" + std::to_string(i), 10);
  int admitted = 0;
  for (int i = 0; i < 1'000; ++i) {
    const std::string key = "honest" + std::to_string(i);
    admitted += allowed(key, 1) && allowed(key, 1) && allowed(key, 1) ? 1 : 0;
  }
  RecordProperty("admitted", admitted);
  EXPECT_GE(admitted, 990);
}

TEST_P(FloodTest, TakesBoundedMemoryAndGivesItBack) {
  for (int i = 0; i < kKeysMax; ++i) Check(std::to_string(i), 10);
  const std::int64_t before = store_.GetStats().bytes;
  for (int i = 0; i < 20 * kKeysMax; ++i) Check("flood" + std::to_string(i), 10);
  const std::int64_t sketch = store_.GetStats().bytes - before;
  EXPECT_GT(sketch, 192 * kKeysMax);
  EXPECT_LE(sketch, 192 * kKeysMax + 256 * 1024);

  clock_.Advance(std::max<Micros>(3min, limit_.span()));
  const Limit other = *Limit::Make(Algorithm::kTokenBucket, 1'000'000, 1, 1s);
  for (int i = 0; i < 400'000; ++i) {
    store_.Check({.key = std::to_string(i % 300), .limit = &other}).value();
  }
  EXPECT_LT(store_.GetStats().bytes - before, sketch / 4) << "it is gone";
}

INSTANTIATE_TEST_SUITE_P(All, FloodTest, testing::ValuesIn(kAlgorithms),
                         [](const auto& param) { return std::string(ToString(param.param)); });

TEST(Flood, LeavesABucketOfHundredIn10SecondsToNewcomers) {
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock, .keys_max = 2'000});
  const Limit limit = *Limit::Parse("algorithm=token_bucket,capacity=100,refill=100,period=10s");
  for (int i = 0; i < 22'000; ++i) {
    const std::string key = "flood" + std::to_string(i);
    ASSERT_TRUE(store.Check({.key = key, .limit = &limit, .cost = 97})) << i;
    clock.Advance(10us);
  }
  int admitted = 0;
  for (int i = 0; i < 1'000; ++i) {
    const std::string key = "honest" + std::to_string(i);
    admitted += store.Check({.key = key, .limit = &limit, .cost = 50})->allowed ? 1 : 0;
  }
  EXPECT_GE(admitted, 990);
}

TEST(Flood, OfManyLimitsStaysBounded) {
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock, .keys_max = 100});
  for (int i = 0; i < 100'000; ++i) {
    const Limit limit =
        SimpleLimit(kAlgorithms[static_cast<std::size_t>(i) % kAlgorithms.size()], 1 + i, 1, 1h);
    const Charge charge{.key = "k", .limit = &limit, .cost = limit.amount()};
    if (!store.Check(charge).value().allowed) continue;
    EXPECT_FALSE(store.Check({.key = "k", .limit = &limit}).value().allowed) << limit.ToString();
  }
  EXPECT_LE(store.GetStats().bytes, 1'000'000);
}

// Everything that may happen to a few keys in a store that has room for fewer: whatever it grants,
// a store with room for all would have granted, too.
void GrantsNoMoreThanTheModel(std::uint64_t seed, Time direction, std::int64_t log_entries_max) {
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  int granted = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Limit> limits;
    for (std::int64_t i = random.Between(1, 4); i > 0; --i) {
      limits.push_back(RandomLimit(random));
    }
    ManualClock clock(kStart);
    MemoryStore::Impl store(
        {.clock = &clock,
         .keys_max = random.Between(1, 4),
         .log_entries_max = log_entries_max,
         .recovered_kept_for = direction == Time::kForward ? Micros{0} : Micros::max()},
        kSeed);
    model::Model model;
    std::int64_t now = kStartUs;
    Decision last;
    for (int step = 0; step < 150; ++step) {
      const auto pick =
          static_cast<std::size_t>(random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
      now = NextTime(random, now, limits[pick], last, direction);
      clock.Set(At(now));
      const Action action = RandomTake(random);
      std::vector<std::string> keys;
      std::vector<std::size_t> named;
      for (std::size_t i = 0; i < limits.size(); ++i) {
        // Alone, so that what a debit takes is what a peek has shown to be left.
        if (i != pick && (action == Action::kDebit || random.OneIn(2))) continue;
        keys.push_back(std::to_string(random.Between(0, 5)));
        named.push_back(i);
      }
      std::vector<Charge> charges;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const Limit& limit = limits[named[i]];
        charges.push_back({.key = keys[i],
                           .limit = &limit,
                           .cost = std::min(limit.amount(), RandomCost(random, limit))});
      }
      // The same limit twice has one state for both.
      bool twice = false;
      for (std::size_t i = 0; i < charges.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) twice = twice || limits[named[i]] == limits[named[j]];
      }
      if (twice) continue;
      if (random.OneIn(12)) {
        Request reset{.charges = std::span(charges).first(1), .action = Action::kReset};
        ASSERT_TRUE(store.Decide(reset, At(now)));
        model.Reset(keys.front(), charges.front().limit->ToString());
        continue;
      }
      std::vector<Charge> looks = charges;
      for (Charge& look : looks) look.cost = 0;
      std::vector<Decision> there(charges.size());
      Request look{.charges = looks, .each = there};
      ASSERT_TRUE(store.Decide(look, At(now)));
      std::vector<Decision> each(charges.size());
      std::vector<SeenState> seen(charges.size());
      Request request{.charges = charges, .each = each, .seen = seen, .action = action};
      const auto outcome = store.Decide(request, At(now));
      ASSERT_TRUE(outcome) << outcome.error().message;
      last = *outcome;
      std::vector<model::Model::Charge> taken;
      for (std::size_t i = 0; i < charges.size(); ++i) {
        const Limit& limit = *charges[i].limit;
        ASSERT_GE(each[i].remaining, 0);
        ASSERT_LE(each[i].remaining, there[i].remaining);
        ASSERT_TRUE(each[i].allowed || each[i].retry_after.count() > 0) << limit.ToString();
        const std::int64_t cost = action == Action::kDebit
                                      ? std::min(charges[i].cost, there[i].remaining)
                                      : charges[i].cost;
        if (outcome->allowed && charges.size() == 1) {
          ASSERT_EQ(each[i].remaining, there[i].remaining - cost) << limit.ToString();
        }
        taken.push_back({keys[i], limit.ToString(), SpecOf(limit), cost});
      }
      if (!outcome->allowed) continue;
      const auto exact = model.Decide(taken, now);
      ASSERT_TRUE(exact.overall.allowed) << limits[pick].ToString() << " at step " << step;
      for (std::size_t i = 0; i < charges.size(); ++i) {
        ASSERT_LE(each[i].remaining, exact.each[i].remaining) << charges[i].limit->ToString();
      }
      ++granted;
    }
  }
  EXPECT_GT(granted, 3'000);
}

TEST(AFullStore, GrantsNoMoreThanTheModel) {
  for (const std::uint64_t seed : {1, 2}) {
    for (const Time direction : {Time::kForward, Time::kAnyDirection}) {
      GrantsNoMoreThanTheModel(seed, direction, 1 << 20);
    }
  }
}

TEST(FullLogs, GrantNoMoreThanTheModel) {
  for (const Time direction : {Time::kForward, Time::kAnyDirection}) {
    GrantsNoMoreThanTheModel(3, direction, 4);
  }
}

// The same with so few cells that most are shared, and identities of few bits, which collide.
TEST(CrowdedSketch, GrantsNoMoreThanTheModel) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    int granted = 0;
    for (int round = 0; round < 200; ++round) {
      std::vector<Limit> limits;
      for (int i = 0; i < 6; ++i) {
        limits.push_back(RandomLimit(random, kAlgorithms[static_cast<std::size_t>(i)]));
      }
      const Time direction = random.OneIn(2) ? Time::kForward : Time::kAnyDirection;
      std::vector<memory::Identity> identities;
      for (int i = 0; i < 40; ++i) {
        const auto bits = static_cast<std::uint32_t>(random.Between(0, (1LL << 32) - 1));
        identities.push_back({.hash = static_cast<std::uint64_t>(random.Between(0, 1LL << 62)),
                              .check = random.OneIn(2) ? bits : bits & 0x1'c003});
      }
      Sketch sketch(static_cast<std::size_t>(random.Between(1, 3)));
      model::Model model;
      std::int64_t now = kStartUs;
      Decision last;
      for (int step = 0; step < 400; ++step) {
        const auto which = static_cast<std::size_t>(random.Between(0, 39));
        const Limit& limit = limits[which % 6];
        now = NextTime(random, now, limit, last, direction);
        const std::int64_t horizon = direction == Time::kForward ? now : 0;
        const std::int64_t cost = std::min(limit.amount(), RandomCost(random, limit));
        const Bound bound = sketch.Find(identities[which], horizon);
        last = Decide(limit, bound, At(now), cost);
        if (!last.allowed || cost == 0) continue;
        sketch.Raise(identities[which], Take(limit, bound, At(now), cost), horizon);
        const auto exact =
            model.Decide({{std::to_string(which), limit.ToString(), SpecOf(limit), cost}}, now);
        ASSERT_TRUE(exact.overall.allowed) << limit.ToString() << " at step " << step;
        ++granted;
      }
    }
    EXPECT_GT(granted, 2'000);
  }
}

class MovesTest : public testing::TestWithParam<Algorithm> {};

TEST_P(MovesTest, FromTheSketchToTheTableWithWhatWasUsed) {
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock, .keys_max = 1});
  const Limit limit = TenAMinute(GetParam());
  const Charge other{.key = "other", .limit = &limit};
  const Charge key{.key = "k", .limit = &limit};
  store.Check(other).value();
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(store.Check(key)->allowed);
  EXPECT_EQ(store.GetStats().keys, 1);
  EXPECT_EQ(store.GetStats().overflow_decisions, 7);

  EXPECT_TRUE(store.Reset(other).value());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(store.Check(key)->allowed) << i;
  EXPECT_FALSE(store.Check(key)->allowed);
  EXPECT_EQ(store.GetStats().keys, 1);
  EXPECT_EQ(store.GetStats().overflow_decisions, 7) << "it has a state of its own now";

  EXPECT_TRUE(store.Reset(key).value());
  EXPECT_EQ(store.Check(key)->remaining, 9) << "nothing of it is left in the sketch either";
}

TEST_P(MovesTest, AndIsResetInTheSketch) {
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock, .keys_max = 1});
  const Limit limit = TenAMinute(GetParam());
  const Charge key{.key = "k", .limit = &limit, .cost = 10};
  store.Check({.key = "other", .limit = &limit}).value();
  EXPECT_TRUE(store.Check(key)->allowed);
  EXPECT_FALSE(store.Check(key)->allowed);
  EXPECT_TRUE(store.Reset(key).value());
  EXPECT_FALSE(store.Reset(key).value());
  EXPECT_TRUE(store.Check(key)->allowed);
}

// What is recorded there may also belong to others.
TEST_P(MovesTest, AndIsNotGivenBackToInTheSketch) {
  ManualClock clock(kStart);
  MemoryStore store({.clock = &clock, .keys_max = 1});
  const Limit limit = TenAMinute(GetParam());
  store.Check({.key = "other", .limit = &limit}).value();
  const Charge key{.key = "k", .limit = &limit, .cost = 4};
  ASSERT_TRUE(store.Check(key)->allowed);
  const Decision left = store.Check({.key = "k", .limit = &limit, .cost = 0}).value();
  Request back{.charges = {&key, 1}, .action = Action::kGive};
  store.Apply({&back, 1}, [] {});
  EXPECT_TRUE(back.outcome->allowed);
  EXPECT_EQ(*back.outcome, left);
  EXPECT_EQ(store.GetStats().keys, 1);

  // With a state of its own, it is given back.
  EXPECT_TRUE(store.Reset({.key = "other", .limit = &limit}).value());
  EXPECT_TRUE(store.Check({.key = "k", .limit = &limit})->allowed);
  store.Apply({&back, 1}, [] {});
  EXPECT_GT(back.outcome->remaining, left.remaining);
}

INSTANTIATE_TEST_SUITE_P(All, MovesTest, testing::ValuesIn(kAlgorithms),
                         [](const auto& param) { return std::string(ToString(param.param)); });

}  // namespace
}  // namespace sluice
