// SPDX-License-Identifier: Apache-2.0
// Usage: simulate SEEDS [FIRST]   runs that many histories, starting with the seed FIRST (1)
//        simulate --seed SEED     runs one, and prints what happens
//        simulate --bugs SEEDS    checks that each wrong version is noticed in that many histories
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "simulate/bug.h"
#include "simulate/events.h"
#include "simulate/world.h"

namespace {

using sluice::simulate::Bug;
using sluice::simulate::Bugs;
using sluice::simulate::RunHistory;
using sluice::simulate::Summary;

const Bug kNoBug;

// What went wrong in a history, if anything.
std::optional<std::string> RunSafely(std::uint64_t seed, const Bug& bug, bool traces,
                                     Summary& summary) {
  try {
    summary = RunHistory(seed, bug, traces);
    return std::nullopt;
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

// Runs `work` on every core; it returns whether there is more to do.
template <typename Work>
void OnAllCores(const Work& work) {
  std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (auto& thread : threads) {
    thread = std::jthread([&] {
      while (work()) {
      }
    });
  }
}

int RunOne(std::uint64_t seed) {
  Summary summary;
  const auto failure = RunSafely(seed, kNoBug, true, summary);
  if (failure)
    std::printf("seed %llu FAILED: %s\n", static_cast<unsigned long long>(seed), failure->c_str());
  return failure ? 1 : 0;
}

int RunMany(std::uint64_t first, std::uint64_t count) {
  std::atomic<std::uint64_t> next = first;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  Summary sum;
  std::uint64_t done = 0;
  const auto start = std::chrono::steady_clock::now();
  OnAllCores([&] {
    const std::uint64_t seed = next++;
    if (seed >= first + count || failed) return false;
    Summary summary;
    const auto failure = RunSafely(seed, kNoBug, false, summary);
    const std::lock_guard lock(mutex);
    if (failure) {
      failed = true;
      std::printf("seed %llu FAILED: %s\nmake simulate SEED=%llu shows what led to it\n",
                  static_cast<unsigned long long>(seed), failure->c_str(),
                  static_cast<unsigned long long>(seed));
      return false;
    }
    ++done;
    sum.simulated_us += summary.simulated_us;
    sum.requests += summary.requests;
    sum.calls += summary.calls;
    sum.faults += summary.faults;
    sum.holds += summary.holds;
    sum.settles += summary.settles;
    sum.late_settles += summary.late_settles;
    for (std::size_t i = 0; i < sum.answers.size(); ++i) sum.answers[i] += summary.answers[i];
    if (done % 1'000 == 0)
      std::fprintf(stderr, "simulate: %llu histories\n", static_cast<unsigned long long>(done));
    return true;
  });
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double simulated = static_cast<double>(sum.simulated_us) / 1e6;
  std::printf(
      "simulate: %llu histories, %.0f s in %.1f s (%.0f times as fast), %lld requests, %lld calls "
      "of "
      "the script, %lld faults\n"
      "answers: store %lld, deny cache %lld, local %lld, overload %lld, open %lld, errors %lld\n"
      "holds: %lld, settles: %lld, of these late: %lld\n",
      static_cast<unsigned long long>(done), simulated, took, simulated / took,
      static_cast<long long>(sum.requests), static_cast<long long>(sum.calls),
      static_cast<long long>(sum.faults), static_cast<long long>(sum.answers[0]),
      static_cast<long long>(sum.answers[1]), static_cast<long long>(sum.answers[2]),
      static_cast<long long>(sum.answers[3]), static_cast<long long>(sum.answers[4]),
      static_cast<long long>(sum.answers[5]), static_cast<long long>(sum.holds),
      static_cast<long long>(sum.settles), static_cast<long long>(sum.late_settles));
  return failed ? 1 : 0;
}

int RunBugs(std::uint64_t seeds) {
  std::atomic<std::size_t> next = 0;
  std::atomic<int> missed = 0;
  std::mutex mutex;
  OnAllCores([&] {
    const std::size_t number = next++;
    if (number >= Bugs().size()) return false;
    const Bug& bug = Bugs()[number];
    std::uint64_t seed = 1;
    std::optional<std::string> failure;
    Summary summary;
    for (; seed <= seeds && !failure; ++seed) failure = RunSafely(seed, bug, false, summary);
    const std::lock_guard lock(mutex);
    if (!failure) ++missed;
    const std::string what = failure ? failure->substr(0, failure->find('\n')) : "NOT NOTICED";
    std::printf("%-50s %3llu  %s\n", std::string(bug.name).c_str(),
                static_cast<unsigned long long>(seed - 1), what.c_str());
    return true;
  });
  std::printf("simulate: %zu wrong versions, %d not noticed\n", Bugs().size(), missed.load());
  return missed > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const auto number = [&](int at) { return std::strtoull(argv[at], nullptr, 10); };
  if (what == "--seed" && argc == 3) return RunOne(number(2));
  if (what == "--bugs" && argc == 3) return RunBugs(number(2));
  if (!what.empty() && what.find_first_not_of("0123456789") == std::string_view::npos &&
      argc <= 3) {
    return RunMany(argc == 3 ? number(2) : 1, number(1));
  }
  std::fprintf(stderr, "usage: simulate SEEDS [FIRST] | --seed SEED | --bugs SEEDS\n");
  return 2;
}
