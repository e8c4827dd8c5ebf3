// SPDX-License-Identifier: Apache-2.0
#include "rules/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "rules/schema.h"

namespace sluice::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Texts = std::vector<std::string>;

Texts ProblemsOf(std::string_view yaml, OtherKeys other_keys = OtherKeys::kForbid) {
  const auto parsed = ParseRuleSets(yaml, "f", other_keys);
  Texts problems;
  if (parsed) return problems;
  for (const Problem& problem : parsed.error()) problems.push_back(problem.ToString());
  return problems;
}

// The problems of one rule that is otherwise complete.
Texts RuleProblems(std::string_view lines) {
  return ProblemsOf(text::Cat("ruleSets:\n- id: s\n  rules:\n  - id: r\n", lines));
}

TEST(Parse, ReadsAWholeFile) {
  const auto parsed = ParseRuleSets(R"(
# Comments are welcome.
ruleSets:
  - id: api
    description: The public API
    rules:
      - id: per-ip
        scope: PER_IP
        bands:
          - {label: burst, algorithm: TOKEN_BUCKET, capacity: 100, refill: 10, period: 1s}
          - {label: daily, limit: 1000, window: 1d}
          - "algorithm=gcra,burst=9,count=10,period=1s"
  - id: internal
    enabled: false
)",
                                    "f");
  ASSERT_TRUE(parsed);
  ASSERT_THAT(*parsed, SizeIs(2));
  const RuleSet& api = *parsed->at(0);
  EXPECT_EQ(api.id(), "api");
  EXPECT_TRUE(api.enabled());
  EXPECT_EQ(api.spec().line, 4);
  EXPECT_EQ(api.spec().file, "f");
  ASSERT_THAT(api.rules(), SizeIs(1));
  EXPECT_EQ(api.rules()[0].line, 7);
  EXPECT_EQ(api.rules()[0].on_store_failure, OnStoreFailure::kFailOpen);
  EXPECT_EQ(api.rules()[0].on_overload, std::nullopt);
  EXPECT_EQ(api.rules()[0].on_missing_key, OnMissingKey::kSkip);
  const auto& bands = api.rules()[0].bands;
  ASSERT_THAT(bands, SizeIs(3));
  EXPECT_EQ(bands[0].limit.algorithm(), Algorithm::kTokenBucket);
  EXPECT_EQ(bands[1].limit.algorithm(), Algorithm::kSlidingWindowCounter);
  EXPECT_EQ(bands[2].limit.algorithm(), Algorithm::kGcra);
  EXPECT_EQ(bands[2].name, "api/per-ip/band-3");
  EXPECT_FALSE(parsed->at(1)->enabled());
}

TEST(Parse, KeepsEachRuleSetsOwnLines) {
  const auto parsed = ParseRuleSets(
      "ruleSets:\n"
      "  - id: a  # first\n"
      "    # Why there are rules.\n"
      "    rules: []\n"
      "\n"
      "  # About b.\n"
      "  -\n"
      "    id: b\n"
      "other: 1\n",
      "f", OtherKeys::kIgnore);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->at(0)->spec().source, "id: a  # first\n# Why there are rules.\nrules: []\n");
  EXPECT_EQ(parsed->at(1)->spec().source, "id: b\n");
  EXPECT_EQ(ParseRuleSets("ruleSets: [{id: a}, {id: b}]", "f")->at(0)->spec().source, "");
  EXPECT_EQ(ParseRuleSets("{\"ruleSets\":\n[\n{\"id\":\"a\"}\n]}", "f")->at(0)->spec().source, "");
}

TEST(Parse, AcceptsNoRuleSetsIfThatIsSaid) {
  EXPECT_THAT(ParseRuleSets("ruleSets: []\n", "f").value(), SizeIs(0));
  EXPECT_THAT(ProblemsOf(""),
              ElementsAre("f:1:1: the document is nothing; expected a mapping with ruleSets"));
  EXPECT_THAT(ProblemsOf("{}"),
              ElementsAre("f:1:1: the document needs ruleSets; expected a list, or [] for none"));
  for (const OtherKeys other_keys : {OtherKeys::kForbid, OtherKeys::kIgnore}) {
    EXPECT_THAT(ProblemsOf("ruleSets: ~", other_keys),
                ElementsAre("f:1:11: ruleSets is nothing; expected a list"));
  }
  EXPECT_THAT(ParseRuleSets("http: {}\n", "f", OtherKeys::kIgnore).value(), SizeIs(0));
}

TEST(Parse, OtherKeysAreProblemsOrSomeoneElses) {
  const std::string_view yaml = "http: {port: 1}\nruleSets: [{id: a}]\n";
  EXPECT_THAT(ProblemsOf(yaml), ElementsAre("f:1:1: the document has no key \"http\"; expected "
                                            "ruleSets"));
  EXPECT_THAT(ProblemsOf(yaml, OtherKeys::kIgnore), SizeIs(0));
}

TEST(Parse, ReadsCalendars) {
  const auto parsed = ParseRuleSets(R"(ruleSets:
  - id: api
    rules:
      - id: r
        scope: GLOBAL
        bands:
          - {algorithm: CALENDAR, limit: 1000, every: month, zone: Europe/Berlin, anchor: 15}
          - {algorithm: calendar, limit: 50, every: day, anchor: 06:00}
)",
                                    "f");
  ASSERT_TRUE(parsed) << parsed.error().front().ToString();
  const auto& bands = parsed->front()->spec().rules.front().bands;
  EXPECT_EQ(bands[0].limit.ToString(),
            "algorithm=calendar,limit=1000,every=month,zone=Europe/Berlin,anchor=15");
  EXPECT_EQ(bands[1].limit.ToString(),
            "algorithm=calendar,limit=50,every=day,zone=UTC,anchor=06:00");
}

TEST(Parse, NamesWhatIsWrongWithACalendar) {
  EXPECT_THAT(
      ProblemsOf(R"(ruleSets:
  - id: api
    rules:
      - id: r
        scope: GLOBAL
        bands:
          - {algorithm: CALENDAR, limit: 1, every: month, zone: Europe/Berln}
          - {algorithm: CALENDAR, limit: 1, every: hour}
          - {algorithm: CALENDAR, limit: 1, every: month, anchor: 40}
          - {algorithm: CALENDAR, limit: 1, window: 1d}
)"),
      ElementsAre("f:7:65: calendar: zone=\"Europe/Berln\" is not a time zone; did you mean "
                  "Europe/Berlin? expected a name such as Europe/Berlin or UTC",
                  "f:8:52: every=\"hour\": expected day, week, month, quarter or year",
                  StartsWith("f:9:67: calendar: anchor=\"40\" in windows of a month"),
                  StartsWith("f:10:53: calendar has no field \"window\"")));
}

TEST(Parse, FindsAllProblemsInOrder) {
  const auto problems = ProblemsOf(R"(ruleSets:
  - id: api
    enabld: true
    rules:
      - id: r
        scope: PER_PLANET
        bnds: []
        bands:
          - {limit: none, window: 1s}
          - {limit: 1, window: 1s, algorithm: TOKEN_BUCKET}
          - {limit: 1, window: 1}
      - id: r
        scope: GLOBAL
        enabled: maybe
)");
  EXPECT_THAT(
      problems,
      ElementsAre(
          "f:3:5: a rule set has no key \"enabld\"; did you mean enabled? expected id, "
          "description, enabled, rules",
          "f:6:16: scope is \"PER_PLANET\"; expected one of GLOBAL, PER_IP, PER_USER, "
          "PER_API_KEY, CUSTOM",
          StartsWith("f:7:9: a rule has no key \"bnds\"; did you mean bands? expected id, "),
          "f:9:21: limit=\"none\": expected a whole number",
          "f:10:21: token_bucket has no field \"limit\"; expected capacity, refill, period",
          StartsWith("f:11:32: window=\"1\": expected a whole number followed by us"),
          "f:12:9: rule \"r\" is already used in line 5; expected it once",
          "f:14:18: enabled is \"maybe\"; expected true or false"));
}

TEST(Parse, WrongTypesAreNamed) {
  EXPECT_THAT(ProblemsOf("- a\n"),
              ElementsAre("f:1:1: the document is a list; expected a mapping with ruleSets"));
  EXPECT_THAT(ProblemsOf("ruleSets: {}\n"),
              ElementsAre("f:1:11: ruleSets is a mapping; expected a list"));
  EXPECT_THAT(ProblemsOf("ruleSets: [a, [b]]\n"),
              ElementsAre(HasSubstr("a rule set is \"a\"; expected a mapping with id"),
                          HasSubstr("a rule set is a list")));
  EXPECT_THAT(ProblemsOf("ruleSets: [{id: [a]}]\n"),
              ElementsAre(HasSubstr("id of a rule set is a list")));
  EXPECT_THAT(ProblemsOf("ruleSets: [{[a]: b, id: c}]\n"),
              ElementsAre(HasSubstr("a key is a list")));
  EXPECT_THAT(ProblemsOf("ruleSets: [{}]\n"), ElementsAre(HasSubstr("a rule set needs id")));
  EXPECT_THAT(ProblemsOf("ruleSets: [{id: a, id: b}]\n"),
              ElementsAre(HasSubstr("f:1:20: key \"id\" is given twice")));
  EXPECT_THAT(ProblemsOf("ruleSets: [{id: a}, {id: a}]\n"),
              ElementsAre(HasSubstr("rule set \"a\" is already used in line 1")));
  EXPECT_THAT(ProblemsOf("ruleSets: [{id: \"a/b\"}]\n"), ElementsAre(HasSubstr("letters, digits")));
}

TEST(Parse, RulesMustMakeSense) {
  EXPECT_THAT(RuleProblems("    bands: []\n"), ElementsAre("f:4:5: a rule needs scope"));
  EXPECT_THAT(RuleProblems("    scope: CUSTOM\n"), ElementsAre(HasSubstr("needs attribute")));
  EXPECT_THAT(RuleProblems("    scope: CUSTOM\n    attribute: ip\n"),
              ElementsAre(HasSubstr("mistaken for another scope")));
  EXPECT_THAT(RuleProblems("    scope: PER_IP\n    attribute: a\n"),
              ElementsAre(HasSubstr("PER_IP takes no attribute")));
  EXPECT_THAT(RuleProblems("    scope: PER_IP\n    onMissingKey: USE_IP\n"),
              ElementsAre(HasSubstr("expected SKIP or DENY")));
  EXPECT_THAT(RuleProblems("    scope: PER_IP\n    onStoreFailure: panic\n"),
              ElementsAre(HasSubstr("FAIL_CLOSED, FAIL_OPEN, LOCAL")));
  EXPECT_THAT(RuleProblems("    scope: PER_IP\n    onOverload: panic\n"),
              ElementsAre(HasSubstr("FAIL_CLOSED, FAIL_OPEN, LOCAL")));
  EXPECT_THAT(
      RuleProblems(
          "    scope: CUSTOM\n    attribute: path.id\n    match: {paths: [/a, \"/b/{id}\"]}\n"),
      ElementsAre("f:6:16: attribute \"path.id\" needs {id} in each of the rule's paths"));
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    match: {methods: [G T], paths: [a, /b, /b]}\n"),
              ElementsAre(HasSubstr("method \"G T\""), HasSubstr("start with /"),
                          HasSubstr("path \"/b\" is already used")));
  EXPECT_THAT(
      RuleProblems("    scope: GLOBAL\n    match: {attributes: {a: [], b: {is: 1}}}\n"),
      ElementsAre(HasSubstr("empty list"), HasSubstr("needs present"), HasSubstr("no key \"is\"")));
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    match: {header: x}\n"),
              ElementsAre(HasSubstr("match has no key \"header\"")));
}

TEST(Parse, CostsMustBeGrantable) {
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    cost: 0\n"),
              ElementsAre(HasSubstr("from 1 to")));
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    cost: {default: 1}\n"),
              ElementsAre(HasSubstr("cost needs attribute")));
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    cost: {attribute: a, default: 5, max: 4}\n"),
              ElementsAre(HasSubstr("at least the default, 5")));
  EXPECT_THAT(
      RuleProblems("    scope: GLOBAL\n    cost: 11\n    bands: [{limit: 10, window: 1s}]\n"),
      ElementsAre(HasSubstr("f:7:13: the band holds at most 10 and the cost is 11")));
}

TEST(Parse, BandsMustBeDistinctLimits) {
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    bands:\n"
                           "    - {label: a, limit: 1, window: 1s}\n"
                           "    - {label: a, limit: 2, window: 1s}\n"),
              ElementsAre("f:8:7: label \"a\" is already used in line 7; expected it once"));
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    bands:\n"
                           "    - {label: band-2, limit: 1, window: 1s}\n"
                           "    - {limit: 2, window: 1s}\n"),
              ElementsAre(HasSubstr("label \"band-2\" is already used")));
  EXPECT_THAT(
      RuleProblems("    scope: GLOBAL\n    bands: [{}, {limit: \"1,window=1s\", window: 1s}]\n"),
      ElementsAre(HasSubstr("sliding_window_counter needs limit"),
                  HasSubstr("expected a single value")));
  EXPECT_THAT(
      RuleProblems("    scope: GLOBAL\n    bands: [{limit: 0, window: 1s}, capacity=1]\n"),
      ElementsAre(HasSubstr("limit=0 is out of range"), HasSubstr("no field \"capacity\"")));
  EXPECT_THAT(
      RuleProblems("    scope: GLOBAL\n    bands: [{algorithm: magic, limit: 1, window: 1s}]\n"),
      ElementsAre(HasSubstr("f:6:25: unknown algorithm \"magic\"; expected one of")));
  std::string many = "    scope: GLOBAL\n    bands:\n";
  for (std::size_t i = 0; i <= kBandsMax; ++i) many += "    - {limit: 1, window: 1s}\n";
  EXPECT_THAT(RuleProblems(many), ElementsAre(HasSubstr("17 entries; expected at most 16")));
}

TEST(Parse, HoldsHaveDefaults) {
  const auto parsed = ParseRuleSets(R"(
ruleSets:
  - id: jobs
    rules:
      - id: slots
        scope: PER_USER
        hold: {ttl: 90s, onExpiry: release}
        bands: [{label: open, algorithm: CONCURRENCY, limit: 3, ttl: 1m}, "limit=5,window=1h"]
      - {id: plain, scope: GLOBAL, bands: ["limit=5,window=1h"]}
)",
                                    "f");
  ASSERT_TRUE(parsed);
  const Rule& slots = parsed->front()->rules()[0];
  EXPECT_EQ(slots.hold.ttl, std::chrono::seconds{90});
  EXPECT_EQ(slots.hold.on_expiry, OnExpiry::kRelease);
  EXPECT_EQ(slots.bands[0].limit.ToString(), "algorithm=concurrency,limit=3,ttl=1m");
  const Rule& plain = parsed->front()->rules()[1];
  EXPECT_EQ(plain.hold.ttl, std::nullopt);
  EXPECT_EQ(plain.hold.on_expiry, std::nullopt);
  EXPECT_EQ(parsed->front()->FindRule("plain"), &plain);
  EXPECT_EQ(parsed->front()->FindRule("other"), nullptr);

  const std::string json = parsed->front()->ToJson();
  EXPECT_THAT(json, HasSubstr(R"("hold":{"ttl":"90s","onExpiry":"RELEASE"})"));
  EXPECT_EQ((*ParseRuleSets(text::Cat("{ruleSets: [", json, "]}"), "f"))[0]->ToJson(), json);

  const auto problems = [](std::string_view hold) {
    return RuleProblems(
        text::Cat("    scope: GLOBAL\n    bands: ['limit=5,window=1h']\n    hold: ", hold));
  };
  EXPECT_THAT(problems("{ttl: 2d}"), ElementsAre(HasSubstr("ttl is \"2d\"; expected 1ms to 1d")));
  EXPECT_THAT(problems("{ttl: 5}"), ElementsAre(HasSubstr("expected 1ms to 1d")));
  EXPECT_THAT(problems("{onExpiry: keep}"),
              ElementsAre(HasSubstr("expected one of CHARGE, RELEASE")));
  EXPECT_THAT(problems("5s"), ElementsAre(HasSubstr("expected a mapping with ttl, onExpiry")));
}

TEST(Parse, OverridesMustSayWhoAndWhat) {
  const auto problems = [](std::string_view override) {
    return RuleProblems(text::Cat("    scope: PER_IP\n    overrides: [", override, "]\n"));
  };
  EXPECT_THAT(problems("{unlimited: true}"), ElementsAre(HasSubstr("needs key or pattern")));
  EXPECT_THAT(problems("{key: a}"), ElementsAre(HasSubstr("needs one of bands, unlimited")));
  EXPECT_THAT(problems("{key: a, blocked: true, unlimited: true}"),
              ElementsAre(HasSubstr("needs one of")));
  EXPECT_THAT(problems("{key: a, blocked: false}"), ElementsAre(HasSubstr("needs one of")));
  EXPECT_THAT(problems("{key: a, bands: []}"), ElementsAre(HasSubstr("bands is empty")));
  EXPECT_THAT(problems("{key: a, blocked: true}, {key: [b, a], blocked: true}"),
              ElementsAre(HasSubstr("key \"a\" is already used")));
  EXPECT_THAT(RuleProblems("    scope: GLOBAL\n    overrides: [{key: a, blocked: true}]\n"),
              ElementsAre(HasSubstr("GLOBAL has none")));
}

TEST(Parse, RulesForEveryRequestAreBoundedTogether) {
  std::string yaml = "ruleSets:\n- id: s\n  rules:\n";
  const auto add = [&](int i, std::string_view extra) {
    yaml += text::Cat("  - {id: r", i, ", scope: GLOBAL", extra, ", bands: [");
    for (int j = 0; j < 13; ++j) yaml += "\"limit=1,window=1s\", ";
    yaml += "]}\n";
  };
  for (int i = 0; i < 4; ++i) add(i, "");
  add(4, ", enabled: false");
  add(5, ", match: {methods: GET}");
  for (int i = 10; i < 14; ++i) add(i, ", shadow: true");
  EXPECT_THAT(ProblemsOf(yaml), SizeIs(0)) << "shadows take no room from them";
  add(6, "");
  EXPECT_THAT(ProblemsOf(yaml),
              ElementsAre(HasSubstr("f:14:5: with this rule 65 bands apply to every request")));
  yaml.resize(yaml.rfind("  - {id: r6"));
  add(14, ", shadow: true");
  EXPECT_THAT(ProblemsOf(yaml), ElementsAre(HasSubstr("with this rule 65 shadow bands apply")));
}

TEST(Parse, ManyProblemsAreCutShort) {
  std::string yaml = "ruleSets:\n";
  for (int i = 0; i < 150; ++i) yaml += "- {}\n";
  const auto problems = ProblemsOf(yaml);
  ASSERT_THAT(problems, SizeIs(kProblemsMax + 1));
  EXPECT_EQ(problems.back(), "f: and 50 more problems");
}

TEST(Parse, AnchorsMayBeUsed) {
  const auto parsed = ParseRuleSets(R"(
ruleSets:
  - id: a
    rules: &rules
      - {id: r, scope: GLOBAL, bands: [{limit: 1, window: 1s}]}
  - id: b
    rules: *rules
)",
                                    "f");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->at(1)->rules()[0].bands[0].name, "b/r/band-1");
}

TEST(Parse, OneRuleSetAlone) {
  EXPECT_EQ(ParseRuleSet("{\"id\": \"a\", \"rules\": []}", "f").value()->id(), "a");
  const auto parsed = ParseRuleSet("ruleSets: []", "f");
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().at(0).message, HasSubstr("no key \"ruleSets\""));
  EXPECT_THAT(ParseRuleSet("", "f").error().at(0).message, HasSubstr("expected a mapping"));
}

// "line:column: message" of all warnings about the rule set.
std::vector<std::string> Warnings(std::string_view yaml) {
  const auto parsed = ParseRuleSet(yaml, "f");
  if (!parsed) {
    ADD_FAILURE() << parsed.error().front().ToString();
    return {};
  }
  std::vector<std::string> warnings;
  for (const Problem& warning : (*parsed)->spec().warnings) {
    warnings.push_back(warning.ToString().substr(2));
  }
  return warnings;
}

TEST(Warnings, NameRulesThatNeverApply) {
  EXPECT_THAT(
      Warnings(R"(
id: api
rules:
  - {id: none, scope: GLOBAL}
  - {id: off, scope: GLOBAL, enabled: false}
  - {id: gets, scope: GLOBAL, match: {methods: [GETT, propfind, PURGE, FETCH]}, bands: [{limit: 1, window: 1s}]}
)"),
      ElementsAre(
          "4:5: rule \"none\" has no bands and never applies; expected bands, or enabled: "
          "false",
          HasSubstr("6:49: method \"GETT\" is not one that clients are known to send; did you "
                    "mean GET? the rule"),
          HasSubstr("\"FETCH\" is not one that clients are known to send; the rule")));
}

TEST(Warnings, NameOverridesThatMatchNobody) {
  EXPECT_THAT(Warnings(R"(
id: api
rules:
  - id: ip
    scope: PER_IP
    bands: [{limit: 1, window: 1s}]
    overrides:
      - {key: [192.0.2.1, 10.0.0.0/8, "2001:db8::/32", "2001:db8::/64"], pattern: ["198.*", "2001:db8:*"], blocked: true}
      - {key: ["ip:192.0.2.2", 10.1.2.3/8, host, "2001:db8::1"], blocked: true}
      - {pattern: ["198.51.*", "ip:*", "2001:DB8:*"], blocked: true}
)"),
              ElementsAre(HasSubstr("9:16: starts with \"ip:\""),
                          HasSubstr("9:32: key \"10.1.2.3/8\" matches no client: "),
                          HasSubstr("9:44: key \"host\" matches no client: "),
                          HasSubstr("9:50: key \"2001:db8::1\" is smaller than the /64"),
                          HasSubstr("10:20: an earlier pattern matches everything"),
                          HasSubstr("10:32: starts with \"ip:\""),
                          HasSubstr("10:40: pattern \"2001:DB8:*\" matches no client")));
  const auto of_secrets = Warnings(R"(
id: api
rules:
  - id: key
    scope: PER_API_KEY
    bands: [{limit: 1, window: 1s}]
    overrides:
      - {key: ["apikey:s3cret", "sha256:s3cret"], blocked: true}
  - {id: user, scope: PER_USER, bands: [{limit: 1, window: 1s}], overrides: [{pattern: "user:a*", blocked: true}]}
)");
  EXPECT_EQ(of_secrets.size(), 3U);
  for (const std::string& warning : of_secrets) {
    EXPECT_THAT(warning, HasSubstr("starts with "));
    EXPECT_EQ(warning.find("s3cret"), std::string::npos) << warning;
  }
}

TEST(Parse, OneAddressOrNetworkInTwoSpellingsIsGivenTwice) {
  const auto parsed = ParseRuleSet(R"(
id: api
rules:
  - id: ip
    scope: PER_IP
    bands: [{limit: 1, window: 1s}]
    overrides: [{key: [192.0.2.1, "::ffff:192.0.2.1", 10.0.0.0/8, "::ffff:10.0.0.0/104"], blocked: true}]
)",
                                   "f");
  ASSERT_FALSE(parsed);
  ASSERT_EQ(parsed.error().size(), 2U);
  EXPECT_THAT(parsed.error()[0].message, HasSubstr("\"192.0.2.1\" is already used"));
  EXPECT_THAT(parsed.error()[1].message, HasSubstr("\"10.0.0.0/8\" is already used"));
}

}  // namespace
}  // namespace sluice::rules
