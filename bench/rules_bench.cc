// SPDX-License-Identifier: Apache-2.0
// How the time of POST /api/v1/check grows with the number of rules: from the body to the answer's
// body, without the server around it. Each request asks for a different path of the rule set. Both
// sides are interleaved, and figures are medians.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure.h"
#include "rule_service.h"
#include "rules/parse.h"
#include "rules/rule_set.h"

namespace {

using sluice::bench::Median;
using sluice::bench::RuleService;
using sluice::bench::ThreadNanos;
using sluice::rules::RuleSet;
using sluice::rules::Selection;
using sluice::text::Cat;

constexpr int kFew = 10;
constexpr int kMany = 10'000;
constexpr int kRepetitions = 15;
constexpr int kCalls = 200'000;
constexpr int kChecks = 50'000;

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

// Rules that differ not in their path but in an attribute; all with the same path, or without one.
std::shared_ptr<const RuleSet> MakeTenantRules(int count, std::string_view paths) {
  std::string yaml = "id: bench\nrules:\n";
  for (int i = 0; i < count; ++i) {
    yaml += Cat("- {id: rule-", i, ", scope: PER_IP, match: {", paths,
                "attributes: {plan: [free, pro], ", "tenant: tenant-", i,
                "}}, bands: [{limit: 100, window: 1s}]}\n");
  }
  return sluice::rules::ParseRuleSet(yaml, "bench").value();
}

// In the order of the requests, as if a door had just read them.
std::vector<std::string> MakePaths(int count, std::mt19937& random) {
  std::vector<std::string> paths;
  for (int i = 0; i < kMany; ++i) {
    paths.push_back(PathOf(static_cast<int>(random() % static_cast<unsigned>(count)), "4711"));
  }
  return paths;
}

std::vector<std::string> BodiesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> bodies;
  for (const std::string& path : paths) {
    bodies.push_back(Cat(
        R"({"ruleSet":"bench","context":{"ip":"192.0.2.1","method":"GET","path":")", path, "\"}}"));
  }
  return bodies;
}

double NanosPerCheck(RuleService& service, const std::vector<std::string>& bodies) {
  std::size_t applied = 0;
  const double start = ThreadNanos();
  for (int i = 0; i < kChecks; ++i) {
    applied += service.Check(bodies[static_cast<std::size_t>(i % kMany)]);
  }
  const double spent = ThreadNanos() - start;
  if (applied != kChecks) std::abort();
  return spent / kChecks;
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

// For one of the first `tenants`.
double NanosPerTenant(const RuleSet& rules, int tenants, int calls) {
  std::vector<std::string> names;
  for (int i = 0; i < tenants; ++i) names.push_back(Cat("tenant-", i));
  std::mt19937 random(1);
  Selection selection;
  std::size_t selected = 0;
  const double start = ThreadNanos();
  for (int i = 0; i < calls; ++i) {
    const sluice::rules::Attribute attributes[] = {{"plan", "pro"},
                                                   {"tenant", names[random() % names.size()]}};
    const auto done =
        rules.Select({.ip = "192.0.2.1", .path = "/v1/a", .attributes = attributes}, 1, selection);
    if (!done) std::abort();
    selected += selection.rules().size();
  }
  const double spent = ThreadNanos() - start;
  if (selected != static_cast<std::size_t>(calls)) std::abort();
  return spent / calls;
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
  constexpr int kTenantCalls = 100'000;
  constexpr std::string_view kSamePath = "paths: [/v1/**], ";
  const auto few_tenants = MakeTenantRules(kFew, "");
  const auto many_tenants = MakeTenantRules(kMany, "");
  const auto one_path = MakeTenantRules(kMany, kSamePath);
  std::vector<double> few_tenants_ns;
  std::vector<double> many_tenants_ns;
  std::vector<double> one_path_ns;
  for (int i = 0; i < kRepetitions; ++i) {
    few_tenants_ns.push_back(NanosPerTenant(*few_tenants, kFew, kTenantCalls));
    many_tenants_ns.push_back(NanosPerTenant(*many_tenants, kMany, kTenantCalls));
    one_path_ns.push_back(NanosPerTenant(*one_path, kMany, kTenantCalls));
  }
  RuleService few_service(few);
  RuleService many_service(many);
  const auto few_bodies = BodiesOf(few_paths);
  const auto many_bodies = BodiesOf(many_paths);
  std::vector<double> few_checks;
  std::vector<double> many_checks;
  for (int i = 0; i < kRepetitions; ++i) {
    few_checks.push_back(NanosPerCheck(few_service, few_bodies));
    many_checks.push_back(NanosPerCheck(many_service, many_bodies));
  }
  std::printf("Choosing rules, of\n%d rules: %.0f ns\n", kFew, Median(few_ns));
  std::printf("%d rules, any of their paths: %.0f ns\n", kMany, Median(many_ns));
  std::printf("%d rules, the same ten paths: %.0f ns\n", kMany, Median(hot_ns));
  std::printf("%d rules, none matches: %.0f ns\n", kMany, Median(miss_ns));
  std::printf("select_growth=%.2f select_growth_hot=%.2f\n", Median(many_ns) / Median(few_ns),
              Median(hot_ns) / Median(few_ns));
  std::printf("%d rules that differ in an attribute: %.0f ns\n", kFew, Median(few_tenants_ns));
  std::printf("%d rules that differ in an attribute: %.0f ns\n", kMany, Median(many_tenants_ns));
  std::printf("The same, all with one path: %.0f ns\n", Median(one_path_ns));
  std::printf("attributes_growth=%.2f\n", Median(many_tenants_ns) / Median(few_tenants_ns));
  std::printf("POST /api/v1/check: %.0f ns with %d rules, %.0f ns with %d\n", Median(few_checks),
              kFew, Median(many_checks), kMany);
  std::printf("rules_growth=%.2f\n", Median(many_checks) / Median(few_checks));
  return 0;
}
