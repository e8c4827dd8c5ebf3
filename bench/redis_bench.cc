// SPDX-License-Identifier: Apache-2.0
// The figures of the Redis store; bench/README.md explains each one.
//
// Starts its own redis-server. The last line of output is
// `batch_vs_direct=… hot_vs_direct=… idle_overhead=…`.
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "redis/connection.h"
#include "store/redis/redis_loop.h"
#include "store/redis/script.h"
#include "support/redis_server.h"

namespace {

namespace asio = boost::asio;
using namespace sluice;
using Clock = std::chrono::steady_clock;

constexpr int kKeys = 100'000;
constexpr int kOutstanding = 256;
constexpr int kRounds = 7;
constexpr int kChecks = 100'000;  // In a round, for each side.
constexpr int kIdleChecks = 3'000;

// The token bucket of the specification, as a baseline: a hash, five commands.
constexpr std::string_view kPlainScript = R"(
local capacity, rate, now, requested =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill')
local tokens, last_refill = tonumber(bucket[1]), tonumber(bucket[2])
if tokens == nil then
  tokens = capacity
  last_refill = now
end
tokens = math.min(capacity, tokens + (now - last_refill) * rate)
local allowed, remaining = 0, tokens
if tokens >= requested then
  tokens = tokens - requested
  allowed = 1
  remaining = tokens
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'last_refill', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) + 1)
return {allowed, math.floor(remaining), math.ceil((capacity - remaining) / rate)}
)";

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "redis_bench: %s\n", why.c_str());
  std::exit(1);
}

class Bench {
 public:
  Bench() {
    const auto endpoint = redis::Endpoint::Parse(server_.Uri("?timeout=60s"));
    loop_ = std::make_shared<redis::RedisLoop>(context_.get_executor(), *endpoint, nullptr);
    loop_->Start();
    connection_ = std::make_shared<redis::Connection>(
        context_.get_executor(),
        redis::Connection::Options{.address = endpoint->addresses.front()});
    bool ready = false;
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> {
          if (!co_await connection_->Open()) Die("cannot connect");
          const std::string load = redis::Command("SCRIPT", "LOAD", kPlainScript);
          const auto sha = co_await connection_->Ask(load);
          plain_sha_ = sha->front();
          ready = true;
        },
        asio::detached);
    RunUntil([&] { return ready; });
    for (int i = 0; i < kKeys; ++i) keys_.push_back("user:" + std::to_string(1'000'000'000 + i));
  }

  // Checks through the store, `outstanding` at a time; seconds for all of them.
  double ThroughStore(int checks, int outstanding, bool hot) {
    struct Slot {
      Charge charge;
      Request request;
    };
    std::vector<Slot> slots(static_cast<std::size_t>(outstanding));
    int started = 0;
    int done = 0;
    std::function<void(Slot&)> next = [&](Slot& slot) {
      if (started == checks) return;
      ++started;
      slot.charge = {.key = Key(hot), .limit = &limit_};
      slot.request = {.charges = {&slot.charge, 1}};
      loop_->Apply({&slot.request, 1}, [&] {
        if (!slot.request.outcome) Die(slot.request.outcome.error().message);
        ++done;
        next(slot);
      });
    };
    const auto start = Clock::now();
    for (Slot& slot : slots) next(slot);
    RunUntil([&] { return done == checks; });
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // The same number of script calls, one per check, pipelined on one connection.
  double Direct(int checks, int outstanding, bool hot, bool own_script) {
    int started = 0;
    int done = 0;
    std::string command;
    std::function<void()> next = [&] {
      if (started == checks) return;
      ++started;
      command.clear();
      if (own_script) {
        Charge charge{.key = Key(hot), .limit = &limit_};
        Request request{.charges = {&charge, 1}};
        redis::Batch batch;
        batch.Add({.request = &request}, "direct", 1);
        batch.AppendCommand(command, redis::ProgramForm::kFunction);
      } else {
        const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
        command =
            redis::Command("EVALSHA", plain_sha_, "1", "rate_limiter:token_bucket:" + Key(hot),
                           "100", "10", std::to_string(now), "1");
      }
      connection_->Send(command, [&](auto reply) {
        if (!reply || reply->front().type == redis::RespType::kError) Die("unexpected reply");
        ++done;
        next();
      });
    };
    const auto start = Clock::now();
    for (int i = 0; i < outstanding; ++i) next();
    RunUntil([&] { return done == checks; });
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // The median latency in seconds of checks one at a time, by `one`.
  template <typename One>
  double MedianLatency(One one) {
    std::vector<double> latencies;
    for (int i = 0; i < kIdleChecks; ++i) latencies.push_back(one());
    std::ranges::nth_element(latencies, latencies.begin() + kIdleChecks / 2);
    return latencies[kIdleChecks / 2];
  }

 private:
  const std::string& Key(bool hot) {
    return keys_[hot ? 0 : std::uniform_int_distribution<std::size_t>(0, kKeys - 1)(random_)];
  }

  template <typename Condition>
  void RunUntil(Condition condition) {
    while (!condition()) context_.run_one();
  }

  testing_support::RedisServer server_;
  asio::io_context context_{1};
  std::shared_ptr<redis::RedisLoop> loop_;
  std::shared_ptr<redis::Connection> connection_;
  std::string plain_sha_;
  const Limit limit_ = *Limit::Parse("algorithm=token_bucket,capacity=100,refill=10,period=1s");
  std::vector<std::string> keys_;
  std::mt19937_64 random_{1};
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main() {
  Bench bench;
  // Before anything is timed, give nearly every key its state.
  bench.ThroughStore(5 * kKeys, kOutstanding, false);
  bench.Direct(5 * kKeys, kOutstanding, false, false);
  std::vector<double> batch, hot, idle;
  for (int round = 0; round < kRounds; ++round) {
    const double store = bench.ThroughStore(kChecks, kOutstanding, false);
    const double direct = bench.Direct(kChecks, kOutstanding, false, false);
    const double store_hot = bench.ThroughStore(kChecks, kOutstanding, true);
    const double direct_hot = bench.Direct(kChecks, kOutstanding, true, false);
    const double idle_store = bench.MedianLatency([&] { return bench.ThroughStore(1, 1, false); });
    const double idle_direct = bench.MedianLatency([&] { return bench.Direct(1, 1, false, true); });
    std::printf(
        "round %d: random keys %.0f k/s, one EVALSHA each %.0f k/s; one key %.0f k/s, %.0f k/s; "
        "alone %.1f us, %.1f us\n",
        round + 1, kChecks / store / 1e3, kChecks / direct / 1e3, kChecks / store_hot / 1e3,
        kChecks / direct_hot / 1e3, idle_store * 1e6, idle_direct * 1e6);
    batch.push_back(direct / store);
    hot.push_back(direct_hot / store_hot);
    idle.push_back(idle_store / idle_direct);
  }
  std::printf("batch_vs_direct=%.2f hot_vs_direct=%.2f idle_overhead=%.2f\n", Median(batch),
              Median(hot), Median(idle));
  std::fflush(stdout);
  std::_Exit(0);
}
