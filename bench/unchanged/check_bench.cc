// SPDX-License-Identifier: Apache-2.0
// Nanoseconds of the thread for one check in memory, the median of a few rounds. Uses only what the
// library had before there were holds.
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "measure.h"
#include "sluice/sluice.h"

namespace {

constexpr int kKeys = 100'000;
constexpr int kRounds = 21;
constexpr int kChecks = 500'000;

// Among 100,000 keys at random, in memory in the order in which they are asked for.
std::vector<std::string> Probes() {
  std::mt19937_64 random(1);
  std::vector<std::string> probes;
  for (int i = 0; i < kChecks; ++i) {
    probes.push_back("user:" + std::to_string(1'000'000'000 + random() % kKeys));
  }
  return probes;
}

}  // namespace

int main() {
  // Never used up.
  const auto limit =
      sluice::Limit::Parse("algorithm=token_bucket,capacity=1000000,refill=10,period=1h");
  sluice::MemoryStore store;
  const std::vector<std::string> probes = Probes();
  std::vector<double> nanos;
  for (int round = 0; round <= kRounds; ++round) {
    std::int64_t denied = 0;
    const double start = sluice::bench::ThreadNanos();
    for (const std::string& key : probes) {
      const auto decision = store.Check({.key = key, .limit = &*limit});
      denied += decision && decision->allowed ? 0 : 1;
    }
    const double spent = sluice::bench::ThreadNanos() - start;
    if (denied > 0) return 1;
    // The first round made the states.
    if (round > 0) nanos.push_back(spent / kChecks);
  }
  std::printf("%.2f\n", sluice::bench::Median(nanos));
  return 0;
}
