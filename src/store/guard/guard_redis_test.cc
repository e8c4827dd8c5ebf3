// SPDX-License-Identifier: Apache-2.0
// The guard around the Redis store and real servers that die, hang, fill up and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "sluice/guarded_store.h"
#include "sluice/redis_store.h"
#include "support/eventually.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"
#include "support/reset.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing_support::Eventually;
using testing_support::FreePort;
using testing_support::RedisCluster;
using testing_support::RedisServer;
using testing_support::ResetAndWait;
using State = GuardedStore::BreakerState;
using Steady = std::chrono::steady_clock;

constexpr auto kLocal = OnStoreFailure::kLocal;
constexpr auto kOpen = OnStoreFailure::kFailOpen;
constexpr auto kClosed = OnStoreFailure::kFailClosed;
constexpr auto kPassed = Source::kFailOpen;

const Limit kThousand = *Limit::Parse("algorithm=fixed_window,limit=1000,window=1000d");
const Limit kFive = *Limit::Parse("algorithm=fixed_window,limit=5,window=1000d");

// For a store that must succeed, however busy the machine is.
const std::string kPatient = "?timeout=60s&connect_timeout=60s";

struct Answer {
  Expected<Decision> outcome;
  Source source;
};

class GuardRedisTest : public testing::Test {
 protected:
  void Connect(const std::string& uri) {
    auto created = RedisStore::Create({.uri = uri});
    ASSERT_TRUE(created) << created.error().message;
    redis = *std::move(created);
    guard.emplace(*redis, options);
  }

  Answer Ask(const Limit& limit, OnStoreFailure policy, std::string_view key = "k",
             std::int64_t cost = 1) {
    const Charge charge{.key = key, .limit = &limit, .cost = cost, .on_store_failure = policy};
    Request request{.charges = {&charge, 1}};
    std::promise<void> done;
    guard->Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
    return {std::move(request.outcome), request.source};
  }

  bool StoreDecides() { return Ask(kThousand, kOpen, "other").source == Source::kStore; }
  State breaker() { return guard->GetStatus().breaker; }

  std::int64_t UsedInRedis(const Limit& limit, std::string_view key = "k") {
    return limit.amount() - redis->Check({.key = key, .limit = &limit, .cost = 0})->remaining;
  }

  // Far longer than a healthy Redis takes on a busy machine.
  GuardedStore::Options options{.deadline = 100ms,
                                .breaker = {.minimum_calls = 5,
                                            .slow_percent = 101,
                                            .open_min = 50ms,
                                            .open_max = 100ms,
                                            .probe_deadline = 100ms}};
  std::unique_ptr<RedisStore> redis;
  std::optional<GuardedStore> guard;
};

TEST_F(GuardRedisTest, StartsWithoutRedisAndReportsWhatWasTakenMeanwhile) {
  const int port = FreePort();
  options.instances = 2;
  Connect("redis://127.0.0.1:" + std::to_string(port) + kPatient);
  // A busy machine may miss a deadline first, which proves nothing yet.
  ASSERT_TRUE(Eventually([&] { return Ask(kThousand, kOpen, "first").source == kPassed; }));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Ask(kThousand, kLocal).source, Source::kLocal);
    EXPECT_EQ(Ask(kThousand, kOpen).source, kPassed);
    EXPECT_FALSE(Ask(kThousand, kClosed).outcome);
  }
  EXPECT_NE(breaker(), State::kClosed);
  const RedisServer server({.port = port});
  ASSERT_TRUE(Eventually([&] { return guard->GetStats().reported_units >= 20; }))
      << "by itself, without a request";
  ASSERT_TRUE(Eventually([&] { return StoreDecides() && breaker() == State::kClosed; }));
  EXPECT_EQ(UsedInRedis(kThousand), 20);
}

// A foreign value under a state's name fails the requests for that state, however many, and proves
// nothing about Redis.
TEST_F(GuardRedisTest, AForeignValueIsNoOutage) {
  const RedisServer server;
  options.deadline = 60s;
  Connect(server.Uri(kPatient));
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=5,window=1000d");
  for (const std::string type : {"lpush 'K' x", "hset 'K' f v", "xadd 'K' '*' f v", "sadd 'K' x",
                                 "set 'K' text", "zadd 'K' 1 x"}) {
    SCOPED_TRACE(type);
    for (const Limit* limit : {&kFive, &log}) {
      ASSERT_TRUE(Ask(*limit, kClosed, "bad").outcome);
      std::string name = server.Cli("eval \"return redis.call('keys', '*bad*')[1]\" 0");
      name.pop_back();  // The end of the line.
      server.Cli("del '" + name + "'");
      std::string command = type;
      server.Cli(command.replace(command.find('K'), 1, name));
      for (int i = 0; i < 50; ++i) {
        const Answer closed = Ask(*limit, kClosed, "bad");
        ASSERT_FALSE(closed.outcome);
        EXPECT_EQ(closed.outcome.error().code, ErrorCode::kForeignState);
        EXPECT_EQ(Ask(*limit, kOpen, "bad").source, Source::kFailOpen);
      }
      for (int i = 0; i < 5; ++i) {
        const Answer local = Ask(*limit, kLocal, "bad");
        EXPECT_EQ(local.source, Source::kLocal);
      }
      EXPECT_TRUE(StoreDecides());
      server.Cli("flushall");
    }
  }
  EXPECT_EQ(breaker(), State::kClosed);
  EXPECT_EQ(guard->GetStats().transitions, 0);
  EXPECT_FALSE(guard->GetStatus().last_failure);
  EXPECT_EQ(redis->GetStats().unavailable, 0);
}

TEST_F(GuardRedisTest, AHangingServerCostsTheDeadlineThenNothingAndThenRecovers) {
  const RedisServer server;
  Connect(server.Uri());
  ASSERT_TRUE(Eventually([&] { return StoreDecides(); }));
  server.Signal(SIGSTOP);
  const Answer first = Ask(kThousand, kClosed);
  EXPECT_EQ(first.outcome.error().code, ErrorCode::kOutcomeUnknown);
  ASSERT_TRUE(Eventually([&] {
    const Source source = Ask(kThousand, kOpen).source;
    EXPECT_TRUE(source == Source::kOverload || source == kPassed);
    return breaker() == State::kOpen && source == kPassed;
  })) << "silence is an outage";
  EXPECT_GT(guard->GetStats().deadline_misses, 1);
  server.Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return StoreDecides() && breaker() == State::kClosed; }));
  ASSERT_TRUE(Eventually([&] { return guard->GetStats().in_flight == 0; }));
  const auto stats = guard->GetStats();
  EXPECT_EQ(stats.deadline_misses,
            stats.late_charged + stats.late_not_charged + stats.late_unknown);
}

// While writes are paused, requests are decided locally and the store charges them later: neither
// counts twice and neither is lost.
TEST_F(GuardRedisTest, APausedServerIsChargedForEachUnitOnce) {
  options.deadline = 20ms;
  options.breaker.probe_deadline = 20ms;
  const RedisServer server;
  Connect(server.Uri(kPatient));
  ASSERT_TRUE(Eventually([&] { return StoreDecides(); }));
  std::int64_t allowed = 0;
  const auto both_happened = [&] {
    const auto stats = guard->GetStats();
    return stats.charged_units > 0 && stats.reported_units > 0;
  };
  for (int round = 0; round < 20 && !both_happened(); ++round) {
    ASSERT_TRUE(server.Cli("CLIENT PAUSE 250 WRITE").starts_with("OK"));
    const auto misses = guard->GetStats().deadline_misses;
    for (int i = 0; i < 40 || guard->GetStats().deadline_misses == misses; ++i) {
      const Answer answer = Ask(kThousand, kLocal);
      ASSERT_TRUE(answer.outcome) << answer.outcome.error().message;
      allowed += answer.outcome->allowed ? 1 : 0;
    }
    ASSERT_TRUE(Eventually([&] { return StoreDecides() && breaker() == State::kClosed; }));
  }
  ASSERT_TRUE(Eventually([&] {
    const auto stats = guard->GetStats();
    return stats.in_flight == 0 &&
           stats.local_units == stats.charged_units + stats.reported_units + stats.recovered_units;
  }));
  EXPECT_TRUE(both_happened());
  EXPECT_EQ(guard->GetStats().dropped_units, 0);
  EXPECT_EQ(UsedInRedis(kThousand), allowed);
}

TEST_F(GuardRedisTest, AKilledServerIsUsedAgainWhenItIsBack) {
  RedisServer server;
  Connect(server.Uri());
  ASSERT_TRUE(Eventually([&] { return StoreDecides(); }));
  std::jthread load([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      const Answer answer = Ask(kThousand, kOpen, std::to_string(i % 100));
      EXPECT_TRUE(answer.outcome) << answer.outcome.error().message;
    }
  });
  for (int round = 0; round < 3; ++round) {
    server.Kill();
    const auto degraded = guard->GetStats().failed_open;
    ASSERT_TRUE(Eventually([&] { return guard->GetStats().failed_open > degraded + 100; }));
    server.Start();
    const auto by_store = guard->GetStats().by_store;
    ASSERT_TRUE(Eventually([&] { return guard->GetStats().by_store > by_store + 100; }));
  }
  load.request_stop();
  load.join();
  ASSERT_TRUE(Eventually([&] { return guard->GetStats().in_flight == 0; }));
}

TEST_F(GuardRedisTest, AFullServerTurnsNoLimitOff) {
  const RedisServer server(
      {.arguments = {"--maxmemory", "1mb", "--maxmemory-policy", "noeviction"}});
  options.deadline = 1min;
  Connect(server.Uri(kPatient));
  ASSERT_TRUE(Eventually([&] {
    Ask(kThousand, kOpen);
    return guard->GetStats().overload_full > 0;
  }));
  EXPECT_FALSE(Ask(kThousand, kClosed).outcome) << "no denial, but an error";
  EXPECT_EQ(Ask(kThousand, kLocal).source, Source::kOverload);
  const auto undecided = guard->GetStats().failed_open;
  for (int i = 0; i < 20; ++i) {
    const Answer answer = Ask(kFive, kOpen);
    EXPECT_EQ(answer.source, Source::kOverload);
    EXPECT_EQ(answer.outcome->allowed, i < 5);
  }
  EXPECT_EQ(guard->GetStats().failed_open, undecided);
}

TEST_F(GuardRedisTest, AnExhaustedKeyIsDeniedWithoutTheServer) {
  const RedisServer server;
  options.deadline = 1min;
  options.breaker.failure_percent = 101;
  options.deny_cache_trust = kSpanMax;
  Connect(server.Uri(kPatient));
  // A store that begins to listen forgets what it remembered.
  ASSERT_TRUE(Eventually([&] { return redis->GetStats().listening == 1 && StoreDecides(); }));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Ask(kFive, kClosed).outcome->allowed);
  const Answer denied = Ask(kFive, kClosed);
  EXPECT_FALSE(denied.outcome->allowed);
  const auto calls = redis->GetStats().calls;
  for (int i = 0; i < 10'000; ++i) {
    const Answer again = Ask(kFive, kClosed);
    ASSERT_FALSE(again.outcome->allowed);
    ASSERT_EQ(again.source, Source::kDenyCache);
    ASSERT_LE(again.outcome->retry_after, denied.outcome->retry_after);
  }
  EXPECT_EQ(redis->GetStats().calls, calls);

  EXPECT_TRUE(ResetAndWait(*guard, {.key = "k", .limit = &kFive}).value());
  EXPECT_TRUE(Ask(kFive, kClosed).outcome->allowed);
}

// Sends one request for each key and collects the outcomes.
class Burst {
 public:
  Burst(GuardedStore& guard, const Limit& limit, std::vector<std::string> keys)
      : keys_(std::move(keys)) {
    for (const std::string& key : keys_) {
      charges_.push_back({.key = key, .limit = &limit, .on_store_failure = kOpen});
    }
    requests_.resize(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      requests_[i].charges = std::span(charges_).subspan(i, 1);
      guard.Apply({&requests_[i], 1}, [this] { ++done_; });
    }
  }

  bool done() const { return done_ == keys_.size(); }
  std::int64_t By(Source source) const {
    return std::ranges::count(requests_, source, &Request::source);
  }
  void AddGranted(std::map<std::string, std::int64_t>& granted) const {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      ASSERT_TRUE(requests_[i].outcome) << requests_[i].outcome.error().message;
      granted[keys_[i]] += requests_[i].outcome->allowed ? 1 : 0;
    }
  }

 private:
  const std::vector<std::string> keys_;
  std::vector<Charge> charges_;
  std::vector<Request> requests_;
  std::atomic<std::size_t> done_ = 0;
};

std::vector<std::string> Keys(std::string_view prefix, int count, int times = 1) {
  std::vector<std::string> keys;
  for (int i = 0; i < count * times; ++i) {
    keys.push_back(std::string(prefix) + std::to_string(i % count));
  }
  return keys;
}

// A burst of distinct keys at a server that cannot keep up lets nobody pass undecided, takes no
// places from known clients, and gives nothing to a client that was denied.
TEST_F(GuardRedisTest, AFloodAtABusyServerDoesNotTurnLimitsOff) {
  constexpr int kFlood = 32'000;
  constexpr int kHonest = 100;
  constexpr int kGreedy = 100;  // Keys of the flood that ask again and again.
  const RedisServer server;
  options.deadline = 1min;
  options.in_flight_max = 1'024;
  options.instances = 2;
  options.deny_cache_trust = kSpanMax;
  options.breaker.failure_percent = 101;
  Connect(server.Uri(kPatient));
  ASSERT_TRUE(Eventually([&] { return redis->GetStats().listening == 1 && StoreDecides(); }));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Ask(kFive, kOpen, "denied").outcome->allowed, i < 5);
  std::map<std::string, std::int64_t> granted;
  {
    const Burst known(*guard, kFive, Keys("honest", kHonest));
    ASSERT_TRUE(Eventually([&] { return known.done(); }));
    known.AddGranted(granted);
  }

  ASSERT_TRUE(server.Cli("CLIENT PAUSE 600000 WRITE").starts_with("OK"));
  const Burst flood(*guard, kFive, Keys("flood", kFlood));
  const Burst greedy(*guard, kFive, Keys("flood", kGreedy, 20));
  const Burst honest(*guard, kFive, Keys("honest", kHonest));
  for (int i = 0; i < 100; ++i) {
    const Answer denied = Ask(kFive, kOpen, "denied");
    EXPECT_FALSE(denied.outcome->allowed);
    EXPECT_EQ(denied.source, Source::kDenyCache);
  }
  EXPECT_TRUE(guard->GetStatus().overloaded);
  ASSERT_TRUE(server.Cli("CLIENT UNPAUSE").starts_with("OK"));
  ASSERT_TRUE(Eventually([&] { return flood.done() && greedy.done() && honest.done(); }));

  const std::int64_t by_store = flood.By(Source::kStore);
  std::printf("of %d fresh keys %lld by the store, of %d known ones %lld; %lld let through\n",
              kFlood, static_cast<long long>(by_store), kHonest,
              static_cast<long long>(honest.By(Source::kStore)),
              static_cast<long long>(guard->GetStats().failed_open));
  EXPECT_EQ(guard->GetStats().failed_open, 0);
  EXPECT_EQ(by_store + flood.By(Source::kOverload), kFlood);
  EXPECT_LE(by_store, 512);
  EXPECT_EQ(honest.By(Source::kStore), kHonest);

  flood.AddGranted(granted);
  greedy.AddGranted(granted);
  honest.AddGranted(granted);
  for (const auto& [key, units] : granted) EXPECT_LE(units, 5 + 2) << key;

  // A report that is about to be sent is in neither of the counts of what is left to do.
  ASSERT_TRUE(Eventually([&] {
    const auto stats = guard->GetStats();
    return stats.local_units == stats.reported_units + stats.charged_units;
  })) << "to the unit";
  EXPECT_EQ(UsedInRedis(kFive, "flood31999"), 1);
  EXPECT_EQ(UsedInRedis(kFive, "honest0"), 2);
  EXPECT_EQ(UsedInRedis(kFive, "denied"), 5);
}

// The two algorithms that reveal the least about their state.
TEST_F(GuardRedisTest, AnAttackWithManyCostsHardlyReachesTheServer) {
  constexpr std::int64_t kCosts = 10;
  const RedisServer server;
  options.deadline = 1min;
  options.breaker.failure_percent = 101;
  options.deny_cache_trust = kSpanMax;
  Connect(server.Uri(kPatient));
  ASSERT_TRUE(Eventually([&] { return redis->GetStats().listening == 1 && StoreDecides(); }));
  for (const auto& [text, questions] :
       {std::pair("algorithm=sliding_window,limit=20,window=1000d", kCosts),
        std::pair("algorithm=sliding_window_counter,limit=20,window=1000d", std::int64_t{1})}) {
    SCOPED_TRACE(text);
    const Limit limit = *Limit::Parse(text);
    const auto began = Steady::now();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(Ask(limit, kClosed).outcome->allowed);
    const auto calls = redis->GetStats().calls;
    for (int i = 0; i < 10'000; ++i) {
      ASSERT_FALSE(Ask(limit, kClosed, "k", 1 + i % kCosts).outcome->allowed);
    }
    EXPECT_EQ(redis->GetStats().calls - calls, questions);

    for (std::int64_t cost = 1; cost <= kCosts; ++cost) {
      const Answer cached = Ask(limit, kClosed, "k", cost);
      EXPECT_EQ(cached.source, Source::kDenyCache);
      const auto direct = redis->Check({.key = "k", .limit = &limit, .cost = cost});
      EXPECT_FALSE(direct->allowed);
      EXPECT_EQ(cached.outcome->remaining, direct->remaining);
      // The two may differ by the time between them, and by the time that the server once took.
      const Micros apart = std::chrono::ceil<Micros>(Steady::now() - began) + 1ms;
      for (const auto wait : {&Decision::retry_after, &Decision::reset_after}) {
        EXPECT_LE((*cached.outcome).*wait, *direct.*wait + apart);
        EXPECT_GE((*cached.outcome).*wait, *direct.*wait - apart);
      }
    }
  }
}

// One of several instances. It never asks again by itself about what it remembers, and is patient.
class Instance {
 public:
  explicit Instance(const std::string& uri)
      : redis_(RedisStore::Create({.uri = uri}).value()),
        guard_(*redis_, {.deadline = 1min,
                         .breaker = {.failure_percent = 101, .slow_percent = 101},
                         .deny_cache_trust = kSpanMax}) {
    EXPECT_TRUE(Eventually([&] { return redis_->GetStats().listening == 1; }));
  }

  Source Deny(std::string_view key) {
    const Charge charge{.key = key, .limit = &kFive, .cost = 5};
    Request request{.charges = {&charge, 1}};
    std::promise<void> done;
    guard_.Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
    EXPECT_TRUE(request.outcome) << request.outcome.error().message;
    return request.source;
  }

  // Until this instance denies the key without asking.
  void Exhaust(std::string_view key) {
    EXPECT_TRUE(Eventually([&] { return Deny(key) == Source::kDenyCache; }));
  }

  Expected<bool> Reset(std::string_view key) {
    return ResetAndWait(guard_, {.key = key, .limit = &kFive});
  }

  // Returns what is left afterwards.
  std::int64_t Give(std::string_view key, std::int64_t units) {
    const Charge charge{.key = key, .limit = &kFive, .cost = units};
    Request request{.charges = {&charge, 1}, .action = Action::kGive};
    std::promise<void> done;
    guard_.Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
    EXPECT_TRUE(request.outcome) << request.outcome.error().message;
    return request.outcome->remaining;
  }

  std::int64_t remembered() const { return guard_.GetStats().deny_cache_entries; }
  RedisStore& redis() { return *redis_; }

 private:
  std::unique_ptr<RedisStore> redis_;
  GuardedStore guard_;
};

// When one instance makes a budget larger, no other denies it from memory; other budgets are
// unaffected.
void ExpectShared(const std::string& uri) {
  Instance one(uri);
  Instance two(uri);
  const std::vector<std::string> keys = {"plain", "{braces}", std::string("\0\r\n*", 4),
                                         std::string(kKeyBytesMax, 'x')};
  two.Exhaust("other");
  for (const std::string& key : keys) {
    one.Exhaust(key);
    two.Exhaust(key);
    EXPECT_TRUE(one.Reset(key).value());
    EXPECT_TRUE(Eventually([&] { return two.Deny(key) == Source::kStore; })) << key;
  }
  for (const std::string& key : keys) {
    one.Exhaust(key);
    two.Exhaust(key);
    EXPECT_EQ(one.Give(key, 2), 2);
    EXPECT_EQ(one.Deny(key), Source::kStore) << key;
    EXPECT_TRUE(Eventually([&] { return two.Deny(key) == Source::kStore; })) << key;
  }
  EXPECT_EQ(two.Deny("other"), Source::kDenyCache);

  one.Exhaust("other");
  const auto purger = RedisStore::Create({.uri = uri}).value();
  EXPECT_TRUE(purger->Purge("other", true));
  EXPECT_EQ(two.Deny("other"), Source::kDenyCache) << "a dry run";
  EXPECT_EQ(purger->Purge("other", false)->matched, 1);
  EXPECT_TRUE(Eventually([&] { return one.remembered() == 0 && two.remembered() == 0; }));
}

TEST(GuardInstances, HearOfResetsAndPurges) {
  const RedisServer server;
  ExpectShared(server.Uri(kPatient));
}

TEST(GuardInstances, HearOfResetsAndPurgesInACluster) {
  const RedisCluster cluster({.replicas = false});
  ExpectShared(cluster.Uri(kPatient));
}

TEST(GuardInstances, ForgetAllWhenTheyMayHaveMissedSomething) {
  RedisServer server;
  Instance instance(server.Uri(kPatient));
  instance.Exhaust("k");
  ASSERT_TRUE(server.Cli("CLIENT KILL TYPE pubsub").starts_with("1"));
  EXPECT_TRUE(Eventually([&] { return instance.remembered() == 0; }));
  EXPECT_TRUE(Eventually([&] { return instance.redis().GetStats().listening == 1; }));

  instance.Exhaust("k");
  server.Kill();
  EXPECT_EQ(instance.Deny("k"), Source::kDenyCache);
  EXPECT_TRUE(Eventually([&] { return instance.redis().GetStats().listening == 0; }));
  server.Start();  // Without its old state.
  EXPECT_TRUE(Eventually([&] { return instance.remembered() == 0; }));
}

// A reset that others may not have heard of is not reported as a success.
TEST(GuardInstances, SayThatAResetWasNotAnnounced) {
  const RedisServer server;
  Instance instance(server.Uri(kPatient));
  instance.Exhaust("k");
  server.Cli("ACL SETUSER default -publish");
  EXPECT_EQ(instance.Reset("k").error().code, ErrorCode::kAccessDenied);
  EXPECT_EQ(instance.Deny("k"), Source::kStore);
}

}  // namespace
}  // namespace sluice
