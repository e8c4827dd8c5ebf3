// SPDX-License-Identifier: Apache-2.0
// The figures of the Redis store; bench/README.md explains each one.
//
// Starts its own servers: one alone, and Clusters of 1, 3 and 6 masters. The last line of output
// has all figures.
#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redis/connection.h"
#include "redis/slots.h"
#include "store/redis/redis_loop.h"
#include "store/redis/script.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"

namespace {

namespace asio = boost::asio;
using namespace sluice;
using testing_support::RedisCluster;
using testing_support::RedisServer;
using Clock = std::chrono::steady_clock;

constexpr int kKeys = 100'000;
constexpr int kOutstanding = 256;
constexpr int kPipeline = 16;
constexpr int kRounds = 7;
constexpr int kChecks = 100'000;  // In a round, for each side.
constexpr int kTurns = 11;        // Of both sides, in a round.
constexpr int kSingleChecks = 50'000;
constexpr int kIdleChecks = 3'000;
constexpr std::array kFew = {1, 2, 4, 8};
constexpr int kFewChecks = 4'000;  // For each that is outstanding.
constexpr std::array<std::size_t, 3> kMasters = {1, 3, 6};
constexpr int kMastersRounds = 3;

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

// The number after `field` in what INFO replies.
double InfoNumber(const std::string& info, std::string_view field) {
  const auto at = info.find(field);
  return at == std::string::npos ? 0 : std::atof(info.c_str() + at + field.size());
}

// One Redis or one Cluster, the store in front of it, and beside it a bare client that sends one
// call for each check.
class Bench {
 public:
  Bench(const std::string& uri, std::vector<const RedisServer*> servers)
      : servers_(std::move(servers)) {
    const auto endpoint = redis::Endpoint::Parse(uri);
    if (!endpoint) Die(endpoint.error().message);
    loop_ = std::make_shared<redis::RedisLoop>(context_.get_executor(), *endpoint, nullptr);
    loop_->Start();
    bool ready = false;
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> {
          co_await Connect(*endpoint);
          ready = true;
        },
        asio::detached);
    RunUntil([&] { return ready; });
    for (int i = 0; i < kKeys; ++i) keys_.push_back("user:" + std::to_string(1'000'000'000 + i));
    // Before anything is timed, every key gets its states.
    const auto in_order = [this] { return next_key_++ % keys_.size(); };
    ThroughStore(kKeys, kOutstanding, in_order);
    Direct(kKeys, kOutstanding, in_order, Program::kPlain);
  }

  std::size_t Random() { return std::uniform_int_distribution<std::size_t>(0, kKeys - 1)(random_); }

  // Checks through the store, `outstanding` at a time; seconds for all of them.
  template <typename Choose>
  double ThroughStore(int checks, int outstanding, Choose choose) {
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
      slot.charge = {.key = keys_[choose()], .limit = &limit_};
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

  // What the bare client calls: the plain script, or the store's function as for a single check.
  enum class Program { kPlain, kOwn };

  // The same number of calls, one for each check, pipelined on one connection to each master.
  template <typename Choose>
  double Direct(int checks, int outstanding, Choose choose, Program program) {
    int started = 0;
    int done = 0;
    std::string state;
    std::string command;
    std::function<void()> next = [&] {
      if (started == checks) return;
      ++started;
      command.clear();
      const std::string& key = keys_[choose()];
      if (program == Program::kOwn) {
        state = key;
        Charge charge{.key = key, .limit = &limit_};
        Request request{.charges = {&charge, 1}};
        redis::Batch batch;
        batch.Add({.request = &request}, "direct", 1);
        batch.AppendCommand(command, redis::ProgramForm::kFunction);
      } else {
        state = "rate_limiter:token_bucket:" + key;
        const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
        command = redis::Command("EVALSHA", plain_sha_, "1", state, "100", "10",
                                 std::to_string(now), "1");
      }
      MasterOf(state).Send(command, [&](auto reply) {
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

  // Processor time, in seconds, that all servers use while `work` runs.
  template <typename Work>
  double ServerTime(Work work) {
    const double before = ServerTime();
    work();
    return ServerTime() - before;
  }

  // What one call of a command takes, in microseconds by Redis's own count, while `work` runs.
  template <typename Work>
  double CommandTime(const std::string& command, Work work) {
    servers_.front()->Cli("config resetstat");
    work();
    const std::string info = servers_.front()->Cli("info commandstats");
    const auto at = info.find("cmdstat_" + command + ":");
    if (at == std::string::npos) Die("no statistics of " + command);
    return InfoNumber(info.substr(at), "usec_per_call=");
  }

 private:
  asio::awaitable<void> Connect(const redis::Endpoint& endpoint) {
    std::vector<redis::Address> masters = {endpoint.addresses.front()};
    if (endpoint.mode == redis::Mode::kCluster) {
      const auto seed = co_await Open(masters.front());
      const std::string question = redis::Command("CLUSTER", "SLOTS");
      const redis::Connection::Reader<redis::SlotMap> read =
          [&](std::span<const redis::RespNode> reply) {
            return redis::ParseSlots(reply, masters.front());
          };
      const auto map = co_await seed->AskFor<redis::SlotMap>(question, read);
      if (!map) Die(map.error().message);
      slots_ = *map;
      masters = map->masters;
    }
    for (const redis::Address& master : masters) {
      connections_.push_back(co_await Open(master));
      const std::string load = redis::Command("SCRIPT", "LOAD", kPlainScript);
      const auto sha = co_await connections_.back()->Ask(load);
      if (!sha) Die(sha.error().message);
      plain_sha_ = sha->front();
    }
  }

  asio::awaitable<std::shared_ptr<redis::Connection>> Open(const redis::Address& address) {
    const auto connection = std::make_shared<redis::Connection>(
        context_.get_executor(), redis::Connection::Options{.address = address});
    if (!co_await connection->Open()) Die("cannot connect");
    co_return connection;
  }

  redis::Connection& MasterOf(const std::string& state) const {
    return *connections_[slots_ ? slots_->owner[redis::SlotOf(state)] : 0];
  }

  double ServerTime() const {
    double sum = 0;
    for (const RedisServer* server : servers_) {
      const std::string info = server->Cli("info cpu");
      sum += InfoNumber(info, "used_cpu_sys:") + InfoNumber(info, "used_cpu_user:");
    }
    return sum;
  }

  template <typename Condition>
  void RunUntil(Condition condition) {
    while (!condition()) context_.run_one();
  }

  const std::vector<const RedisServer*> servers_;
  asio::io_context context_{1};
  std::shared_ptr<redis::RedisLoop> loop_;
  std::optional<redis::SlotMap> slots_;                          // Of a Cluster.
  std::vector<std::shared_ptr<redis::Connection>> connections_;  // To each master.
  std::string plain_sha_;
  const Limit limit_ = *Limit::Parse("algorithm=token_bucket,capacity=100,refill=10,period=1s");
  std::vector<std::string> keys_;
  std::size_t next_key_ = 0;
  std::mt19937_64 random_{1};
};

// A Cluster of so many masters, without replicas.
class ClusterBench {
 public:
  explicit ClusterBench(std::size_t masters)
      : cluster_({.masters = masters, .replicas = false}),
        bench_(cluster_.Uri("?mode=cluster&timeout=60s"), Servers(cluster_)) {}

  // Decisions for each second of the masters' processor time, of checks of random keys.
  double Store() {
    return kChecks / bench_.ServerTime([&] {
      bench_.ThroughStore(kChecks, kOutstanding, [&] { return bench_.Random(); });
    });
  }
  double Direct() {
    return kChecks / bench_.ServerTime([&] {
      bench_.Direct(kChecks, kOutstanding, [&] { return bench_.Random(); }, Bench::Program::kPlain);
    });
  }

 private:
  static std::vector<const RedisServer*> Servers(RedisCluster& cluster) {
    std::vector<const RedisServer*> servers;
    for (std::size_t i = 0; i < cluster.size(); ++i) servers.push_back(&cluster.node(i));
    return servers;
  }

  RedisCluster cluster_;
  Bench bench_;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Figure {
  std::vector<double> rounds;

  double median() const { return Median(rounds); }
};

struct Figures {
  Figure batch, hot, idle, single, cluster;
  std::array<Figure, kFew.size()> few;
};

// Seconds that each of two takes for `checks`, in turns of a part of them, from the median of
// these: neighbours of the machine may stop a few.
template <typename One, typename Other>
std::pair<double, double> InTurns(int checks, One one, Other other) {
  std::vector<double> ones, others;
  for (int turn = 0; turn < kTurns; ++turn) {
    ones.push_back(one(checks / kTurns));
    others.push_back(other(checks / kTurns));
  }
  return {kTurns * Median(ones), kTurns * Median(others)};
}

void RunRound(int round, Bench& bench, ClusterBench& three, Figures& figures) {
  using enum Bench::Program;
  const auto random = [&] { return bench.Random(); };
  const auto hot = [] { return std::size_t{0}; };

  const auto compare = [&](int checks, int outstanding, auto choose) {
    return InTurns(
        checks, [&](int part) { return bench.ThroughStore(part, outstanding, choose); },
        [&](int part) { return bench.Direct(part, outstanding, choose, kPlain); });
  };
  const auto [store, direct] = compare(kChecks, kOutstanding, random);
  const auto [store_hot, direct_hot] = compare(kChecks, kOutstanding, hot);
  const double idle_store = bench.MedianLatency([&] { return bench.ThroughStore(1, 1, random); });
  const double idle_direct =
      bench.MedianLatency([&] { return bench.Direct(1, 1, random, kPlain); });
  const double single_store =
      bench.CommandTime("fcall", [&] { bench.Direct(kSingleChecks, kPipeline, random, kOwn); });
  const double single_direct =
      bench.CommandTime("evalsha", [&] { bench.Direct(kSingleChecks, kPipeline, random, kPlain); });
  const double cluster_store = three.Store();
  const double cluster_direct = three.Direct();
  std::printf(
      "round %d: random keys %.0f k/s, one EVALSHA each %.0f k/s; one key %.0f k/s, %.0f k/s; "
      "alone %.1f us, %.1f us; a call of its own %.2f us, %.2f us; Cluster %.0f k, %.0f k for each "
      "second of Redis;",
      round + 1, kChecks / store / 1e3, kChecks / direct / 1e3, kChecks / store_hot / 1e3,
      kChecks / direct_hot / 1e3, idle_store * 1e6, idle_direct * 1e6, single_store, single_direct,
      cluster_store / 1e3, cluster_direct / 1e3);
  figures.batch.rounds.push_back(direct / store);
  figures.hot.rounds.push_back(direct_hot / store_hot);
  figures.idle.rounds.push_back(idle_store / idle_direct);
  figures.single.rounds.push_back(single_store / single_direct);
  figures.cluster.rounds.push_back(cluster_store / cluster_direct);
  for (std::size_t i = 0; i < kFew.size(); ++i) {
    const int checks = kFew[i] * kFewChecks;
    const auto [few_store, few_direct] = compare(checks, kFew[i], random);
    std::printf(" %d outstanding %.1f k/s, %.1f k/s%s", kFew[i], checks / few_store / 1e3,
                checks / few_direct / 1e3, i + 1 < kFew.size() ? "," : "\n");
    figures.few[i].rounds.push_back(few_direct / few_store);
  }
  std::fflush(stdout);
}

void PrintByMasters(ClusterBench& three) {
  ClusterBench one(1);
  ClusterBench six(6);
  const std::array<ClusterBench*, kMasters.size()> clusters = {&one, &three, &six};
  std::array<Figure, kMasters.size()> store, direct;
  for (int round = 0; round < kMastersRounds; ++round) {
    for (std::size_t i = 0; i < clusters.size(); ++i) {
      store[i].rounds.push_back(clusters[i]->Store());
      direct[i].rounds.push_back(clusters[i]->Direct());
    }
  }
  std::printf("decisions per second of Redis processor time:");
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    std::printf(" %zu master%s %.0f k (one EVALSHA each %.0f k)%s", kMasters[i],
                kMasters[i] == 1 ? "" : "s", store[i].median() / 1e3, direct[i].median() / 1e3,
                i + 1 < clusters.size() ? "," : "\n");
  }
}

}  // namespace

int main() {
  RedisServer server;
  Bench bench(server.Uri("?timeout=60s"), {&server});
  ClusterBench three(3);
  Figures figures;
  for (int round = 0; round < kRounds; ++round) RunRound(round, bench, three, figures);
  PrintByMasters(three);
  std::vector<double> few;
  for (std::size_t i = 0; i < kFew.size(); ++i) {
    few.push_back(figures.few[i].median());
    std::printf("%s%d outstanding %.2f", i == 0 ? "few_vs_direct: " : ", ", kFew[i], few.back());
  }
  std::printf(
      "\nbatch_vs_direct=%.2f hot_vs_direct=%.2f idle_overhead=%.2f single_vs_direct=%.2f "
      "cluster_vs_direct=%.2f few_vs_direct=%.2f\n",
      figures.batch.median(), figures.hot.median(), figures.idle.median(), figures.single.median(),
      figures.cluster.median(), *std::ranges::min_element(few));
  std::fflush(stdout);
  std::_Exit(0);
}
