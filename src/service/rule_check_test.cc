// SPDX-License-Identifier: Apache-2.0
#include "service/rule_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/seen.h"
#include "rules/parse.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::service {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Kind = telemetry::HeavyHitters::Kind;

constexpr std::string_view kRules = R"(
ruleSets:
  - id: api
    rules:
      - {id: ip, scope: PER_IP, bands: [{label: wide, algorithm: FIXED_WINDOW, limit: 5, window: 1h}]}
      - id: user
        scope: PER_USER
        bands: [{label: narrow, algorithm: FIXED_WINDOW, limit: 2, window: 1h}]
        overrides: [{key: vip, unlimited: true}, {key: mallory, blocked: true}]
      - {id: trial, scope: PER_IP, shadow: true, bands: [{algorithm: FIXED_WINDOW, limit: 1, window: 1h}]}
  - {id: strict, rules: [{id: u, scope: PER_USER, onMissingKey: DENY, bands: [{limit: 5, window: 1h}]}]}
  - {id: empty}
  - id: tries
    rules:
      - {id: counts, scope: GLOBAL, bands: [{algorithm: FIXED_WINDOW, limit: 5, window: 1h}]}
      - {id: large, scope: GLOBAL, shadow: true, cost: {attribute: size}, bands: [{limit: 9, window: 1h}]}
)";

class RuleCheckTest : public ::testing::Test {
 protected:
  RuleCheckTest() {
    auto catalog = std::make_shared<Catalog>();
    auto parsed = rules::ParseRuleSets(kRules, "test");
    EXPECT_TRUE(parsed) << parsed.error().front().ToString();
    catalog->rules = *rules::RuleBook::Build(*parsed, 7);
    catalog->domains = *rules::RlsConfig::Parse({});
    catalog->generation = 7;
    for (const auto& set : catalog->rules->rule_sets()) {
      for (const rules::Rule& rule : set->rules()) {
        catalog->rule_metrics.emplace(&rule, metrics_.Rule(set->id(), rule.id));
      }
    }
    engine_.SetCatalog(std::move(catalog));
  }

  std::unique_ptr<RuleCheck> Check(std::string_view set, const rules::Context& context,
                                   std::int64_t permits = 1) {
    auto check = std::make_unique<RuleCheck>(engine_.catalog());
    EXPECT_TRUE(check->Prepare(set, context, permits));
    bool done = false;
    check->Run(engine_, [&] { done = true; });
    EXPECT_TRUE(done);
    return check;
  }

  ManualClock clock_{TimePoint{Micros{3'600'000'000}}};
  MemoryStore store_{{.clock = &clock_}};
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  Engine engine_{{.store = store_, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr};
};

// A memory store that counts how often it is asked.
class CountedStore final : public Store {
 public:
  explicit CountedStore(Store& store) : store_(store) {}
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    ++calls;
    store_.Apply(requests, std::move(done));
  }
  int calls = 0;

 private:
  Store& store_;
};

TEST_F(RuleCheckTest, SeveralAskTheStoreOnceAndAreDecidedInTheirOrder) {
  CountedStore counted(store_);
  Engine engine({.store = counted, .metrics = metrics_, .keys = keys_, .logger = logger_},
                engine_.catalog());
  std::vector<std::unique_ptr<RuleCheck>> checks;
  std::vector<RuleCheck*> all;
  for (const std::string_view set : {"api", "empty", "api", "api"}) {
    checks.push_back(std::make_unique<RuleCheck>(engine.catalog()));
    ASSERT_TRUE(checks.back()->Prepare(set, {.ip = "192.0.2.1", .user_id = "alice"}, 1));
    all.push_back(checks.back().get());
  }
  bool done = false;
  RuleCheck::RunAll(engine, all, [&] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_EQ(counted.calls, 1);
  std::vector<bool> allowed;
  for (const auto& check : checks) allowed.push_back(check->decision()->allowed);
  EXPECT_THAT(allowed, ElementsAre(true, true, true, false));
  EXPECT_EQ(checks[2]->outcomes()[0].bands[0].remaining, 3);
  EXPECT_EQ(checks[3]->denied_by()->id, "user");

  RuleCheck::RunAll(engine, {}, [&] { done = false; });
  EXPECT_FALSE(done) << "nothing to decide";
  EXPECT_EQ(counted.calls, 1);
}

TEST_F(RuleCheckTest, ChargesAllOrNothing) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Check("api", {.ip = "192.0.2.1", .user_id = "alice"})->decision()->allowed);
  }
  const auto denied = Check("api", {.ip = "192.0.2.1", .user_id = "alice"});
  EXPECT_FALSE(denied->decision()->allowed);
  ASSERT_NE(denied->denied_by(), nullptr);
  EXPECT_EQ(denied->denied_by()->id, "user");
  EXPECT_EQ(denied->denied_band()->label, "narrow");
  EXPECT_FALSE(denied->outcomes()[0].denied);
  EXPECT_TRUE(denied->outcomes()[1].denied);
  // Defect 4: the address was not charged for what the user's rule denied.
  EXPECT_EQ(Check("api", {.ip = "192.0.2.1"}, 0)->decision()->remaining, 3);
}

TEST_F(RuleCheckTest, ShadowsNeverDeny) {
  Check("api", {.ip = "192.0.2.1"});
  const auto second = Check("api", {.ip = "192.0.2.1"});
  EXPECT_TRUE(second->decision()->allowed);
  EXPECT_TRUE(second->outcomes().back().denied) << "it would have";
  EXPECT_EQ(second->denied_by(), nullptr);
  EXPECT_THAT(registry_.Text(), HasSubstr(R"(rule="trial",outcome="shadow_denied"} 1)"));
}

TEST_F(RuleCheckTest, WhatAShadowCannotGrantFailsNothing) {
  const rules::Attribute size{"size", "9223372036854775807"};
  const auto check = Check("tries", {.attributes = {&size, 1}}, 2);
  ASSERT_TRUE(check->decision());
  EXPECT_EQ(check->decision()->remaining, 3);
  ASSERT_TRUE(check->outcomes().back().error);
  EXPECT_EQ(check->outcomes().back().error->code, ErrorCode::kCostExceedsLimit);
  EXPECT_THAT(registry_.Text(), HasSubstr(R"(rule="large",outcome="error"} 1)"));
}

TEST_F(RuleCheckTest, LooksAreNotCounted) {
  Check("api", {.ip = "192.0.2.1", .user_id = "mallory"}, 0);
  Check("api", {.ip = "192.0.2.1"}, 0);
  EXPECT_THAT(registry_.Text(),
              Not(ContainsRegex(R"(sluice_rule_decisions_total\{[^}]*\} [1-9])")));
}

TEST_F(RuleCheckTest, CountsRequestsAsClientsSawThem) {
  for (int i = 0; i < 4; ++i) Check("api", {.ip = "192.0.2.1", .user_id = "alice"});
  Check("api", {.ip = "192.0.2.1", .user_id = "mallory"});
  Check("api", {.user_id = "vip"});
  Check("empty", {});
  const std::string text = registry_.Text();
  for (const std::string line :
       {R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 2)",
        R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 2)",
        R"(rate_limiter_requests_total{algorithm="NONE",allowed="true"} 2)",
        R"(rate_limiter_requests_total{algorithm="NONE",allowed="false"} 1)",
        R"(sluice_limit_checks_total{algorithm="FIXED_WINDOW",allowed="true"} 6)",
        R"(sluice_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 2)",
        R"(sluice_shadow_limit_checks_total{algorithm="FIXED_WINDOW",allowed="true"} 1)",
        R"(sluice_shadow_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 4)"}) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
}

TEST_F(RuleCheckTest, TellsWhoWasDeniedAndByWhat) {
  for (int i = 0; i < 4; ++i) Check("api", {.ip = "192.0.2.1", .user_id = "alice"});
  Check("api", {.ip = "192.0.2.1", .user_id = "mallory"});
  const auto top = [&](Kind kind) {
    std::vector<std::string> shown;
    for (const auto& entry : keys_.Top(kind, 9, std::chrono::steady_clock::now())) {
      shown.push_back(entry.name + " " + entry.key + " " + std::to_string(entry.count));
    }
    return shown;
  };
  EXPECT_THAT(top(Kind::kDenied),
              ElementsAre("api/user/narrow user:alice 2", "api/user/ user:mallory 1"));
  const auto shadows = top(Kind::kShadowDenied);
  ASSERT_EQ(shadows.size(), 1U);
  EXPECT_THAT(shadows[0], ::testing::StartsWith("api/trial/"));
  EXPECT_THAT(shadows[0], ::testing::EndsWith(" ip:192.0.2.1 4"));
  EXPECT_THAT(top(Kind::kBusy),
              ElementsAre("api/ip/wide ip:192.0.2.1 4", "api/user/narrow user:alice 4",
                          "api/user/ user:mallory 1"));
  EXPECT_THAT(top(Kind::kNear), ElementsAre("api/user/narrow user:alice 3"));
}

TEST_F(RuleCheckTest, ALookSaysWhatARequestOfOneWouldGet) {
  const auto before = Check("api", {.ip = "192.0.2.1", .user_id = "alice"}, 0);
  EXPECT_TRUE(before->looked());
  EXPECT_TRUE(before->decision()->allowed);
  EXPECT_EQ(before->decision()->remaining, 2);
  for (int i = 0; i < 2; ++i) Check("api", {.ip = "192.0.2.1", .user_id = "alice"});
  const auto denied = Check("api", {.ip = "192.0.2.1", .user_id = "alice"});
  const auto look = Check("api", {.ip = "192.0.2.1", .user_id = "alice"}, 0);
  EXPECT_EQ(*look->decision(), *denied->decision());
  EXPECT_EQ(look->denied_band(), denied->denied_band());
  EXPECT_TRUE(look->outcomes()[0].bands[0].allowed);
  EXPECT_FALSE(look->outcomes()[1].bands[0].allowed);
  EXPECT_EQ(look->outcomes()[1].bands[0].retry_after, std::chrono::hours{1});
}

// For every algorithm, a look foresees to the microsecond what the request then gets.
TEST_F(RuleCheckTest, ALookForeseesTheDecisionOfEveryAlgorithm) {
  for (const char* spec :
       {"algorithm=token_bucket,capacity=3,refill=7,period=10s",
        "algorithm=leaky_bucket,capacity=3,leak=7,period=10s",
        "algorithm=gcra,burst=2,count=7,period=10s", "algorithm=fixed_window,limit=3,window=10s",
        "algorithm=sliding_window,limit=3,window=10s",
        "algorithm=sliding_window_counter,limit=3,window=10s"}) {
    const auto limit = Limit::Parse(spec);
    ASSERT_TRUE(limit) << spec;
    for (int i = 0; i < 40; ++i) {
      clock_.Advance(Micros{700'001 + 13 * i});
      const Charge look{.key = "k", .limit = &*limit, .name = spec, .cost = 0};
      SeenState seen;
      Request looked{.charges = {&look, 1}, .seen = {&seen, 1}};
      store_.Apply({&looked, 1}, [] {});
      ASSERT_TRUE(looked.outcome);
      const Decision foreseen = core::Foresee(*limit, *looked.outcome, seen, 1);
      const auto decision = store_.Check({.key = "k", .limit = &*limit, .name = spec});
      ASSERT_TRUE(decision);
      EXPECT_EQ(foreseen.allowed, decision->allowed) << spec << " " << i;
      EXPECT_EQ(foreseen.retry_after, decision->retry_after) << spec << " " << i;
      EXPECT_EQ(foreseen.delay, decision->delay) << spec << " " << i;
      if (!decision->allowed) {
        EXPECT_EQ(foreseen, *decision) << spec << " " << i;
      }
    }
  }
}

// Only the records of the holds know when the first of them expires.
TEST_F(RuleCheckTest, ALookAtSlotsThatAreAllTakenForeseesTheLongestWait) {
  const auto limit = Limit::Parse("algorithm=concurrency,limit=2,ttl=30s");
  const Charge slot{.key = "k", .limit = &*limit};
  for (const char* id : {"first", "second"}) {
    HoldTerms terms{.id = id};
    Request hold{.charges = {&slot, 1}, .action = Action::kHold, .hold = &terms};
    store_.Apply({&hold, 1}, [] {});
    ASSERT_TRUE(hold.outcome && hold.outcome->allowed);
    clock_.Advance(std::chrono::seconds{10});
  }
  const Charge look{.key = "k", .limit = &*limit, .cost = 0};
  SeenState seen;
  Request looked{.charges = {&look, 1}, .seen = {&seen, 1}};
  store_.Apply({&looked, 1}, [] {});
  ASSERT_TRUE(looked.outcome);
  const Decision foreseen = core::Foresee(*limit, *looked.outcome, seen, 1);
  EXPECT_FALSE(foreseen.allowed);
  EXPECT_EQ(foreseen.retry_after, std::chrono::seconds{20});
  EXPECT_EQ(foreseen.reset_after, std::chrono::seconds{20});
}

TEST_F(RuleCheckTest, OverridesPassAndBlockWithoutACharge) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Check("api", {.user_id = "vip"})->decision()->allowed);
  }
  EXPECT_FALSE(Check("api", {.user_id = "vip"})->limited());
  const auto blocked = Check("api", {.ip = "192.0.2.9", .user_id = "mallory"});
  EXPECT_FALSE(blocked->decision()->allowed);
  EXPECT_EQ(blocked->denied_by()->id, "user");
  EXPECT_EQ(blocked->denied_band(), nullptr);
  EXPECT_EQ(Check("api", {.ip = "192.0.2.9"}, 0)->decision()->remaining, 5) << "nothing was taken";
}

TEST_F(RuleCheckTest, SaysWhenNoRuleApplied) {
  const auto none = Check("empty", {.ip = "192.0.2.1"});
  EXPECT_TRUE(none->decision()->allowed);
  EXPECT_TRUE(none->outcomes().empty());
  EXPECT_FALSE(none->limited());
  EXPECT_FALSE(Check("strict", {})->decision()->allowed) << "no user, and the rule insists";
}

TEST_F(RuleCheckTest, RefusesWhatItCannotCheck) {
  RuleCheck check(engine_.catalog());
  EXPECT_EQ(check.Prepare("nosuch", {}, 1).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(check.Prepare("api", {.ip = "192.0.2.1"}, -1).error().code, ErrorCode::kInvalidCost);
  const auto too_much = Check("api", {.ip = "192.0.2.1"}, 6);
  EXPECT_EQ(too_much->decision().error().code, ErrorCode::kCostExceedsLimit);
  EXPECT_THAT(too_much->decision().error().message, HasSubstr("\"api/ip/wide\""));
}

TEST_F(RuleCheckTest, NamesTheRulesThatMissTheirKey) {
  const auto forgetful = Check("api", {.user_id = "dora"});
  ASSERT_EQ(forgetful->skipped().size(), 2U);
  EXPECT_EQ(forgetful->skipped()[0]->id, "ip");
  EXPECT_EQ(forgetful->skipped()[1]->id, "trial");
  EXPECT_TRUE(Check("api", {.ip = "192.0.2.1", .user_id = "dora"})->skipped().empty());
  EXPECT_TRUE(Check("strict", {})->skipped().empty()) << "it is denied";
}

TEST_F(RuleCheckTest, CanBeUsedAgain) {
  RuleCheck check(engine_.catalog());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(check.Prepare("api", {.ip = "192.0.2.1", .user_id = "bob"}, 1));
    check.Run(engine_, [] {});
    EXPECT_EQ(check.decision()->allowed, i < 2);
    EXPECT_EQ(check.denied_by() != nullptr, i >= 2);
  }
}

}  // namespace
}  // namespace sluice::service
