// SPDX-License-Identifier: Apache-2.0
// ShouldRateLimit, from the bytes of its requests to those of its responses, against the reference
// model, on both stores.
#include <envoy/service/ratelimit/v3/rls.pb.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/model.h"
#include "conformance/traffic.h"
#include "grpc/rls.h"
#include "support/redis_at_time.h"
#include "support/rls_engine.h"

namespace sluice {
namespace {

using envoy::service::ratelimit::v3::RateLimitRequest;
using envoy::service::ratelimit::v3::RateLimitResponse;

constexpr std::string_view kDescriptors = R"(
descriptors:
  - {key: fixed, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: sliding, rate_limit: {unit: second, requests_per_unit: 5, algorithm: SLIDING_WINDOW}}
  - {key: counter, rate_limit: {algorithm: SLIDING_WINDOW_COUNTER, limit: 7, window: 3s}}
  - {key: token, rate_limit: {unit: hour, requests_per_unit: 3000, algorithm: TOKEN_BUCKET,
                              capacity: 20}}
  - {key: leaky, rate_limit: {algorithm: LEAKY_BUCKET, capacity: 3, leak: 2, period: 1s}}
  - {key: gcra, rate_limit: {unit: second, requests_per_unit: 7, algorithm: GCRA}}
)";

struct Known {
  std::string key;
  model::Spec spec;
};

const std::array<Known, 6> kKnown = {{
    {"fixed", {.kind = model::Kind::kFixedWindow, .amount = 10, .span_us = 60'000'000}},
    {"sliding", {.kind = model::Kind::kSlidingWindow, .amount = 5, .span_us = 1'000'000}},
    {"counter", {.kind = model::Kind::kSlidingWindowCounter, .amount = 7, .span_us = 3'000'000}},
    {"token",
     {.kind = model::Kind::kTokenBucket, .amount = 20, .refill = 3000, .span_us = 3'600'000'000}},
    {"leaky", {.kind = model::Kind::kLeakyBucket, .amount = 3, .refill = 2, .span_us = 1'000'000}},
    {"gcra", {.kind = model::Kind::kTokenBucket, .amount = 7, .refill = 7, .span_us = 1'000'000}},
}};

// One request and the matching question to the model.
struct Asked {
  RateLimitRequest request;
  std::vector<model::Model::Charge> charges;
  std::vector<bool> gives;  // For each, whether it is given back.
};

Asked RandomRequest(Random& random, const std::string& domain) {
  Asked asked;
  asked.request.set_domain(domain);
  const std::int64_t hits = random.Between(0, 2);
  asked.request.set_hits_addend(static_cast<std::uint32_t>(hits));
  // Different ones: the model takes from a state once per request.
  const auto first = static_cast<std::size_t>(random.Between(0, 5));
  const auto count = static_cast<std::size_t>(random.Between(1, 3));
  for (std::size_t i = 0; i < count; ++i) {
    const Known& known = kKnown[(first + i) % kKnown.size()];
    auto& descriptor = *asked.request.add_descriptors();
    auto& entry = *descriptor.add_entries();
    entry.set_key(known.key);
    entry.set_value(random.OneIn(2) ? "ann" : "bob");
    std::int64_t cost = std::max<std::int64_t>(hits, 1);
    if (random.OneIn(3)) {
      cost = random.Between(0, 3);
      descriptor.mutable_hits_addend()->set_value(static_cast<std::uint64_t>(cost));
    }
    const bool gives = random.OneIn(6);
    descriptor.set_is_negative_hits(gives);
    asked.charges.push_back(
        {.key = entry.value(), .name = known.key, .spec = known.spec, .cost = cost});
    asked.gives.push_back(gives);
  }
  return asked;
}

void ExpectStatus(const RateLimitResponse::DescriptorStatus& status, const model::Answer& answer) {
  EXPECT_EQ(status.code(), answer.allowed ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
  EXPECT_EQ(status.limit_remaining(), answer.remaining);
  const std::int64_t wait_us = answer.allowed ? answer.reset_after_us : answer.retry_after_us;
  EXPECT_EQ(status.duration_until_reset().seconds(), (wait_us + 999'999) / 1'000'000);
}

RateLimitResponse Call(service::Engine& engine, const RateLimitRequest& request) {
  grpc::RlsBatch batch({});
  batch.Start(engine.catalog(), engine.Now());
  EXPECT_TRUE(batch.Add(request.SerializeAsString()).ok());
  engine.Apply(batch.Requests(), [] {});
  std::string reply;
  EXPECT_TRUE(batch.Answer(0, reply).ok());
  RateLimitResponse response;
  EXPECT_TRUE(response.ParseFromString(reply));
  return response;
}

std::vector<model::Answer> EachAlone(model::Model& model, const Asked& asked, std::int64_t now_us) {
  std::vector<model::Answer> answers;
  for (std::size_t i = 0; i < asked.charges.size(); ++i) {
    const auto& charge = asked.charges[i];
    answers.push_back(
        (asked.gives[i] ? model.Give({charge}, now_us) : model.Decide({charge}, now_us)).overall);
  }
  return answers;
}

// Giving back is separate from taking.
std::vector<model::Answer> Together(model::Model& model, const Asked& asked, std::int64_t now_us) {
  std::vector<model::Model::Charge> taken;
  for (std::size_t i = 0; i < asked.charges.size(); ++i) {
    if (!asked.gives[i]) taken.push_back(asked.charges[i]);
  }
  auto decided = model.Decide(taken, now_us).each;
  std::vector<model::Answer> answers;
  auto next = decided.begin();
  for (std::size_t i = 0; i < asked.charges.size(); ++i) {
    answers.push_back(asked.gives[i] ? model.Give({asked.charges[i]}, now_us).overall : *next++);
  }
  return answers;
}

enum class Charging : std::uint8_t { kEach, kAllOrNothing };

void ExpectAsTheModel(Random& random, Store& store, ManualClock& clock, Charging charging,
                      int requests) {
  const bool together = charging == Charging::kAllOrNothing;
  const std::string domain = together ? "together" : "each";
  test::RlsEngine engine(store, clock,
                         {"domain: " + domain + "\nall_or_nothing: " +
                          (together ? "true" : "false") + std::string(kDescriptors)});
  model::Model model;
  int denials = 0;
  for (int i = 0; i < requests && !testing::Test::HasFailure(); ++i) {
    clock.Advance(Micros{random.AnySize(2'000'000)});
    const std::int64_t now_us = clock.Now().time_since_epoch().count();
    const Asked asked = RandomRequest(random, domain);
    SCOPED_TRACE(asked.request.ShortDebugString());
    const std::vector<model::Answer> expected =
        together ? Together(model, asked, now_us) : EachAlone(model, asked, now_us);
    const RateLimitResponse response = Call(*engine, asked.request);
    bool all = true;
    for (std::size_t n = 0; n < expected.size(); ++n) {
      ExpectStatus(response.statuses(static_cast<int>(n)), expected[n]);
      all = all && expected[n].allowed;
    }
    EXPECT_EQ(response.overall_code(), all ? RateLimitResponse::OK : RateLimitResponse::OVER_LIMIT);
    denials += all ? 0 : 1;
  }
  EXPECT_GT(denials, requests / 20);
}

class RlsProperty : public testing::TestWithParam<Charging> {};

TEST_P(RlsProperty, AgreesWithTheModelOnRandomTraffic) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(testing::Message() << "SLUICE_TEST_SEED=" << seed);
    Random random(seed);
    ManualClock clock{At(kStartUs)};
    MemoryStore memory{{.clock = &clock}};
    ExpectAsTheModel(random, memory, clock, GetParam(), 3'000);
  }
}

TEST_P(RlsProperty, AgreesWithTheModelOnRedis) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE(testing::Message() << "SLUICE_TEST_SEED=" << seed);
    Random random(seed);
    ManualClock clock{At(kStartUs)};
    testing_support::RedisAtTime redis(clock);
    ExpectAsTheModel(random, redis, clock, GetParam(), 500);
  }
}

INSTANTIATE_TEST_SUITE_P(Charging, RlsProperty,
                         testing::Values(Charging::kEach, Charging::kAllOrNothing),
                         [](const auto& charging) {
                           return charging.param == Charging::kEach ? "Each" : "AllOrNothing";
                         });

}  // namespace
}  // namespace sluice
