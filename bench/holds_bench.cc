// SPDX-License-Identifier: Apache-2.0
// What holds cost; bench/README.md explains each figure.
//
// Starts its own redis-server. The last line of output is
// `hold_settle_vs_check=… concurrency_vs_setnx=…`.
#include <array>
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
#include <string_view>
#include <utility>
#include <vector>

#include "measure.h"
#include "redis/connection.h"
#include "sluice/sluice.h"
#include "store/redis/redis_loop.h"
#include "support/redis_server.h"

namespace {

namespace asio = boost::asio;
using namespace sluice;
using namespace std::chrono_literals;
using bench::Median;
using bench::ThreadNanos;
using testing_support::RedisServer;
using Steady = std::chrono::steady_clock;

constexpr int kKeys = 100'000;
constexpr int kMemoryRounds = 31;
constexpr int kMemoryOperations = 100'000;  // In a round, for each side.
constexpr int kOutstanding = 256;
constexpr int kRedisRounds = 7;
constexpr int kRedisOperations = 20'000;
constexpr Micros kTtl = 30s;

// The semaphore of textbooks: holders by expiry, of which the expired are removed first.
constexpr std::string_view kSemaphoreScript = R"(
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  return 1
end
return 0
)";

// Neither is ever used up.
const Limit kBucket = *Limit::Parse("algorithm=token_bucket,capacity=5000000,refill=1,period=1h");
const Limit kSlots = *Limit::Parse("algorithm=concurrency,limit=1000,ttl=30s");

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "holds_bench: %s\n", why.c_str());
  std::exit(1);
}

std::vector<std::string> MakeKeys() {
  std::vector<std::string> keys;
  for (int i = 0; i < kKeys; ++i) keys.push_back("user:" + std::to_string(1'000'000'000 + i));
  return keys;
}

const std::vector<std::string>& Keys() {
  static const auto& keys = *new std::vector<std::string>(MakeKeys());
  return keys;
}

// Which key, for as many operations as there are in a round.
std::vector<std::size_t> Choices(bool one_key, int operations) {
  std::mt19937_64 random(1);
  std::vector<std::size_t> choices;
  for (int i = 0; i < operations; ++i) choices.push_back(one_key ? 0 : random() % kKeys);
  return choices;
}

// The ids of a round, which no other has: 32 digits, as NewHoldId makes them.
std::vector<std::string> Ids(int operations) {
  static std::mt19937_64 random(2);
  std::vector<std::string> ids;
  for (int i = 0; i < operations; ++i) {
    std::array<char, 33> id{};
    std::snprintf(id.data(), id.size(), "%016llx%016llx", static_cast<unsigned long long>(random()),
                  static_cast<unsigned long long>(random()));
    ids.emplace_back(id.data());
  }
  return ids;
}

class Memory {
 public:
  explicit Memory(bool one_key) : choices_(Choices(one_key, kMemoryOperations)) {
    for (const std::string& key : Keys()) Ask(key, Action::kCheck, nullptr, 1);
  }

  // Nanoseconds of the thread for one check, or for a hold and its settle.
  double Check() {
    const double start = ThreadNanos();
    for (const std::size_t i : choices_) Ask(Keys()[i], Action::kCheck, nullptr, 1);
    return (ThreadNanos() - start) / kMemoryOperations;
  }
  double HoldAndSettle() {
    // The ids of the last round are forgotten in this one, as in a service that runs on.
    clock_.Advance(2min);
    const std::vector<std::string> ids = Ids(kMemoryOperations);
    const double start = ThreadNanos();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const std::string& key = Keys()[choices_[i]];
      HoldTerms terms{.id = ids[i], .ttl = kTtl};
      Ask(key, Action::kHold, &terms, 2);
      Ask(key, Action::kSettle, &terms, 1);
    }
    return (ThreadNanos() - start) / kMemoryOperations;
  }

 private:
  void Ask(const std::string& key, Action action, HoldTerms* terms, std::int64_t cost) {
    const Charge charge{.key = key, .limit = &kBucket, .cost = cost};
    Request request{.charges = {&charge, 1}, .action = action, .hold = terms};
    store_.ApplyInline({&request, 1});
    if (!request.outcome) Die(request.outcome.error().message);
    if (!request.outcome->allowed) Die("a request was denied");
  }

  const std::vector<std::size_t> choices_;
  ManualClock clock_{TimePoint{std::chrono::seconds{1'700'000'000}}};
  MemoryStore store_{{.clock = &clock_}};
};

double HoldSettleVsCheck(const char* what, bool one_key) {
  Memory checked(one_key);
  Memory held(one_key);
  held.HoldAndSettle();
  std::vector<double> ratios, checks, holds;
  for (int round = 0; round < kMemoryRounds; ++round) {
    checks.push_back(checked.Check());
    holds.push_back(held.HoldAndSettle());
    ratios.push_back(holds.back() / checks.back());
  }
  std::printf("in memory, %s: check %.0f ns, hold and settle %.0f ns, ratio %.2f\n", what,
              Median(checks), Median(holds), Median(ratios));
  return Median(ratios);
}

// One redis-server, the store in front of it, and a bare client beside it.
class Redis {
 public:
  Redis() {
    const auto endpoint = redis::Endpoint::Parse(server_.Uri("?timeout=60s"));
    if (!endpoint) Die(endpoint.error().message);
    loop_ = std::make_shared<redis::RedisLoop>(context_.get_executor(), *endpoint, nullptr);
    loop_->Start();
    bool ready = false;
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> {
          co_await Connect(endpoint->addresses.front());
          ready = true;
        },
        asio::detached);
    RunUntil([&] { return ready; });
  }

  // Seconds for all checks, or for as many pairs of a hold and its settle, `kOutstanding` at a
  // time.
  double Checks(const Limit& limit, const std::vector<std::size_t>& choices) {
    return Through(limit, choices, false);
  }
  double Holds(const Limit& limit, const std::vector<std::size_t>& choices) {
    return Through(limit, choices, true);
  }

  // The same with the script of a semaphore.
  double Semaphores(const std::vector<std::size_t>& choices) {
    const std::vector<std::string> ids = Ids(static_cast<int>(choices.size()));
    const std::string limit = std::to_string(kSlots.amount());
    const std::string ttl_ms = std::to_string(kTtl / 1ms);
    std::size_t started = 0;
    std::size_t ended = 0;
    std::function<void()> next = [&] {
      if (started == choices.size()) return;
      const std::size_t pair = started++;
      const std::string key = "semaphore:" + Keys()[choices[pair]];
      const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::system_clock::now().time_since_epoch());
      connection_->Send(
          redis::Command("EVALSHA", semaphore_sha_, "1", key, std::to_string(now.count()), limit,
                         std::to_string((now + kTtl / 1ms * 1ms).count()), ids[pair], ttl_ms),
          [&, key, pair](auto acquired) {
            ExpectOne(acquired);
            connection_->Send(redis::Command("ZREM", key, ids[pair]), [&](auto released) {
              ExpectOne(released);
              ++ended;
              next();
            });
          });
    };
    return Timed(next, [&] { return ended == choices.size(); });
  }

 private:
  // What one caller waits for.
  struct Slot {
    std::string_view id;
    Charge charge;
    HoldTerms terms;
    Request request;
  };

  double Through(const Limit& limit, const std::vector<std::size_t>& choices, bool holds) {
    const std::vector<std::string> ids = Ids(static_cast<int>(choices.size()));
    std::vector<Slot> slots(kOutstanding);
    std::size_t free_slot = 0;
    std::size_t started = 0;
    std::size_t ended = 0;
    const auto ask = [&](Slot& slot, Action action, auto then) {
      slot.request = {.charges = {&slot.charge, 1},
                      .action = action,
                      .hold = action == Action::kCheck ? nullptr : &slot.terms};
      loop_->Apply({&slot.request, 1}, [&slot, then] {
        if (!slot.request.outcome) Die(slot.request.outcome.error().message);
        if (!slot.request.outcome->allowed) Die("a request was denied");
        then();
      });
    };
    std::function<void(Slot&)> next = [&](Slot& slot) {
      if (started == choices.size()) return;
      const std::size_t pair = started++;
      slot.charge = {.key = Keys()[choices[pair]], .limit = &limit};
      slot.terms = {.id = ids[pair], .ttl = kTtl};
      const auto end = [&] {
        ++ended;
        next(slot);
      };
      if (!holds) return ask(slot, Action::kCheck, end);
      ask(slot, Action::kHold, [&ask, &slot, end] {
        slot.charge.cost = 0;
        ask(slot, Action::kSettle, end);
      });
    };
    return Timed([&] { next(slots[free_slot++]); }, [&] { return ended == choices.size(); });
  }

  // Seconds from the first of `kOutstanding` starts until all is done.
  template <typename Start, typename Done>
  double Timed(Start start_one, Done done) {
    const auto start = Steady::now();
    for (int i = 0; i < kOutstanding; ++i) start_one();
    RunUntil(done);
    return std::chrono::duration<double>(Steady::now() - start).count();
  }

  static void ExpectOne(const Expected<std::span<const redis::RespNode>>& reply) {
    if (!reply || reply->front().number != 1) Die("unexpected reply");
  }

  asio::awaitable<void> Connect(const redis::Address& address) {
    connection_ = std::make_shared<redis::Connection>(
        context_.get_executor(), redis::Connection::Options{.address = address});
    if (!co_await connection_->Open()) Die("cannot connect");
    const std::string load = redis::Command("SCRIPT", "LOAD", kSemaphoreScript);
    const auto sha = co_await connection_->Ask(load);
    if (!sha) Die(sha.error().message);
    semaphore_sha_ = sha->front();
  }

  template <typename Condition>
  void RunUntil(Condition condition) {
    while (!condition()) context_.run_one();
  }

  RedisServer server_;
  asio::io_context context_{1};
  std::shared_ptr<redis::RedisLoop> loop_;
  std::shared_ptr<redis::Connection> connection_;
  std::string semaphore_sha_;
};

// The median of `other / one`, each in seconds, and a line with both.
template <typename One, typename Other>
double Compare(const char* one_name, One one, const char* other_name, Other other) {
  one();
  other();
  std::vector<double> ratios, ones, others;
  for (int round = 0; round < kRedisRounds; ++round) {
    ones.push_back(one());
    others.push_back(other());
    ratios.push_back(others.back() / ones.back());
  }
  std::printf("%s %.1f k/s, %s %.1f k/s, ratio %.2f\n", one_name,
              kRedisOperations / Median(ones) / 1e3, other_name,
              kRedisOperations / Median(others) / 1e3, Median(ratios));
  std::fflush(stdout);
  return Median(ratios);
}

}  // namespace

int main() {
  const double in_memory = HoldSettleVsCheck("100,000 keys", false);
  HoldSettleVsCheck("one key", true);

  Redis redis;
  const auto random = Choices(false, kRedisOperations);
  const auto one_key = Choices(true, kRedisOperations);
  Compare(
      "in Redis, 100,000 keys: checks", [&] { return redis.Checks(kBucket, random); },
      "holds and settles", [&] { return redis.Holds(kBucket, random); });
  Compare(
      "in Redis, one key: slots", [&] { return redis.Holds(kSlots, one_key); }, "semaphores",
      [&] { return redis.Semaphores(one_key); });
  const double slots = Compare(
      "in Redis, 100,000 keys: slots", [&] { return redis.Holds(kSlots, random); }, "semaphores",
      [&] { return redis.Semaphores(random); });
  std::printf("hold_settle_vs_check=%.2f concurrency_vs_setnx=%.2f\n", in_memory, slots);
  std::fflush(stdout);
  std::_Exit(0);
}
