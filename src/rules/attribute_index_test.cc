// SPDX-License-Identifier: Apache-2.0
#include "rules/attribute_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "rules/parse.h"
#include "rules/rule_set.h"

namespace sluice::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kBands = "bands: [{limit: 10, window: 1s}]";

std::shared_ptr<const RuleSet> Parse(const std::string& yaml) {
  auto parsed = ParseRuleSet(yaml, "test.yaml");
  if (parsed) return *parsed;
  for (const Problem& problem : parsed.error()) ADD_FAILURE() << problem.ToString();
  return RuleSet::Compile({.id = "broken"});
}

// The rules of a rule set, numbered by position.
class Indexed {
 public:
  explicit Indexed(const std::string& yaml) : rules_(Parse(yaml)) {
    std::vector<AttributeIndex::Source> sources;
    for (std::uint32_t i = 0; i < rules_->rules().size(); ++i) {
      sources.push_back({.rule = &rules_->rules()[i], .target = {.rule = i, .pattern = 0}});
    }
    index_.emplace(sources);
  }

  std::set<std::uint32_t> Match(const std::vector<Attribute>& attributes) const {
    std::vector<AttributeIndex::Target> targets;
    index_->Match(attributes, targets);
    std::set<std::uint32_t> found;
    for (const auto& target : targets) found.insert(target.rule);
    return found;
  }

 private:
  std::shared_ptr<const RuleSet> rules_;
  std::optional<AttributeIndex> index_;
};

TEST(AttributeIndex, FindsRulesByWhatTheyAskFor) {
  const Indexed rules(R"(
id: api
rules:
  - {id: value, scope: GLOBAL, match: {attributes: {plan: [free, trial]}}, bands: [{limit: 1, window: 1s}]}
  - {id: beginning, scope: GLOBAL, match: {attributes: {plan: "tri*l"}}, bands: [{limit: 1, window: 1s}]}
  - {id: there, scope: GLOBAL, match: {attributes: {plan: {present: true}}}, bands: [{limit: 1, window: 1s}]}
  - {id: end, scope: GLOBAL, match: {attributes: {plan: "*ial"}}, bands: [{limit: 1, window: 1s}]}
  - {id: counted, scope: CUSTOM, attribute: tenant, bands: [{limit: 1, window: 1s}]}
  - {id: missing, scope: GLOBAL, match: {attributes: {plan: {present: false}}}, bands: [{limit: 1, window: 1s}]}
  - {id: denies, scope: CUSTOM, attribute: tenant, onMissingKey: DENY, bands: [{limit: 1, window: 1s}]}
  - {id: all, scope: GLOBAL, bands: [{limit: 1, window: 1s}]}
)");
  // The last three cannot be found by the presence of anything.
  EXPECT_THAT(rules.Match({}), ElementsAre(5, 6, 7));
  EXPECT_THAT(rules.Match({{"plan", ""}, {"tenant", ""}}), ElementsAre(5, 6, 7));
  EXPECT_THAT(rules.Match({{"plan", "free"}}), ElementsAre(0, 2, 3, 5, 6, 7));
  EXPECT_THAT(rules.Match({{"plan", "trial"}}), ElementsAre(0, 1, 2, 3, 5, 6, 7));
  EXPECT_THAT(rules.Match({{"plan", "tr"}}), ElementsAre(2, 3, 5, 6, 7));
  EXPECT_THAT(rules.Match({{"tenant", "a"}, {"other", "b"}}), ElementsAre(4, 5, 6, 7));
}

// Whatever the name of the condition that many share.
TEST(AttributeIndex, TakesTheConditionThatTellsRulesApart) {
  std::string yaml = "id: api\nrules:\n";
  for (int i = 0; i < 10'000; ++i) {
    yaml += text::Cat("- {id: r", i, ", scope: CUSTOM, attribute: who, match: {attributes: {a: ",
                      "[x, y], tenant: [t", i, ", s", i, "], z: \"x*\"}}, ", kBands, "}\n");
  }
  const Indexed rules(yaml);
  EXPECT_THAT(rules.Match({{"a", "x"}, {"who", "me"}, {"z", "xx"}, {"tenant", "t77"}}),
              ElementsAre(77));
  EXPECT_THAT(rules.Match({{"a", "x"}, {"who", "me"}, {"z", "xx"}, {"tenant", "t"}}), IsEmpty());
}

TEST(AttributeIndex, ManyBeginningsAreLookedUpToo) {
  std::string yaml = "id: api\nrules:\n";
  for (int i = 0; i < 10'000; ++i) {
    yaml += text::Cat("- {id: r", i, ", scope: GLOBAL, match: {attributes: {tenant: \"t", i,
                      "-*\"}}, ", kBands, "}\n");
  }
  const Indexed rules(yaml);
  EXPECT_THAT(rules.Match({{"tenant", "t77-eu"}}), ElementsAre(77));
  EXPECT_THAT(rules.Match({{"tenant", "t77"}}), IsEmpty());
}

// Random rules that share paths and attributes, and requests for them.
class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}

  std::size_t Below(std::size_t bound) { return random_() % bound; }

  template <std::size_t kCount>
  std::string_view One(const std::array<std::string_view, kCount>& of) {
    return of[Below(kCount)];
  }

  std::string RuleOf(int number) {
    const std::string_view paths = One(kPaths);
    const bool has_name = paths.find("{x}") != std::string_view::npos;
    std::string rule = text::Cat("  - {id: r", number, ", ", One(kScopes));
    rule += text::Cat(", match: {", One(kMethodConditions));
    if (!paths.empty()) rule += text::Cat("paths: [\"", paths, "\"], ");
    rule += "attributes: {";
    for (const std::string_view name : {"a", "b", "c"}) {
      if (Below(2) == 0) rule += text::Cat(name, ": ", One(kConditions), ", ");
    }
    if (has_name && Below(2) == 0) rule += text::Cat("path.x: ", One(kConditions), ", ");
    return rule + text::Cat("}}, ", kBands, "}\n");
  }

  Context Request(std::vector<Attribute>& attributes) {
    attributes.clear();
    while (Below(4) != 0) attributes.push_back({One(kNames), One(kValues)});
    return {.ip = Below(2) == 0 ? "192.0.2.1" : "",
            .method = One(kMethods),
            .path = Below(3) == 0 ? std::nullopt : std::optional(One(kRequestPaths)),
            .attributes = attributes};
  }

 private:
  static constexpr std::array<std::string_view, 4> kPaths = {"", "/v1/{x}", "/v1/*", "/**"};
  static constexpr std::array<std::string_view, 5> kScopes = {
      "scope: GLOBAL", "scope: PER_IP", "scope: CUSTOM, attribute: a",
      "scope: CUSTOM, attribute: b, onMissingKey: DENY",
      "scope: CUSTOM, attribute: c, onMissingKey: USE_IP"};
  static constexpr std::array<std::string_view, 3> kMethodConditions = {"", "", "methods: [GET], "};
  static constexpr std::array<std::string_view, 9> kConditions = {
      "u",        "[u, v, uv]",    "\"u*\"",          "[\"*v\", u]",     "\"*\"",
      "\"uv*w\"", "[uvw, \"v*\"]", "{present: true}", "{present: false}"};
  static constexpr std::array<std::string_view, 4> kNames = {"a", "b", "c", "d"};
  static constexpr std::array<std::string_view, 6> kValues = {"", "u", "v", "uv", "uvw", "w"};
  static constexpr std::array<std::string_view, 3> kMethods = {"", "GET", "PUT"};
  static constexpr std::array<std::string_view, 5> kRequestPaths = {"/v1/u", "/v1/w%2F..%2Fuv",
                                                                    "/v1", "/v2/x", ""};

  std::mt19937_64 random_;
};

// "rule key verdict" of all rules that apply.
std::vector<std::string> Select(const RuleSet& rules, const Context& context) {
  Selection selection;
  EXPECT_TRUE(rules.Select(context, 1, selection));
  std::vector<std::string> selected;
  for (const Selected& each : selection.rules()) {
    selected.push_back(
        text::Cat(each.rule->id, " ", each.key, " ", static_cast<int>(each.verdict)));
  }
  return selected;
}

// A rule set with one rule has no index: its rule is checked directly.
TEST(AttributeIndex, AgreesWithOneRuleAtATime) {
  const char* const given = std::getenv("SLUICE_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "SLUICE_TEST_SEED=" << seed << '\n';
  Random random(seed);
  std::size_t applied = 0;
  for (int round = 0; round < 40; ++round) {
    const std::size_t count = 1 + random.Below(150);
    std::string yaml = "id: api\nrules:\n";
    for (std::size_t i = 0; i < count; ++i) yaml += random.RuleOf(static_cast<int>(i));
    const auto all = Parse(yaml);
    std::vector<std::shared_ptr<const RuleSet>> each;
    for (const Rule& rule : all->rules()) each.push_back(RuleSet::Compile({.rules = {rule}}));
    std::vector<Attribute> attributes;
    for (int i = 0; i < 40; ++i) {
      const Context context = random.Request(attributes);
      std::vector<std::string> expected;
      for (const auto& one : each) {
        for (std::string& selected : Select(*one, context)) expected.push_back(std::move(selected));
      }
      Selection selection;
      if (const auto done = all->Select(context, 1, selection); !done) {
        ASSERT_GT(expected.size(), kChargesMax) << done.error().message;
        continue;
      }
      ASSERT_EQ(Select(*all, context), expected) << yaml;
      applied += expected.size();
    }
  }
  EXPECT_GT(applied, 1'000U);
}

}  // namespace
}  // namespace sluice::rules
