// SPDX-License-Identifier: Apache-2.0
// The guard around the Redis store and real servers that die, hang, fill up and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "sluice/guarded_store.h"
#include "sluice/redis_store.h"
#include "support/eventually.h"
#include "support/redis_server.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing_support::Eventually;
using testing_support::FreePort;
using testing_support::RedisServer;
using State = GuardedStore::BreakerState;
using Steady = std::chrono::steady_clock;

constexpr auto kLocal = OnStoreFailure::kLocal;
constexpr auto kOpen = OnStoreFailure::kFailOpen;
constexpr auto kClosed = OnStoreFailure::kFailClosed;

const Limit kThousand = *Limit::Parse("algorithm=fixed_window,limit=1000,window=1000d");
const Limit kFive = *Limit::Parse("algorithm=fixed_window,limit=5,window=1000d");

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

  Answer Ask(const Limit& limit, OnStoreFailure policy, std::string_view key = "k") {
    const Charge charge{.key = key, .limit = &limit, .on_store_failure = policy};
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

  // Far above what a healthy Redis takes on a busy machine.
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
  Connect("redis://127.0.0.1:" + std::to_string(port));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Ask(kThousand, kLocal).source, Source::kLocal);
    EXPECT_EQ(Ask(kThousand, kOpen).source, Source::kFailOpen);
    EXPECT_FALSE(Ask(kThousand, kClosed).outcome);
  }
  EXPECT_NE(breaker(), State::kClosed);
  const RedisServer server({.port = port});
  ASSERT_TRUE(Eventually([&] { return guard->GetStats().reported_units == 20; }))
      << "by itself, without a request";
  ASSERT_TRUE(Eventually([&] { return StoreDecides() && breaker() == State::kClosed; }));
  EXPECT_EQ(UsedInRedis(kThousand), 20);
}

TEST_F(GuardRedisTest, AHangingServerCostsTheDeadlineThenNothingAndThenRecovers) {
  const RedisServer server;
  Connect(server.Uri());
  ASSERT_TRUE(Eventually([&] { return StoreDecides(); }));
  server.Signal(SIGSTOP);
  const Answer first = Ask(kThousand, kClosed);
  EXPECT_EQ(first.outcome.error().code, ErrorCode::kOutcomeUnknown);
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(Ask(kThousand, kOpen).source, Source::kFailOpen);
    return breaker() == State::kOpen;
  }));
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
  Connect(server.Uri("?timeout=60s"));
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
    return stats.states_to_report == 0 && stats.in_flight == 0;
  }));
  const auto stats = guard->GetStats();
  EXPECT_TRUE(both_happened());
  EXPECT_EQ(stats.dropped_units, 0);
  EXPECT_EQ(stats.local_units, stats.charged_units + stats.reported_units + stats.recovered_units);
  EXPECT_EQ(UsedInRedis(kThousand), allowed);
}

TEST_F(GuardRedisTest, AKilledServerIsUsedAgainWhenItIsBack) {
  RedisServer server;
  Connect(server.Uri());
  ASSERT_TRUE(Eventually([&] { return StoreDecides(); }));
  std::atomic<bool> stop = false;
  std::atomic<std::int64_t> answered = 0;
  std::jthread load([&] {
    while (!stop) {
      const Answer answer = Ask(kThousand, kOpen, std::to_string(answered % 100));
      EXPECT_TRUE(answer.outcome) << answer.outcome.error().message;
      ++answered;
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
  stop = true;
  load.join();
  ASSERT_TRUE(Eventually([&] { return guard->GetStats().in_flight == 0; }));
}

TEST_F(GuardRedisTest, AFullServerIsAFailureAndNoDenial) {
  const RedisServer server(
      {.arguments = {"--maxmemory", "1mb", "--maxmemory-policy", "noeviction"}});
  Connect(server.Uri());
  ASSERT_TRUE(Eventually([&] { return Ask(kThousand, kOpen).source == Source::kFailOpen; }));
  const Answer closed = Ask(kThousand, kClosed);
  ASSERT_FALSE(closed.outcome);
  EXPECT_EQ(guard->GetStatus().last_failure->code, ErrorCode::kStoreFull);
  EXPECT_EQ(Ask(kThousand, kLocal).source, Source::kLocal);
}

TEST_F(GuardRedisTest, AnExhaustedKeyIsDeniedWithoutTheServer) {
  const RedisServer server;
  Connect(server.Uri());
  ASSERT_TRUE(Eventually([&] { return StoreDecides(); }));
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

  std::promise<void> reset;
  guard->Reset({.key = "k", .limit = &kFive}, [&](auto held) {
    EXPECT_TRUE(held.value());
    reset.set_value();
  });
  reset.get_future().wait();
  EXPECT_TRUE(Ask(kFive, kClosed).outcome->allowed);
}

}  // namespace
}  // namespace sluice
