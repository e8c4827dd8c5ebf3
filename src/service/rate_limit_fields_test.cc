// SPDX-License-Identifier: Apache-2.0
#include "service/rate_limit_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::service {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const Limit kBurst = *Limit::FixedWindow({.limit = 100, .window = 60s});
const Limit kDaily = *Limit::SlidingWindow({.limit = 1000, .window = 24h});
const Limit kBucket = *Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s});

Decision Allowed(std::int64_t remaining, Micros reset_after) {
  return {.allowed = true, .limit = 100, .remaining = remaining, .reset_after = reset_after};
}
Decision Denied(Micros retry_after, Micros reset_after) {
  return {.limit = 100, .retry_after = retry_after, .reset_after = reset_after};
}

Decision Of(std::int64_t limit, std::int64_t remaining, Micros reset_after,
            Micros retry_after = 0us) {
  return {.allowed = retry_after == 0us,
          .limit = limit,
          .remaining = remaining,
          .retry_after = retry_after,
          .reset_after = reset_after};
}

std::string Fields(const Decision& overall, const std::vector<Policy>& policies,
                   TimePoint now = TimePoint{1000s}) {
  std::string out;
  AppendRateLimitFields(out, overall, policies, now);
  return out;
}
std::string PolicyValue(const std::vector<Policy>& policies) {
  std::string out;
  AppendPolicyValue(out, policies);
  return out;
}
std::string RateLimitValue(const Decision& overall, const std::vector<Policy>& policies) {
  std::string out;
  AppendRateLimitValue(out, overall, policies);
  return out;
}

TEST(RateLimitFields, AnAllowedRequestHasNoRetryAfter) {
  EXPECT_EQ(Fields(Allowed(50, 29'000'001us), {{"burst", &kBurst, Allowed(50, 29'000'001us)}}),
            "X-RateLimit-Limit: 100\r\n"
            "X-RateLimit-Remaining: 50\r\n"
            "X-RateLimit-Reset: 1030\r\n"
            "RateLimit-Policy: \"burst\";q=100;w=60\r\n"
            "RateLimit: \"burst\";r=50;t=30\r\n");
}

TEST(RateLimitFields, ADeniedOneTellsWhenToComeBack) {
  EXPECT_EQ(Fields(Denied(100ms, 10s), {{"bucket", &kBucket, Denied(100ms, 10s)}}),
            "X-RateLimit-Limit: 100\r\n"
            "X-RateLimit-Remaining: 0\r\n"
            "X-RateLimit-Reset: 1010\r\n"
            "Retry-After: 1\r\n"
            "RateLimit-Policy: \"bucket\";q=100;w=10\r\n"
            "RateLimit: \"bucket\";r=0;t=1\r\n");
}

TEST(RateLimitFields, NameEachBandByItsLabel) {
  std::string fields;
  AppendBandFields(fields, std::vector<Policy>{{"llm/a/tokens", &kDaily, Of(1000, 900, 6min)},
                                               {"llm/b/requests", &kBurst, Of(100, 2, 119'001us)},
                                               {"llm/c/tokens", &kBucket, Of(50, 7, 3600s + 1us)},
                                               {"pool", &kBucket, Of(5, 5, 0us)}});
  EXPECT_EQ(fields,
            "X-RateLimit-Limit-pool: 5\r\n"
            "X-RateLimit-Remaining-pool: 5\r\n"
            "X-RateLimit-Reset-pool: 0ms\r\n"
            "X-RateLimit-Limit-requests: 100\r\n"
            "X-RateLimit-Remaining-requests: 2\r\n"
            "X-RateLimit-Reset-requests: 120ms\r\n"
            "X-RateLimit-Limit-tokens: 50\r\n"
            "X-RateLimit-Remaining-tokens: 7\r\n"
            "X-RateLimit-Reset-tokens: 1h0m1s\r\n");
}

TEST(RateLimitFields, AreLeftOutWithoutPolicies) { EXPECT_EQ(Fields(Allowed(1, 0us), {}), ""); }

TEST(RateLimitFields, SpeakOfTheOneLimitWithTheLeastLeft) {
  const std::string fields = Fields({.allowed = true, .remaining = 2, .reset_after = 24h},
                                    {{"daily", &kDaily, Of(1000, 900, 24h)},
                                     {"burst", &kBurst, Of(100, 2, 30s)},
                                     {"slow", &kBucket, Of(50, 2, 20s)}});
  EXPECT_THAT(fields, HasSubstr("X-RateLimit-Limit: 100\r\n"
                                "X-RateLimit-Remaining: 2\r\n"
                                "X-RateLimit-Reset: 1030\r\n"));
}

TEST(RateLimitFields, SpeakOfTheOneLimitThatDeniesForLongest) {
  // The last has the least left, but costs less, too: it does not bind.
  const std::string fields = Fields({.remaining = 1, .retry_after = 20s, .reset_after = 24h},
                                    {{"burst", &kBurst, Of(100, 3, 30s, 5s)},
                                     {"daily", &kDaily, Of(1000, 4, 24h, 20s)},
                                     {"bucket", &kBucket, Of(50, 1, 40s)}});
  EXPECT_THAT(fields, HasSubstr("X-RateLimit-Limit: 1000\r\n"
                                "X-RateLimit-Remaining: 4\r\n"
                                "X-RateLimit-Reset: 87400\r\n"
                                "Retry-After: 20\r\n"));
}

TEST(RateLimitFields, AMomentThatNoTimeHoldsIsTheLastOne) {
  EXPECT_EQ(ResetSeconds(Allowed(0, Micros::max()), TimePoint{1000s}), 9'223'372'036'855);
  EXPECT_EQ(ResetSeconds(Allowed(0, Micros::max() - 1000s), TimePoint{1000s}), 9'223'372'036'855);
  EXPECT_EQ(ResetSeconds(Allowed(0, Micros::max() - 1000s), TimePoint{998s}), 9'223'372'036'853);
}

TEST(RateLimitFields, RoundUpToWholeSeconds) {
  EXPECT_EQ(CeilSeconds(0us), 0);
  EXPECT_EQ(CeilSeconds(1us), 1);
  EXPECT_EQ(CeilSeconds(1s), 1);
  EXPECT_EQ(CeilSeconds(1s + 1us), 2);
  EXPECT_EQ(RetryAfterSeconds(Denied(0us, 0us)), 1);
  EXPECT_EQ(RetryAfterSeconds(Denied(2s, 0us)), 2);
  EXPECT_EQ(RetryAfterSeconds(Denied(2'000'001us, 0us)), 3);
  EXPECT_EQ(ResetSeconds(Allowed(0, 500ms), TimePoint{1500ms}), 2);
  EXPECT_EQ(ResetSeconds(Allowed(0, 500ms), TimePoint{1500ms + 1us}), 3);
}

TEST(RateLimitFields, ListSeveralPolicies) {
  const std::vector<Policy> policies = {{"burst", &kBurst, Allowed(50, 30s)},
                                        {"daily", &kDaily, Allowed(900, 3600s)}};
  EXPECT_EQ(PolicyValue(policies), "\"burst\";q=100;w=60,\"daily\";q=1000;w=86400");
  EXPECT_EQ(RateLimitValue(Allowed(50, 3600s), policies),
            "\"burst\";r=50;t=30,\"daily\";r=900;t=3600");
}

TEST(RateLimitFields, NoPolicyOfADenialReachesBeyondRetryAfter) {
  const std::vector<Policy> policies = {{"daily", &kDaily, Allowed(900, 3600s)},
                                        {"burst", &kBurst, Denied(5s, 30s)},
                                        {"bucket", &kBucket, Denied(1ms, 10s)}};
  EXPECT_EQ(RateLimitValue(Denied(5s, 3600s), policies),
            "\"burst\";r=0;t=5,\"bucket\";r=0;t=1,\"daily\";r=900;t=5");
}

TEST(RateLimitFields, WithoutAWaitThatHelpsEachLimitHasItsOwnTime) {
  const std::vector<Policy> policies = {{"burst", &kBurst, Denied(0us, 30s)},
                                        {"daily", &kDaily, Allowed(900, 3600s)}};
  EXPECT_EQ(RateLimitValue(Denied(0us, 3600s), policies),
            "\"burst\";r=0;t=30,\"daily\";r=900;t=3600");
}

TEST(RateLimitFields, EscapeNamesAsStructuredFieldStrings) {
  EXPECT_EQ(PolicyValue({{"a\"b\\c\r\n\x7f\xC3\xA9", &kBurst, Allowed(1, 0us)}}),
            "\"a\\\"b\\\\c?????\";q=100;w=60");
  EXPECT_EQ(PolicyValue({{"", &kBurst, Allowed(1, 0us)}}), "\"\";q=100;w=60");
}

TEST(RateLimitFields, AreBounded) {
  const std::string name(1000, 'n');
  std::vector<Policy> policies(64, {name, &kBurst, Allowed(1, 0us)});
  policies.push_back({"denies", &kBurst, Denied(1s, 1s)});
  const std::string value = RateLimitValue(Denied(1s, 1s), policies);
  EXPECT_TRUE(value.starts_with("\"denies\";"));
  EXPECT_EQ(std::ranges::count(value, ','), static_cast<long>(kPoliciesShownMax) - 1);
  EXPECT_LT(value.size(), kPoliciesShownMax * (kPolicyNameBytesMax + 40));
}

TEST(RateLimitFields, ShowNumbersThatStructuredFieldsCanHold) {
  const Limit huge = *Limit::FixedWindow({.limit = std::int64_t{1} << 52, .window = 1us});
  EXPECT_EQ(PolicyValue({{"huge", &huge, Allowed(std::int64_t{1} << 52, 0us)}}),
            "\"huge\";q=999999999999999;w=1");
}

TEST(WindowSeconds, IsTheWindowOrTheTimeToFill) {
  EXPECT_EQ(WindowSeconds(kBurst), 60);
  EXPECT_EQ(WindowSeconds(kBucket), 10);
  EXPECT_EQ(WindowSeconds(*Limit::TokenBucket({.capacity = 1, .refill = 1000, .period = 1s})), 1);
  EXPECT_EQ(WindowSeconds(*Limit::TokenBucket({.capacity = 101, .refill = 10, .period = 1s})), 11);
  EXPECT_EQ(WindowSeconds(*Limit::LeakyBucket({.capacity = 10, .leak = 1, .period = 1s})), 10);
  EXPECT_EQ(WindowSeconds(*Limit::SlidingWindowCounter({.limit = 5, .window = 1500ms})), 2);
  // The slowest bucket: one token in the longest period that seconds can count.
  EXPECT_EQ(
      WindowSeconds(*Limit::TokenBucket({.capacity = 1000, .refill = 1, .period = 24h * 365})),
      1000LL * 365 * 86'400);
}

TEST(Problem, IsAsRfc9457HasIt) {
  std::string out;
  AppendProblem(out,
                {.title = "Bad \"request\"", .status = 400, .detail = "d", .code = "INVALID_KEY"});
  EXPECT_EQ(out, R"({"type":"about:blank","title":"Bad \"request\"","status":400,"detail":"d",)"
                 R"("code":"INVALID_KEY"})");
}

TEST(Problem, NamesTheViolatedPolicies) {
  const std::vector<Policy> policies = {{"daily", &kDaily, Allowed(900, 3600s)},
                                        {"b\"\xFF", &kBurst, Denied(5s, 30s)},
                                        {"bucket", &kBucket, Denied(1ms, 10s)}};
  std::string out;
  AppendQuotaExceeded(out, policies);
  EXPECT_EQ(out,
            "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\","
            "\"title\":\"Request cannot be satisfied as assigned quota has been exceeded\","
            "\"status\":429,\"violated-policies\":[\"b\\\"\xEF\xBF\xBD\",\"bucket\"]}");
}

}  // namespace
}  // namespace sluice::service
