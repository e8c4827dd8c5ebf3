// SPDX-License-Identifier: Apache-2.0
#include "rules/envoy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "sluice/store.h"

namespace sluice::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Texts = std::vector<std::string>;
using Entries = std::vector<RlsEntry>;
using LimitKind = RlsLimit::Kind;

std::shared_ptr<const RlsConfig> Parse(std::string_view yaml) {
  const RlsConfig::File file{.name = "f", .text = std::string(yaml)};
  auto parsed = RlsConfig::Parse({&file, 1});
  if (parsed) return *parsed;
  for (const Problem& problem : parsed.error()) ADD_FAILURE() << problem.ToString();
  return RlsConfig::Parse({}).value();
}

Texts ProblemsOf(std::string_view yaml) {
  const RlsConfig::File file{.name = "f", .text = std::string(yaml)};
  const auto parsed = RlsConfig::Parse({&file, 1});
  Texts problems;
  if (parsed) return problems;
  for (const Problem& problem : parsed.error()) problems.push_back(problem.ToString());
  return problems;
}

// The limit of the first descriptor, with this rate_limit.
RlsLimit LimitOf(std::string_view rate_limit) {
  const auto config =
      Parse(text::Cat("domain: d\ndescriptors: [{key: k, rate_limit: {", rate_limit, "}}]"));
  const RlsDomain* const domain = config->Find("d");
  return domain == nullptr ? RlsLimit{} : domain->limits().at(0);
}

Texts LimitProblems(std::string_view rate_limit) {
  return ProblemsOf(
      text::Cat("domain: d\ndescriptors: [{key: k, rate_limit: {", rate_limit, "}}]"));
}

// The path of the limit that applies; "" if none does.
std::string Match(const RlsConfig& config, const Entries& entries) {
  RlsMatch match;
  config.Find("d")->Match(entries, match);
  return match.limit == nullptr ? "" : match.limit->path;
}

constexpr std::string_view kTree = R"(
domain: d
descriptors:
  - key: path
    value: /a
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: path
    value: /a*
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: path
    value: /*b
    rate_limit: {unit: second, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: second, requests_per_unit: 4}
  - key: other
    value: "*"
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 5}
        descriptors:
          - key: hour
            value: "9"
            rate_limit: {unit: hour, requests_per_unit: 1}
)";

TEST(Rls, MatchesExactThenWildcardsInOrderThenTheKeyAlone) {
  const auto config = Parse(kTree);
  EXPECT_EQ(Match(*config, {{"path", "/a"}}), "d.path_/a");
  EXPECT_EQ(Match(*config, {{"path", "/ab"}}), "d.path_/a*");
  EXPECT_EQ(Match(*config, {{"path", "/xb"}}), "d.path_/*b");
  EXPECT_EQ(Match(*config, {{"path", "/x"}}), "d.path");
  EXPECT_EQ(Match(*config, {{"path", ""}}), "d.path");
  EXPECT_EQ(Match(*config, {{"route", "/a"}}), "");
}

TEST(Rls, AnEmptyValueMatchesWildcardsBeforeTheKeyAlone) {
  const auto config = Parse(R"(
domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: a, value: "x*", rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: a, value: "*", rate_limit: {unit: day, requests_per_unit: 7}}
)");
  EXPECT_EQ(Match(*config, {{"a", ""}}), "d.a_*");
  EXPECT_EQ(Match(*config, {{"a", "x"}}), "d.a_x*");
}

TEST(Rls, DepthMustBeEqual) {
  const auto config = Parse(kTree);
  EXPECT_EQ(Match(*config, {}), "");
  EXPECT_EQ(Match(*config, {{"path", "/a"}, {"x", "y"}}), "");
  EXPECT_EQ(Match(*config, {{"message_type", "marketing"}}), "");
  EXPECT_EQ(Match(*config, {{"message_type", "marketing"}, {"to_number", "1"}}),
            "d.message_type_marketing.to_number");
  EXPECT_EQ(Match(*config, {{"message_type", "marketing"}, {"to_number", "1"}, {"hour", "9"}}),
            "d.message_type_marketing.to_number.hour_9");
  EXPECT_EQ(Match(*config, {{"message_type", "marketing"}, {"to_number", "1"}, {"hour", "8"}}), "");
  EXPECT_EQ(Match(*config, {{"other", "x"}}), "");
  EXPECT_EQ(config->Find("e"), nullptr);
}

TEST(Rls, DoesNotGoBackToALessExactLevel) {
  const auto config = Parse(R"(
domain: d
descriptors:
  - {key: a, value: b, descriptors: [{key: x, value: z, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: a, descriptors: [{key: x, rate_limit: {unit: day, requests_per_unit: 1}}]}
)");
  EXPECT_EQ(Match(*config, {{"a", "c"}, {"x", "y"}}), "d.a.x");
  EXPECT_EQ(Match(*config, {{"a", "b"}, {"x", "y"}}), "");
}

TEST(Rls, ReadsUnitsInAnyCase) {
  for (const auto& [name, unit, span] : std::vector<std::tuple<std::string, RlsUnit, std::string>>{
           {"second", RlsUnit::kSecond, "1s"},
           {"MINUTE", RlsUnit::kMinute, "1m"},
           {"Hour", RlsUnit::kHour, "1h"},
           {"day", RlsUnit::kDay, "1d"},
           {"week", RlsUnit::kWeek, "7d"},
           {"month", RlsUnit::kMonth, "30d"},
           {"YEAR", RlsUnit::kYear, "365d"}}) {
    const RlsLimit limit = LimitOf(text::Cat("unit: ", name, ", requests_per_unit: 7"));
    EXPECT_EQ(limit.kind, LimitKind::kLimited);
    EXPECT_EQ(limit.unit, unit);
    EXPECT_EQ(limit.requests_per_unit, 7U);
    EXPECT_EQ(limit.limit->ToString(), text::Cat("algorithm=fixed_window,limit=7,window=", span));
  }
  EXPECT_EQ(static_cast<int>(RlsUnit::kWeek), 7);
}

TEST(Rls, AMultiplierMakesLongerUnits) {
  const auto spec = [](std::string_view rate_limit) {
    return LimitOf(rate_limit).limit->ToString();
  };
  EXPECT_EQ(spec("unit: minute, unit_multiplier: 10, requests_per_unit: 5"),
            "algorithm=fixed_window,limit=5,window=10m");
  EXPECT_EQ(spec("unit: second, unit_multiplier: 0x1e, requests_per_unit: 5, algorithm: GCRA"),
            "algorithm=gcra,burst=4,count=5,period=30s");
  EXPECT_EQ(spec("unit: hour, unit_multiplier: 1, requests_per_unit: 5"),
            "algorithm=fixed_window,limit=5,window=1h");
  // What an answer can report about it.
  const auto unit = [](std::string_view rate_limit) { return LimitOf(rate_limit).unit; };
  EXPECT_EQ(unit("unit: minute, unit_multiplier: 10, requests_per_unit: 5"), RlsUnit::kUnknown);
  EXPECT_EQ(unit("unit: second, unit_multiplier: 60, requests_per_unit: 5"), RlsUnit::kMinute);
  EXPECT_EQ(unit("unit: day, unit_multiplier: 7, requests_per_unit: 5"), RlsUnit::kWeek);
  EXPECT_EQ(LimitOf("unit: day, unit_multiplier: 2").kind, LimitKind::kBlocked);

  EXPECT_THAT(
      LimitProblems("unit: day, unit_multiplier: 0, requests_per_unit: 5"),
      ElementsAre(HasSubstr("unit_multiplier is \"0\"; expected a whole number from 1 to")));
  EXPECT_THAT(LimitProblems("unit: year, unit_multiplier: 4294967295, requests_per_unit: 5"),
              ElementsAre(HasSubstr("from 1 to 142")));
  EXPECT_THAT(LimitProblems("unit_multiplier: 2, requests_per_unit: 5"),
              ElementsAre(HasSubstr("unit_multiplier is given without a unit")));
  EXPECT_THAT(LimitProblems("unlimited: true, unit: day, unit_multiplier: 2"),
              testing::Contains(HasSubstr("unit_multiplier is given with unlimited")));
}

TEST(Rls, ReadsTruthInAnyOfItsWords) {
  for (const std::string_view word : {"true", "True", "yes", "ON", "y"}) {
    EXPECT_EQ(LimitOf(text::Cat("unlimited: ", word)).kind, LimitKind::kUnlimited) << word;
  }
  for (const std::string_view word : {"false", "FALSE", "no", "Off", "n"}) {
    EXPECT_EQ(LimitOf(text::Cat("unit: day, requests_per_unit: 1, unlimited: ", word)).kind,
              LimitKind::kLimited)
        << word;
  }
  EXPECT_THAT(LimitProblems("unlimited: perhaps"),
              testing::Contains(HasSubstr("unlimited is \"perhaps\"; expected true or false")));
}

TEST(Rls, UnlimitedAndNothingAtAll) {
  EXPECT_EQ(LimitOf("unlimited: true").kind, LimitKind::kUnlimited);
  EXPECT_FALSE(LimitOf("unlimited: true").limit);
  EXPECT_EQ(LimitOf("unlimited: false, unit: day, requests_per_unit: 1").kind, LimitKind::kLimited);
  EXPECT_THAT(LimitProblems("unlimited: true, unit: second"),
              ElementsAre(HasSubstr("unit is given with unlimited")));
  const RlsLimit none = LimitOf("unit: second, requests_per_unit: 0");
  EXPECT_EQ(none.kind, LimitKind::kBlocked);
  EXPECT_FALSE(none.limit);
  EXPECT_EQ(LimitOf("unit: second, requests_per_unit: 4294967295").limit->amount(), 4294967295);
}

TEST(Rls, ReadsNumbersInTheFormsOfYaml) {
  for (const auto& [text, count] :
       std::vector<std::pair<std::string, unsigned>>{{"0", 0},
                                                     {"+7", 7},
                                                     {"1_000", 1000},
                                                     {"1_0_", 10},
                                                     {"0x10", 16},
                                                     {"0XfF", 255},
                                                     {"0o17", 15},
                                                     {"017", 15},
                                                     {"0_17", 15},
                                                     {"09", 9},
                                                     {"0b101", 5},
                                                     {"00", 0},
                                                     {"0xffff_ffff", 4294967295}}) {
    EXPECT_EQ(LimitOf(text::Cat("unit: day, requests_per_unit: ", text)).requests_per_unit, count)
        << text;
  }
  for (const std::string_view text : {"0x", "0xg", "0x1_0000_0000", "_1", "_", "++1", "+-1", "-0x1",
                                      "0x-1", "1e3", "1.5", "0b2", "0xffffffffffffffffff"}) {
    EXPECT_THAT(LimitProblems(text::Cat("unit: day, requests_per_unit: ", text)),
                ElementsAre(HasSubstr("expected a whole number from 0 to 4294967295")))
        << text;
  }
}

TEST(Rls, AUnitAloneGrantsNothing) {
  for (const std::string_view form : {"unit: day", "unit: day, requests_per_unit:"}) {
    EXPECT_EQ(LimitOf(form).kind, LimitKind::kBlocked) << form;
    EXPECT_EQ(LimitOf(form).unit, RlsUnit::kDay) << form;
    EXPECT_EQ(LimitOf(form).requests_per_unit, 0U) << form;
  }
  for (const std::string_view own : {"algorithm: gcra", "capacity: 2", "limit: 2"}) {
    EXPECT_THAT(LimitProblems(text::Cat("unit: day, ", own)),
                ElementsAre(HasSubstr("rate_limit needs requests_per_unit")));
  }
}

TEST(Rls, KeepsAllThatADescriptorSays) {
  const auto config = Parse(R"(
domain: d
all_or_nothing: true
descriptors:
  - key: k
    value: v*
    shadow_mode: true
    quota_mode: true
    postpaid: true
    detailed_metric: true
    value_to_metric: true
    share_threshold: true
    metadata: {any: [thing]}
    rate_limit:
      unit: second
      requests_per_unit: 1
      name: n
      replaces: [{name: a}, {name: b}]
)");
  const RlsDomain& domain = *config->Find("d");
  EXPECT_TRUE(domain.all_or_nothing());
  EXPECT_FALSE(Parse("domain: d")->Find("d")->all_or_nothing());
  EXPECT_EQ(domain.file(), "f");
  const RlsLimit& limit = domain.limits().at(0);
  EXPECT_TRUE(limit.shadow_mode && limit.quota_mode && limit.postpaid && limit.detailed_metric &&
              limit.value_to_metric && limit.share_threshold);
  EXPECT_EQ(limit.name, "n");
  EXPECT_THAT(limit.replaces, ElementsAre("a", "b"));
  EXPECT_EQ(limit.line, 5);
}

TEST(Rls, APostpaidLimitIsAFixedWindow) {
  const auto problems = [](std::string_view rate_limit) {
    return ProblemsOf(text::Cat("domain: d\ndescriptors: [{key: k, postpaid: true, rate_limit: {",
                                rate_limit, "}}]"));
  };
  const std::string per_minute = "unit: minute, requests_per_unit: 6, algorithm: ";
  EXPECT_THAT(problems(per_minute + "fixed_window"), ElementsAre());
  EXPECT_THAT(problems("unlimited: true"), ElementsAre());
  for (const std::string_view algorithm :
       {"token_bucket", "leaky_bucket", "gcra", "sliding_window", "sliding_window_counter"}) {
    EXPECT_THAT(problems(text::Cat(per_minute, algorithm)),
                ElementsAre(HasSubstr("expected the algorithm fixed_window")));
  }
}

TEST(Rls, AnyAlgorithmMayBeNamed) {
  const auto form = [](std::string_view rate_limit) {
    return LimitOf(rate_limit).limit->ToString();
  };
  const std::string per_minute = "unit: minute, requests_per_unit: 6, algorithm: ";
  EXPECT_EQ(form(per_minute + "TOKEN_BUCKET"),
            "algorithm=token_bucket,capacity=6,refill=6,period=1m");
  EXPECT_EQ(form(per_minute + "TOKEN_BUCKET, capacity: 50"),
            "algorithm=token_bucket,capacity=50,refill=6,period=1m");
  EXPECT_EQ(form(per_minute + "leaky_bucket"),
            "algorithm=leaky_bucket,capacity=6,leak=6,period=1m");
  EXPECT_EQ(form(per_minute + "gcra"), "algorithm=gcra,burst=5,count=6,period=1m");
  EXPECT_EQ(form(per_minute + "gcra, burst: 0"), "algorithm=gcra,burst=0,count=6,period=1m");
  EXPECT_EQ(form(per_minute + "sliding_window_log"), "algorithm=sliding_window,limit=6,window=1m");

  const RlsLimit own = LimitOf("algorithm: token_bucket, capacity: 50, refill: 1, period: 1h");
  EXPECT_EQ(own.limit->amount(), 50);
  EXPECT_EQ(own.requests_per_unit, 50U);
  EXPECT_EQ(own.unit, RlsUnit::kHour);
  EXPECT_EQ(LimitOf("limit: 5, window: 90s").unit, RlsUnit::kUnknown);
  EXPECT_EQ(LimitOf("limit: 5, window: 90s").limit->algorithm(), Algorithm::kFixedWindow);

  EXPECT_THAT(LimitProblems(per_minute + "magic"), ElementsAre(HasSubstr("unknown algorithm")));
  EXPECT_THAT(LimitProblems(per_minute + "token_bucket, refill: 1"),
              ElementsAre(HasSubstr("refill is given with unit and requests_per_unit")));
  EXPECT_THAT(LimitProblems("algorithm: gcra"), ElementsAre(HasSubstr("gcra needs burst")));
  for (const std::string& held :
       {per_minute + "concurrency", std::string("algorithm: concurrency, limit: 2, ttl: 1s")}) {
    EXPECT_THAT(LimitProblems(held), ElementsAre(HasSubstr("is held and released")));
  }
  EXPECT_THAT(LimitProblems("unit: day, requests_per_unit: 1, capacity: 2"),
              ElementsAre(HasSubstr("no field \"capacity\"")));
}

TEST(Rls, StatesAreDistinct) {
  const auto config = Parse(R"(
domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1},
     descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}
  - {key: "a=x|b", rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: w, value: "f*", rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: s, value: "f*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
)");
  std::set<std::string> keys;
  RlsMatch match;
  const auto key = [&](const Entries& entries) {
    config->Find("d")->Match(entries, match);
    EXPECT_NE(match.limit, nullptr);
    return match.key;
  };
  const std::vector<Entries> all = {
      {{"a", "x"}},          {{"a", "y"}},     {{"a", "x"}, {"b", "y"}},
      {{"a", "x|b=y"}},      {{"a=x|b", "y"}}, {{"a", "x%"}},
      {{"a", "x%7c"}},       {{"a", "x|"}},    {{"w", "f1"}},
      {{"w", "f2"}},         {{"s", "f1"}},    {{"a", ""}},
      {{"a", ""}, {"b", ""}}};
  for (const Entries& entries : all) EXPECT_TRUE(keys.insert(key(entries)).second) << match.key;
  EXPECT_EQ(key({{"a", "x"}}), "d|a=x");
  EXPECT_EQ(key({{"s", "f1"}}), key({{"s", "f2"}}));

  std::string given;
  RlsStateKey("d", Entries{{"a", "x"}}, given);
  EXPECT_EQ(given, key({{"a", "x"}}));
  const std::string value(kKeyBytesMax, 'x');
  EXPECT_EQ(key({{"a", value}}).size(), 65U);
  EXPECT_TRUE(match.key.starts_with('#'));
  RlsStateKey("#d", {}, given);
  EXPECT_EQ(given, "%23d");
}

TEST(Rls, AUnitMayBeThatOfACalendar) {
  const auto form = [](std::string_view rate_limit) {
    return LimitOf(rate_limit).limit->ToString();
  };
  EXPECT_EQ(form("unit: month, requests_per_unit: 5"), "algorithm=fixed_window,limit=5,window=30d");
  EXPECT_EQ(form("unit: month, requests_per_unit: 5, calendar: false"),
            "algorithm=fixed_window,limit=5,window=30d");
  EXPECT_EQ(form("unit: month, requests_per_unit: 5, calendar: true"),
            "algorithm=calendar,limit=5,every=month,zone=UTC,anchor=1");
  EXPECT_EQ(
      form("unit: month, requests_per_unit: 5, calendar: true, zone: Europe/Berlin, anchor: 15"),
      "algorithm=calendar,limit=5,every=month,zone=Europe/Berlin,anchor=15");
  EXPECT_EQ(form("unit: week, requests_per_unit: 5, calendar: true, anchor: sunday"),
            "algorithm=calendar,limit=5,every=week,zone=UTC,anchor=sunday");
  for (const auto& [name, unit] :
       std::vector<std::pair<std::string, RlsUnit>>{{"day", RlsUnit::kDay},
                                                    {"week", RlsUnit::kWeek},
                                                    {"month", RlsUnit::kMonth},
                                                    {"YEAR", RlsUnit::kYear}}) {
    const RlsLimit limit = LimitOf("unit: " + name + ", requests_per_unit: 5, calendar: true");
    EXPECT_EQ(limit.unit, unit);
    EXPECT_EQ(limit.requests_per_unit, 5U);
  }
  EXPECT_EQ(LimitOf("unit: day, calendar: true").kind, LimitKind::kBlocked);

  // With its own numbers.
  const RlsLimit own = LimitOf("algorithm: calendar, limit: 7, every: month, zone: Asia/Tokyo");
  EXPECT_EQ(own.limit->ToString(),
            "algorithm=calendar,limit=7,every=month,zone=Asia/Tokyo,anchor=1");
  EXPECT_EQ(own.unit, RlsUnit::kMonth);
  EXPECT_EQ(own.requests_per_unit, 7U);
  EXPECT_EQ(LimitOf("algorithm: calendar, limit: 7, every: quarter").unit, RlsUnit::kUnknown);
}

TEST(Rls, SaysWhatACalendarNeeds) {
  const std::string monthly = "unit: month, requests_per_unit: 5, calendar: true";
  EXPECT_THAT(LimitProblems(monthly + ", zone: Europe/Berln"),
              ElementsAre(AllOf(HasSubstr("zone=\"Europe/Berln\" is not a time zone"),
                                HasSubstr("did you mean Europe/Berlin?"))));
  EXPECT_THAT(LimitProblems("unit: month, requests_per_unit: 0, calendar: true, zone: nowhere"),
              ElementsAre(HasSubstr("is not a time zone")));
  EXPECT_THAT(LimitProblems(monthly + ", anchor: 32"),
              ElementsAre(HasSubstr("expected a day of the month, 1 to 31")));
  EXPECT_THAT(LimitProblems("unit: hour, requests_per_unit: 5, calendar: true"),
              ElementsAre(HasSubstr("expected day, week, month or year")));
  EXPECT_THAT(LimitProblems(monthly + ", unit_multiplier: 2"),
              ElementsAre(HasSubstr("unit_multiplier is given with calendar: true")));
  EXPECT_THAT(LimitProblems(monthly + ", algorithm: gcra"),
              ElementsAre(HasSubstr("algorithm is given with calendar: true")));
  EXPECT_THAT(LimitProblems(monthly + ", every: month"),
              ElementsAre(HasSubstr("every is given with calendar: true")));
  EXPECT_THAT(LimitProblems("unit: month, requests_per_unit: 5, zone: UTC"),
              ElementsAre(HasSubstr("zone is given with unit and requests_per_unit")));
  EXPECT_THAT(LimitProblems("unit: month, requests_per_unit: 5, algorithm: calendar"),
              ElementsAre(HasSubstr("by calendar: true")));
  EXPECT_THAT(LimitProblems("calendar: true, limit: 5, window: 1s"),
              ElementsAre(HasSubstr("calendar is given without a unit")));
  EXPECT_THAT(LimitProblems("unlimited: true, calendar: true"),
              ElementsAre(HasSubstr("calendar is given with unlimited: true")));
}

TEST(Rls, HashesValuesOfSecretNames) {
  const auto config = Parse(R"(
domain: d
descriptors:
  - {key: api_key, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: api_key, value: abc, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: Authorization, value: "Bearer *", rate_limit: {unit: day, requests_per_unit: 3}}
)");
  const std::string hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  RlsMatch match;
  const auto find = [&](const Entries& entries) {
    config->Find("d")->Match(entries, match);
    EXPECT_NE(match.limit, nullptr);
  };
  find({{"api_key", "abc"}});
  EXPECT_EQ(match.key, "d|api_key#" + hash);
  EXPECT_EQ(match.limit->requests_per_unit, 2U) << "it is compared in clear";
  EXPECT_EQ(match.limit->path, "d.api_key_#" + hash.substr(0, 12)) << "a label of metrics";
  std::string given;
  RlsStateKey("d", Entries{{"api_key", "abc"}}, given);
  EXPECT_EQ(given, match.key);
  find({{"api_key", "other"}});
  EXPECT_EQ(match.limit->path, "d.api_key");
  EXPECT_THAT(match.key, Not(HasSubstr("other")));
  find({{"Authorization", "Bearer xyz"}});
  EXPECT_EQ(match.limit->path, "d.Authorization_Bearer *");
  EXPECT_THAT(match.key, Not(HasSubstr("xyz")));
  find({{"api_key", ""}});
  EXPECT_EQ(match.key, "d|api_key=");
}

TEST(Rls, UnknownKeysAreProblemsWithTheirPlace) {
  EXPECT_THAT(ProblemsOf("domain: d\ndescriptor: []\n"),
              ElementsAre("f:2:1: the document has no key \"descriptor\"; did you mean "
                          "descriptors? expected domain, descriptors, all_or_nothing"));
  EXPECT_THAT(ProblemsOf("domain: d\ndescriptors:\n  - key: k\n    ratelimit: {}\n"),
              ElementsAre(HasSubstr("f:4:5: a descriptor has no key \"ratelimit\"; did you mean "
                                    "rate_limit?")));
  EXPECT_THAT(LimitProblems("units: day, requests_per_unit: 1"),
              ElementsAre(HasSubstr("rate_limit needs unit"), HasSubstr("no key \"units\"")));
}

TEST(Rls, FindsAllProblems) {
  EXPECT_THAT(
      ProblemsOf(R"(descriptors:
  - value: v
  - key: k
    rate_limit: {unit: fortnight, requests_per_unit: 1}
  - key: k
    rate_limit: {unit: day, algorithm: gcra}
  - key: l
    rate_limit: {unit: day, requests_per_unit: -1}
  - key: m
    rate_limit: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}, {}, {name: ""}]}
  - key: o
    rate_limit:
      requests_per_unit: 1.5
)"),
      ElementsAre("f:1:1: the document needs domain", "f:2:5: a descriptor needs key",
                  HasSubstr("f:4:24: unit is \"fortnight\"; expected one of second, minute"),
                  HasSubstr("f:5:5: key \"k\" without a value is already defined"),
                  HasSubstr("f:6:17: rate_limit needs requests_per_unit"),
                  HasSubstr("f:8:48: requests_per_unit is \"-1\""),
                  HasSubstr("f:10:78: a limit cannot replace itself"),
                  HasSubstr("an entry of replaces needs name"), HasSubstr("name is \"\""),
                  HasSubstr("f:13:26: requests_per_unit is \"1.5\"")));
  EXPECT_THAT(ProblemsOf(""), ElementsAre(HasSubstr("the document is nothing")));
  EXPECT_THAT(ProblemsOf("domain: d\ndescriptors: [{key: k, rate_limit: {name: n}}]"),
              ElementsAre(HasSubstr("needs unit and requests_per_unit")));
}

TEST(Rls, MergesAreResolved) {
  const auto config = Parse(R"(
domain: d
descriptors:
  - &a
    key: a
    rate_limit: &daily
      unit: day
      requests_per_unit: 3
  - <<: *a
    value: x
  - key: b
    rate_limit:
      <<: [*daily, {unit: hour, name: n}]
      requests_per_unit: 5
)");
  const auto& limits = config->Find("d")->limits();
  ASSERT_THAT(limits, SizeIs(3));
  EXPECT_EQ(limits[1].path, "d.a_x");
  EXPECT_EQ(limits[1].requests_per_unit, 3U);
  EXPECT_EQ(limits[2].unit, RlsUnit::kDay);
  EXPECT_EQ(limits[2].requests_per_unit, 5U);
  EXPECT_EQ(limits[2].name, "n");

  const std::string unknown_key = R"(domain: d
descriptors:
  - key: a
    metadata: &m
      colour: red
  - key: b
    <<: *m
)";
  EXPECT_THAT(ProblemsOf(unknown_key + "  - key: c\n    <<: [m]\n"),
              ElementsAre(HasSubstr("f:9:10: not valid YAML: << merges this; expected a mapping")));
  EXPECT_THAT(ProblemsOf(unknown_key),
              ElementsAre(HasSubstr("f:5:7: a descriptor has no key \"colour\"")));
}

TEST(Rls, DepthIsBounded) {
  std::string yaml = "domain: d\n";
  for (std::size_t i = 0; i <= kRlsDepthMax; ++i) yaml += "descriptors: [{key: k, ";
  yaml.replace(yaml.find("descriptors"), 0, "");
  yaml += "value: v";
  for (std::size_t i = 0; i <= kRlsDepthMax; ++i) yaml += "}]";
  EXPECT_THAT(ProblemsOf(yaml), ElementsAre(HasSubstr("more than 32 levels deep")));
}

TEST(Rls, ADomainIsInOneFile) {
  const std::vector<RlsConfig::File> files = {{"a.yaml", "domain: d\n"},
                                              {"b.yaml", "domain: e\n"},
                                              {"c.yaml", "# again\ndomain: d\n"},
                                              {"d.yaml", "domain: [\n"}};
  const auto parsed = RlsConfig::Parse(files);
  ASSERT_FALSE(parsed);
  ASSERT_THAT(parsed.error(), SizeIs(2));
  EXPECT_EQ(parsed.error()[0].ToString(),
            "c.yaml:2:9: domain \"d\" is already in a.yaml; expected each in one file");
  EXPECT_THAT(parsed.error()[1].ToString(), HasSubstr("d.yaml:"));
  const auto both = RlsConfig::Parse(std::span(files).first(2)).value();
  EXPECT_THAT(both->domains(), SizeIs(2));
  EXPECT_EQ(both->Find("e")->name(), "e");
  EXPECT_NE(both->hash(), RlsConfig::Parse(std::span(files).first(1)).value()->hash());
}

TEST(Rls, ADomainIsInSeveralFilesWhereToldTo) {
  const auto file = [](std::string name, std::string_view key, std::string_view more) {
    return RlsConfig::File{std::move(name),
                           text::Cat("domain: d\n", more, "descriptors:\n  - {key: ", key,
                                     ", rate_limit: {unit: day, requests_per_unit: 1}}\n")};
  };
  const std::vector<RlsConfig::File> files = {file("a.yaml", "k, value: x*", ""),
                                              file("b.yaml", "other", "all_or_nothing: true\n"),
                                              file("c.yaml", "k, value: '*'", "")};
  const auto merged = RlsConfig::Parse(files, RlsMerge::kMerge).value();
  EXPECT_THAT(merged->domains(), SizeIs(1));
  EXPECT_EQ(merged->Find("d")->file(), "a.yaml");
  EXPECT_TRUE(merged->Find("d")->all_or_nothing());
  EXPECT_THAT(merged->Find("d")->limits(), SizeIs(3));
  EXPECT_EQ(Match(*merged, {{"k", "xy"}}), "d.k_x*");
  EXPECT_EQ(Match(*merged, {{"k", "y"}}), "d.k_*");
  EXPECT_EQ(Match(*merged, {{"other", "y"}}), "d.other");

  const std::vector<RlsConfig::File> twice = {file("a.yaml", "k", "all_or_nothing: false\n"),
                                              file("b.yaml", "k", "all_or_nothing: true\n")};
  const auto refused = RlsConfig::Parse(twice, RlsMerge::kMerge);
  ASSERT_FALSE(refused);
  ASSERT_THAT(refused.error(), SizeIs(2));
  EXPECT_EQ(refused.error()[0].ToString(),
            "b.yaml:2:17: all_or_nothing is true here, and not so in another file of the domain "
            "\"d\"");
  EXPECT_THAT(refused.error()[1].ToString(), HasSubstr("b.yaml:4:5: key \"k\" without a value"));
}

}  // namespace
}  // namespace sluice::rules
