// SPDX-License-Identifier: Apache-2.0
#include "service/service_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sluice::service {
namespace {

using std::chrono::nanoseconds;
using testing::HasSubstr;
using testing::Not;

constexpr std::array kAlgorithmNames = {"TOKEN_BUCKET", "LEAKY_BUCKET",   "GCRA",
                                        "FIXED_WINDOW", "SLIDING_WINDOW", "SLIDING_WINDOW_COUNTER"};

class ServiceMetricsTest : public testing::Test {
 protected:
  std::string Text() const { return registry_.Text(); }

  Registry registry_;
  ServiceMetrics metrics_{registry_, {.version = "1.2.3", .rules_max = 2}};
};

TEST_F(ServiceMetricsTest, EverySeriesOfChecksExistsBeforeTheFirst) {
  const std::string text = Text();
  for (const std::string algorithm : kAlgorithmNames) {
    for (const std::string allowed : {"true", "false"}) {
      const std::string labels = "{algorithm=\"" + algorithm + "\",allowed=\"" + allowed + "\"";
      EXPECT_THAT(text, HasSubstr("rate_limiter_requests_total" + labels + "} 0\n"));
      EXPECT_THAT(text, HasSubstr("rate_limiter_check_seconds_count" + labels + "} 0\n"));
      EXPECT_THAT(text,
                  HasSubstr("rate_limiter_check_seconds_bucket" + labels + ",le=\"+Inf\"} 0\n"));
    }
  }
}

TEST_F(ServiceMetricsTest, NamesAlgorithmsAsTheLibraryDoes) {
  for (int i = 0; i < static_cast<int>(kAlgorithmNames.size()); ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    EXPECT_EQ(ParseAlgorithm(UpperName(algorithm)), algorithm);
    EXPECT_EQ(UpperName(algorithm), kAlgorithmNames[static_cast<std::size_t>(i)]);
  }
}

TEST_F(ServiceMetricsTest, CountsAndTimesChecks) {
  metrics_.RequestDecided(Algorithm::kGcra, true, nanoseconds{1'200});
  metrics_.RequestDecided(Algorithm::kGcra, true, nanoseconds{800});
  metrics_.RequestDecided(Algorithm::kGcra, false, nanoseconds{100});
  const std::string text = Text();
  EXPECT_THAT(text,
              HasSubstr("rate_limiter_requests_total{algorithm=\"GCRA\",allowed=\"true\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("rate_limiter_requests_total{algorithm=\"GCRA\",allowed=\"false\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("rate_limiter_check_seconds_sum{algorithm=\"GCRA\",allowed=\"true\"} "
                              "0.000002\n"));
}

TEST_F(ServiceMetricsTest, CountsLimitsShadowsAndWhatNoLimitDecidedApart) {
  metrics_.LimitChecked(Algorithm::kFixedWindow, true, Standing::kCounts);
  metrics_.LimitChecked(Algorithm::kFixedWindow, false, Standing::kShadow);
  metrics_.RequestDecidedWithoutLimit(false);
  metrics_.RequestNeverGranted(Algorithm::kGcra);
  const std::string text = Text();
  for (const std::string line :
       {R"(sluice_limit_checks_total{algorithm="FIXED_WINDOW",allowed="true"} 1)",
        R"(sluice_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 0)",
        R"(sluice_shadow_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 1)",
        R"(rate_limiter_requests_total{algorithm="NONE",allowed="false"} 1)",
        R"(rate_limiter_requests_total{algorithm="NONE",allowed="true"} 0)",
        R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 0)",
        R"(rate_limiter_requests_total{algorithm="GCRA",allowed="false"} 1)"}) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
}

TEST_F(ServiceMetricsTest, CountsWhoDecidedWithoutTheStore) {
  metrics_.Decided(Source::kStore);
  metrics_.Decided(Source::kLocal);
  metrics_.Decided(Source::kFailOpen);
  metrics_.Decided(Source::kFailOpen);
  metrics_.Decided(Source::kDenyCache);
  for (int i = 0; i < 3; ++i) metrics_.Decided(Source::kOverload);
  metrics_.StoreFailed(OnStoreFailure::kFailOpen);
  metrics_.StoreFailed(OnStoreFailure::kFailClosed);
  metrics_.StoreFailed(OnStoreFailure::kFailClosed);
  const std::string text = Text();
  for (const char* line : {"sluice_degraded_decisions_total{source=\"local\"} 1\n",
                           "sluice_degraded_decisions_total{source=\"fail_open\"} 2\n",
                           "sluice_degraded_decisions_total{source=\"overload\"} 3\n",
                           "sluice_deny_cache_hits_total 1\n",
                           "sluice_store_failures_total{policy=\"FAIL_CLOSED\"} 2\n",
                           "sluice_store_failures_total{policy=\"FAIL_OPEN\"} 1\n",
                           "sluice_store_failures_total{policy=\"LOCAL\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ServiceMetricsTest, CountsErrorsByCode) {
  metrics_.Failed("INVALID_PERMITS");
  metrics_.Failed(ToString(ErrorCode::kStoreError));
  EXPECT_THAT(Text(), HasSubstr("sluice_errors_total{code=\"INVALID_PERMITS\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_errors_total{code=\"STORE_ERROR\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_errors_total{code=\"UNAVAILABLE\"} 0\n"));
}

TEST_F(ServiceMetricsTest, CountsRulesUpToTheMaximum) {
  metrics_.Rule("api", "per-ip").Count(RuleOutcome::kDenied);
  metrics_.Rule("api", "per-user").Count(RuleOutcome::kShadowDenied);
  metrics_.Rule("api", "third").Count(RuleOutcome::kError);
  RuleMetrics{}.Count(RuleOutcome::kAllowed);
  const auto line = [](const std::string& rule_set, const std::string& rule,
                       const std::string& outcome) {
    return "sluice_rule_decisions_total{rule_set=\"" + rule_set + "\",rule=\"" + rule +
           "\",outcome=\"" + outcome + "\"} 1\n";
  };
  EXPECT_THAT(Text(), HasSubstr(line("api", "per-ip", "denied")));
  EXPECT_THAT(Text(), HasSubstr(line("api", "per-user", "shadow_denied")));
  EXPECT_THAT(Text(), HasSubstr(line("other", "other", "error")));

  metrics_.RetainRules(std::vector<std::pair<std::string_view, std::string_view>>{
      {"api", "per-user"}, {"api", "third"}});
  metrics_.Rule("api", "third").Count(RuleOutcome::kAllowed);
  EXPECT_THAT(Text(), Not(HasSubstr("per-ip")));
  EXPECT_THAT(Text(), HasSubstr(line("api", "per-user", "shadow_denied")));
  EXPECT_THAT(Text(), HasSubstr(line("api", "third", "allowed")));
}

TEST_F(ServiceMetricsTest, AnInvalidReloadLeavesTheGeneration) {
  metrics_.Reloaded(ReloadResult::kOk, 4);
  metrics_.Reloaded(ReloadResult::kInvalid, 5);
  EXPECT_THAT(Text(), HasSubstr("sluice_reloads_total{result=\"ok\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_reloads_total{result=\"invalid\"} 1\n"));
  EXPECT_THAT(Text(), HasSubstr("sluice_rules_generation 4\n"));
}

TEST_F(ServiceMetricsTest, CountsAnswersAndConnections) {
  for (const int status : {200, 204, 429, 503, 0, 999}) metrics_.HttpResponse(status);
  metrics_.WatchConnections(
      "resp", [] { return ServiceMetrics::Connections{.open = 1, .accepted = 2, .refused = 3}; });
  for (const char* line :
       {"sluice_http_responses_total{class=\"2xx\"} 2\n",
        "sluice_http_responses_total{class=\"4xx\"} 1\n",
        "sluice_http_responses_total{class=\"5xx\"} 1\n", "sluice_connections{door=\"resp\"} 1\n",
        "sluice_connections_accepted_total{door=\"resp\"} 2\n",
        "sluice_connections_refused_total{door=\"resp\"} 3\n"}) {
    EXPECT_THAT(Text(), HasSubstr(line));
  }
}

TEST_F(ServiceMetricsTest, ReadsTheNumbersOfTheStores) {
  metrics_.WatchMemory([] {
    return MemoryStore::Stats{
        .keys = 1, .bytes = 48, .log_entries = 2, .dropped = 3, .overflow_decisions = 4};
  });
  metrics_.WatchRedis([] {
    return RedisStore::Stats{.requests = 6,
                             .calls = 5,
                             .script_loads = 1,
                             .connects = 2,
                             .unavailable = 3,
                             .unanswered = 4};
  });
  for (const char* line :
       {"sluice_keys 1\n", "sluice_memory_bytes 48\n", "sluice_log_entries 2\n",
        "sluice_keys_dropped_total 3\n", "sluice_overflow_decisions_total 4\n",
        "sluice_redis_requests_total 6\n", "sluice_redis_calls_total 5\n",
        "sluice_redis_script_loads_total 1\n", "sluice_redis_connects_total 2\n",
        "sluice_redis_unavailable_total 3\n", "sluice_redis_unanswered_total 4\n"}) {
    EXPECT_THAT(Text(), HasSubstr(line));
  }
}

TEST_F(ServiceMetricsTest, NamesTheRuleSetsThatAreNotInForce) {
  std::vector<std::string> names = {"a", "b\"\n", "\xff", "\xfe"};
  metrics_.WatchRules([&] {
    return ServiceMetrics::ManagedRules{.ready = true,
                                        .store_works = false,
                                        .revision = 7,
                                        .restored = 2,
                                        .keep_failures = 1,
                                        .rejected = names.size(),
                                        .rejected_names = names};
  });
  for (const char* line :
       {"sluice_rules_ready 1\n", "sluice_rule_store_up 0\n", "sluice_rule_store_revision 7\n",
        "sluice_rule_store_restored_total 2\n", "sluice_rules_keep_failures_total 1\n",
        "sluice_rule_sets_rejected 4\n", "sluice_rule_set_rejected{rule_set=\"a\"} 1\n",
        "sluice_rule_set_rejected{rule_set=\"b\\\"\\n\"} 1\n"}) {
    EXPECT_THAT(Text(), HasSubstr(line));
  }
  // Names that a label cannot show appear once: twice would be invalid.
  const std::string unshown = "sluice_rule_set_rejected{rule_set=\"\xEF\xBF\xBD\"} 1\n";
  const std::string text = Text();
  ASSERT_NE(text.find(unshown), std::string::npos);
  EXPECT_EQ(text.find(unshown), text.rfind(unshown));
  names.clear();
  EXPECT_THAT(Text(), Not(HasSubstr("sluice_rule_set_rejected{")));
}

// The reverse, too: what is documented exists.
TEST_F(ServiceMetricsTest, EveryFamilyIsDocumented) {
  metrics_.WatchRules([] { return ServiceMetrics::ManagedRules{}; });
  metrics_.WatchMemory([] { return MemoryStore::Stats{}; });
  metrics_.WatchRedis([] { return RedisStore::Stats{}; });
  metrics_.WatchConnections("http", [] { return ServiceMetrics::Connections{}; });
  AddProcessMetrics(registry_);
  std::ifstream file(SLUICE_DOCS "/reference/metrics.md");
  ASSERT_TRUE(file);
  std::vector<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) documented.push_back(line.substr(3, line.find('`', 3) - 3));
  }
  // The running service has more, such as those of the guard; its tests compare them all.
  EXPECT_THAT(documented, testing::IsSupersetOf(registry_.Names()));
}

}  // namespace
}  // namespace sluice::service
