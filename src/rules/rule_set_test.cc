// SPDX-License-Identifier: Apache-2.0
#include "rules/rule_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/text.h"
#include "rules/parse.h"
#include "rules/path.h"
#include "rules/rule_book.h"

namespace sluice::rules {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;
using Verdict = Selected::Verdict;
using Texts = std::vector<std::string>;

std::shared_ptr<const RuleSet> Parse(std::string_view yaml) {
  auto parsed = ParseRuleSet(yaml, "test.yaml");
  if (parsed) return *parsed;
  for (const Problem& problem : parsed.error()) ADD_FAILURE() << problem.ToString();
  return RuleSet::Compile({.id = "broken"});
}

// The rules that apply, as "id key".
Texts Select(const RuleSet& rules, const Context& context) {
  Selection selection;
  const auto done = rules.Select(context, 1, selection);
  EXPECT_TRUE(done) << done.error().message;
  Texts selected;
  for (const Selected& each : selection.rules()) {
    selected.push_back(text::Cat(each.rule->id, " ", each.key));
  }
  return selected;
}

constexpr std::string_view kBands = "bands: [{limit: 10, window: 1s}]";

TEST(RuleSet, EachScopeHasItsOwnKeys) {
  const auto rules = Parse(R"(
id: api
rules:
  - {id: g, scope: GLOBAL, bands: [{limit: 10, window: 1s}]}
  - {id: i, scope: PER_IP, bands: [{limit: 10, window: 1s}]}
  - {id: u, scope: per_user, bands: [{limit: 10, window: 1s}]}
  - {id: k, scope: PER_API_KEY, bands: [{limit: 10, window: 1s}]}
  - {id: c, scope: CUSTOM, attribute: tenant, bands: [{limit: 10, window: 1s}]}
  - {id: i2, scope: PER_IP, bands: [{limit: 10, window: 1s}]}
)");
  const Attribute tenant{"tenant", "acme"};
  const Context context{.ip = "x",
                        .user_id = "x",
                        .api_key = "x",
                        .method = {},
                        .path = {},
                        .attributes = {&tenant, 1}};
  EXPECT_THAT(
      Select(*rules, context),
      ElementsAre("g global", "i ip:x", "u user:x",
                  "k apikey#2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
                  "c tenant:acme", "i2 ip:x"));
  // Without values, only rules that need none apply.
  EXPECT_THAT(Select(*rules, {}), ElementsAre("g global"));
}

TEST(RuleSet, WhatCannotApplyIsPassedOver) {
  EXPECT_THAT(Select(*Parse("id: api"), {}), IsEmpty());
  const auto rules = Parse(R"(
id: api
rules:
  - {id: off, enabled: false, scope: GLOBAL, bands: [{limit: 10, window: 1s}]}
  - {id: empty, scope: GLOBAL}
  - {id: on, scope: GLOBAL, bands: [{limit: 10, window: 1s}]}
)");
  EXPECT_THAT(Select(*rules, {}), ElementsAre("on global"));
  EXPECT_EQ(rules->rules().size(), 3U);
  RuleSetSpec disabled = rules->spec();
  disabled.enabled = false;
  EXPECT_THAT(Select(*RuleSet::Compile(disabled), {}), IsEmpty());
}

TEST(RuleSet, AMissingKeyIsSkippedDeniedOrReplacedByTheAddress) {
  const auto rules = Parse(R"(
id: api
rules:
  - {id: skip, scope: PER_USER, bands: [{limit: 10, window: 1s}]}
  - {id: deny, scope: PER_USER, onMissingKey: DENY, bands: [{limit: 10, window: 1s}]}
  - id: ip
    scope: PER_USER
    onMissingKey: USE_IP
    bands: [{limit: 10, window: 1s}]
    overrides: [{pattern: "*", unlimited: true}]
)");
  Selection selection;
  ASSERT_TRUE(rules->Select({.ip = "192.0.2.1"}, 1, selection));
  ASSERT_EQ(selection.rules().size(), 2U);
  EXPECT_EQ(selection.rules()[0].rule->id, "deny");
  EXPECT_EQ(selection.rules()[0].verdict, Verdict::kMissingKey);
  EXPECT_EQ(selection.rules()[0].key, "");
  // Overrides are for users, and this is not one.
  EXPECT_EQ(selection.rules()[1].verdict, Verdict::kCharge);
  EXPECT_EQ(selection.rules()[1].key, "ip:192.0.2.1");

  ASSERT_TRUE(rules->Select({}, 1, selection));
  ASSERT_EQ(selection.rules().size(), 2U);
  EXPECT_EQ(selection.rules()[1].verdict, Verdict::kMissingKey);
}

TEST(RuleSet, AllConditionsMustHold) {
  const auto rules = Parse(R"(
id: api
rules:
  - id: get-items
    scope: GLOBAL
    match: {methods: [get, Head], paths: ["/v1/items/{id}", "/v2/**"]}
    bands: [{limit: 10, window: 1s}]
  - id: free
    scope: GLOBAL
    match: {attributes: {plan: [free, "trial*"]}}
    bands: [{limit: 10, window: 1s}]
  - id: beta
    scope: GLOBAL
    match: {attributes: {beta: {present: true}, plan: {present: false}}}
    bands: [{limit: 10, window: 1s}]
  - id: purge
    scope: GLOBAL
    match: {methods: PURGE}
    bands: [{limit: 10, window: 1s}]
)");
  EXPECT_THAT(Select(*rules, {.method = "GET", .path = "/v1/items/7?x=1"}),
              ElementsAre("get-items global"));
  EXPECT_THAT(Select(*rules, {.method = "head", .path = "/v2"}), ElementsAre("get-items global"));
  EXPECT_THAT(Select(*rules, {.method = "POST", .path = "/v2"}), IsEmpty());
  EXPECT_THAT(Select(*rules, {.method = "GET", .path = "/v1/items"}), IsEmpty());
  EXPECT_THAT(Select(*rules, {.method = "GET"}), IsEmpty());
  EXPECT_THAT(Select(*rules, {.path = "/v2"}), IsEmpty());
  EXPECT_THAT(Select(*rules, {.method = "purge"}), ElementsAre("purge global"));
  EXPECT_THAT(Select(*rules, {.method = "LINK"}), IsEmpty());
  const auto with = [&](std::vector<Attribute> attributes) {
    return Select(*rules, {.attributes = attributes});
  };
  EXPECT_THAT(with({{"plan", "free"}}), ElementsAre("free global"));
  EXPECT_THAT(with({{"plan", "trial-7"}, {"beta", "1"}}), ElementsAre("free global"));
  EXPECT_THAT(with({{"plan", "paid"}}), IsEmpty());
  EXPECT_THAT(with({{"beta", "1"}}), ElementsAre("beta global"));
  EXPECT_THAT(with({{"beta", ""}}), IsEmpty());
}

TEST(RuleSet, AnotherSpellingOfAPathDoesNotEscape) {
  const auto rules =
      Parse(text::Cat("id: api\nrules:\n  - {id: r, scope: GLOBAL, match: {paths: "
                      "[/v1/login]}, ",
                      kBands, "}\n"));
  for (const std::string_view path : {"/v1/login",
                                      "/v1/login/",
                                      "//v1//login",
                                      "/v1/./login",
                                      "/x/../v1/login",
                                      "/v1/%6Cogin",
                                      "/%76%31/login?a",
                                      "/v1%2Flogin",
                                      "/v1%2flogin",
                                      "/v1\\login",
                                      "/v1/login;a=b",
                                      "/v1;x/login",
                                      "/x/%2e%2e/v1/login",
                                      "/x/..%2Fv1/login",
                                      "/x/..;/v1/login",
                                      "http://host/v1/login",
                                      "https://u@host:1/v1/login#f",
                                      "/v1/login;7%2Fb",
                                      "/v1/login;%5C",
                                      "/v1/login;7%2fb/",
                                      "/v1/login%3B7%2Fb",
                                      "/v1/login;a/b",
                                      "/v1/%256Cogin",
                                      "/v1%252Flogin",
                                      "/v1//../v1/login",
                                      "/v1/x//../../login",
                                      "/v1/login%00",
                                      "/v1/login%3Fx",
                                      "/v1/login%23",
                                      "/v1/login.",
                                      "/v1/login%20",
                                      "/v1/%u006cogin",
                                      "/v1%c0%aflogin",
                                      "//h/v1/login",
                                      "http:/v1/login",
                                      "v1/login",
                                      "/v1/login/x/%2e%2e"}) {
    EXPECT_THAT(Select(*rules, {.path = path}), ElementsAre("r global")) << path;
  }
  for (const std::string_view path :
       {"/v1/Login", "/v1/logins", "/v1", "/v1/login/x", "/v1/login%2Fx"}) {
    EXPECT_THAT(Select(*rules, {.path = path}), IsEmpty()) << path;
  }
}

TEST(RuleSet, EveryTargetIsAPath) {
  const auto rules =
      Parse(text::Cat("id: api\nrules:\n  - {id: r, scope: GLOBAL, match: {paths: [/**]}, ", kBands,
                      "}\n  - {id: root, scope: GLOBAL, match: {paths: [/]}, ", kBands, "}\n"));
  for (const std::string_view path :
       {"", "?x", "/?x", "http://h", "http://h?x", "http://h?/..", "//h?x", "http://h#x", "#x",
        "HTTPS://u:p@[::1]:443?x", "h:443", "http:", "http:?x"}) {
    EXPECT_THAT(Select(*rules, {.path = path}), ElementsAre("r global", "root global")) << path;
  }
  for (const std::string_view path : {"*", "x", "\\", "%", "%2F", "..", "http:x"}) {
    EXPECT_THAT(Select(*rules, {.path = path}), Contains("r global")) << path;
  }
  EXPECT_THAT(Select(*rules, {}), IsEmpty());
}

TEST(RuleSet, SpellingsOfOneNameShareItsBudget) {
  const auto rules = Parse(R"(
id: api
rules:
  - id: item
    scope: CUSTOM
    attribute: path.item
    match: {paths: ["/v1/items/{item}"]}
    bands: [{limit: 10, window: 1s}]
    overrides: [{key: b, blocked: true}]
)");
  for (const std::string_view path :
       {"/v1/items/a", "/v1/items/a;1", "/v1/items/a;2%2Fz", "/v1/items/a;3%5Cz", "/v1/items/%61;x",
        "/v1/items/a%3B4%2Fz", "/v1/items/a;5/z", "/v1/items/a;6%252Fz"}) {
    EXPECT_THAT(Select(*rules, {.path = path}), ElementsAre("item path.item:a")) << path;
  }
  // Where servers read different names, it counts for each.
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/a%2Fz"}), ElementsAre("item path.item:a/z"));
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/x%2F..%2Fa"}),
              UnorderedElementsAre("item path.item:a", "item path.item:x/../a"));
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/c#/../a"}),
              IsSupersetOf({"item path.item:a", "item path.item:c"}));
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/;x"}), ElementsAre("item path.item:;x"));
  Selection selection;
  ASSERT_TRUE(rules->Select({.path = "/v1/items/b;1%2Fz"}, 1, selection));
  EXPECT_EQ(selection.rules()[0].verdict, Verdict::kBlocked);
}

TEST(RuleSet, NamesInPathsAreAttributes) {
  const auto rules = Parse(R"(
id: api
rules:
  - id: per-item
    scope: CUSTOM
    attribute: path.id
    match: {paths: ["/v1/items/{id}", "/v1/**/of/{id}/x"], attributes: {path.id: "a*"}}
    bands: [{limit: 10, window: 1s}]
)");
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/a7"}), ElementsAre("per-item path.id:a7"));
  EXPECT_THAT(Select(*rules, {.path = "/v1/b/c/of/a%20d/x"}), ElementsAre("per-item path.id:a d"));
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/b7"}), IsEmpty());
  // Only the path determines them, and a parameter does not make a fresh key.
  const Attribute forged{"path.id", "a1"};
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/b", .attributes = {&forged, 1}}), IsEmpty());
  EXPECT_THAT(Select(*rules, {.path = "/v1/items/a7;x=1"}), ElementsAre("per-item path.id:a7"));
}

TEST(RuleSet, OverridesComeByKeyAndThenByPatternInOrder) {
  const auto rules = Parse(R"(
id: api
rules:
  - id: per-ip
    scope: PER_IP
    bands:
      - {label: burst, limit: 10, window: 1s}
      - {limit: 100, window: 1h}
    overrides:
      - {pattern: "10.*", unlimited: true}
      - {pattern: "10.0.*", blocked: true}
      - {key: ["10.0.0.7", "10.0.0.8"], blocked: true}
      - key: 192.0.2.1
        bands:
          - {label: burst, limit: 99, window: 1s}
          - "limit=999,window=1h"
          - {label: more, limit: 9999, window: 1d}
)");
  Selection selection;
  const auto verdict = [&](std::string_view ip) {
    EXPECT_TRUE(rules->Select({.ip = ip}, 1, selection));
    return selection.rules()[0].verdict;
  };
  EXPECT_EQ(verdict("10.0.0.6"), Verdict::kUnlimited);
  EXPECT_EQ(verdict("10.0.0.7"), Verdict::kBlocked);
  EXPECT_EQ(verdict("10.0.0.8"), Verdict::kBlocked);
  EXPECT_TRUE(selection.rules()[0].bands.empty());
  EXPECT_EQ(verdict("192.0.2.9"), Verdict::kCharge);
  const auto usual = selection.rules()[0].bands;
  ASSERT_EQ(usual.size(), 2U);
  EXPECT_EQ(usual[0].name, "api/per-ip/burst");
  EXPECT_EQ(usual[1].label, "band-2");
  EXPECT_EQ(usual[1].name, "api/per-ip/band-2");
  EXPECT_EQ(verdict("192.0.2.1"), Verdict::kCharge);
  const auto raised = selection.rules()[0].bands;
  ASSERT_EQ(raised.size(), 3U);
  // The same states, so that what was used stays used.
  EXPECT_EQ(raised[0].name, usual[0].name);
  EXPECT_EQ(raised[0].limit.amount(), 99);
  EXPECT_EQ(raised[1].name, usual[1].name);
  EXPECT_EQ(raised[2].name, "api/per-ip/more");
}

TEST(RuleSet, OverridesOfAddressesComeByTheSmallestNetwork) {
  const auto rules = Parse(R"(
id: api
rules:
  - id: per-ip
    scope: PER_IP
    bands: [{limit: 10, window: 1s}]
    overrides:
      - {pattern: "10.9.*", blocked: true}
      - {key: [0.0.0.0/0, "2001:db8::/32"], bands: [{limit: 1, window: 1s}]}
      - {key: [10.0.0.0/8, "2001:db8::/47"], unlimited: true}
      - {key: [10.1.0.0/16, "2001:DB8:1:2:0::/64"], blocked: true}
      - {key: ["10.1.2.3", "::ffff:10.1.2.4"], unlimited: true}
)");
  const auto effect = [&](std::string_view ip) {
    Selection selection;
    EXPECT_TRUE(rules->Select({.ip = ip}, 1, selection));
    const Selected& selected = selection.rules().front();
    if (selected.verdict == Verdict::kUnlimited) return std::string("unlimited");
    if (selected.verdict == Verdict::kBlocked) return std::string("blocked");
    return text::Cat(selected.bands.front().limit.amount());
  };
  EXPECT_EQ(effect("10.1.2.3"), "unlimited");
  EXPECT_EQ(effect("10.1.2.4"), "unlimited");
  EXPECT_EQ(effect("10.1.2.5"), "blocked");
  EXPECT_EQ(effect("10.2.0.0"), "unlimited");
  // A network comes before patterns.
  EXPECT_EQ(effect("10.9.0.1"), "unlimited");
  EXPECT_EQ(effect("11.0.0.1"), "1");
  // IPv6 clients are known by their network.
  EXPECT_EQ(effect("2001:db8:1:2::/64"), "blocked");
  EXPECT_EQ(effect("2001:db8:1:3::/64"), "unlimited");
  EXPECT_EQ(effect("2001:db8:3::/64"), "1");
  EXPECT_EQ(effect("2001:db8::/31"), "10");
  EXPECT_EQ(effect("2001:db8:1:2::7"), "blocked");
  EXPECT_EQ(effect("no address"), "10");
}

TEST(RuleSet, CostIsMultipliedByPermits) {
  const auto rules = Parse(R"(
id: api
rules:
  - {id: one, scope: GLOBAL, bands: [{limit: 100, window: 1s}]}
  - {id: five, scope: GLOBAL, cost: 5, bands: [{limit: 100, window: 1s}]}
  - {id: tokens, scope: GLOBAL, cost: {attribute: tokens, default: 2, max: 50},
     bands: [{limit: 100, window: 1s}]}
)");
  Selection selection;
  const auto costs = [&](std::int64_t permits, std::string_view tokens) {
    const Attribute attribute{"tokens", tokens};
    const auto done = rules->Select({.attributes = {&attribute, 1}}, permits, selection);
    EXPECT_TRUE(done) << done.error().message;
    std::vector<std::int64_t> result;
    for (const Selected& each : selection.rules()) result.push_back(each.cost);
    return result;
  };
  EXPECT_THAT(costs(1, "7"), ElementsAre(1, 5, 7));
  EXPECT_THAT(costs(3, "0"), ElementsAre(3, 15, 0));
  EXPECT_THAT(costs(1, "51"), ElementsAre(1, 5, 50));
  EXPECT_THAT(costs(1, ""), ElementsAre(1, 5, 2));
  EXPECT_THAT(costs(0, "7"), ElementsAre(0, 0, 0));
}

TEST(RuleSet, ACostThatIsNoneIsAnError) {
  const auto rules = Parse(R"(
id: api
rules:
  - {id: r, scope: GLOBAL, cost: {attribute: tokens}, bands: [{limit: 100, window: 1s}]}
)");
  Selection selection;
  for (const std::string_view value : {"-1", "many", "1.5", "99999999999999999999", " 1"}) {
    const Attribute attribute{"tokens", value};
    const auto done = rules->Select({.attributes = {&attribute, 1}}, 1, selection);
    ASSERT_FALSE(done) << value;
    EXPECT_EQ(done.error().code, ErrorCode::kInvalidCost);
    EXPECT_THAT(done.error().message, HasSubstr("\"tokens\""));
    EXPECT_TRUE(selection.rules().empty());
  }
  EXPECT_EQ(rules->Select({}, -1, selection).error().code, ErrorCode::kInvalidCost);
  const Attribute much{"tokens", "9007199254740992"};
  EXPECT_EQ(rules->Select({.attributes = {&much, 1}}, 1 << 20, selection).error().code,
            ErrorCode::kInvalidCost);

  // A shadow rule does not fail requests.
  RuleSetSpec shadow = rules->spec();
  shadow.rules[0].shadow = true;
  const Attribute bad{"tokens", "many"};
  ASSERT_TRUE(RuleSet::Compile(shadow)->Select({.attributes = {&bad, 1}}, 1, selection));
  EXPECT_EQ(selection.rules()[0].cost, 1);
  ASSERT_TRUE(RuleSet::Compile(shadow)->Select({.attributes = {&much, 1}}, 1 << 20, selection));
  EXPECT_EQ(selection.rules()[0].cost, std::numeric_limits<std::int64_t>::max());
}

TEST(RuleSet, LongValuesAreHashedAndNothingLooksLikeAHash) {
  const auto rules =
      Parse(text::Cat("id: api\nrules:\n  - {id: r, scope: PER_USER, ", kBands, "}\n"));
  const std::string fits(kKeyBytesMax - 5, 'a');
  const std::string is_long(kKeyBytesMax - 4, 'a');
  EXPECT_THAT(Select(*rules, {.user_id = fits}), ElementsAre("r user:" + fits));
  const std::string hashed = Select(*rules, {.user_id = is_long}).front();
  EXPECT_EQ(hashed.size(), std::string_view("r user#").size() + 64);
  EXPECT_TRUE(hashed.starts_with("r user#"));
  EXPECT_THAT(Select(*rules, {.user_id = hashed.substr(6)}),
              ElementsAre("r user:" + hashed.substr(6)));
  EXPECT_NE(Select(*rules, {.user_id = is_long + "b"}).front(), hashed);
}

TEST(RuleSet, BoundsWhatOneRequestMayAskFor) {
  std::string yaml = "id: api\nrules:\n";
  for (int i = 0; i < 33; ++i) {
    yaml += text::Cat("  - {id: r", i,
                      ", scope: GLOBAL, match: {paths: [/a]}, bands: [{limit: 1, window: 1s}, "
                      "{limit: 2, window: 2s}]}\n");
  }
  const auto rules = Parse(yaml);
  Selection selection;
  const auto done = rules->Select({.path = "/a"}, 1, selection);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kInvalidRequest);
  EXPECT_THAT(done.error().message, HasSubstr("66 bands"));
  EXPECT_TRUE(selection.rules().empty());
  EXPECT_TRUE(rules->Select({.path = "/b"}, 1, selection));
  const std::string path(kPathBytesMax + 1, 'a');
  EXPECT_EQ(rules->Select({.path = path}, 1, selection).error().code, ErrorCode::kInvalidRequest);
  std::string often = "/%";
  for (std::size_t i = 0; i <= kPathVariantsMax; ++i) often += "25";
  EXPECT_EQ(rules->Select({.path = often}, 1, selection).error().code, ErrorCode::kInvalidRequest);
  const std::string value(kValueBytesMax + 1, 'a');
  const Attribute attribute{"a", value};
  for (const Context& context : {Context{.user_id = value}, Context{.api_key = value},
                                 Context{.attributes = {&attribute, 1}}}) {
    const auto refused = rules->Select(context, 1, selection);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidRequest);
  }
}

TEST(RuleSet, ShadowsTakeNoRoomFromRulesThatCount) {
  constexpr std::size_t kEach = 16;
  std::string bands = "bands: [";
  for (std::size_t i = 0; i < kEach; ++i) bands += text::Cat("{limit: ", i + 1, ", window: 1s}, ");
  bands += "]";
  std::string yaml = "id: api\nrules:\n";
  const auto add = [&](std::string_view id, std::size_t count, std::string_view shadow) {
    for (std::size_t i = 0; i < count; ++i) {
      yaml +=
          text::Cat("  - {id: ", id, i, ", scope: GLOBAL, match: {paths: [/a]}, shadow: ", shadow,
                    ", ", bands, "}\n");
    }
  };
  add("trial", kShadowChargesMax / kEach + 3, "true");
  add("counts", kChargesMax / kEach, "false");
  const auto rules = Parse(yaml);
  Selection selection;
  const auto done = rules->Select({.path = "/a"}, 1, selection);
  ASSERT_TRUE(done) << done.error().message;
  std::size_t shadows = 0;
  std::size_t counting = 0;
  for (const Selected& selected : selection.rules()) {
    (selected.rule->shadow ? shadows : counting) += selected.bands.size();
  }
  EXPECT_EQ(shadows, kShadowChargesMax) << "the first of them";
  EXPECT_EQ(counting, kChargesMax);
}

TEST(RuleSet, JsonIsCanonicalAndCanBeReadAgain) {
  const auto rules = Parse(R"(
id: api
description: "Two \"rules\""
rules:
  - id: a
    scope: CUSTOM
    attribute: path.x
    shadow: true
    onMissingKey: use_ip
    onStoreFailure: local
    onOverload: fail_closed
    cost: {attribute: tokens, default: 0, max: 9}
    match: {methods: put, paths: "/{x}/**", attributes: {z: [b, "c*"], a: {present: false}}}
    bands:
      - {label: burst, algorithm: token_bucket, capacity: 100, refill: 10, period: 1s}
      - "algorithm=gcra,burst=9,count=10,period=1500ms"
    overrides:
      - {key: k, pattern: "p*", unlimited: true}
      - {key: [l, m], bands: [{limit: 9, window: 1d}]}
      - {pattern: q, blocked: true}
  - {id: b, scope: GLOBAL, enabled: false}
)");
  EXPECT_EQ(
      rules->ToJson(),
      R"({"id":"api","description":"Two \"rules\"","enabled":true,"rules":[{"id":"a","enabled":true,)"
      R"("shadow":true,"scope":"CUSTOM","attribute":"path.x","onMissingKey":"USE_IP",)"
      R"("onStoreFailure":"LOCAL","onOverload":"FAIL_CLOSED",)"
      R"("cost":{"attribute":"tokens","default":0,"max":9},)"
      R"("match":{"methods":["PUT"],"paths":["/{x}/**"],)"
      R"("attributes":{"a":{"present":false},"z":["b","c*"]}},"bands":[{"label":"burst",)"
      R"("algorithm":"TOKEN_BUCKET","capacity":100,"refill":10,"period":"1s"},{"label":"band-2",)"
      R"("algorithm":"GCRA","burst":9,"count":10,"period":"1500ms"}],"overrides":[)"
      R"({"key":["k"],"pattern":["p*"],"unlimited":true},{"key":["l","m"],"bands":[)"
      R"({"label":"band-1","algorithm":"SLIDING_WINDOW_COUNTER","limit":9,"window":"1d"}]},)"
      R"({"pattern":["q"],"blocked":true}]},{"id":"b","enabled":false,"shadow":false,)"
      R"("scope":"GLOBAL","onMissingKey":"SKIP","onStoreFailure":"FAIL_OPEN","cost":1,"bands":[]}]})");
  const auto again = Parse(rules->ToJson());
  EXPECT_EQ(again->ToJson(), rules->ToJson());
  EXPECT_EQ(again->hash(), rules->hash());
  EXPECT_EQ(rules->hash().size(), 64U);
  EXPECT_NE(Parse("id: api")->hash(), rules->hash());
}

TEST(RuleBook, FindsRuleSetsById) {
  const auto a = Parse("id: a");
  const auto b = Parse("id: b");
  const auto book = RuleBook::Build({a, b}, 7).value();
  EXPECT_EQ(book->Find("a"), a.get());
  EXPECT_EQ(book->Find("b"), b.get());
  EXPECT_EQ(book->Find("c"), nullptr);
  EXPECT_EQ(book->generation(), 7U);
  EXPECT_EQ(book->rule_sets().size(), 2U);
}

TEST(RuleBook, RefusesOneIdTwice) {
  const auto other = ParseRuleSet("# first\nid: a", "other.yaml").value();
  const auto book = RuleBook::Build({Parse("id: a"), other}, 1);
  ASSERT_FALSE(book);
  EXPECT_EQ(book.error().at(0).ToString(),
            "other.yaml:2:1: rule set \"a\" is already defined at test.yaml:1; expected a unique "
            "id");
}

TEST(RuleSet, OverridesOfSecretsAreFoundByValueAndByHash) {
  const auto rules = Parse(R"(
id: api
rules:
  - id: k
    scope: PER_API_KEY
    bands: [{limit: 10, window: 1s}]
    overrides:
      - {key: plain, unlimited: true}
      # Of "abc".
      - {key: "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", blocked: true}
      - {pattern: "test-*", unlimited: true}
  - {id: t, scope: CUSTOM, attribute: X-Auth-Token, bands: [{limit: 10, window: 1s}],
     overrides: [{key: plain, blocked: true}]}
)");
  const auto verdict = [&](const Context& context) {
    Selection selection;
    EXPECT_TRUE(rules->Select(context, 1, selection));
    EXPECT_EQ(selection.rules().size(), 1U);
    return selection.rules().front().verdict;
  };
  const auto of_key = [&](std::string_view key) { return verdict({.api_key = key}); };
  EXPECT_EQ(of_key("plain"), Verdict::kUnlimited);
  EXPECT_EQ(of_key("abc"), Verdict::kBlocked);
  EXPECT_EQ(of_key("test-1"), Verdict::kUnlimited);
  EXPECT_EQ(of_key("other"), Verdict::kCharge);
  // A client that saw a hash cannot use it as the key.
  EXPECT_EQ(of_key("sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            Verdict::kCharge);
  const Attribute token{"X-Auth-Token", "plain"};
  EXPECT_EQ(verdict({.attributes = {&token, 1}}), Verdict::kBlocked);
}

TEST(RuleSet, HashesAttributesThatAreNamedAsSecrets) {
  const auto rules = Parse(R"(
id: api
rules:
  - {id: t, scope: CUSTOM, attribute: auth.token, bands: [{limit: 10, window: 1s}]}
  - {id: u, scope: CUSTOM, attribute: session_id, onMissingKey: USE_IP, bands: [{limit: 10, window: 1s}]}
)");
  const Attribute token{"auth.token", "abc"};
  EXPECT_THAT(
      Select(*rules, {.ip = "192.0.2.1", .attributes = {&token, 1}}),
      ElementsAre("t auth.token#ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                  "u ip:192.0.2.1"));
}

}  // namespace
}  // namespace sluice::rules
