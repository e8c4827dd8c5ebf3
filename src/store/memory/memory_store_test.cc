// SPDX-License-Identifier: Apache-2.0
#include "sluice/memory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "sluice/limiter.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr TimePoint kStart{Micros{1'700'000'000'000'000}};

Limit Bucket(std::int64_t capacity, std::int64_t refill = 1, Micros period = 1s) {
  return *Limit::TokenBucket({.capacity = capacity, .refill = refill, .period = period});
}

Limit Log(std::int64_t limit, Micros window = 1s) {
  return *Limit::SlidingWindow({.limit = limit, .window = window});
}

class MemoryStoreTest : public testing::Test {
 protected:
  std::unique_ptr<MemoryStore> Make(MemoryStore::Options options = {}) {
    options.clock = &clock_;
    return std::make_unique<MemoryStore>(options);
  }

  ManualClock clock_{kStart};
};

TEST_F(MemoryStoreTest, LimiterTakesPeeksAndResets) {
  Limiter limiter(Bucket(2), {.clock = &clock_});
  EXPECT_EQ(limiter.Peek("a")->remaining, 2);
  EXPECT_TRUE(limiter.Check("a")->allowed);
  EXPECT_TRUE(limiter.Check("a")->allowed);
  const auto denied = limiter.Check("a");
  EXPECT_FALSE(denied->allowed);
  EXPECT_EQ(denied->retry_after, 1s);
  EXPECT_EQ(limiter.Peek("b")->remaining, 2) << "each key has its own budget";
  EXPECT_TRUE(limiter.Reset("a").value());
  EXPECT_FALSE(limiter.Reset("a").value()) << "nothing is held any more";
  EXPECT_EQ(limiter.Peek("a")->remaining, 2);
  clock_.Advance(1s);
  EXPECT_EQ(limiter.store().GetStats().keys, 0);
}

TEST_F(MemoryStoreTest, TellsBadInputApartFromADenial) {
  Limiter limiter(Bucket(5), {.clock = &clock_});
  EXPECT_EQ(limiter.Check("").error().code, ErrorCode::kInvalidKey);
  EXPECT_EQ(limiter.Check(std::string(kKeyBytesMax + 1, 'k')).error().code, ErrorCode::kInvalidKey);
  EXPECT_TRUE(limiter.Check(std::string(kKeyBytesMax, 'k')));
  EXPECT_EQ(limiter.Check("a", -1).error().code, ErrorCode::kInvalidCost);
  const auto exceeds = limiter.Check("a", 6);
  EXPECT_EQ(exceeds.error().code, ErrorCode::kCostExceedsLimit);
  EXPECT_THAT(exceeds.error().message, HasSubstr("cost 6"));
  EXPECT_FALSE(exceeds.error().transient());
  const Limit limit = Bucket(5);
  MemoryStore& store = limiter.store();
  EXPECT_EQ(store.Check({.key = "a", .limit = &limit}, TimePoint{Micros{-1}}).error().code,
            ErrorCode::kInvalidTime);
  EXPECT_EQ(store.Check({.key = "a", .limit = &limit}, kTimeMax + 1us).error().code,
            ErrorCode::kInvalidTime);
  EXPECT_EQ(store.CheckAll({}).error().code, ErrorCode::kInvalidRequest);
  const std::vector<Charge> many(kChargesMax + 1, Charge{.key = "a", .limit = &limit});
  EXPECT_EQ(store.CheckAll(many).error().code, ErrorCode::kInvalidRequest);
  const Charge one{.key = "a", .limit = &limit};
  std::vector<Decision> room_for_two(2);
  EXPECT_EQ(store.CheckAll({&one, 1}, room_for_two).error().code, ErrorCode::kInvalidRequest);
  const std::string name(kNameBytesMax + 1, 'n');
  EXPECT_EQ(store.Check({.key = "a", .limit = &limit, .name = name}).error().code,
            ErrorCode::kInvalidRequest);
}

TEST_F(MemoryStoreTest, KeysOfAnyBytesAreDistinct) {
  Limiter limiter(Bucket(1), {.clock = &clock_});
  using namespace std::string_literals;
  for (const std::string& key : {"a"s, "a\0"s, "a\0\0"s, "\0"s, "{a}"s, "a:"s, ":a"s, "\xff\xfe"s,
                                 std::string(8, 'a'), std::string(9, 'a'), std::string(255, 'a'),
                                 std::string(256 + 7, 'a'), std::string(1024, 'a')}) {
    EXPECT_TRUE(limiter.Check(key)->allowed) << key.size();
    EXPECT_FALSE(limiter.Check(key)->allowed);
  }
}

TEST_F(MemoryStoreTest, LimitsWithoutANameNeverShareState) {
  const auto store = Make();
  const Limit a = Bucket(1);
  const Limit b = Bucket(1, 1, 2s);
  EXPECT_TRUE(store->Check({.key = "k", .limit = &a})->allowed);
  EXPECT_TRUE(store->Check({.key = "k", .limit = &b})->allowed);
  EXPECT_FALSE(store->Check({.key = "k", .limit = &a})->allowed);
  EXPECT_TRUE(store->Check({.key = "k", .limit = &a, .name = "other"})->allowed);
}

TEST_F(MemoryStoreTest, ADenialWritesNothing) {
  const auto store = Make();
  const Limit loose = Bucket(100);
  const Limit tight = *Limit::FixedWindow({.limit = 1, .window = 1h});
  const std::vector<Charge> charges = {{.key = "k", .limit = &loose},
                                       {.key = "k", .limit = &tight}};
  ASSERT_TRUE(store->CheckAll(charges)->allowed);
  std::vector<Decision> each(2);
  for (int i = 0; i < 10; ++i) {
    const auto denied = store->CheckAll(charges, each);
    EXPECT_FALSE(denied->allowed);
    EXPECT_EQ(denied->remaining, 0);
    EXPECT_TRUE(each[0].allowed) << "the one that did not deny";
    EXPECT_EQ(each[0].remaining, 99) << "is not charged (defect 4)";
    EXPECT_FALSE(each[1].allowed);
  }
  const Limit other = Bucket(3);
  store->Check({.key = "new", .limit = &other, .cost = 0}).value();
  EXPECT_EQ(store->GetStats().keys, 2) << "a peek makes no state";
}

TEST_F(MemoryStoreTest, ChargesOfOneStateAddUp) {
  const auto store = Make();
  const Limit limit = Bucket(10);
  const std::vector<Charge> charges(3, Charge{.key = "k", .limit = &limit, .cost = 3});
  std::vector<Decision> each(3);
  ASSERT_TRUE(store->CheckAll(charges, each)->allowed);
  for (const Decision& decision : each) EXPECT_EQ(decision.remaining, 1);
  EXPECT_FALSE(store->CheckAll(charges)->allowed);
  EXPECT_EQ(store->Check({.key = "k", .limit = &limit, .cost = 0})->remaining, 1);

  const Limit log = Log(10);
  const std::vector<Charge> logged(3, Charge{.key = "k", .limit = &log, .cost = 3});
  ASSERT_TRUE(store->CheckAll(logged)->allowed);
  EXPECT_EQ(store->Check({.key = "k", .limit = &log, .cost = 0})->remaining, 1);

  const std::vector<Charge> too_much(4, Charge{.key = "x", .limit = &limit, .cost = 3});
  EXPECT_EQ(store->CheckAll(too_much).error().code, ErrorCode::kCostExceedsLimit);
}

TEST_F(MemoryStoreTest, RefusesTwoLimitsUnderOneName) {
  const auto store = Make();
  const Limit a = Bucket(1);
  const Limit b = Bucket(2);
  const std::vector<Charge> charges = {{.key = "k", .limit = &a, .name = "n"},
                                       {.key = "k", .limit = &b, .name = "n"}};
  EXPECT_EQ(store->CheckAll(charges).error().code, ErrorCode::kInvalidRequest);
}

TEST_F(MemoryStoreTest, DropsRecoveredStateAsTrafficGoesOn) {
  const auto store = Make();
  const std::vector<Limit> limits = {Bucket(1), Log(1), *Limit::FixedWindow({1, 1s}),
                                     *Limit::SlidingWindowCounter({1, 1s})};
  for (int i = 0; i < 40'000; ++i) {
    const std::string key = std::to_string(i);
    ASSERT_TRUE(
        store->Check({.key = key, .limit = &limits[static_cast<std::size_t>(i) % 4]})->allowed);
  }
  EXPECT_EQ(store->GetStats().keys, 40'000);
  const auto full = store->GetStats();
  clock_.Advance(2s);
  const Limit other = Bucket(1'000'000);
  for (int i = 0; i < 400'000; ++i) {
    store->Check({.key = std::to_string(i % 300), .limit = &other}).value();
  }
  const auto stats = store->GetStats();
  EXPECT_EQ(stats.keys, 300);
  EXPECT_EQ(stats.dropped, 40'000);
  EXPECT_EQ(stats.log_entries, 0);
  EXPECT_LT(stats.bytes, full.bytes / 4);
}

TEST_F(MemoryStoreTest, AFloodOfFreshKeysResetsNoLiveCounter) {
  constexpr int kLive = 1000;
  const auto store = Make({.keys_max = kLive});
  const Limit limit = Bucket(2, 1, 1h);
  const auto check = [&](const std::string& key, std::int64_t cost = 1) {
    return store->Check({.key = key, .limit = &limit, .cost = cost}).value();
  };
  for (int i = 0; i < kLive; ++i) check("victim" + std::to_string(i), 2);
  int admitted = 0;
  for (int i = 0; i < 200'000; ++i) {
    admitted += check("flood" + std::to_string(i)).allowed;
    clock_.Advance(10us);
  }
  for (int i = 0; i < kLive; ++i) EXPECT_FALSE(check("victim" + std::to_string(i)).allowed);
  // Each cell of the sketch has the limit's full budget; beyond that, keys share.
  EXPECT_LE(admitted, 2 * (24 * kLive + 256 * 80));
  EXPECT_LE(store->GetStats().keys, kLive);
  EXPECT_GT(store->GetStats().overflow_decisions, 190'000);

  // Once the victims have recovered, new keys get budgets of their own again.
  clock_.Advance(3h);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(check("late" + std::to_string(i)).remaining, 1);
}

TEST_F(MemoryStoreTest, AFullStoreReclaimsRecoveredStateFromAnyShard) {
  const auto store = Make({.keys_max = 10});
  const Limit limit = Bucket(1);
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 10; ++i) {
      const std::string key = std::to_string(round) + ":" + std::to_string(i);
      ASSERT_TRUE(store->Check({.key = key, .limit = &limit})->allowed);
    }
    clock_.Advance(1s);
  }
  EXPECT_EQ(store->GetStats().overflow_decisions, 0);
  EXPECT_LE(store->GetStats().keys, 10);
}

TEST_F(MemoryStoreTest, BoundsWhatLogsRememberAndKeepsTheirLimits) {
  const auto store = Make({.log_entries_max = 1000});
  const Limit limit = Log(5'000, 1h);
  for (int i = 0; i < 5'000; ++i) {
    clock_.Advance(1us);
    const auto decision = store->Check({.key = "k", .limit = &limit});
    ASSERT_TRUE(decision->allowed);
    ASSERT_EQ(decision->remaining, 4'999 - i);
    ASSERT_EQ(decision->reset_after, 1h);
  }
  EXPECT_LE(store->GetStats().log_entries, 2048) << "room doubles as it grows";
  // The newest of the merged requests leaves last.
  const auto denied = store->Check({.key = "k", .limit = &limit, .cost = 4'900});
  EXPECT_FALSE(denied->allowed);
  EXPECT_EQ(denied->retry_after, 1h);
  clock_.Advance(1h - 1us);
  EXPECT_FALSE(store->Check({.key = "k", .limit = &limit, .cost = 4'900})->allowed);
  clock_.Advance(1us);
  EXPECT_TRUE(store->Check({.key = "k", .limit = &limit, .cost = 4'900})->allowed);
}

TEST_F(MemoryStoreTest, AFloodOfLogsTurnsNoLimitOff) {
  constexpr int kEntries = 1000;
  const auto store = Make({.log_entries_max = kEntries});
  const Limit limit = Log(5, 1h);
  const auto check = [&](const std::string& key) {
    clock_.Advance(1us);
    return store->Check({.key = key, .limit = &limit}).value();
  };
  for (int i = 0; i < 5; ++i) check("exhausted");
  check("known");
  for (int i = 0; i < 10 * kEntries; ++i) check("flood" + std::to_string(i));
  EXPECT_FALSE(check("exhausted").allowed);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(check("known").remaining, 3 - i);
  EXPECT_FALSE(check("known").allowed);
  for (int i = 0; i < 500; ++i) {
    const std::string key = "honest" + std::to_string(i);
    for (int n = 0; n < 5; ++n) EXPECT_TRUE(check(key).allowed) << i;
    EXPECT_FALSE(check(key).allowed);
  }
  EXPECT_LE(store->GetStats().log_entries, 2 * kEntries);
  EXPECT_GT(store->GetStats().overflow_decisions, 8 * kEntries);
}

TEST_F(MemoryStoreTest, LogsFindRoomAgainOnceTheirRequestsHaveLeft) {
  const auto store = Make({.log_entries_max = 1000});
  const Limit limit = Log(5);
  const auto check = [&](const std::string& key) {
    return store->Check({.key = key, .limit = &limit});
  };
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(check(std::to_string(i))->allowed);
  // Full: the sketch decides on new keys, and existing keys keep theirs.
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(check("new" + std::to_string(i))->allowed);
  EXPECT_EQ(store->GetStats().overflow_decisions, 1000);
  EXPECT_EQ(store->Check({.key = "7", .limit = &limit, .cost = 0})->remaining, 4);
  clock_.Advance(24h);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(check(std::to_string(i))) << i;
  EXPECT_EQ(store->GetStats().overflow_decisions, 1000) << "there is room again";
}

TEST_F(MemoryStoreTest, AGroupNeverTakesTheStorePastItsBound) {
  const auto store = Make({.keys_max = 10});
  const Limit limit = Bucket(1, 1, 1h);
  std::vector<std::string> keys;
  for (int i = 0; i < 64; ++i) keys.push_back("x" + std::to_string(i));
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(store->Check({.key = std::to_string(i), .limit = &limit}));
  }
  std::vector<Charge> charges;
  for (const std::string& key : keys) charges.push_back({.key = key, .limit = &limit});
  EXPECT_TRUE(store->CheckAll(charges)->allowed);
  EXPECT_EQ(store->GetStats().keys, 10);
  EXPECT_GT(store->GetStats().overflow_decisions, 60);
  for (const Charge& charge : charges) EXPECT_FALSE(store->Check(charge)->allowed);
  EXPECT_FALSE(store->CheckAll(charges)->allowed);
}

TEST_F(MemoryStoreTest, ForgetsLimitsThatNoStateRefersTo) {
  const auto store = Make();
  // Over time, many more different limits than a shard could number at once.
  for (int i = 1; i <= 200'000; ++i) {
    const Limit limit = Bucket(i, 1000, 1us);
    ASSERT_TRUE(store->Check({.key = "k", .limit = &limit, .name = "n"}));
    clock_.Advance(1s);
  }
  EXPECT_LT(store->GetStats().bytes, 1'000'000);
}

TEST_F(MemoryStoreTest, ApplyDecidesManyAsIfOneByOne) {
  const auto together = Make();
  const auto one_by_one = Make();
  const Limit bucket = Bucket(3);
  const Limit log = Log(4);
  const std::array<std::string, 4> keys = {"a", "b", "c", ""};  // The last is not valid.
  std::vector<std::array<Charge, 2>> charges;
  for (std::size_t i = 0; i < 100; ++i) {
    charges.push_back({Charge{.key = keys[i % 7 % 4], .limit = i % 3 == 0 ? &log : &bucket},
                       Charge{.key = keys[i % 3], .limit = &bucket, .cost = i % 5 == 0 ? 9 : 1}});
  }
  std::vector<Request> requests;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    requests.push_back({.charges = std::span(charges[i]).first(i % 11 == 0 ? 2 : 1)});
    if (i % 13 == 0) requests.back().now = kStart + std::chrono::milliseconds{i};
  }
  together->Apply(requests, [] {});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto expected = one_by_one->CheckAll(requests[i].charges, {}, requests[i].now);
    ASSERT_EQ(requests[i].outcome.has_value(), expected.has_value()) << i;
    if (expected) {
      EXPECT_EQ(*requests[i].outcome, *expected) << i;
    } else {
      EXPECT_EQ(requests[i].outcome.error().code, expected.error().code) << i;
    }
  }
}

TEST_F(MemoryStoreTest, ApplyAnswersEveryRequestAndThenSaysSo) {
  const auto store = Make();
  const Limit limit = Bucket(2);
  const Charge good{.key = "k", .limit = &limit, .cost = 2};
  const Charge bad{.key = "", .limit = &limit};
  Decision each;
  std::vector<Request> requests(3);
  requests[0].charges = {&good, 1};
  requests[0].each = {&each, 1};
  requests[1].charges = {&bad, 1};
  requests[2].charges = {&good, 1};
  int done = 0;
  store->Apply(requests, [&] { ++done; });
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(requests[0].outcome->allowed);
  EXPECT_EQ(each, *requests[0].outcome);
  EXPECT_EQ(requests[1].outcome.error().code, ErrorCode::kInvalidKey);
  EXPECT_FALSE(requests[2].outcome->allowed);
}

// Defect 18: a limit's numbers change while its name, and so its state, stays.
class ChangedLimit : public MemoryStoreTest {
 protected:
  // Takes `used` units under `before`; returns what remains under `after` at the same moment.
  std::int64_t RemainingAfterChange(const Limit& before, std::int64_t used, const Limit& after) {
    const auto store = Make();
    store->Check({.key = "k", .limit = &before, .name = "n", .cost = used}).value();
    return store->Check({.key = "k", .limit = &after, .name = "n", .cost = 0})->remaining;
  }
};

TEST_F(ChangedLimit, KeepsWhatWasUsedAndARaisedOneTakesEffectAtOnce) {
  const std::vector<Limit> tens = {Bucket(10),
                                   Bucket(10, 7, 3s),
                                   Log(10),
                                   Log(10, 1h),
                                   *Limit::LeakyBucket({10, 1, 1s}),
                                   *Limit::Gcra({9, 1, 1s}),
                                   *Limit::FixedWindow({10, 1h}),
                                   *Limit::FixedWindow({10, 24h}),
                                   *Limit::SlidingWindowCounter({10, 1h}),
                                   *Limit::SlidingWindowCounter({10, 24h})};
  const std::vector<Limit> hundreds = {Bucket(100),
                                       Bucket(100, 7, 3s),
                                       Log(100),
                                       Log(100, 1h),
                                       *Limit::LeakyBucket({100, 1, 1s}),
                                       *Limit::Gcra({99, 1, 1s}),
                                       *Limit::FixedWindow({100, 1h}),
                                       *Limit::FixedWindow({100, 24h}),
                                       *Limit::SlidingWindowCounter({100, 1h}),
                                       *Limit::SlidingWindowCounter({100, 24h})};
  for (const Limit& ten : tens) {
    for (const Limit& hundred : hundreds) {
      SCOPED_TRACE(ten.ToString() + " and " + hundred.ToString());
      EXPECT_EQ(RemainingAfterChange(ten, 4, hundred), 96);
      EXPECT_EQ(RemainingAfterChange(hundred, 4, ten), 6);
      EXPECT_EQ(RemainingAfterChange(hundred, 40, ten), 0) << "a lowered one never grants more";
    }
  }
}

TEST_F(ChangedLimit, HandsNothingOutWhenItGoesBackAndForth) {
  for (const Limit& large : {Bucket(100, 100, 1h), Log(100, 1h), *Limit::FixedWindow({100, 1h}),
                             *Limit::SlidingWindowCounter({100, 1h})}) {
    for (const Limit& small : {Bucket(1, 1, 1h), Log(1, 1h), *Limit::FixedWindow({1, 1h}),
                               *Limit::SlidingWindowCounter({1, 1h})}) {
      SCOPED_TRACE(large.ToString() + " and " + small.ToString());
      const auto store = Make();
      int admitted = 0;
      for (int i = 0; i < 1000; ++i) {
        const Limit& limit = i % 2 == 0 ? large : small;
        admitted += store->Check({.key = "k", .limit = &limit, .name = "n"})->allowed;
      }
      EXPECT_EQ(admitted, 100);
    }
  }
}

TEST_F(ChangedLimit, NeverMovesTimeBackwards) {
  const auto store = Make();
  const Limit before = Bucket(100, 1, 1s);
  const Limit after = Bucket(100, 2, 1s);
  store->Check({.key = "k", .limit = &before, .name = "n", .cost = 100}).value();
  const Charge peek{.key = "k", .limit = &after, .name = "n", .cost = 0};
  clock_.Advance(-200s);
  EXPECT_EQ(store->Check(peek)->remaining, 0);
  clock_.Advance(200s);
  EXPECT_EQ(store->Check(peek)->remaining, 0);
}

TEST_F(ChangedLimit, IsLeftAloneByARequestThatIsRefused) {
  const auto store = Make();
  const Limit large = Bucket(100, 1, 1h);
  const Limit small = Bucket(1, 1, 1h);
  store->Check({.key = "k", .limit = &large, .name = "n", .cost = 100}).value();
  const std::vector<Charge> both = {{.key = "k", .limit = &small, .name = "n"},
                                    {.key = "k", .limit = &large, .name = "n"}};
  EXPECT_EQ(store->CheckAll(both).error().code, ErrorCode::kInvalidRequest);
  EXPECT_EQ(store->Check({.key = "k", .limit = &large, .name = "n", .cost = 0})->remaining, 0);

  const Limit fast = Bucket(100, 100, 1s);
  const Charge most{.key = "k", .limit = &fast, .name = "n", .cost = 99};
  EXPECT_EQ(store->CheckAll(std::vector{most, most}).error().code, ErrorCode::kCostExceedsLimit);
  clock_.Advance(1s);
  EXPECT_EQ(store->Check({.key = "k", .limit = &large, .name = "n", .cost = 0})->remaining, 0)
      << "it has not been the fast one's meanwhile";
}

TEST_F(ChangedLimit, GoesOnFromTheCarriedState) {
  const auto store = Make();
  const Limit before = Bucket(10);
  const Limit after = *Limit::FixedWindow({.limit = 5, .window = 1h});
  store->Check({.key = "k", .limit = &before, .name = "n", .cost = 3}).value();
  const Charge charge{.key = "k", .limit = &after, .name = "n"};
  EXPECT_TRUE(store->Check(charge)->allowed);
  EXPECT_TRUE(store->Check(charge)->allowed);
  EXPECT_FALSE(store->Check(charge)->allowed);
  EXPECT_EQ(store->GetStats().keys, 1);
}

}  // namespace
}  // namespace sluice
