// SPDX-License-Identifier: Apache-2.0
// Redis decides like memory: the same random traffic, with injected time, must get the same answer
// in every field. property_test.cc compares memory with the reference model.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>
#include <string>
#include <vector>

#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"

namespace sluice {
namespace {

testing_support::RedisServer& Server() {
  static testing_support::RedisServer server;
  return server;
}

// What memory was asked and how it answered, to ask Redis all at once.
class Recording {
 public:
  // Decides on memory; the recording owns everything that the request points to.
  Expected<Decision> Ask(MemoryStore& memory, const std::vector<Charge>& charges,
                         std::int64_t now_us, Action action = Action::kCheck) {
    Step& step = steps_.emplace_back();
    for (const Charge& charge : charges) {
      step.keys.emplace_back(charge.key);
      step.names.emplace_back(charge.name);
      step.limits.push_back(*charge.limit);
    }
    for (std::size_t i = 0; i < charges.size(); ++i) {
      step.charges.push_back({.key = step.keys[i],
                              .limit = &step.limits[i],
                              .name = step.names[i],
                              .cost = charges[i].cost});
    }
    step.expected_each.resize(charges.size());
    step.each.resize(charges.size());
    step.expected_seen.resize(charges.size());
    step.seen.resize(charges.size());
    Request request{.charges = step.charges,
                    .now = At(now_us),
                    .each = step.expected_each,
                    .seen = step.expected_seen,
                    .action = action};
    memory.Apply({&request, 1}, [] {});
    step.expected = request.outcome;
    requests_.push_back({.charges = step.charges,
                         .now = At(now_us),
                         .each = step.each,
                         .seen = step.seen,
                         .action = action});
    return step.expected;
  }

  void ExpectSameOf(Store& store) {
    // A few at a time: the timeout is for all that wait together.
    constexpr std::size_t kAtOnce = 500;
    for (std::size_t i = 0; i < requests_.size(); i += kAtOnce) {
      std::promise<void> done;
      const std::size_t count = std::min(kAtOnce, requests_.size() - i);
      store.Apply(std::span(requests_).subspan(i, count), [&] { done.set_value(); });
      done.get_future().wait();
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const Expected<Decision>& outcome = requests_[i].outcome;
      SCOPED_TRACE("step " + std::to_string(i) +
                   " now=" + std::to_string(requests_[i].now->time_since_epoch().count()) + " " +
                   step.limits.front().ToString() +
                   (requests_[i].action == Action::kGive ? " give=" : " cost=") +
                   std::to_string(step.charges.front().cost));
      ASSERT_EQ(outcome.has_value(), step.expected.has_value())
          << (outcome ? "" : outcome.error().message);
      if (!outcome) {
        ASSERT_EQ(outcome.error().code, step.expected.error().code);
        ASSERT_EQ(outcome.error().message, step.expected.error().message);
        continue;
      }
      ASSERT_EQ(*outcome, *step.expected);
      ASSERT_EQ(step.each, step.expected_each);
      ASSERT_EQ(step.seen, step.expected_seen);
    }
  }

 private:
  struct Step {
    std::vector<std::string> keys;
    std::vector<std::string> names;
    std::vector<Limit> limits;
    std::vector<Charge> charges;
    std::vector<Decision> each;
    std::vector<Decision> expected_each;
    std::vector<SeenState> seen;
    std::vector<SeenState> expected_seen;
    Expected<Decision> expected = Decision{};
  };

  std::deque<Step> steps_;
  std::vector<Request> requests_;
};

// Records the same for Redis and memory, each in its own key space.
class RedisConformance : public testing::Test {
 protected:
  static std::unique_ptr<RedisStore> MakeRedis() {
    static int count = 0;
    return RedisStore::Create({.uri = Server().Uri("?timeout=60s&connect_timeout=60s&prefix=r" +
                                                   std::to_string(++count))})
        .value();
  }
  // Everything that was written expires by itself (defect 12).
  void TearDown() override {
    EXPECT_NE(Server().Cli("dbsize"), "0\n");
    EXPECT_EQ(Server().Cli("eval \"local n = 0; for _, k in ipairs(redis.call('keys', '*')) do "
                           "if redis.call('pttl', k) == -1 then n = n + 1 end end return n\" 0"),
              "0\n");
  }

  static MemoryStore::Options KeepingAll() { return {.recovered_kept_for = Micros::max()}; }

  // For every seed: Redis must answer as memory does to everything that `record` asks.
  template <typename Record>
  static void ExpectSame(Record record) {
    for (const std::uint64_t seed : Seeds()) {
      SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
      Random random(seed);
      const auto redis = MakeRedis();
      MemoryStore memory(KeepingAll());
      Recording recording;
      record(random, memory, recording);
      recording.ExpectSameOf(*redis);
    }
  }
};

class RedisAgreesWithMemory : public RedisConformance,
                              public testing::WithParamInterface<Algorithm> {};

TEST_P(RedisAgreesWithMemory, InEveryFieldOfEveryDecision) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    for (int round = 0; round < 200; ++round) {
      const Limit limit = RandomLimit(random, GetParam());
      std::int64_t now = kStartUs + random.Between(0, std::min(limit.span().count(), kStartUs));
      Decision last;
      for (int step = 0; step < 100; ++step) {
        now = NextTime(random, now, limit, last, Time::kAnyDirection);
        const std::string key = std::to_string(round) + ":" + std::to_string(random.Between(0, 1));
        // The same several times in a row is folded.
        const Action action = RandomAction(random);
        const std::int64_t cost = RandomCost(random, limit, action);
        for (std::int64_t times = random.OneIn(3) ? random.Between(2, 6) : 1; times > 0; --times) {
          const auto decision =
              recording.Ask(memory, {{.key = key, .limit = &limit, .cost = cost}}, now, action);
          if (decision) last = *decision;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, RedisAgreesWithMemory, testing::ValuesIn(kAlgorithms),
                         [](const auto& param) { return std::string(ToString(param.param)); });

// Requests over up to five limits, each on one of two keys.
void RecordGroups(Random& random, MemoryStore& memory, Recording& recording, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<Limit> limits;
    for (std::int64_t i = random.Between(1, 5); i > 0; --i) {
      limits.push_back(RandomLimit(random));
    }
    std::int64_t now = kStartUs;
    Decision last;
    for (int step = 0; step < 60; ++step) {
      const auto pick =
          static_cast<std::size_t>(random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
      now = NextTime(random, now, limits[pick], last, Time::kAnyDirection);
      const Action action = RandomAction(random);
      const std::int64_t cost = RandomCost(random, limits[pick], action);
      std::vector<std::string> keys;
      for (std::size_t i = 0; i < limits.size() + 1; ++i) {
        keys.push_back(std::to_string(round) + ":" + std::to_string(random.Between(0, 1)));
      }
      std::vector<Charge> charges;
      for (std::size_t i = 0; i < limits.size(); ++i) {
        const bool bounded = action == Action::kCheck;
        charges.push_back({.key = keys[i],
                           .limit = &limits[i],
                           .cost = bounded ? std::min(cost, limits[i].amount()) : cost});
        if (random.OneIn(5)) charges.back().cost = 0;
      }
      // Now and then a state occurs twice.
      if (random.OneIn(4)) charges.push_back(charges.front());
      const auto decision = recording.Ask(memory, charges, now, action);
      if (decision) last = *decision;
    }
  }
}

TEST_F(RedisConformance, GroupsOverSeveralKeysAndLimits) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    RecordGroups(random, memory, recording, 150);
  });
}

// In a Cluster, the two keys of a round are mostly in different slots.
TEST(RedisClusterConformance, SingleLimitsAndGroupsInOneSlotAndOverSeveral) {
  testing_support::RedisCluster cluster({.replicas = false});
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    const auto redis =
        RedisStore::Create({.uri = cluster.Uri("?timeout=60s&connect_timeout=60s&prefix=s" +
                                               std::to_string(seed))})
            .value();
    MemoryStore memory(MemoryStore::Options{.recovered_kept_for = Micros::max()});
    Recording recording;
    RecordGroups(random, memory, recording, 30);
    for (int step = 0; step < 1'000; ++step) {
      const Limit limit = RandomLimit(random);
      const std::string key = "single:" + std::to_string(random.Between(0, 99));
      const Action action = RandomAction(random);
      recording.Ask(memory,
                    {{.key = key, .limit = &limit, .cost = RandomCost(random, limit, action)}},
                    kStartUs + step, action);
    }
    recording.ExpectSameOf(*redis);
    EXPECT_EQ(redis->GetStats().refunds, 0) << "alone, nobody else is faster";
  }
  EXPECT_GT(cluster.Sum("dbsize"), 0);
  EXPECT_EQ(cluster.Sum("eval \"local n = 0; for _, k in ipairs(redis.call('keys', '*')) do "
                        "if redis.call('pttl', k) == -1 then n = n + 1 end end return n\" 0"),
            0);
}

TEST_F(RedisConformance, LimitsThatChangeUnderTheirName) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    for (int round = 0; round < 300; ++round) {
      std::vector<Limit> limits;
      for (int i = 0; i < 3; ++i) {
        limits.push_back(RandomLimit(random));
      }
      // One that differs from the first only in its amount.
      if (const auto other =
              Limit::Make(limits[0].algorithm(), limits[0].amount() + random.Between(1, 9),
                          limits[0].refill(), limits[0].span())) {
        limits.push_back(*other);
      }
      std::int64_t now = kStartUs;
      Decision last;
      std::size_t current = 0;
      for (int step = 0; step < 40; ++step) {
        if (random.OneIn(5)) {
          current = static_cast<std::size_t>(
              random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
        }
        const Limit& limit = limits[current];
        now = NextTime(random, now, limit, last, Time::kForward);
        const std::string key = std::to_string(round);
        const Action action = RandomAction(random);
        const std::int64_t cost = RandomCost(random, limit, action);
        const auto decision = recording.Ask(
            memory, {{.key = key, .limit = &limit, .name = "n", .cost = cost}}, now, action);
        if (decision) last = *decision;
      }
    }
  });
}

// What a counter still counts of a large debt exceeds a double in between.
TEST_F(RedisConformance, DebtsOfCountersAreExact) {
  ExpectSame([](Random& random, MemoryStore& memory, Recording& recording) {
    const Limit large = *Limit::Make(Algorithm::kFixedWindow, 1LL << 46, 1, std::chrono::days(365));
    for (int round = 0; round < 4'000; ++round) {
      const std::int64_t window = random.Between(1'000, 16'384);
      const std::int64_t amount = (1LL << 52) / window;
      const auto counter = Limit::Make(Algorithm::kSlidingWindowCounter, amount, 1, Micros{window});
      ASSERT_TRUE(counter);
      const std::string key = std::to_string(round);
      const auto ask = [&](const Limit& limit, std::int64_t cost, std::int64_t now) {
        (void)recording.Ask(memory, {{.key = key, .limit = &limit, .name = "n", .cost = cost}},
                            now);
      };
      ask(large, random.Between(1, large.amount()), kStartUs);
      ask(*counter, 0, kStartUs);
      ask(large, 0, kStartUs + random.Between(window / 2, 2 * window));
    }
  });
}

}  // namespace
}  // namespace sluice
