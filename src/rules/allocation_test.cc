// SPDX-License-Identifier: Apache-2.0
// Selecting rules allocates nothing once its memory has grown to what requests need.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "base/text.h"
#include "rules/envoy.h"
#include "rules/parse.h"
#include "rules/rule_set.h"

namespace {

thread_local std::size_t allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace sluice::rules {
namespace {

TEST(Allocation, SelectNeedsNoneAfterTheFirst) {
  const auto rules = ParseRuleSet(R"(
id: api
rules:
  - {id: ip, scope: PER_IP, bands: [{limit: 10, window: 1s}], overrides: [{pattern: "10.*", blocked: true}]}
  - {id: key, scope: PER_API_KEY, bands: [{limit: 10, window: 1s}], overrides: [{key: [k, "sha256:0"], blocked: true}]}
  - {id: token, scope: CUSTOM, attribute: access_token, bands: [{limit: 10, window: 1s}]}
  - {id: user, scope: PER_USER, onMissingKey: USE_IP, bands: [{limit: 10, window: 1s}]}
  - id: item
    scope: CUSTOM
    attribute: path.id
    match: {methods: [GET], paths: ["/v1/**/{id}", "/v2/{id}"], attributes: {plan: "fr*"}}
    cost: {attribute: tokens}
    bands: [{limit: 10, window: 1s}]
)",
                                  "f")
                         .value();
  const Attribute attributes[] = {{"plan", "free"}, {"tokens", "3"}, {"access_token", "t"}};
  const Context context{.ip = "a rather long address that no short string has room for",
                        .api_key = "a key that is rather long, too, as API keys are",
                        .method = "GET",
                        .path = "/v1/some/%70laces;x/%2Fdeep/down?query",
                        .attributes = attributes};
  Selection selection;
  ASSERT_TRUE(rules->Select(context, 1, selection));
  ASSERT_EQ(selection.rules().size(), 6U);
  const std::size_t before = allocations;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(rules->Select(context, 1, selection));
  EXPECT_EQ(allocations, before);
}

// A request looks at none of the rules that other attributes lead to, so its memory does not grow
// with them.
TEST(Allocation, SelectHoldsNoMoreForManyRulesThanForFew) {
  const auto allocations_of = [](int count, std::string_view paths) {
    std::string yaml = "id: api\nrules:\n";
    for (int i = 0; i < count; ++i) {
      yaml += text::Cat("- {id: r", i, ", scope: GLOBAL, match: {", paths,
                        "attributes: {plan: [free, pro], tenant: t", i,
                        "}}, bands: [{limit: 10, window: 1s}]}\n");
    }
    const auto rules = ParseRuleSet(yaml, "f").value();
    const Attribute attributes[] = {{"plan", "pro"}, {"tenant", "t7"}};
    Selection selection;
    const std::size_t before = allocations;
    EXPECT_TRUE(rules->Select({.path = "/v1/a", .attributes = attributes}, 1, selection));
    EXPECT_EQ(selection.rules().size(), 1U);
    return allocations - before;
  };
  EXPECT_EQ(allocations_of(10'000, ""), allocations_of(20, ""));
  EXPECT_EQ(allocations_of(10'000, "paths: [\"/v1/**\"], "),
            allocations_of(20, "paths: [\"/v1/**\"], "));
}

TEST(Allocation, MatchNeedsNoneAfterTheFirst) {
  const RlsConfig::File file{.name = "f",
                             .text =
                                 "domain: d\ndescriptors: [{key: a, value: \"b*\", descriptors: "
                                 "[{key: api_key, rate_limit: "
                                 "{unit: day, requests_per_unit: 1}}]}]"};
  const auto config = RlsConfig::Parse({&file, 1}).value();
  const RlsEntry entries[] = {{"a", "by the way, this is long"}, {"api_key", "and so is this"}};
  RlsMatch match;
  config->Find("d")->Match(entries, match);
  ASSERT_NE(match.limit, nullptr);
  const std::size_t before = allocations;
  for (int i = 0; i < 100; ++i) config->Find("d")->Match(entries, match);
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace sluice::rules
