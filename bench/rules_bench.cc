// SPDX-License-Identifier: Apache-2.0
// How the time to choose rules grows with their number. Each request asks for another of the rule
// set's paths; both sides are interleaved, and figures are medians.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/text.h"
#include "rules/parse.h"
#include "rules/rule_set.h"

namespace {

using sluice::rules::RuleSet;
using sluice::rules::Selection;
using sluice::text::Cat;

constexpr int kFew = 10;
constexpr int kMany = 10'000;
constexpr int kRepetitions = 15;
constexpr int kCalls = 200'000;

std::string PathOf(int rule, std::string_view item) {
  return Cat("/v1/service-", rule % 100, "/resource-", rule, "/items/", item);
}

std::shared_ptr<const RuleSet> MakeRules(int count) {
  std::string yaml = "id: bench\nrules:\n";
  for (int i = 0; i < count; ++i) {
    yaml += Cat("- {id: rule-", i, ", scope: PER_IP, match: {methods: [GET], paths: [\"",
                PathOf(i, "{item}"), "\"]}, bands: [{limit: 100, window: 1s}]}\n");
  }
  return sluice::rules::ParseRuleSet(yaml, "bench").value();
}

// In the order in which they are asked for, as a door has just read them.
std::vector<std::string> MakePaths(int count, std::mt19937& random) {
  std::vector<std::string> paths;
  for (int i = 0; i < kMany; ++i) {
    paths.push_back(PathOf(static_cast<int>(random() % static_cast<unsigned>(count)), "4711"));
  }
  return paths;
}

// Time of this thread alone: others on the machine do not count.
double ThreadNanos() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double NanosPerCall(const RuleSet& rules, const std::vector<std::string>& paths) {
  Selection selection;
  std::size_t selected = 0;
  const double start = ThreadNanos();
  for (int i = 0; i < kCalls; ++i) {
    const auto done = rules.Select(
        {.ip = "192.0.2.1", .method = "GET", .path = paths[static_cast<std::size_t>(i % kMany)]}, 1,
        selection);
    if (!done) std::abort();
    selected += selection.rules().size();
  }
  const double spent = ThreadNanos() - start;
  if (selected != kCalls && selected != 0) std::abort();
  return spent / kCalls;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main() {
  std::mt19937 random(1);
  const auto few = MakeRules(kFew);
  const auto many = MakeRules(kMany);
  const auto few_paths = MakePaths(kFew, random);
  const auto many_paths = MakePaths(kMany, random);
  const std::vector<std::string> foreign(kMany, "/not/one/of/the/rules");
  std::vector<double> few_ns;
  std::vector<double> many_ns;
  std::vector<double> hot_ns;
  std::vector<double> miss_ns;
  for (int i = 0; i < kRepetitions; ++i) {
    few_ns.push_back(NanosPerCall(*few, few_paths));
    many_ns.push_back(NanosPerCall(*many, many_paths));
    hot_ns.push_back(NanosPerCall(*many, few_paths));
    miss_ns.push_back(NanosPerCall(*many, foreign));
  }
  std::printf("%d rules: %.0f ns\n", kFew, Median(few_ns));
  std::printf("%d rules, any of their paths: %.0f ns\n", kMany, Median(many_ns));
  std::printf("%d rules, the same ten paths: %.0f ns\n", kMany, Median(hot_ns));
  std::printf("%d rules, none matches: %.0f ns\n", kMany, Median(miss_ns));
  std::printf("select_growth=%.2f select_growth_hot=%.2f\n", Median(many_ns) / Median(few_ns),
              Median(hot_ns) / Median(few_ns));
  return 0;
}
