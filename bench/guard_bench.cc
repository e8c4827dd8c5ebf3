// SPDX-License-Identifier: Apache-2.0
// The figures of the guard; bench/README.md explains each one.
//
// Starts its own redis-server. The last line of output is `guard_overhead=… deny_cache_gain=…`.
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "service/engine.h"
#include "service/service_metrics.h"
#include "sluice/guarded_store.h"
#include "sluice/redis_store.h"
#include "support/redis_server.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace {

using namespace sluice;
using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr int kRounds = 15;
constexpr int kKeys = 100'000;
constexpr int kInlineRounds = 101;
constexpr int kChecks = 100'000;
constexpr int kRedisChecks = 40'000;
constexpr int kCachedChecks = 1'000'000;
constexpr int kOutstanding = 64;

const Limit kBucket = *Limit::Parse("algorithm=token_bucket,capacity=100,refill=10,period=1s");
const Limit kExhausted = *Limit::Parse("algorithm=token_bucket,capacity=10,refill=10,period=1d");

// Calls that are slow because the machine is busy do not open the breaker here.
const GuardedStore::BreakerOptions kNever = {.failure_percent = 101, .slow_percent = 101};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "guard_bench: %s\n", why.c_str());
  std::exit(1);
}

double SecondsSince(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// Processor time of this thread: other threads do not count.
double ProcessorSeconds() {
  timespec used{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) Die("no clock");
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Seconds per check, made as a door makes it: a request is assembled, applied to the engine (or to
// a store), and its answer read.
template <typename Asked>
double Inline(Asked& asked, const std::vector<std::string>& keys) {
  std::int64_t answers = 0;
  const double start = ProcessorSeconds();
  for (int i = 0; i < kChecks; ++i) {
    const Charge charge{.key = keys[static_cast<std::size_t>(i) % keys.size()], .limit = &kBucket};
    Request request{.charges = {&charge, 1}};
    bool done = false;
    asked.Apply({&request, 1}, [&done] { done = true; });
    if (!done || !request.outcome) Die("no answer");
    answers += request.outcome->limit;
  }
  const double seconds = ProcessorSeconds() - start;
  if (answers != kChecks * kBucket.amount()) Die("not every answer is one");
  return seconds / kChecks;
}

// The ratio of with to without the guard: interleaved, each side first in turn.
template <typename Asked>
double Overhead(const char* what, Asked& bare, Asked& guarded,
                const std::vector<std::string>& keys) {
  std::vector<double> ratios;
  std::vector<double> bare_ns;
  std::vector<double> guarded_ns;
  Inline(bare, keys);
  for (int round = 0; round < kInlineRounds; ++round) {
    double without = 0;
    double with = 0;
    for (int turn = 0; turn < 2; ++turn) {
      if ((round + turn) % 2 == 0) {
        with = Inline(guarded, keys);
      } else {
        without = Inline(bare, keys);
      }
    }
    ratios.push_back(with / without);
    bare_ns.push_back(without * 1e9);
    guarded_ns.push_back(with * 1e9);
  }
  std::printf("in memory, %s: %.1f ns, with the guard %.1f ns, ratio %.3f\n", what, Median(bare_ns),
              Median(guarded_ns), Median(ratios));
  return Median(ratios);
}

// Decisions per second on one exhausted key, at most `kOutstanding` at a time: each slot asks again
// when it is its turn and it has been answered.
double Exhausted(Store& store, int checks) {
  struct Slot {
    Charge charge{.key = "attacker", .limit = &kExhausted};
    Request request;
    std::atomic<bool> answered = true;
  };
  std::vector<Slot> slots(kOutstanding);
  int allowed = 0;
  const auto read = [&allowed](Slot& slot) {
    slot.answered.wait(false, std::memory_order_acquire);
    if (!slot.request.outcome) Die(slot.request.outcome.error().message);
    allowed += slot.request.outcome->allowed ? 1 : 0;
  };
  const auto start = Steady::now();
  for (int i = 0; i < checks; ++i) {
    Slot& slot = slots[static_cast<std::size_t>(i) % kOutstanding];
    read(slot);
    slot.request = {.charges = {&slot.charge, 1}};
    slot.answered.store(false, std::memory_order_relaxed);
    store.Apply({&slot.request, 1}, [&slot] {
      slot.answered.store(true, std::memory_order_release);
      slot.answered.notify_one();
    });
  }
  for (Slot& slot : slots) read(slot);
  const double seconds = SecondsSince(start);
  if (allowed > 10) Die("the key is not exhausted");
  return checks / seconds;
}

// How long answers take when the store gives none, with the default deadline and without a breaker
// that would skip the wait.
void HungStore(const testing_support::RedisServer& server, Store& redis) {
  constexpr int kAnswers = 500;
  GuardedStore guard(redis, {.breaker = kNever});
  server.Signal(SIGSTOP);
  std::vector<double> latencies_ms(kAnswers);
  std::atomic<int> open = kAnswers;
  const Charge charge{.key = "k", .limit = &kBucket, .on_store_failure = OnStoreFailure::kLocal};
  std::vector<Request> requests(kAnswers, Request{.charges = {&charge, 1}});
  for (std::size_t i = 0; i < kAnswers; ++i) {
    const auto start = Steady::now();
    guard.Apply({&requests[i], 1}, [&, i, start] {
      latencies_ms[i] = SecondsSince(start) * 1e3;
      if (open.fetch_sub(1) == 1) open.notify_one();
    });
    std::this_thread::sleep_for(1ms);
  }
  for (int left = open; left != 0; left = open) open.wait(left);
  server.Signal(SIGCONT);
  std::ranges::sort(latencies_ms);
  std::printf("hung store, deadline 20 ms: answered after %.2f ms at p50, %.2f ms at p99\n",
              latencies_ms[kAnswers / 2], latencies_ms[kAnswers * 99 / 100]);
}

}  // namespace

int main() {
  std::vector<std::string> keys;
  std::mt19937_64 random(1);
  for (int i = 0; i < kKeys; ++i) keys.push_back("user:" + std::to_string(random() % 10'000'000));

  MemoryStore memory;
  GuardedStore guarded_memory(memory, GuardedStore::Options{});
  telemetry::Registry registry;
  service::ServiceMetrics metrics(registry, {.version = "bench"});
  telemetry::HeavyHitters hitters;
  telemetry::Logger logger({.level = telemetry::LogLevel::kInfo});
  const auto engine = [&](Store& store) {
    return service::Engine::Parts{
        .store = store, .metrics = metrics, .keys = hitters, .logger = logger};
  };
  service::Engine bare(engine(memory), nullptr);
  service::Engine guarded(engine(guarded_memory), nullptr);
  const double overhead = Overhead("100,000 keys", bare, guarded, keys);
  Overhead("one key", bare, guarded, {keys.front()});
  Store& bare_store = memory;
  Store& guarded_store = guarded_memory;
  Overhead("100,000 keys, the store alone", bare_store, guarded_store, keys);

  const testing_support::RedisServer server;
  const auto redis = RedisStore::Create({.uri = server.Uri("?timeout=10s")});
  if (!redis) Die(redis.error().message);
  GuardedStore without(**redis, {.deadline = 10s, .breaker = kNever, .deny_cache_entries = 0});
  GuardedStore with(**redis, {.deadline = 10s, .breaker = kNever});
  Exhausted(without, kRedisChecks);
  std::vector<double> gain;
  for (int round = 0; round < kRounds; ++round) {
    const double alone = Exhausted(**redis, kRedisChecks);
    const double direct = Exhausted(without, kRedisChecks);
    const double cached = Exhausted(with, kCachedChecks);
    std::printf(
        "round %d: exhausted key: Redis %.0f k/s, with the guard %.0f k/s, with its cache %.0f "
        "k/s\n",
        round + 1, alone / 1e3, direct / 1e3, cached / 1e3);
    gain.push_back(cached / direct);
  }
  HungStore(server, **redis);
  std::printf("guard_overhead=%.3f deny_cache_gain=%.0f\n", overhead, Median(gain));
  return 0;
}
