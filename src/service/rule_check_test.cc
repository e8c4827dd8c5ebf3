// SPDX-License-Identifier: Apache-2.0
#include "service/rule_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rules/parse.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::service {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

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
  telemetry::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  Engine engine_{{.store = store_, .metrics = metrics_, .keys = keys_, .logger = logger_}, nullptr};
};

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
