// SPDX-License-Identifier: Apache-2.0
// The figures of the decision engine; bench/README.md explains each one.
//
// The last line of output is
// `check_vs_find=… batch_check_vs_find=… bytes_per_key=… scale2=…`.
#include <absl/container/flat_hash_map.h>
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/sluice.h"

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kKeys = 1'000'000;
constexpr std::size_t kKeysForMemory = 10'000'000;
constexpr std::size_t kTogether = 32;
static_assert(kKeys % kTogether == 0);

// 18 bytes, longer than the small-string buffer, like most real keys.
std::string KeyOf(std::uint64_t number) {
  std::string key = "user:0000000000000";
  for (std::size_t i = key.size(); number > 0; number /= 10) {
    key[--i] = static_cast<char>('0' + number % 10);
  }
  return key;
}

const std::vector<std::string>& Keys() {
  static const auto& keys = *[] {
    auto* made = new std::vector<std::string>;
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i < kKeys; ++i) {
      made->push_back(KeyOf(random() % 10'000'000'000'000));
    }
    return made;
  }();
  return keys;
}

// The keys in the order of the requests: random, not the order in which they were made. Each is
// copied, so that they are in memory in that order: a service has just read the key that it asks
// for, and neither side of the comparison should pay for fetching it.
const std::vector<std::string>& Probes() {
  static const auto& probes = *[] {
    std::vector<std::size_t> order(kKeys);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(2));
    auto* made = new std::vector<std::string>;
    for (const std::size_t i : order) made->push_back(Keys()[i]);
    return made;
  }();
  return probes;
}

// No key is ever denied, and no state recovers while this runs: however fast the machine is, every
// check finds its state, takes from it and writes it.
const sluice::Limit& BucketLimit() {
  static const sluice::Limit limit =
      *sluice::Limit::TokenBucket({.capacity = 1'000'000, .refill = 10, .period = 1h});
  return limit;
}

// By the clock that the library uses unless it is told otherwise.
sluice::Limiter& FilledLimiter() {
  static auto& limiter = *[] {
    auto* made = new sluice::Limiter(BucketLimit());
    for (const std::string& key : Keys()) benchmark::DoNotOptimize(made->Check(key));
    return made;
  }();
  return limiter;
}

using Map = absl::flat_hash_map<std::string, std::array<std::uint64_t, 2>>;

const Map& FilledMap() {
  static const auto& map = *[] {
    auto* made = new Map;
    for (const std::string& key : Keys()) made->emplace(key, std::array<std::uint64_t, 2>{1, 2});
    return made;
  }();
  return map;
}

// The baseline: nothing but finding 16 bytes by the same keys.
void BM_Find(benchmark::State& state) {
  const Map& map = FilledMap();
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(map.find(Probes()[i])->second[0]);
    i = i + 1 == kKeys ? 0 : i + 1;
  }
}

void BM_Check(benchmark::State& state) {
  sluice::Limiter& limiter = FilledLimiter();
  // Threads start at different places, so that they ask for different keys.
  std::size_t i = kKeys / static_cast<std::size_t>(state.threads()) *
                  static_cast<std::size_t>(state.thread_index());
  std::int64_t denied = 0;
  for (auto _ : state) {
    const auto decision = limiter.Check(Probes()[i]);
    denied += decision && decision->allowed ? 0 : 1;
    i = i + 1 == kKeys ? 0 : i + 1;
  }
  if (denied > 0) state.SkipWithError("a check was not admitted");
  state.SetItemsProcessed(state.iterations());
}

// The same keys as they arrive at a door: what one read brought is decided together.
void BM_CheckTogether(benchmark::State& state) {
  sluice::MemoryStore& store = FilledLimiter().store();
  std::array<sluice::Charge, kTogether> charges;
  std::array<sluice::Request, kTogether> requests;
  for (std::size_t j = 0; j < kTogether; ++j) {
    charges[j] = {.key = {}, .limit = &BucketLimit()};
    requests[j].charges = {&charges[j], 1};
  }
  std::size_t i = 0;
  std::int64_t denied = 0;
  for (auto _ : state) {
    for (std::size_t j = 0; j < kTogether; ++j) charges[j].key = Probes()[i + j];
    store.Apply(requests, [] {});
    for (const sluice::Request& request : requests) {
      denied += request.outcome && request.outcome->allowed ? 0 : 1;
    }
    i = i + kTogether == kKeys ? 0 : i + kTogether;
  }
  if (denied > 0) state.SkipWithError("a check was not admitted");
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kTogether));
}

BENCHMARK(BM_Find)->UseRealTime();
BENCHMARK(BM_Check)->UseRealTime();
BENCHMARK(BM_CheckTogether)->UseRealTime();
BENCHMARK(BM_Check)->UseRealTime()->Threads(2);

std::int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double BytesPerKey() {
  const std::int64_t before = ResidentBytes();
  sluice::Limiter limiter(BucketLimit());
  for (std::size_t i = 0; i < kKeysForMemory; ++i)
    benchmark::DoNotOptimize(limiter.Check(KeyOf(i)));
  const std::int64_t held = limiter.store().GetStats().keys;
  if (held != kKeysForMemory) {
    std::fprintf(stderr, "only %ld of %zu keys are held\n", static_cast<long>(held),
                 kKeysForMemory);
    std::exit(1);
  }
  return static_cast<double>(ResidentBytes() - before) / static_cast<double>(held);
}

// Prints as usual, and keeps the median of each benchmark over the interleaved repetitions.
class MedianReporter : public benchmark::ConsoleReporter {
 public:
  MedianReporter() : ConsoleReporter(isatty(STDOUT_FILENO) == 1 ? OO_ColorTabular : OO_Tabular) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) {
        times_[run.benchmark_name()].push_back(run.real_accumulated_time /
                                               static_cast<double>(run.iterations));
      }
    }
    ConsoleReporter::ReportRuns(runs);
  }

  // Seconds of wall time per iteration of one thread.
  double Median(std::string_view name) {
    for (auto& [full_name, times] : times_) {
      if (full_name.substr(0, full_name.find("/repeats")) != name) continue;
      std::ranges::sort(times);
      return times[times.size() / 2];
    }
    std::fprintf(stderr, "no benchmark %s was run\n", std::string(name).c_str());
    std::exit(1);
  }

 private:
  std::map<std::string, std::vector<double>> times_;
};

}  // namespace

int main(int argc, char** argv) {
  const double bytes_per_key = BytesPerKey();
  std::vector<char*> arguments(argv, argv + argc);
  std::string repetitions = "--benchmark_repetitions=15";
  std::string interleaving = "--benchmark_enable_random_interleaving=true";
  std::string aggregates = "--benchmark_report_aggregates_only=false";
  arguments.insert(arguments.begin() + 1,
                   {repetitions.data(), interleaving.data(), aggregates.data()});
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  // Made before anything is timed.
  FilledMap();
  FilledLimiter();
  Probes();
  MedianReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  const double find = reporter.Median("BM_Find/real_time");
  const double check = reporter.Median("BM_Check/real_time");
  const double together = reporter.Median("BM_CheckTogether/real_time") / kTogether;
  const double check_2 = reporter.Median("BM_Check/real_time/threads:2");
  std::printf("check_vs_find=%.2f batch_check_vs_find=%.2f bytes_per_key=%.1f scale2=%.2f\n",
              check / find, together / find, bytes_per_key, check / check_2);
  return 0;
}
