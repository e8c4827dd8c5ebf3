// SPDX-License-Identifier: Apache-2.0
// Holds as the doors make and end them: RuleCheck, HoldTicket, HoldCall, LiveHolds.
#include "service/hold_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/base64url.h"
#include "base/digest.h"
#include "base/text.h"
#include "rules/parse.h"
#include "service/limit_hold.h"
#include "service/rule_check.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::service {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kRules = R"(
ruleSets:
  - id: llm
    rules:
      - {id: requests, scope: PER_USER, hold: {ttl: 1m}, bands: [{label: rpm, algorithm: FIXED_WINDOW, limit: 5, window: 1h}]}
      - id: tokens
        scope: PER_USER
        cost: {attribute: tokens, default: 1}
        bands: [{label: tpm, algorithm: FIXED_WINDOW, limit: 1000, window: 1h}]
        overrides: [{key: vip, bands: [{label: tpm, algorithm: FIXED_WINDOW, limit: 9000, window: 1h}]}]
      - {id: streams, scope: PER_USER, bands: [{label: open, algorithm: CONCURRENCY, limit: 2, ttl: 30s}]}
  - id: trial
    rules:
      - {id: counts, scope: GLOBAL, hold: {ttl: 5s, onExpiry: RELEASE}, bands: [{algorithm: FIXED_WINDOW, limit: 1, window: 1h}]}
      - {id: slots, scope: GLOBAL, shadow: true, bands: [{algorithm: CONCURRENCY, limit: 7, ttl: 30s}]}
  - {id: rates, rules: [{id: r, scope: GLOBAL, cost: 10, bands: [{algorithm: FIXED_WINDOW, limit: 100, window: 1h}]}]}
  - {id: blocks, rules: [{id: b, scope: PER_USER, bands: [{limit: 5, window: 1h}], overrides: [{key: mallory, blocked: true}]}]}
  - {id: empty}
)";

class HoldCallTest : public ::testing::Test {
 protected:
  HoldCallTest() {
    Load(kRules);
    metrics_.WatchHolds([this] { return engine_.live_holds().Count(clock_.Now()); },
                        [this] { return engine_.live_holds().CountByRule(clock_.Now()); });
  }

  void Load(std::string_view text) {
    auto catalog = std::make_shared<Catalog>();
    auto parsed = rules::ParseRuleSets(text, "test");
    ASSERT_TRUE(parsed) << parsed.error().front().ToString();
    catalog->rules = *rules::RuleBook::Build(*parsed, 7);
    catalog->domains = *rules::RlsConfig::Parse({});
    for (const auto& set : catalog->rules->rule_sets()) {
      for (const rules::Rule& rule : set->rules()) {
        catalog->rule_metrics.emplace(&rule, metrics_.Rule(set->id(), rule.id));
      }
    }
    engine_.SetCatalog(std::move(catalog));
  }

  std::unique_ptr<RuleCheck> Try(std::string_view set, std::int64_t permits, HoldWish wish = {},
                                 rules::Context context = {.user_id = "ann"}) {
    auto check = std::make_unique<RuleCheck>(engine_.catalog());
    const auto ready = check->PrepareHold(set, context, permits, wish);
    EXPECT_TRUE(ready) << ready.error().message;
    check->Run(engine_, [] {});
    EXPECT_TRUE(check->decision()) << check->decision().error().message;
    return check;
  }

  // Makes a hold, and returns its id.
  std::string Hold(std::string_view set, std::int64_t permits, HoldWish wish = {},
                   rules::Context context = {.user_id = "ann"}) {
    const auto check = Try(set, permits, wish, context);
    EXPECT_TRUE(check->decision()->allowed);
    const HoldTicket ticket = check->MakeTicket();
    return CountMade(engine_, check->catalog(), ticket)->id;
  }

  std::unique_ptr<HoldCall> Open(std::string_view id) {
    auto call = std::make_unique<HoldCall>(engine_.catalog());
    const auto open = call->Open(id);
    EXPECT_TRUE(open) << open.error().message;
    return call;
  }

  std::int64_t Left(std::string_view set, std::string_view rule) {
    RuleCheck look(engine_.catalog());
    EXPECT_TRUE(look.Prepare(set, {.user_id = "ann"}, 0));
    look.Run(engine_, [] {});
    for (const auto& outcome : look.outcomes()) {
      if (outcome.selected->rule->id == rule) return outcome.bands[0].remaining;
    }
    return -1;
  }

  ManualClock clock_{TimePoint{Micros{3'600'000'000}}};
  MemoryStore store_{{.clock = &clock_}};
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  Engine engine_{
      {.store = store_, .metrics = metrics_, .keys = keys_, .logger = logger_, .clock = clock_},
      nullptr};
};

rules::Context Ann(std::span<const rules::Attribute> attributes) {
  return {.user_id = "ann", .attributes = attributes};
}

TEST_F(HoldCallTest, RulesAreHeldTogetherAndSettledOneByOne) {
  const rules::Attribute tokens{.name = "tokens", .value = "800"};
  const std::string id = Hold("llm", 1, {}, Ann({&tokens, 1}));
  EXPECT_EQ(Left("llm", "requests"), 4);
  EXPECT_EQ(Left("llm", "tokens"), 200);
  EXPECT_EQ(Left("llm", "streams"), 1);

  const auto call = Open(id);
  call->Settle();
  ASSERT_TRUE(call->SettleRule("tokens", 250));
  call->Run(engine_, [] {});
  ASSERT_TRUE(call->decision());
  EXPECT_FALSE(call->terms().late || call->terms().overdrawn);
  EXPECT_EQ(call->outcomes().size(), 3U);
  EXPECT_EQ(call->outcomes()[1].actual, 250);
  EXPECT_EQ(Left("llm", "requests"), 4) << "costs what was held";
  EXPECT_EQ(Left("llm", "tokens"), 750);
  EXPECT_EQ(Left("llm", "streams"), 2) << "released, whatever it cost";
}

TEST_F(HoldCallTest, ARuleThatDeniesHoldsNothing) {
  Hold("llm", 1);
  Hold("llm", 1);
  const auto denied = Try("llm", 1);
  EXPECT_FALSE(denied->decision()->allowed);
  EXPECT_EQ(denied->denied_by()->id, "streams");
  EXPECT_EQ(denied->decision()->retry_after, 30s) << "the shortest ttl of the rules";
  EXPECT_EQ(Left("llm", "requests"), 3);
}

TEST_F(HoldCallTest, TheShortestTtlOfTheRulesCounts) {
  const auto llm = Try("llm", 1);
  EXPECT_EQ(llm->MakeTicket().ttl, 30s) << "that of the concurrency limit";
  EXPECT_EQ(Try("llm", 1, {.ttl = 7s})->MakeTicket().ttl, 7s);
  EXPECT_EQ(Try("trial", 1)->MakeTicket().ttl, 5s);

  RuleCheck rates(engine_.catalog());
  const auto refused = rates.PrepareHold("rates", {}, 1, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidRequest);
  EXPECT_THAT(refused.error().message, HasSubstr("expected one, 1ms to 1d"));
}

TEST_F(HoldCallTest, PermitsCostWhatTheRuleSays) {
  const std::string id = Hold("rates", 4, {.ttl = 1min});
  EXPECT_EQ(Left("rates", "r"), 60);
  const auto call = Open(id);
  ASSERT_TRUE(call->Settle(3));
  call->Run(engine_, [] {});
  EXPECT_EQ(Left("rates", "r"), 70);

  const auto again = Open(id);
  ASSERT_TRUE(again->Settle(9));
  again->Run(engine_, [] {});
  EXPECT_EQ(Left("rates", "r"), 70) << "it was settled already";
}

TEST_F(HoldCallTest, SettlingForMoreIsOverdrawnAndAfterItsExpiryLate) {
  const auto more = Open(Hold("rates", 1, {.ttl = 1min}));
  ASSERT_TRUE(more->Settle(5));
  more->Run(engine_, [] {});
  EXPECT_TRUE(more->terms().overdrawn);
  EXPECT_EQ(Left("rates", "r"), 50);

  const auto late = Open(Hold("rates", 4, {.ttl = 1s}));
  clock_.Advance(1s);
  ASSERT_TRUE(late->Settle(1));
  late->Run(engine_, [] {});
  EXPECT_TRUE(late->terms().late);
  EXPECT_EQ(Left("rates", "r"), 40);
}

TEST_F(HoldCallTest, AHoldIsExtendedForAsLongAsItWasMade) {
  const std::string id = Hold("rates", 1, {.ttl = 10s});
  clock_.Advance(9s);
  const auto call = Open(id);
  call->Extend(std::nullopt);
  call->Run(engine_, [] {});
  ASSERT_TRUE(call->decision());
  EXPECT_EQ(call->terms().expires, clock_.Now() + 10s);

  clock_.Advance(11s);
  const auto lost = Open(id);
  lost->Extend(5s);
  lost->Run(engine_, [] {});
  ASSERT_FALSE(lost->decision());
  EXPECT_EQ(lost->decision().error().code, ErrorCode::kHoldLost);
}

TEST_F(HoldCallTest, TheSameHoldIsMadeOnce) {
  const std::string id = Hold("rates", 2, {.id = "job-1", .ttl = 1min});
  EXPECT_EQ(Hold("rates", 2, {.id = "job-1", .ttl = 1min}), id);
  EXPECT_EQ(Left("rates", "r"), 80);
}

TEST_F(HoldCallTest, ChecksOfWhatCanOnlyBeHeldSayHow) {
  RuleCheck check(engine_.catalog());
  const auto refused = check.Prepare("llm", {.user_id = "ann"}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNeedsHold);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("streams"), HasSubstr("expected a hold")));
  EXPECT_TRUE(check.Prepare("llm", {.user_id = "ann"}, 0)) << "a look is fine";

  ASSERT_TRUE(check.Prepare("trial", {}, 1)) << "a shadow refuses nobody";
  check.Run(engine_, [] {});
  EXPECT_TRUE(check.decision()->allowed);
  EXPECT_TRUE(check.outcomes()[1].bands.empty());
}

TEST_F(HoldCallTest, ShadowsHoldBesideHoldsThatAreMade) {
  const std::string id = Hold("trial", 1);
  EXPECT_EQ(Left("trial", "slots"), 6);
  EXPECT_FALSE(Try("trial", 1)->decision()->allowed);
  EXPECT_EQ(Left("trial", "slots"), 6) << "nobody would release it";

  const auto call = Open(id);
  call->Release();
  call->Run(engine_, [] {});
  EXPECT_EQ(call->outcomes().size(), 1U) << "a shadow is not shown";
  EXPECT_EQ(Left("trial", "slots"), 7);
  EXPECT_EQ(Left("trial", "counts"), 1);
}

TEST_F(HoldCallTest, WithoutLimitsThereIsNothingToEnd) {
  const auto call = Open(Hold("empty", 3));
  ASSERT_TRUE(call->Settle(3));
  call->Run(engine_, [] {});
  EXPECT_TRUE(call->decision()->allowed);
  EXPECT_FALSE(call->limited());

  const auto blocked = Try("blocks", 1, {.ttl = 1s}, {.user_id = "mallory"});
  EXPECT_FALSE(blocked->decision()->allowed);
}

TEST_F(HoldCallTest, NumbersThatChangeKeepTheHold) {
  const rules::Attribute tokens{.name = "tokens", .value = "800"};
  const std::string id = Hold("llm", 1, {}, Ann({&tokens, 1}));
  std::string changed(kRules);
  changed.replace(changed.find("limit: 1000"), 11, "limit: 2000");
  Load(changed);
  const auto call = Open(id);
  call->Settle();
  ASSERT_TRUE(call->SettleRule("tokens", 100));
  call->Run(engine_, [] {});
  EXPECT_EQ(call->outcomes()[1].limit.amount(), 2000);
  EXPECT_EQ(Left("llm", "tokens"), 1900);
}

TEST_F(HoldCallTest, OverridesKeepTheirOwnLimits) {
  const rules::Attribute tokens{.name = "tokens", .value = "5000"};
  const auto call = Open(Hold("llm", 1, {}, {.user_id = "vip", .attributes = {&tokens, 1}}));
  call->Settle();
  call->Run(engine_, [] {});
  EXPECT_EQ(call->outcomes()[1].decision.remaining, 4000);
}

TEST_F(HoldCallTest, OnlyKnownRulesAndSensiblePermitsAreSettled) {
  const auto call = Open(Hold("rates", 1, {.ttl = 1min}));
  EXPECT_EQ(call->SettleRule("other", 1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(call->SettleRule("r", -1).error().code, ErrorCode::kInvalidCost);
  EXPECT_EQ(call->Settle(-1).error().code, ErrorCode::kInvalidCost);
  EXPECT_EQ(call->Settle(std::numeric_limits<std::int64_t>::max()).error().code,
            ErrorCode::kInvalidCost);
}

TEST_F(HoldCallTest, EventsAreCountedByRule) {
  const auto settled = Open(Hold("rates", 1, {.ttl = 1s}));
  ASSERT_TRUE(settled->Settle(2));
  settled->Run(engine_, [] {});
  Hold("rates", 1, {.ttl = 1s});
  constexpr std::string_view kUnderRule =
      "sluice_rule_holds_live{rule_set=\"rates\",rule=\"r\"} 1\n";
  EXPECT_THAT(registry_.Text(), AllOf(HasSubstr("sluice_holds_live 1\n"), HasSubstr(kUnderRule)));
  clock_.Advance(1s);
  EXPECT_THAT(registry_.Text(),
              AllOf(HasSubstr("sluice_holds_live 0\n"), Not(HasSubstr("sluice_rule_holds_live{"))));
  const std::string shown = registry_.Text();
  const std::pair<std::string_view, int> expected[] = {
      {"made", 2},    {"settled", 1}, {"released", 0}, {"extended", 0},
      {"expired", 1}, {"late", 0},    {"overdrawn", 1}};
  for (const auto& [event, count] : expected) {
    EXPECT_THAT(shown, HasSubstr(text::Cat("sluice_holds_total{event=\"", event, "\"} ", count)));
    EXPECT_THAT(shown, HasSubstr(text::Cat("sluice_rule_holds_total{rule_set=\"rates\",rule=\"r\","
                                           "event=\"",
                                           event, "\"} ", count)));
  }
}

TEST_F(HoldCallTest, WhatIsReleasedByItsIdIsCountedAsReleased) {
  Hold("rates", 1, {.id = "a", .ttl = 1s});
  constexpr std::string_view kState = "rates/r/0";
  CountReleased(engine_, *engine_.catalog(), "a", {&kState, 1});
  clock_.Advance(1s);
  EXPECT_THAT(registry_.Text(), AllOf(HasSubstr("sluice_holds_live 0\n"),
                                      HasSubstr("sluice_holds_total{event=\"released\"} 1\n"),
                                      HasSubstr("sluice_holds_total{event=\"expired\"} 0\n"),
                                      HasSubstr("rule=\"r\",event=\"released\"} 1\n")));
}

HoldTicket SomeTicket() {
  HoldTicket ticket{.id = "a b", .expires = TimePoint{1h}, .ttl = 30s, .parts = {}};
  for (const char* text : {"limit=5,window=1m", "algorithm=concurrency,limit=3,ttl=1s",
                           "algorithm=token_bucket,capacity=7,refill=2,period=3s"}) {
    ticket.parts.push_back({.key = std::string("k\0y", 3),
                            .limit = *Limit::Parse(text),
                            .name = "set/rule/band",
                            .held = 1'000'000,
                            .units_per_permit = 3,
                            .shadow = ticket.parts.size() == 1});
  }
  return ticket;
}

TEST_F(HoldCallTest, ALimitIsHeldAndSettledLikeRules) {
  LimitHold hold(engine_.catalog());
  ASSERT_TRUE(hold.Prepare({.limit = "limit=10,window=1h,algorithm=fixed_window",
                            .key = "k",
                            .cost = 4,
                            .wish = {.id = "mine", .ttl = 1min}}));
  hold.Run(engine_, [] {});
  ASSERT_TRUE(hold.decision() && hold.decision()->allowed);
  EXPECT_EQ(hold.decision()->held, 4);
  const HoldTicket ticket = hold.MakeTicket();
  EXPECT_EQ(ticket.expires, clock_.Now() + 1min);
  EXPECT_TRUE(ticket.held);
  const auto call = Open(*ticket.ToText());
  ASSERT_TRUE(call->Settle(1));
  call->Run(engine_, [] {});
  ASSERT_TRUE(call->decision());
  EXPECT_EQ(call->decision()->remaining, 9);
  EXPECT_FALSE(call->terms().late);

  LimitHold unknown(engine_.catalog());
  const auto refused = unknown.Prepare({.limit = "lake", .key = "k"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("no limit is named \"lake\""));
}

TEST_F(HoldCallTest, GivingBackIsNoRequest) {
  RuleCheck check(engine_.catalog());
  ASSERT_TRUE(check.Prepare("rates", {}, 3));
  check.Run(engine_, [] {});
  EXPECT_EQ(Left("rates", "r"), 70);
  const std::string before = registry_.Text();
  RuleCheck give(engine_.catalog());
  ASSERT_TRUE(give.PrepareGive("rates", {}, 2));
  give.Run(engine_, [] {});
  ASSERT_TRUE(give.decision());
  EXPECT_EQ(give.decision()->remaining, 90);
  EXPECT_EQ(Left("rates", "r"), 90);
  EXPECT_EQ(registry_.Text(), before);

  ASSERT_TRUE(give.Prepare("rates", {}, 1)) << "and it can be used again for a check";
  give.Run(engine_, [] {});
  EXPECT_EQ(Left("rates", "r"), 80);
  const auto refused = give.PrepareGive("llm", {.user_id = "ann"}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNeedsHold);
}

TEST(HoldTicket, ComesBackAsItWas) {
  const HoldTicket ticket = SomeTicket();
  const auto text = ticket.ToText();
  ASSERT_TRUE(text);
  const auto read = HoldTicket::Parse(*text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->id, ticket.id);
  EXPECT_EQ(read->expires, ticket.expires);
  EXPECT_EQ(read->ttl, ticket.ttl);
  EXPECT_TRUE(read->held);
  ASSERT_EQ(read->parts.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->parts[i].key, ticket.parts[i].key);
    EXPECT_EQ(read->parts[i].limit, ticket.parts[i].limit);
    EXPECT_EQ(read->parts[i].name, ticket.parts[i].name);
    EXPECT_EQ(read->parts[i].held, 1'000'000);
    EXPECT_EQ(read->parts[i].units_per_permit, 3);
    EXPECT_EQ(read->parts[i].shadow, i == 1);
  }
  EXPECT_THAT(*text, Not(HasSubstr("=")));
}

TEST(HoldTicket, NothingElseIsOne) {
  const std::string text = *SomeTicket().ToText();
  std::mt19937 random(3);
  int unnoticed = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    while (other[i] == text[i]) other[i] = "ABCZabz019-_"[random() % 12];
    if (HoldTicket::Parse(other)) ++unnoticed;
  }
  EXPECT_LE(unnoticed, 1) << "a changed byte is found out, but for one in 65,536";
  for (const std::string& wrong : {std::string(), text.substr(1), text + "A", std::string("job-1"),
                                   std::string(HoldTicket::kBytesMax + 4, 'A')}) {
    ASSERT_FALSE(HoldTicket::Parse(wrong));
    EXPECT_EQ(HoldTicket::Parse(wrong).error().code, ErrorCode::kInvalidRequest);
  }
}

TEST(HoldTicket, IsWrittenInOneWay) {
  std::string bytes = *text::ParseBase64Url(*SomeTicket().ToText());
  bytes.resize(bytes.size() - 4);
  const auto sealed = [&] {
    std::string check;
    AppendSha256(check, bytes);
    std::string text;
    text::AppendBase64Url(text, bytes + check.substr(0, 4));
    return text;
  };
  ASSERT_EQ(sealed(), *SomeTicket().ToText());
  ASSERT_EQ(bytes[1], 3) << "the length of the id";
  bytes.replace(1, 1, std::string("\x83\0", 2));
  EXPECT_FALSE(HoldTicket::Parse(sealed())) << "the same number in two bytes";
}

TEST(HoldTicket, IsBounded) {
  HoldTicket ticket = SomeTicket();
  ticket.parts.resize(2, ticket.parts[0]);
  for (int i = 0; i < 6; ++i) {
    ticket.parts.push_back(ticket.parts[0]);
    ticket.parts.back().key = std::string(1000, static_cast<char>('a' + i));
  }
  ASSERT_FALSE(ticket.ToText());
  EXPECT_THAT(ticket.ToText().error().message, HasSubstr("expected at most 6144"));
}

}  // namespace
}  // namespace sluice::service
