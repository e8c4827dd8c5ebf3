// SPDX-License-Identifier: Apache-2.0
#include "grpc/rls.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "grpc/rls_json.h"
#include "grpc/rls_request.h"
#include "sluice/memory_store.h"
#include "support/rls_engine.h"

namespace sluice::grpc {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using envoy::service::ratelimit::v3::RateLimitRequest;
using Response = envoy::service::ratelimit::v3::RateLimitResponse;
using Entries = std::vector<std::pair<std::string, std::string>>;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint32_t kUnlimited = 4294967295;

constexpr const char* kEdge = R"(
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: user
    value: vip
    rate_limit: {unlimited: true}
  - key: named
    rate_limit: {unit: hour, requests_per_unit: 5, name: hourly}
  - key: tenant
    rate_limit: {unit: day, requests_per_unit: 2, name: daily, replaces: [{name: hourly}]}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: quota
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: closed
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: week
    rate_limit: {unit: week, requests_per_unit: 7}
  - key: bucket
    rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 10}
  - key: glacier
    rate_limit: {algorithm: token_bucket, unit: day, requests_per_unit: 1, capacity: 1000000000}
  - key: leaky
    rate_limit: {algorithm: leaky_bucket, unit: second, requests_per_unit: 2, capacity: 3}
  - key: spent
    postpaid: true
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: deep
    rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 10, capacity: 50}
)";

constexpr const char* kStrict = R"(
domain: strict
all_or_nothing: true
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: b
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: quota
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: closed
    rate_limit: {unit: second, requests_per_unit: 0}
)";

class Builder {
 public:
  explicit Builder(std::string domain = "edge") { request_.set_domain(std::move(domain)); }

  Builder& Ask(const Entries& entries) {
    auto& descriptor = *request_.add_descriptors();
    for (const auto& [key, value] : entries) {
      auto& entry = *descriptor.add_entries();
      entry.set_key(key);
      entry.set_value(value);
    }
    return *this;
  }
  Builder& Hits(std::uint32_t hits) {
    request_.set_hits_addend(hits);
    return *this;
  }
  Builder& OwnHits(std::uint64_t hits) {
    last().mutable_hits_addend()->set_value(hits);
    return *this;
  }
  Builder& Negative() {
    last().set_is_negative_hits(true);
    return *this;
  }
  Builder& OwnLimit(std::uint32_t requests, envoy::type::v3::RateLimitUnit unit) {
    last().mutable_limit()->set_requests_per_unit(requests);
    last().mutable_limit()->set_unit(unit);
    return *this;
  }
  std::string Bytes() const { return request_.SerializeAsString(); }
  const RateLimitRequest& request() const { return request_; }

 private:
  envoy::extensions::common::ratelimit::v3::RateLimitDescriptor& last() {
    return *request_.mutable_descriptors(request_.descriptors_size() - 1);
  }

  RateLimitRequest request_;
};

// Fails every request.
class BrokenStore final : public Store {
 public:
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    for (Request& request : requests) {
      request.outcome = std::unexpected(Error{ErrorCode::kUnavailable, "out of reach"});
    }
    done();
  }
};

class RlsTest : public testing::Test {
 protected:
  static constexpr TimePoint kStart{std::chrono::sys_days{std::chrono::year{2026} / 1 / 31} + 12h};

  struct Result {
    Status status;
    Response response;

    int code(int i) const { return response.statuses(i).code(); }
    std::uint32_t remaining(int i) const { return response.statuses(i).limit_remaining(); }
  };

  Result Run(const Builder& builder, RlsOptions options = {}) {
    return Run(builder.Bytes(), options);
  }
  Result Run(const std::string& bytes, RlsOptions options = {}) {
    RlsBatch batch(options);
    batch.Start(engine_->catalog(), engine_->Now());
    Result result;
    result.status = batch.Add(bytes);
    if (!result.status.ok()) {
      EXPECT_EQ(batch.size(), 0U);
      return result;
    }
    engine_->Apply(batch.Requests(), [] {});
    std::string reply;
    result.status = batch.Answer(0, reply);
    if (result.status.ok()) {
      EXPECT_TRUE(result.response.ParseFromString(reply));
    }
    return result;
  }

  ManualClock clock_{kStart};
  MemoryStore store_{{.clock = &clock_}};
  test::RlsEngine engine_{store_, clock_, {kEdge, kStrict}};
};

TEST_F(RlsTest, CountsFixedWindowsAlignedToTheEpoch) {
  clock_.Advance(20s);
  const Builder user = Builder().Ask({{"user", "ann"}});
  for (std::uint32_t left = 3; left-- > 0;) {
    const Result result = Run(user);
    EXPECT_EQ(result.response.overall_code(), Response::OK);
    ASSERT_EQ(result.response.statuses_size(), 1);
    EXPECT_EQ(result.code(0), Response::OK);
    EXPECT_EQ(result.remaining(0), left);
    const auto& status = result.response.statuses(0);
    EXPECT_EQ(status.current_limit().requests_per_unit(), 3U);
    EXPECT_EQ(status.current_limit().unit(), Response::RateLimit::MINUTE);
    EXPECT_EQ(status.duration_until_reset().seconds(), 40);
    EXPECT_FALSE(result.response.has_dynamic_metadata());
    EXPECT_EQ(result.response.response_headers_to_add_size(), 0);
  }
  EXPECT_EQ(Run(user).response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(Run(Builder().Ask({{"user", "bob"}})).response.overall_code(), Response::OK);
  clock_.Advance(40s - 1us);
  EXPECT_EQ(Run(user).response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(Run(user).response.statuses(0).duration_until_reset().seconds(), 1);
  clock_.Advance(1us);
  EXPECT_EQ(Run(user).remaining(0), 2U);
}

TEST_F(RlsTest, ChargesEachDescriptorOnItsOwn) {
  Run(Builder().Ask({{"tenant", "x"}}).Hits(2));
  const Result result = Run(Builder().Ask({{"user", "ann"}}).Ask({{"tenant", "x"}}));
  EXPECT_EQ(result.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(result.code(0), Response::OK);
  EXPECT_EQ(result.code(1), Response::OVER_LIMIT);
  EXPECT_EQ(result.remaining(0), 2U);
  EXPECT_EQ(Run(Builder().Ask({{"user", "ann"}})).remaining(0), 1U);
}

TEST_F(RlsTest, NamesTheDescriptorThatDenies) {
  Run(Builder().Ask({{"tenant", "x"}}).Hits(2));
  const Result result = Run(Builder().Ask({{"user", "ann"}}).Ask({{"tenant", "x"}}));
  const auto& fields = result.response.dynamic_metadata().fields();
  EXPECT_EQ(fields.at("denied_by").string_value(), "daily");
  EXPECT_EQ(fields.at("denied_descriptor").number_value(), 1);
  for (int i = 0; i < 3; ++i) Run(Builder().Ask({{"user", "ann"}}));
  const Result other = Run(Builder().Ask({{"user", "ann"}}));
  EXPECT_EQ(other.response.dynamic_metadata().fields().at("denied_by").string_value(), "edge.user");
}

TEST_F(RlsTest, ChargesAllOrNothingWhereToldTo) {
  const auto ask = [&] { return Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"b", "1"}})); };
  EXPECT_EQ(ask().response.overall_code(), Response::OK);
  for (int i = 0; i < 3; ++i) {
    const Result denied = ask();
    EXPECT_EQ(denied.response.overall_code(), Response::OVER_LIMIT);
    EXPECT_EQ(denied.code(0), Response::OK);
    EXPECT_EQ(denied.code(1), Response::OVER_LIMIT);
    EXPECT_EQ(denied.remaining(0), 2U);
  }
  // A descriptor refused without asking the store leaves no trace, either.
  EXPECT_EQ(Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"closed", "1"}})).response.overall_code(),
            Response::OVER_LIMIT);
  EXPECT_EQ(
      Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"b", "2"}}).OwnHits(2)).response.overall_code(),
      Response::OVER_LIMIT);
  EXPECT_EQ(Run(Builder("strict").Ask({{"a", "1"}})).remaining(0), 1U);
  // Next to it, one that would have been denied is denied, and one that would have passed is not.
  const Result both =
      Run(Builder("strict").Ask({{"b", "1"}}).Ask({{"closed", "1"}}).Ask({{"a", "1"}}));
  EXPECT_EQ(both.code(0), Response::OVER_LIMIT);
  EXPECT_EQ(both.code(1), Response::OVER_LIMIT);
  EXPECT_EQ(both.code(2), Response::OK);
}

TEST_F(RlsTest, DeniesWhatIsNamedMoreOftenThanItCanBeGranted) {
  const Builder twice = Builder("strict").Ask({{"b", "1"}}).Ask({{"a", "1"}}).Ask({{"b", "1"}});
  const Result denied = Run(twice);
  EXPECT_EQ(denied.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(denied.code(0), Response::OVER_LIMIT);
  EXPECT_EQ(denied.code(1), Response::OK);
  EXPECT_EQ(denied.code(2), Response::OVER_LIMIT);
  EXPECT_EQ(denied.remaining(0), 1U);
  EXPECT_EQ(denied.remaining(1), 3U);
  const Result allowed = Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"a", "1"}}));
  EXPECT_EQ(allowed.response.overall_code(), Response::OK);
  EXPECT_EQ(Run(Builder("strict").Ask({{"a", "1"}}).OwnHits(0)).remaining(0), 1U);
  // A look takes nothing, however often it is named.
  EXPECT_EQ(
      Run(Builder("strict").Ask({{"b", "1"}}).Ask({{"b", "1"}}).OwnHits(0)).response.overall_code(),
      Response::OK);
}

TEST_F(RlsTest, TakesTwoLimitsOfTheirOwnForTheSameEntries) {
  for (const char* domain : {"strict", "edge"}) {
    const Result result = Run(Builder(domain)
                                  .Ask({{"a", "1"}})
                                  .OwnLimit(5, envoy::type::v3::HOUR)
                                  .Ask({{"a", "1"}})
                                  .OwnLimit(6, envoy::type::v3::HOUR));
    EXPECT_EQ(result.remaining(0), 4U) << domain;
    EXPECT_EQ(result.remaining(1), 5U) << domain;
  }
}

TEST_F(RlsTest, ShadowsAreChargedApartFromAllOrNothing) {
  const auto ask = [&] { return Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"shadow", "1"}})); };
  EXPECT_EQ(ask().remaining(1), 0U);
  const Result over = ask();
  EXPECT_EQ(over.response.overall_code(), Response::OK);
  EXPECT_EQ(over.code(1), Response::OK);
  EXPECT_EQ(over.remaining(0), 1U);
}

TEST_F(RlsTest, ShadowsNeverDeny) {
  const Builder shadow = Builder().Ask({{"shadow", "x"}});
  for (int i = 0; i < 3; ++i) {
    const Result result = Run(shadow);
    EXPECT_EQ(result.response.overall_code(), Response::OK);
    EXPECT_EQ(result.code(0), Response::OK);
    EXPECT_EQ(result.remaining(0), 0U);
    EXPECT_EQ(result.response.statuses(0).current_limit().requests_per_unit(), 1U);
  }
}

TEST_F(RlsTest, QuotasDenyOnlyTogether) {
  const auto violations = [](const Result& result) {
    std::vector<double> places;
    const auto& fields = result.response.dynamic_metadata().fields();
    if (const auto found = fields.find("quotaModeViolations"); found != fields.end()) {
      for (const auto& place : found->second.list_value().values()) {
        places.push_back(place.number_value());
      }
    }
    return places;
  };
  EXPECT_THAT(violations(Run(Builder().Ask({{"quota", "near"}}))), IsEmpty());
  const Builder both = Builder().Ask({{"quota", "near"}}).Ask({{"quota", "far"}});
  const Result one_left = Run(both);
  EXPECT_EQ(one_left.response.overall_code(), Response::OK);
  EXPECT_EQ(one_left.code(0), Response::OVER_LIMIT);
  EXPECT_EQ(one_left.code(1), Response::OK);
  EXPECT_THAT(violations(one_left), ElementsAre(0));
  EXPECT_FALSE(one_left.response.dynamic_metadata().fields().contains("denied_by"));
  const Result none_left = Run(both);
  EXPECT_EQ(none_left.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_THAT(violations(none_left), ElementsAre(0, 1));
  EXPECT_EQ(none_left.response.dynamic_metadata().fields().at("denied_by").string_value(),
            "edge.quota");
  // A descriptor without quota mode denies alone, and unused quotas do not help.
  const Result closed = Run(Builder().Ask({{"closed", "x"}}).Ask({{"quota", "new"}}));
  EXPECT_EQ(closed.response.overall_code(), Response::OVER_LIMIT);
}

TEST_F(RlsTest, QuotasAreChargedApartFromAllOrNothing) {
  const auto ask = [&] { return Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"quota", "1"}})); };
  EXPECT_EQ(ask().response.overall_code(), Response::OK);
  const Result over =
      Run(Builder("strict").Ask({{"a", "1"}}).Ask({{"quota", "1"}}).Ask({{"quota", "2"}}));
  EXPECT_EQ(over.response.overall_code(), Response::OK);
  EXPECT_EQ(over.code(1), Response::OVER_LIMIT);
  EXPECT_EQ(over.remaining(0), 1U);
}

TEST_F(RlsTest, TakesHits) {
  const auto ask = [&](std::uint32_t hits) {
    return Run(Builder().Ask({{"named", "x"}}).Hits(hits));
  };
  EXPECT_EQ(ask(0).remaining(0), 4U);  // Zero means one.
  EXPECT_EQ(ask(3).remaining(0), 1U);
  EXPECT_EQ(ask(2).response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(ask(1).remaining(0), 0U);
}

TEST_F(RlsTest, TakesHitsOfADescriptor) {
  const Result result = Run(Builder()
                                .Hits(2)
                                .Ask({{"named", "x"}})
                                .OwnHits(4)
                                .Ask({{"named", "y"}})
                                .Ask({{"user", "z"}})
                                .OwnHits(0));
  EXPECT_EQ(result.remaining(0), 1U);
  EXPECT_EQ(result.remaining(1), 3U);
  EXPECT_EQ(result.remaining(2), 3U);
  // A look at an empty budget is not a denial.
  Run(Builder().Ask({{"named", "x"}}));
  const Result peek = Run(Builder().Ask({{"named", "x"}}).OwnHits(0));
  EXPECT_EQ(peek.response.overall_code(), Response::OK);
  EXPECT_EQ(peek.remaining(0), 0U);
}

TEST_F(RlsTest, ChargesAfterTheFactWhatWasUsed) {
  const auto spend = [](std::uint64_t hits) {
    return Builder().Ask({{"spent", "ann"}}).OwnHits(hits);
  };
  EXPECT_EQ(Run(spend(0)).response.overall_code(), Response::OK);
  EXPECT_EQ(Run(spend(7)).remaining(0), 3U);
  EXPECT_EQ(Run(spend(0)).response.overall_code(), Response::OK) << "something is left";
  // More than is left, and than there ever is.
  const Result over = Run(spend(1000));
  EXPECT_EQ(over.response.overall_code(), Response::OK);
  EXPECT_EQ(over.remaining(0), 0U);
  const Result look = Run(spend(0));
  EXPECT_EQ(look.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_GT(look.response.statuses(0).duration_until_reset().seconds(), 0);
  EXPECT_EQ(Run(Builder().Ask({{"spent", "ann"}}).OwnHits(4).Negative()).remaining(0), 4U);
  EXPECT_EQ(Run(spend(0)).response.overall_code(), Response::OK);
}

TEST_F(RlsTest, GivesNegativeHitsBack) {
  const Builder user = Builder().Ask({{"user", "ann"}});
  for (int i = 0; i < 3; ++i) Run(user);
  ASSERT_EQ(Run(user).response.overall_code(), Response::OVER_LIMIT);
  const auto give = [](std::uint64_t hits) {
    return Builder().Ask({{"user", "ann"}}).OwnHits(hits).Negative();
  };
  const Result two = Run(give(2));
  EXPECT_EQ(two.response.overall_code(), Response::OK);
  EXPECT_EQ(two.remaining(0), 2U);
  EXPECT_EQ(two.response.statuses(0).current_limit().requests_per_unit(), 3U);
  EXPECT_EQ(Run(give(0)).remaining(0), 2U) << "a look";
  EXPECT_EQ(Run(user).remaining(0), 1U);
  EXPECT_EQ(Run(give(UINT64_MAX)).remaining(0), 3U) << "never more than there was";
  // The request's own hits are refunded, too.
  EXPECT_EQ(Run(Builder().Ask({{"user", "ann"}}).Hits(2)).remaining(0), 1U);
  EXPECT_EQ(Run(Builder().Ask({{"user", "ann"}}).Negative().Hits(1)).remaining(0), 2U);
  // What needs no store has nothing to refund.
  const Result others =
      Run(Builder().Ask({{"closed", "x"}}).Negative().Ask({{"user", "vip"}}).Negative());
  EXPECT_EQ(others.response.overall_code(), Response::OK);
  EXPECT_EQ(others.code(0), Response::OK);
}

TEST_F(RlsTest, GivesBackWhateverBecomesOfTheOthers) {
  Run(Builder("strict").Ask({{"a", "x"}}).Hits(3));
  Run(Builder("strict").Ask({{"b", "x"}}));
  const Result denied =
      Run(Builder("strict").Ask({{"a", "x"}}).OwnHits(2).Negative().Ask({{"b", "x"}}));
  EXPECT_EQ(denied.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(denied.code(0), Response::OK);
  EXPECT_EQ(denied.remaining(0), 2U);
  // A refund to one quota does not make up for another that is used up.
  Run(Builder().Ask({{"quota", "used"}}));
  EXPECT_EQ(Run(Builder().Ask({{"quota", "used"}}).Ask({{"quota", "other"}}).Negative())
                .response.overall_code(),
            Response::OVER_LIMIT);
}

TEST_F(RlsTest, DeniesHitsThatCanNeverFit) {
  for (const std::uint64_t hits : {std::uint64_t{6}, std::uint64_t{UINT64_MAX}}) {
    const Result result = Run(Builder().Ask({{"named", "x"}}).OwnHits(hits));
    EXPECT_EQ(result.response.overall_code(), Response::OVER_LIMIT);
    EXPECT_EQ(result.remaining(0), 5U);
    EXPECT_FALSE(result.response.statuses(0).has_duration_until_reset());
  }
}

TEST_F(RlsTest, TakesLimitsOfADescriptor) {
  const auto ask = [&](std::uint32_t requests) {
    return Run(Builder().Ask({{"any", "x"}}).OwnLimit(requests, envoy::type::v3::HOUR));
  };
  const Result first = ask(2);
  EXPECT_EQ(first.remaining(0), 1U);
  EXPECT_EQ(first.response.statuses(0).current_limit().requests_per_unit(), 2U);
  EXPECT_EQ(first.response.statuses(0).current_limit().unit(), Response::RateLimit::HOUR);
  EXPECT_EQ(ask(2).response.overall_code(), Response::OK);
  EXPECT_EQ(ask(2).response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(ask(0).response.overall_code(), Response::OVER_LIMIT);
  // Each has its own state, which others do not change.
  EXPECT_EQ(ask(3).remaining(0), 2U);
  const auto ask_quick = [&] {
    return Run(Builder().Ask({{"any", "x"}}).OwnLimit(10, envoy::type::v3::SECOND));
  };
  EXPECT_EQ(ask_quick().remaining(0), 9U);
  clock_.Advance(2s);
  EXPECT_EQ(ask_quick().remaining(0), 9U);
  EXPECT_EQ(ask(2).response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(ask(3).remaining(0), 1U);
  // It replaces the configured one, and does not share its state.
  const Result user = Run(Builder().Ask({{"user", "x"}}).OwnLimit(100, envoy::type::v3::DAY));
  EXPECT_EQ(user.remaining(0), 99U);
  EXPECT_EQ(Run(Builder().Ask({{"user", "x"}})).remaining(0), 2U);

  EXPECT_EQ(Run(Builder().Ask({{"any", "x"}}).OwnLimit(2, envoy::type::v3::UNKNOWN)).status.code,
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Run(Builder().Ask({{"any", "x"}}).OwnLimit(2, static_cast<envoy::type::v3::RateLimitUnit>(7)))
          .status.code,
      StatusCode::kInvalidArgument);
}

TEST_F(RlsTest, WhatMatchesNoRulePasses) {
  for (const Builder& builder :
       {Builder().Ask({{"other", "x"}}), Builder().Ask({{"user", "x"}, {"more", "y"}}),
        Builder().Ask({}), Builder("elsewhere").Ask({{"user", "x"}})}) {
    const Result result = Run(builder);
    EXPECT_EQ(result.response.overall_code(), Response::OK);
    ASSERT_EQ(result.response.statuses_size(), 1);
    EXPECT_EQ(result.code(0), Response::OK);
    EXPECT_FALSE(result.response.statuses(0).has_current_limit());
    EXPECT_EQ(result.remaining(0), 0U);
  }
}

TEST_F(RlsTest, UnlimitedPasses) {
  const Result result = Run(Builder().Ask({{"user", "vip"}}).Hits(1000));
  EXPECT_EQ(result.response.overall_code(), Response::OK);
  EXPECT_EQ(result.remaining(0), kUnlimited);
  EXPECT_FALSE(result.response.statuses(0).has_current_limit());
  EXPECT_EQ(store_.GetStats().keys, 0);
}

TEST_F(RlsTest, ALimitOfZeroDenies) {
  const Result result = Run(Builder().Ask({{"closed", "x"}}));
  EXPECT_EQ(result.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_EQ(result.response.statuses(0).current_limit().requests_per_unit(), 0U);
  EXPECT_EQ(result.remaining(0), 0U);
  EXPECT_EQ(Run(Builder().Ask({{"closed", "x"}}).OwnHits(0)).response.overall_code(), Response::OK);
}

TEST_F(RlsTest, ReplacedLimitsAreNotCharged) {
  const Result result = Run(Builder().Ask({{"named", "x"}}).Ask({{"tenant", "x"}}));
  EXPECT_EQ(result.code(0), Response::OK);
  EXPECT_FALSE(result.response.statuses(0).has_current_limit());
  EXPECT_EQ(result.response.statuses(1).current_limit().name(), "daily");
  EXPECT_EQ(Run(Builder().Ask({{"named", "x"}})).remaining(0), 4U);
}

TEST_F(RlsTest, ReportsWeeksAndBuckets) {
  EXPECT_EQ(Run(Builder().Ask({{"week", "x"}})).response.statuses(0).current_limit().unit(),
            Response::RateLimit::WEEK);
  const Builder bucket = Builder().Ask({{"bucket", "x"}}).Hits(10);
  const Result first = Run(bucket);
  EXPECT_EQ(first.response.statuses(0).current_limit().requests_per_unit(), 10U);
  EXPECT_EQ(first.response.statuses(0).current_limit().unit(), Response::RateLimit::SECOND);
  EXPECT_EQ(first.response.statuses(0).duration_until_reset().seconds(), 1);
  const Result deep = Run(Builder().Ask({{"deep", "x"}}));
  EXPECT_EQ(deep.response.statuses(0).current_limit().requests_per_unit(), 50U);
  EXPECT_EQ(deep.remaining(0), 49U);
  // A denial says when the same request would pass, not when the budget is full again.
  const Result denied = Run(Builder().Ask({{"bucket", "x"}}));
  EXPECT_EQ(denied.response.overall_code(), Response::OVER_LIMIT);
  clock_.Advance(100ms);
  EXPECT_EQ(Run(Builder().Ask({{"bucket", "x"}})).response.overall_code(), Response::OK);
}

TEST_F(RlsTest, RefusesRequestsThatAskForNothing) {
  EXPECT_EQ(Run(Builder("").Ask({{"user", "x"}})).status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(Run(Builder()).status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(Run(std::string("\x0a\xff\x01")).status.code, StatusCode::kInternal);
  Builder many;
  for (std::size_t i = 0; i <= kDescriptorsMax; ++i) many.Ask({{"user", "x"}});
  EXPECT_EQ(Run(many).status.code, StatusCode::kInvalidArgument);
  Entries entries(kEntriesMax + 1, {"user", "x"});
  EXPECT_EQ(Run(Builder().Ask(entries)).status.code, StatusCode::kInvalidArgument);
  const std::string fits(rules::kValueBytesMax, 'x');
  EXPECT_TRUE(Run(Builder().Ask({{"user", fits}})).status.ok());
  EXPECT_EQ(Run(Builder().Ask({{"user", fits + "x"}})).status.code, StatusCode::kInvalidArgument);
}

TEST_F(RlsTest, DecidesManyCallsTogether) {
  RlsBatch batch({});
  std::vector<std::string> replies(5);
  for (int round = 0; round < 3; ++round) {
    batch.Start(engine_->catalog(), engine_->Now());
    for (std::size_t i = 0; i < replies.size(); ++i) {
      const std::string user = "user" + std::to_string(round);
      ASSERT_TRUE(batch.Add(Builder().Ask({{"user", user}}).Ask({{"other", "x"}}).Bytes()).ok());
      EXPECT_FALSE(batch.Add("\x0a").ok());
    }
    ASSERT_EQ(batch.size(), replies.size());
    engine_->Apply(batch.Requests(), [] {});
    std::vector<int> codes;
    for (std::size_t i = 0; i < replies.size(); ++i) {
      ASSERT_TRUE(batch.Answer(i, replies[i]).ok());
      Response response;
      response.ParseFromString(replies[i]);
      codes.push_back(response.overall_code());
    }
    EXPECT_THAT(codes, ElementsAre(1, 1, 1, 2, 2));
  }
}

TEST_F(RlsTest, WritesHeadersWhereToldTo) {
  clock_.Advance(20s);
  const auto headers = [&](const Builder& builder) {
    std::map<std::string, std::string> map;
    const Result result = Run(builder, {.headers = true});
    for (const auto& header : result.response.response_headers_to_add()) {
      map[header.key()] = header.value();
    }
    return map;
  };
  const auto two = Builder().Ask({{"user", "ann"}}).Ask({{"named", "ann"}});
  auto first = headers(two);
  EXPECT_EQ(first["X-RateLimit-Limit"], "3");
  EXPECT_EQ(first["X-RateLimit-Remaining"], "2");
  EXPECT_EQ(first["RateLimit-Policy"], R"("edge.user";q=3;w=60,"hourly";q=5;w=3600)");
  EXPECT_EQ(first["RateLimit"], R"("edge.user";r=2;t=40,"hourly";r=4;t=3580)");
  EXPECT_FALSE(first.contains("Retry-After"));
  headers(two);
  headers(two);
  auto denied = headers(two);
  EXPECT_EQ(denied["X-RateLimit-Remaining"], "0");
  EXPECT_EQ(denied["Retry-After"], "40");
  EXPECT_EQ(denied["RateLimit"], R"("edge.user";r=0;t=40,"hourly";r=1;t=40)");
  EXPECT_TRUE(headers(Builder().Ask({{"user", "vip"}})).empty());
  EXPECT_FALSE(headers(Builder().Ask({{"named", "x"}}).Hits(6)).contains("Retry-After"));
}

TEST_F(RlsTest, PassesDelaysOn) {
  const Builder leaky = Builder().Ask({{"leaky", "x"}}).Ask({{"user", "ann"}});
  EXPECT_FALSE(Run(leaky, {.headers = true}).response.has_dynamic_metadata());
  const Result second = Run(leaky, {.headers = true});
  EXPECT_EQ(second.response.dynamic_metadata().fields().at("delay_us").number_value(), 500'000);
  const auto& headers = second.response.response_headers_to_add();
  const auto found = std::ranges::find(headers, "X-Sluice-Delay-Micros",
                                       [](const auto& header) { return header.key(); });
  ASSERT_NE(found, headers.end());
  EXPECT_EQ(found->value(), "500000");
  Run(leaky);
  const Result denied = Run(leaky);
  EXPECT_EQ(denied.response.overall_code(), Response::OVER_LIMIT);
  EXPECT_FALSE(denied.response.dynamic_metadata().fields().contains("delay_us"));
}

TEST_F(RlsTest, HeadersSpeakOfOneLimit) {
  const Result result =
      Run(Builder().Ask({{"user", "ann"}}).Ask({{"week", "ann"}}), {.headers = true});
  const auto& reset = result.response.response_headers_to_add(2);
  const auto end = std::chrono::floor<std::chrono::seconds>(kStart + 1min);
  EXPECT_EQ(reset.key(), "X-RateLimit-Reset");
  EXPECT_EQ(reset.value(), std::to_string(end.time_since_epoch().count()));
}

TEST_F(RlsTest, ATimeThatNoDurationHoldsIsTheLongestOne) {
  const Builder all = Builder().Ask({{"glacier", "x"}}).Hits(1'000'000'000);
  const Result result = Run(all, {.headers = true});
  EXPECT_EQ(result.response.statuses(0).duration_until_reset().seconds(), 315'576'000'000);
  EXPECT_EQ(result.response.response_headers_to_add(2).value(), "9223372036855");
  std::string json;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(result.response, &json).ok());
}

// A few microseconds always pass between reading the time for the header and the decision.
TEST_F(RlsTest, TheWindowEndsWhereTheHeaderSaysHoweverLateItIsDecided) {
  RlsBatch batch({.headers = true});
  batch.Start(engine_->catalog(), engine_->Now());
  ASSERT_TRUE(batch.Add(Builder().Ask({{"user", "ann"}}).Bytes()).ok());
  clock_.Advance(7us);
  engine_->Apply(batch.Requests(), [] {});
  std::string reply;
  ASSERT_TRUE(batch.Answer(0, reply).ok());
  Response response;
  ASSERT_TRUE(response.ParseFromString(reply));
  const auto end = std::chrono::floor<std::chrono::seconds>(kStart + 1min);
  const auto& reset = response.response_headers_to_add(2);
  EXPECT_EQ(reset.key(), "X-RateLimit-Reset");
  EXPECT_EQ(reset.value(), std::to_string(end.time_since_epoch().count()));
}

TEST_F(RlsTest, StoreFailuresFollowThePolicy) {
  BrokenStore broken;
  test::RlsEngine engine(broken, clock_, {kEdge, kStrict});
  const auto run = [&](const Builder& builder, OnStoreFailure policy) {
    RlsBatch batch({.on_store_failure = policy});
    batch.Start(engine->catalog(), kStart);
    Result result;
    result.status = batch.Add(builder.Bytes());
    engine->Apply(batch.Requests(), [] {});
    std::string reply;
    if (result.status.ok()) result.status = batch.Answer(0, reply);
    result.response.ParseFromString(reply);
    return result;
  };
  const Builder user = Builder().Ask({{"user", "x"}});
  const Result open = run(user, OnStoreFailure::kFailOpen);
  EXPECT_EQ(open.response.overall_code(), Response::OK);
  EXPECT_EQ(open.response.statuses(0).current_limit().requests_per_unit(), 3U);
  EXPECT_EQ(open.response.dynamic_metadata().fields().at("degraded").string_value(), "FAIL_OPEN");
  const Result closed = run(user, OnStoreFailure::kFailClosed);
  EXPECT_EQ(closed.status.code, StatusCode::kUnavailable);
  EXPECT_THAT(closed.status.message, HasSubstr("UNAVAILABLE"));
  // Neither shadow limits nor requests that need no store ever fail.
  EXPECT_TRUE(run(Builder().Ask({{"shadow", "x"}}), OnStoreFailure::kFailClosed).status.ok());
  EXPECT_TRUE(run(Builder().Ask({{"user", "vip"}}), OnStoreFailure::kFailClosed).status.ok());
}

// Answers like a guard whose store cannot keep up.
class BusyStore final : public Store {
 public:
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    for (Request& request : requests) {
      request.source = Source::kOverload;
      request.outcome = outcome;
      if (outcome) std::ranges::fill(request.each, *outcome);
    }
    done();
  }

  Expected<Decision> outcome = Decision{.allowed = true, .limit = 3, .remaining = 2};
};

TEST_F(RlsTest, AnOverloadIsMarkedAndLetsNothingPassUndecided) {
  BusyStore busy;
  test::RlsEngine engine(busy, clock_, {kEdge, kStrict});
  const auto run = [&] {
    RlsBatch batch({.on_store_failure = OnStoreFailure::kFailOpen});
    batch.Start(engine->catalog(), kStart);
    Result result;
    result.status = batch.Add(Builder().Ask({{"user", "x"}}).Bytes());
    engine->Apply(batch.Requests(), [] {});
    std::string reply;
    if (result.status.ok()) result.status = batch.Answer(0, reply);
    result.response.ParseFromString(reply);
    return result;
  };
  const Result decided = run();
  EXPECT_EQ(decided.response.overall_code(), Response::OK);
  EXPECT_EQ(decided.response.dynamic_metadata().fields().at("degraded").string_value(), "OVERLOAD");
  busy.outcome = std::unexpected(Error{ErrorCode::kUnavailable, "more than the share"});
  EXPECT_EQ(run().status.code, StatusCode::kUnavailable);
}

TEST_F(RlsTest, AnswersJson) {
  const auto post = [&](const std::string& body) {
    JsonAnswer answer;
    HandleJson(*engine_, {}, body, [&](JsonAnswer given) { answer = std::move(given); });
    return answer;
  };
  const std::string body =
      R"({"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"x"}]}],"new":1})";
  const JsonAnswer first = post(body);
  EXPECT_EQ(first.http_status, 200);
  EXPECT_THAT(first.body, HasSubstr(R"("overallCode":"OK")"));
  EXPECT_THAT(first.body, HasSubstr(R"("limitRemaining":2)"));
  post(body);
  post(body);
  EXPECT_EQ(post(body).http_status, 429);
  EXPECT_EQ(post("{").http_status, 400);
  EXPECT_EQ(post(R"({"domain":""})").http_status, 400);
  EXPECT_THAT(post("[]").body, HasSubstr(R"({"error":)"));
  EXPECT_THAT(post(R"({"descriptors":)" + std::string(60'000, '[')).body, HasSubstr("32 levels"));
  EXPECT_THAT(post(R"({"domain":"edge","domain":"x","descriptors":[]})").body,
              HasSubstr(R"(member \"domain\" is given twice)"));
  EXPECT_EQ(post(R"({"domain":"edge",domain:"x"})").http_status, 400);
  EXPECT_THAT(post(std::string(70'000, ' ')).body, HasSubstr("expected at most 65536"));
  EXPECT_EQ(post(R"({"domain":"edge","descriptors":[{"entries":[{"key":"user","value":")" +
                 std::string(100, '[') + R"(\""}]}]})")
                .http_status,
            200);
}

// Our reader agrees with generated code on everything that the latter accepts.
TEST(RlsRequest, ReadsWhatProtobufWrites) {
  const Builder builder = Builder()
                              .Hits(7)
                              .Ask({{"a", "1"}, {"b", ""}})
                              .OwnHits(UINT64_MAX)
                              .Ask({})
                              .OwnLimit(UINT32_MAX, envoy::type::v3::YEAR);
  const std::string bytes = builder.Bytes();
  RlsRequest request;
  ASSERT_TRUE(request.Parse(bytes).ok());
  EXPECT_EQ(request.domain, "edge");
  EXPECT_EQ(request.hits_addend, 7U);
  ASSERT_EQ(request.descriptors.size(), 2U);
  EXPECT_EQ(request.descriptors[0].entry_count, 2U);
  EXPECT_EQ(request.entries[1].key, "b");
  EXPECT_EQ(request.descriptors[0].hits_addend, UINT64_MAX);
  EXPECT_EQ(request.descriptors[1].limit->requests_per_unit, UINT32_MAX);
  EXPECT_EQ(request.descriptors[1].limit->unit, 6);
  EXPECT_FALSE(request.descriptors[0].is_negative_hits);
  const std::string negative = Builder().Ask({{"a", "1"}}).Negative().Ask({}).Bytes();
  ASSERT_TRUE(request.Parse(negative).ok());
  EXPECT_TRUE(request.descriptors[0].is_negative_hits);
  EXPECT_FALSE(request.descriptors[1].is_negative_hits);
}

TEST_F(RlsTest, CountsACallAsOneRequest) {
  const auto call = [&](const Builder& builder) {
    RlsBatch batch({});
    batch.Start(engine_->catalog(), engine_->Now());
    ASSERT_TRUE(batch.Add(builder.Bytes()).ok());
    const auto count = [&](const service::Engine::Span& span) { batch.Count(*engine_, span); };
    const std::span<Request> requests = batch.Requests();
    requests.empty() ? count({}) : engine_->ApplyParts(requests, count);
  };
  for (int i = 0; i < 5; ++i) {
    call(Builder().Ask({{"user", "a"}}).Ask({{"bucket", "b"}}).Ask({{"shadow", "s"}}));
  }
  call(Builder().Ask({{"closed", "x"}}).Ask({{"user", "z"}}));
  call(Builder().Ask({{"nobody", "x"}}));
  call(Builder().Ask({{"user", "a"}}).OwnHits(0));
  for (int i = 0; i < 2; ++i) call(Builder().Ask({{"quota", "q"}}).Ask({{"user", "q"}}));
  const std::string text = engine_.registry().Text();
  for (const std::string line :
       {R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 4)",
        R"(rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 3)",
        R"(rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 0)",
        R"(rate_limiter_requests_total{algorithm="NONE",allowed="true"} 1)",
        R"(rate_limiter_requests_total{algorithm="NONE",allowed="false"} 1)",
        R"(sluice_limit_checks_total{algorithm="TOKEN_BUCKET",allowed="true"} 5)",
        R"(sluice_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 3)",
        R"(sluice_shadow_limit_checks_total{algorithm="FIXED_WINDOW",allowed="false"} 4)"}) {
    EXPECT_THAT(text, HasSubstr(line + "\n"));
  }
}

TEST(RlsRequest, CutsTagsAsProtobufDoes) {
  // A tag of five bytes, with more than 32 bits in it.
  const std::string bytes = "\xfa\x80\x80\x80\x70\x01x" + Builder().Ask({{"a", "1"}}).Bytes();
  RateLimitRequest reference;
  ASSERT_TRUE(reference.ParseFromString(bytes));
  RlsRequest request;
  ASSERT_TRUE(request.Parse(bytes).ok());
  EXPECT_EQ(request.domain, reference.domain());
}

TEST(RlsRequest, PassesOverWhatItDoesNotKnow) {
  const std::string known = Builder().Ask({{"a", "1"}}).Bytes();
  const std::string varint = "\x78\x96\x01";
  const std::string fixed64 = "\x79" + std::string(8, 'x');
  const std::string text = "\x7a\x03xyz";
  const std::string group = "\x7b\x78\x01\x7b\x7c\x7c";  // With one inside.
  const std::string fixed32 = "\x7d" + std::string(4, 'x');
  for (const std::string& unknown : {varint, fixed64, text, group, fixed32}) {
    RateLimitRequest reference;
    ASSERT_TRUE(reference.ParseFromString(unknown + known)) << testing::PrintToString(unknown);
    RlsRequest request;
    const std::string bytes = unknown + known + unknown;
    ASSERT_TRUE(request.Parse(bytes).ok());
    EXPECT_EQ(request.domain, "edge");
    EXPECT_EQ(request.descriptors.size(), 1U);
    for (std::size_t cut = 1; cut < unknown.size(); ++cut) {
      EXPECT_FALSE(request.Parse(known + unknown.substr(0, cut)).ok());
    }
  }
}

}  // namespace
}  // namespace sluice::grpc
