// SPDX-License-Identifier: Apache-2.0
// What telemetry costs a request. Run: build/release/bench/telemetry_bench
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "service/service_metrics.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace {

using sluice::telemetry::Registry;
using std::chrono::nanoseconds;

Registry& SharedRegistry() {
  static Registry registry;
  return registry;
}

void CounterAdd(benchmark::State& state) {
  static const auto counter = SharedRegistry().AddCounter("a_total", "A.");
  for (auto _ : state) counter.Add();
}
BENCHMARK(CounterAdd)->Threads(1)->Threads(2);

void HistogramObserve(benchmark::State& state) {
  static const auto histogram = SharedRegistry().AddHistogram("h_seconds", "H.");
  std::int64_t ns = 1;
  for (auto _ : state) {
    histogram.Observe(nanoseconds{ns});
    ns = (ns * 5) & 0xFFFFF;
  }
}
BENCHMARK(HistogramObserve)->Threads(1)->Threads(2);

void ServiceCheck(benchmark::State& state) {
  Registry registry;
  const sluice::service::ServiceMetrics metrics(registry);
  std::int64_t ns = 1;
  for (auto _ : state) {
    const bool allowed = (ns & 1) != 0;
    metrics.RequestDecided(sluice::Algorithm::kTokenBucket, allowed, nanoseconds{ns});
    metrics.LimitChecked(sluice::Algorithm::kTokenBucket, allowed,
                         sluice::service::Standing::kCounts);
    ns = (ns * 5) & 0xFFFFF;
  }
}
BENCHMARK(ServiceCheck);

void MetricsText(benchmark::State& state) {
  Registry registry;
  const sluice::service::ServiceMetrics metrics(registry);
  for (auto _ : state) benchmark::DoNotOptimize(registry.Text());
}
BENCHMARK(MetricsText);

// Keys by Zipf's law over a hundred thousand, and a flood in which no key repeats soon.
void HeavyHittersRecord(benchmark::State& state) {
  std::mt19937_64 random(1);
  std::vector<std::string> keys;
  for (int i = 0; i < 1 << 17; ++i) {
    const double u = std::uniform_real_distribution<>(0, 1)(random);
    const auto rank = state.range(0) == 0 ? static_cast<std::uint64_t>(std::pow(1e5, u)) : random();
    keys.push_back("user:" + std::to_string(rank));
  }
  using Kind = sluice::telemetry::HeavyHitters::Kind;
  using Kinds = sluice::telemetry::HeavyHitters::Kinds;
  sluice::telemetry::HeavyHitters hitters;
  const auto now = std::chrono::steady_clock::now();
  std::size_t i = 0;
  for (auto _ : state) {
    ++i;
    const std::string& key = keys[i & (keys.size() - 1)];
    hitters.Record((i & 3) != 0 ? Kinds{Kind::kBusy} : Kinds{Kind::kBusy, Kind::kDenied},
                   "api/per-user/hourly", key, now);
  }
}
BENCHMARK(HeavyHittersRecord)->ArgName("flood")->Arg(0)->Arg(1);

void LogOff(benchmark::State& state) {
  sluice::telemetry::Logger logger;
  const std::string key = "user:123";
  for (auto _ : state) logger.Debug("allowed", {{"key", key}, {"remaining", 3}});
}
BENCHMARK(LogOff);

void NewRequestId(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(sluice::telemetry::IdSource::OfThisThread().NewRequestId());
  }
}
BENCHMARK(NewRequestId);

void JsonAnswer(benchmark::State& state) {
  std::string out;
  for (auto _ : state) {
    out.clear();
    sluice::JsonWriter json(out);
    json.BeginObject().Field("key", "user:123").Field("allowed", true).Field("remaining", 99);
    json.Field("resetTimeMs", std::int64_t{1'767'225'600'000}).EndObject();
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(JsonAnswer);

}  // namespace

BENCHMARK_MAIN();
