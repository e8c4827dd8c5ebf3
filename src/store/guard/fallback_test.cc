// SPDX-License-Identifier: Apache-2.0
#include "store/guard/fallback.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

const Error kDown{ErrorCode::kUnavailable, "down"};

TEST(ShareOf, DividesAmountAndRateExactly) {
  const auto bucket =
      ShareOf(*Limit::Parse("algorithm=token_bucket,capacity=100,refill=10,period=1s"), 4);
  EXPECT_EQ(bucket->amount(), 25);
  EXPECT_EQ(bucket->rate() * 400'000, bucket->unit()) << "2.5 a second";

  const auto third =
      ShareOf(*Limit::Parse("algorithm=token_bucket,capacity=10,refill=10,period=1s"), 3);
  EXPECT_EQ(third->amount(), 3);
  EXPECT_EQ(third->refill(), 10);
  EXPECT_EQ(third->span(), 3s) << "10/3 a second, without a remainder";

  const auto window = ShareOf(*Limit::Parse("algorithm=fixed_window,limit=10,window=1m"), 3);
  EXPECT_EQ(window->amount(), 3);
  EXPECT_EQ(window->span(), 1min);
}

TEST(ShareOf, IsAtLeastOneUnit) {
  for (const char* text :
       {"algorithm=token_bucket,capacity=2,refill=1,period=1s",
        "algorithm=leaky_bucket,capacity=2,leak=1,period=1s",
        "algorithm=gcra,burst=1,count=1,period=1s", "algorithm=fixed_window,limit=2,window=1s",
        "algorithm=sliding_window,limit=2,window=1s",
        "algorithm=sliding_window_counter,limit=2,window=1s"}) {
    const Limit limit = *Limit::Parse(text);
    const auto share = ShareOf(limit, 1000);
    ASSERT_TRUE(share) << text;
    EXPECT_EQ(share->amount(), 1) << text;
    EXPECT_EQ(share->algorithm(), limit.algorithm());
    EXPECT_EQ(*ShareOf(limit, 1), limit);
  }
}

TEST(ShareOf, RoundsTheRefillWhereThePeriodCannotGrow) {
  const Limit limit = *Limit::TokenBucket({.capacity = 10, .refill = 10, .period = kSpanMax});
  EXPECT_EQ(ShareOf(limit, 3)->refill(), 3);
  EXPECT_EQ(ShareOf(limit, 100)->refill(), 1);
}

class FallbackTest : public testing::Test {
 protected:
  std::int64_t Decide(std::vector<Charge> charges, Action action = Action::kCheck) {
    charges_ = std::move(charges);
    each.assign(charges_.size(), {});
    request = {.charges = charges_, .each = each, .action = action};
    return fallback.Decide(request, kDown, cause);
  }

  ManualClock clock{TimePoint{1000h}};
  GuardedStore::Stats stats;
  Fallback fallback{{.instances = 2, .local = {.clock = &clock}}, stats, Fallback::Holds::kYes};
  Cause cause = Cause::kOutage;
  const Limit ten = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
  const Limit four = *Limit::Parse("algorithm=fixed_window,limit=4,window=1m");
  Request request;
  std::vector<Decision> each;
  static constexpr auto kLocal = OnStoreFailure::kLocal;
  static constexpr auto kOpen = OnStoreFailure::kFailOpen;
  static constexpr auto kClosed = OnStoreFailure::kFailClosed;

 private:
  std::vector<Charge> charges_;
};

TEST_F(FallbackTest, FailsClosedIfAnyChargeSaysSo) {
  EXPECT_EQ(Decide({{.key = "k", .limit = &ten, .on_store_failure = kLocal},
                    {.key = "k", .limit = &four, .on_store_failure = kClosed},
                    {.key = "k", .limit = &four, .name = "n", .on_store_failure = kOpen}}),
            0);
  ASSERT_FALSE(request.outcome);
  EXPECT_EQ(request.outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(request.source, Source::kStore);
  EXPECT_EQ(fallback.Used({.key = "k", .limit = &ten}), 0) << "nothing was taken";
}

TEST_F(FallbackTest, FailsOpenWithAWholeBudget) {
  EXPECT_EQ(Decide({{.key = "k", .limit = &ten, .cost = 3, .on_store_failure = kOpen}}), 0);
  EXPECT_EQ(*request.outcome, (Decision{.allowed = true, .limit = 10, .remaining = 10}));
  EXPECT_EQ(request.source, Source::kFailOpen);
}

TEST_F(FallbackTest, DecidesLocallyOnTheShare) {
  for (int i = 4; i >= 0; --i) {
    EXPECT_EQ(Decide({{.key = "k", .limit = &ten, .on_store_failure = kLocal}}), 1);
    EXPECT_TRUE(request.outcome->allowed);
    EXPECT_EQ(request.outcome->limit, 5);
    EXPECT_EQ(request.outcome->remaining, i);
    EXPECT_EQ(each.front(), *request.outcome);
    EXPECT_EQ(request.source, Source::kLocal);
  }
  EXPECT_EQ(Decide({{.key = "k", .limit = &ten, .on_store_failure = kLocal}}), 0);
  EXPECT_FALSE(request.outcome->allowed);
  EXPECT_EQ(request.source, Source::kLocal);
  EXPECT_EQ(fallback.Used({.key = "k", .limit = &ten}), 5);
}

// The store may have done it, or be about to.
TEST_F(FallbackTest, GivesNothingBackInTheStoresStead) {
  Decide({{.key = "k", .limit = &ten, .cost = 3, .on_store_failure = kLocal}});
  for (const auto policy : {kLocal, kOpen, kClosed}) {
    for (const Cause why : {Cause::kOutage, Cause::kOverload}) {
      cause = why;
      const Charge back{.key = "k", .limit = &ten, .cost = 2, .on_store_failure = policy};
      EXPECT_EQ(Decide({back}, Action::kGive), 0);
      ASSERT_FALSE(request.outcome);
      EXPECT_EQ(request.outcome.error().code, ErrorCode::kUnavailable);
    }
  }
  EXPECT_EQ(fallback.Used({.key = "k", .limit = &ten}), 3);
}

TEST_F(FallbackTest, MixesLocalAndOpenAllOrNothing) {
  const Charge local_ten{.key = "k", .limit = &ten, .on_store_failure = kLocal};
  const Charge local_four{.key = "k", .limit = &four, .on_store_failure = kLocal};
  const Charge open{.key = "k", .limit = &four, .name = "open", .on_store_failure = kOpen};
  EXPECT_EQ(Decide({local_ten, open, local_four}), 2);
  EXPECT_EQ(request.source, Source::kFailOpen) << "the least trustworthy";
  EXPECT_EQ(each[0].remaining, 4);
  EXPECT_EQ(each[1], (Decision{.allowed = true, .limit = 4, .remaining = 4}));
  EXPECT_EQ(each[2].remaining, 1);
  EXPECT_EQ(request.outcome->remaining, 1);
  EXPECT_EQ(Decide({local_ten, open, local_four}), 2);
  EXPECT_EQ(Decide({local_ten, open, local_four}), 0);
  EXPECT_FALSE(request.outcome->allowed);
  EXPECT_TRUE(each[0].allowed);
  EXPECT_TRUE(each[1].allowed);
  EXPECT_FALSE(each[2].allowed);
  EXPECT_EQ(fallback.Used(local_ten), 2) << "a denied group takes nothing";
}

TEST_F(FallbackTest, ACostAboveTheShareIsAnOutageAndNoDenial) {
  EXPECT_EQ(Decide({{.key = "k", .limit = &ten, .cost = 6, .on_store_failure = kLocal}}), 0);
  EXPECT_EQ(request.outcome.error().code, ErrorCode::kUnavailable);
}

TEST_F(FallbackTest, WhatWasTakenStaysTakenWhenInstancesComeAndGo) {
  for (const std::string_view name : {"", "named"}) {
    const Charge charge{.key = "k", .limit = &ten, .name = name, .on_store_failure = kLocal};
    fallback.SetInstances(2);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Decide({charge}), 1);
    fallback.SetInstances(1);
    EXPECT_EQ(Decide({charge}), 1);
    EXPECT_EQ(request.outcome->remaining, 4);
    fallback.SetInstances(5);
    Decide({charge});
    EXPECT_FALSE(request.outcome->allowed);
    EXPECT_EQ(fallback.Used(charge), 6) << "though the share is 2";
  }
}

TEST_F(FallbackTest, TellsWhatIsUsedOfEveryAlgorithmThoughSharesShrink) {
  for (const std::string_view text :
       {"algorithm=token_bucket,capacity=12,refill=1,period=24h",
        "algorithm=leaky_bucket,capacity=12,leak=1,period=24h",
        "algorithm=gcra,burst=11,count=1,period=24h", "algorithm=fixed_window,limit=12,window=30d",
        "algorithm=sliding_window,limit=12,window=30d",
        "algorithm=sliding_window_counter,limit=12,window=30d"}) {
    const Limit limit = *Limit::Parse(text);
    const Charge charge{.key = "k", .limit = &limit, .on_store_failure = kLocal};
    fallback.SetInstances(1);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(Decide({charge}), 1) << text;
    fallback.SetInstances(4);
    EXPECT_EQ(fallback.Used(charge), 12) << text;
  }
}

TEST_F(FallbackTest, ResetMakesTheShareWhole) {
  const Charge charge{.key = "k", .limit = &ten, .on_store_failure = kLocal};
  for (int i = 0; i < 5; ++i) Decide({charge});
  fallback.Reset(charge);
  EXPECT_EQ(Decide({charge}), 1);
  EXPECT_EQ(request.outcome->remaining, 4);
}

// Such a cost may exceed its limit, and two of them may overflow.
TEST_F(FallbackTest, DebitsOfAnySizeAreNeitherDecidedNorAddedUp) {
  const Limit limit = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Charge all{
      .key = "k", .limit = &limit, .cost = kMost, .on_store_failure = OnStoreFailure::kLocal};
  const std::vector<Charge> charges = {all, all};
  Request debit{.charges = charges, .action = Action::kDebit};
  EXPECT_EQ(fallback.Decide(debit, kDown, Cause::kOutage), 0);
  EXPECT_EQ(debit.outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(fallback.Used(all), 0);
}

TEST_F(FallbackTest, UnderOverloadOnlyWhatWouldPassIsDecidedOtherwise) {
  using enum OnStoreFailure;
  cause = Cause::kOverload;
  const auto ask = [&](OnStoreFailure policy, std::optional<OnStoreFailure> on_overload) {
    Decide({{.key = "k", .limit = &ten, .on_store_failure = policy, .on_overload = on_overload}});
    return request.outcome ? std::optional(request.source) : std::nullopt;
  };
  EXPECT_EQ(ask(kFailOpen, {}), Source::kOverload);
  EXPECT_EQ(ask(kLocal, {}), Source::kOverload);
  EXPECT_EQ(ask(kFailClosed, {}), std::nullopt);
  EXPECT_EQ(request.source, Source::kOverload) << "so that it is not taken for an outage";
  EXPECT_EQ(ask(kFailClosed, kLocal), Source::kOverload);
  EXPECT_EQ(ask(kFailClosed, kFailOpen), Source::kFailOpen);
  EXPECT_EQ(ask(kFailOpen, kFailOpen), Source::kFailOpen);
  EXPECT_EQ(ask(kFailOpen, kFailClosed), std::nullopt);
  EXPECT_EQ(stats.overload_allowed, 3);
  EXPECT_EQ(stats.local_units, 3);

  cause = Cause::kOutage;
  EXPECT_EQ(ask(kFailOpen, kLocal), Source::kFailOpen) << "that is no overload";
  EXPECT_EQ(ask(kFailClosed, kLocal), std::nullopt);
  EXPECT_EQ(request.source, Source::kStore);
}

TEST_F(FallbackTest, UnderOverloadNobodyGetsMoreThanTheShare) {
  cause = Cause::kOverload;
  const Charge charge{.key = "k", .limit = &ten, .on_store_failure = OnStoreFailure::kFailOpen};
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Decide({charge}), i < 5 ? 1 : 0);
    EXPECT_EQ(request.outcome->allowed, i < 5);
    EXPECT_EQ(request.source, Source::kOverload);
  }
  EXPECT_EQ(stats.overload_denied, 15);
  Charge much = charge;
  much.key = "other";
  much.cost = 6;
  EXPECT_EQ(Decide({much}), 0);
  EXPECT_FALSE(request.outcome) << "neither a denial, nor a way around the limit";
}

}  // namespace
}  // namespace sluice::guard
