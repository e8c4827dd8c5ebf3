// SPDX-License-Identifier: Apache-2.0
#include "store/guard/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/seen.h"
#include "support/guard_fixture.h"

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using State = GuardedStore::BreakerState;
using Reason = GuardedStore::Reason;

TEST_F(GuardTest, HandsBackWhatTheStoreSays) {
  const Answer one = Ask(kTen, kClosed);
  EXPECT_TRUE(one.outcome->allowed);
  EXPECT_EQ(one.outcome->remaining, 9);
  EXPECT_EQ(one.each.front(), *one.outcome);
  EXPECT_EQ(one.source, Source::kStore);
  const Answer group =
      Ask({{.key = "k", .limit = &kTen}, {.key = "k", .limit = &kFour, .cost = 2}});
  EXPECT_EQ(group.each[0].remaining, 8);
  EXPECT_EQ(group.each[1].remaining, 2);
  EXPECT_EQ(group.outcome->remaining, 2);
  EXPECT_EQ(stats().by_store, 2);
  EXPECT_EQ(stats().in_flight, 0);
}

// A caller that asks for states gets the store's, whether or not the guard needs them itself.
TEST_F(GuardTest, HandsBackTheStatesThatTheStoreTells) {
  SeenState told;
  for (const std::size_t remembered : {0, 64}) {
    DestroyGuard();
    options.deny_cache_entries = remembered;
    const std::string key = std::to_string(remembered);
    const std::vector<Charge> charges = {{.key = key, .limit = &kTen, .cost = 3},
                                         {.key = key, .limit = &kFour, .cost = 4}};
    std::vector<SeenState> seen(2);
    Request request{.charges = charges, .seen = seen};
    guard().Apply({&request, 1}, [] {});
    ASSERT_TRUE(request.outcome->allowed);
    EXPECT_EQ(seen[0].now_us(), wall.Now().time_since_epoch().count());
    EXPECT_EQ(core::UsedUnits(kTen, seen[0]), 3);
    EXPECT_EQ(core::UsedUnits(kFour, seen[1]), 4);
    told = seen[1];

    // Nothing is known of states that the store was not asked for.
    store.Fail(ErrorCode::kUnavailable);
    Request open{.charges = charges, .seen = seen};
    std::vector<Charge> passing = charges;
    for (Charge& charge : passing) charge.on_store_failure = kOpen;
    open.charges = passing;
    guard().Apply({&open, 1}, [] {});
    EXPECT_EQ(open.source, Source::kFailOpen);
    EXPECT_EQ(seen, std::vector<SeenState>(2));
    store.AnswerAtOnce();
  }

  // Nor when a denial is repeated from memory.
  const Charge denied{.key = "64", .limit = &kFour};
  for (const Source source : {Source::kStore, Source::kDenyCache}) {
    SeenState state = told;
    Request request{.charges = {&denied, 1}, .seen = {&state, 1}};
    guard().Apply({&request, 1}, [] {});
    EXPECT_FALSE(request.outcome->allowed);
    EXPECT_EQ(request.source, source);
    EXPECT_EQ(state, source == Source::kStore ? told : SeenState{});
  }
}

TEST_F(GuardTest, DecidesByPolicyWhenTheDeadlinePasses) {
  options.deadline = 5ms;
  store.Hold();
  const TimePoint start = time.Now();
  const Answer closed = Ask(kTen, kClosed);
  EXPECT_EQ(time.Now() - start, 5ms);
  EXPECT_EQ(closed.outcome.error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_THAT(closed.outcome.error().message, HasSubstr("5000 us"));
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kOverload) << "as far as anybody can know by now";
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kOverload);
  EXPECT_EQ(stats().deadline_misses, 3);
  EXPECT_EQ(stats().abandoned, 3);
  EXPECT_EQ(stats().in_flight, 3) << "the store still owes these";
  store.AnswerHeld();
  EXPECT_EQ(stats().in_flight, 0);
  EXPECT_EQ(stats().abandoned, 0);
}

TEST_F(GuardTest, DecidesByPolicyOnEveryFailureOfTheStore) {
  for (const ErrorCode code : {ErrorCode::kUnavailable, ErrorCode::kOutcomeUnknown,
                               ErrorCode::kAccessDenied, ErrorCode::kStoreError}) {
    store.Fail(code);
    EXPECT_EQ(Ask(kMany, kClosed).outcome.error().code, code);
    EXPECT_EQ(Ask(kMany, kOpen).source, Source::kFailOpen);
    EXPECT_EQ(Ask(kMany, kLocal).source, Source::kLocal);
  }
  EXPECT_EQ(stats().store_failures, 12);
  EXPECT_EQ(stats().failed_closed, 4);
  EXPECT_EQ(stats().failed_open, 4);
  EXPECT_EQ(stats().local_allowed, 4);
}

TEST_F(GuardTest, TheFaultOfTheCallerIsTheAnswerAndNoFailure) {
  store.Fail(ErrorCode::kUnavailable);
  EXPECT_EQ(Ask(kTen, kOpen, 11).outcome.error().code, ErrorCode::kCostExceedsLimit);
  EXPECT_EQ(Ask(kTen, kOpen, -1).outcome.error().code, ErrorCode::kInvalidCost);
  EXPECT_EQ(Ask(kTen, kOpen, 1, "").outcome.error().code, ErrorCode::kInvalidKey);
  EXPECT_EQ(store.calls(), 0);
  store.Fail(ErrorCode::kInvalidTime);
  EXPECT_EQ(Ask(kTen, kOpen).outcome.error().code, ErrorCode::kInvalidTime);
  EXPECT_EQ(stats().store_failures, 0);
  EXPECT_EQ(status().last_failure, std::nullopt);
}

TEST_F(GuardTest, BeyondTheInFlightMaximumThePolicyDecidesAtOnce) {
  options.in_flight_max = 2;
  store.Hold();
  const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = kOpen};
  std::vector<Request> requests(3, Request{.charges = {&charge, 1}});
  bool done = false;
  guard().Apply(requests, [&] { done = true; });
  EXPECT_EQ(Ask(kTen, kClosed).outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kOverload);
  store.AnswerHeld();
  ASSERT_TRUE(done);
  EXPECT_EQ(requests[0].source, Source::kStore);
  EXPECT_EQ(requests[1].source, Source::kStore);
  EXPECT_EQ(requests[2].source, Source::kOverload);
  EXPECT_EQ(stats().in_flight_rejections, 3);
  store.AnswerAtOnce();
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kStore);
}

TEST_F(GuardTest, ALateAnswerNeverReachesTheCallersMemory) {
  options.deadline = 5ms;
  store.Hold();
  {
    const std::string key(100, 'x');  // Gone when the late answer comes; the sanitizer watches.
    const Limit limit = kTen;
    EXPECT_EQ(Ask(limit, kOpen, 1, key).source, Source::kOverload);
  }
  store.AnswerHeld();
  EXPECT_EQ(store.Remaining(kTen, std::string(100, 'x')), 9);
  EXPECT_EQ(stats().late_charged, 1);
}

TEST_F(GuardTest, AccountsForLateAnswers) {
  options.deadline = 5ms;
  store.Hold();
  Ask(kTen, kOpen);
  Ask(kTen, kOpen, 0);
  store.AnswerHeld();
  EXPECT_EQ(stats().late_charged, 1);
  EXPECT_EQ(stats().late_not_charged, 1);
  Ask(kTen, kOpen);
  store.AnswerHeld(ErrorCode::kUnavailable);
  EXPECT_EQ(stats().late_not_charged, 2);
  Ask(kTen, kOpen);
  store.AnswerHeld(ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(stats().late_unknown, 1);
}

TEST_F(GuardTest, ReportsLocalConsumptionWhenTheStoreIsBack) {
  options.instances = 2;
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Ask(kTen, kLocal).outcome->allowed);
  EXPECT_FALSE(Ask(kTen, kLocal).outcome->allowed);
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kFailOpen);
  EXPECT_EQ(stats().states_to_report, 1);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 5; }));
  EXPECT_EQ(store.Remaining(kTen), 5) << "what was failed open is not reported";
  EXPECT_EQ(stats().states_to_report, 0);
  EXPECT_EQ(stats().local_units, 5);
}

TEST_F(GuardTest, ReportsWhatWasTakenWhileTheStoreRefusedUs) {
  store.Fail(ErrorCode::kAccessDenied);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Ask(kTen, kLocal).outcome->allowed);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 8; }));
  EXPECT_EQ(store.Remaining(kTen), 2);
  EXPECT_EQ(stats().dropped_units, 0);
}

TEST_F(GuardTest, ReportsEachUnitOnceAndALaterOutageFindsTheShareUsed) {
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 3; ++i) Ask(kTen, kLocal);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 3; }));
  store.Fail(ErrorCode::kUnavailable);
  const Answer next = Ask(kTen, kLocal);
  EXPECT_EQ(next.outcome->remaining, 6) << "a second outage hands out no second share";
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 4; }));
  EXPECT_EQ(store.Remaining(kTen), 6);
}

TEST_F(GuardTest, TheStoreHearsWhatWasTakenBeforeItIsAskedAgain) {
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Ask(kTen, kLocal).outcome->allowed);
  store.AnswerAtOnce();  // With an empty state.
  const Answer next = Ask(kTen, kOpen);
  EXPECT_EQ(next.source, Source::kStore);
  EXPECT_FALSE(next.outcome->allowed) << "that would be a second budget";
  EXPECT_EQ(stats().reported_units, 10);
}

TEST_F(GuardTest, AStateIsNotAskedForWhileItCannotBeReported) {
  options.breaker.minimum_calls = 3;
  options.breaker.probes_max = 2;
  store.Fail(ErrorCode::kUnavailable);
  for (const char* key : {"a", "b"}) {
    for (int i = 0; i < 10; ++i) Ask(kTen, kLocal, 1, key);
  }
  ASSERT_EQ(breaker(), State::kOpen);
  store.Hold();
  time.Advance(1s);
  // One probe is a report, sent by whoever comes first. A request would need another probe.
  const auto first = Start({{.key = "c", .limit = &kMany}});
  EXPECT_EQ(store.held(), 2U);
  EXPECT_EQ(Ask(kTen, kLocal, 1, "a").source, Source::kLocal);
  EXPECT_EQ(Ask(kTen, kLocal, 1, "b").source, Source::kLocal);
  store.AnswerHeld();
  EXPECT_EQ(first->request.source, Source::kStore);
}

TEST_F(GuardTest, ReportsOnlyWhatStillCounts) {
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 3; ++i) Ask(kTen, kLocal);
  wall.Advance(24h);  // Another window.
  Ask(kTen, kLocal);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units + stats().recovered_units == 4; }));
  EXPECT_EQ(stats().reported_units, 1);
  EXPECT_EQ(stats().recovered_units, 3);
  EXPECT_EQ(store.Remaining(kTen), 9);
}

TEST_F(GuardTest, AReportThatMayHaveArrivedIsNotSentAgain) {
  store.Fail(ErrorCode::kUnavailable);
  Ask(kTen, kLocal);
  ASSERT_TRUE(Eventually([&] { return store.debits() >= 2; })) << "provably not sent: sent again";
  store.Fail(ErrorCode::kOutcomeUnknown);
  ASSERT_TRUE(Eventually([&] { return stats().dropped_units == 1; }));
  const int debits = store.debits();
  store.Fail(ErrorCode::kUnavailable);
  Ask(kTen, kLocal, 1, "other");
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 1; }));
  EXPECT_EQ(store.Remaining(kTen), 10);
  EXPECT_EQ(store.Remaining(kTen, "other"), 9);
  EXPECT_GE(store.debits(), debits + 1);
}

TEST_F(GuardTest, WhatTheStoreChargedLateIsNotReportedAsWell) {
  options.deadline = 5ms;
  store.Hold();
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kOverload);
  EXPECT_EQ(Ask(kTen, kLocal, 2).source, Source::kOverload);
  EXPECT_EQ(stats().states_to_report, 0) << "not before it is known";
  store.AnswerHeld();
  store.AnswerAtOnce();
  EXPECT_EQ(stats().charged_units, 3);
  EXPECT_EQ(stats().states_to_report, 0);
  EXPECT_EQ(store.Remaining(kTen), 7);

  store.Hold();
  Ask(kTen, kLocal);
  store.AnswerHeld(ErrorCode::kUnavailable);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 1; }));
  EXPECT_EQ(store.Remaining(kTen), 6);

  store.Hold();
  Ask(kTen, kLocal);
  store.AnswerHeld(ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(stats().dropped_units, 1);
}

TEST_F(GuardTest, AReportThatIsNeverAnsweredStopsNoOther) {
  options.deadline = 5ms;
  store.Fail(ErrorCode::kUnavailable);
  store.HoldDebits();
  Ask(kTen, kLocal, 2, "lost");
  ASSERT_TRUE(Eventually([&] { return stats().abandoned == 1; })) << "the report of it";
  Ask(kTen, kLocal, 3, "a");
  ASSERT_TRUE(Eventually([&] { return stats().abandoned == 2; })) << "another is tried";
  store.AnswerAtOnce();
  store.Fail(ErrorCode::kUnavailable);
  Ask(kTen, kLocal, 1, "b");
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 1; }));
  store.AnswerHeld();
  EXPECT_EQ(stats().reported_units, 6) << "late is not lost";
  EXPECT_EQ(stats().in_flight, 0);
  EXPECT_EQ(store.Remaining(kTen, "lost"), 8);
}

TEST_F(GuardTest, ReportsThatAreNeverAnsweredStayWithinTheInFlightMaximum) {
  options.deadline = 5ms;
  options.in_flight_max = 3;
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 10; ++i) Ask(kTen, kLocal, 1, std::to_string(i));
  store.HoldDebits();
  ASSERT_TRUE(Eventually([&] { return stats().abandoned == 3; }));
  EXPECT_EQ(stats().states_to_report, 7);
  EXPECT_EQ(stats().in_flight, 3);
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kOverload) << "no room";
  store.AnswerAtOnce();
  store.AnswerHeld();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 11; }));
  EXPECT_EQ(stats().in_flight, 0);
}

TEST_F(GuardTest, ConsumptionBeyondTheLedgersRoomIsCounted) {
  options.unreported_max = 2;
  store.Fail(ErrorCode::kUnavailable);
  Ask(kTen, kLocal, 1, "a");
  Ask(kTen, kLocal, 1, "b");
  Ask(kTen, kLocal, 3, "c");
  EXPECT_EQ(stats().states_to_report, 2);
  EXPECT_EQ(stats().dropped_units, 3);
}

TEST_F(GuardTest, OpensServesByPolicyAndRecovers) {
  std::vector<std::pair<State, Reason>> seen;
  options.breaker.minimum_calls = 3;
  options.breaker.probes_to_close = 2;
  options.on_transition = [&](const GuardedStore::Transition& transition) {
    seen.emplace_back(transition.to, transition.reason);
  };
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 3; ++i) Ask(kMany, kOpen);
  EXPECT_EQ(breaker(), State::kOpen);
  EXPECT_EQ(status().last_transition->last_failure->message, "scripted");
  const int calls = store.calls();
  EXPECT_EQ(Ask(kMany, kOpen).source, Source::kFailOpen);
  EXPECT_THAT(Ask(kMany, kClosed).outcome.error().message, HasSubstr("breaker is open"));
  EXPECT_EQ(store.calls(), calls);
  EXPECT_EQ(stats().breaker_rejections, 2);

  time.Advance(200ms);
  Ask(kMany, kOpen);
  EXPECT_EQ(store.calls(), calls + 1);
  EXPECT_EQ(breaker(), State::kOpen);

  store.AnswerAtOnce();
  time.Advance(400ms);
  EXPECT_EQ(Ask(kMany, kOpen).source, Source::kStore);
  EXPECT_EQ(breaker(), State::kHalfOpen);
  EXPECT_EQ(Ask(kMany, kOpen).source, Source::kStore);
  EXPECT_EQ(breaker(), State::kClosed);
  EXPECT_THAT(seen, ElementsAre(std::pair(State::kOpen, Reason::kFailures),
                                std::pair(State::kHalfOpen, Reason::kOpenTimeOver),
                                std::pair(State::kOpen, Reason::kProbeFailed),
                                std::pair(State::kHalfOpen, Reason::kOpenTimeOver),
                                std::pair(State::kClosed, Reason::kProbesSucceeded)));
  EXPECT_EQ(stats().transitions, 5);
  EXPECT_THAT(stats().transitions_by_reason, ElementsAre(1, 0, 2, 1, 1));
}

TEST_F(GuardTest, ProbesThatNeverReturnDoNotWedgeIt) {
  options.deadline = 5ms;
  options.in_flight_max = 3;
  options.breaker.minimum_calls = 3;
  options.breaker.probes_to_close = 1;
  store.Hold();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(kMany, kOpen).source, Source::kOverload);
  EXPECT_EQ(breaker(), State::kOpen);
  for (int i = 0; i < 20; ++i) {
    time.Advance(1s);
    EXPECT_EQ(Ask(kMany, kOpen).source, Source::kFailOpen);
  }
  EXPECT_EQ(store.held(), 23U) << "each time one was tried, although none was ever answered";
  store.AnswerAtOnce();
  EXPECT_TRUE(Eventually([&] {
    time.Advance(1s);
    Ask(kMany, kOpen);
    return breaker() == State::kClosed;
  }));
}

TEST_F(GuardTest, SlowAnswersOpenIt) {
  options.breaker.minimum_calls = 3;
  store.Hold();
  for (int i = 0; i < 3; ++i) {
    const auto asked = Start({{.key = "k", .limit = &kMany, .on_store_failure = kClosed}});
    time.Advance(15ms);
    store.AnswerHeld();
    EXPECT_TRUE(asked->done);
  }
  EXPECT_EQ(breaker(), State::kOpen);
  EXPECT_EQ(status().last_transition->reason, Reason::kSlowCalls);
}

TEST_F(GuardTest, AReportIsAProbeOfOneStateWhenNobodyAsks) {
  options.breaker.minimum_calls = 3;
  options.breaker.probes_to_close = 1;
  store.Fail(ErrorCode::kUnavailable);
  for (const char* key : {"a", "b", "c"}) Ask(kTen, kLocal, 1, key);
  ASSERT_EQ(breaker(), State::kOpen);
  const auto debits = store.debits();
  store.Fail(ErrorCode::kOutcomeUnknown);
  time.Advance(1s);
  ASSERT_TRUE(Eventually([&] { return stats().dropped_units == 1; }));
  EXPECT_EQ(breaker(), State::kOpen);
  EXPECT_EQ(store.debits(), debits + 1) << "one state at stake, not all";
  store.AnswerAtOnce();
  time.Advance(1s);
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 2; }));
  EXPECT_EQ(breaker(), State::kClosed);
}

TEST_F(GuardTest, AnIdleGuardProbesByItself) {
  options.breaker.minimum_calls = 3;
  options.breaker.probes_to_close = 2;
  options.breaker.idle_probe_after = 1s;
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 3; ++i) Ask(kMany, kOpen);
  store.AnswerAtOnce();
  time.Advance(1s);
  EXPECT_TRUE(Eventually([&] { return breaker() == State::kClosed; }));
  EXPECT_EQ(store.state.GetStats().keys, 0) << "looking writes nothing";
}

TEST_F(GuardTest, ResetMakesBothBudgetsWhole) {
  for (int i = 0; i < 10; ++i) Ask(kTen, kLocal);
  EXPECT_FALSE(Ask(kTen, kLocal).outcome->allowed);
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kDenyCache);
  store.Fail(ErrorCode::kUnavailable);
  Ask(kTen, kLocal, 1, "other");
  for (const std::string_view key : {"k", "other"}) {
    EXPECT_EQ(Reset({.key = key, .limit = &kTen}).error().code, ErrorCode::kUnavailable);
  }
  EXPECT_EQ(stats().states_to_report, 0);
  EXPECT_EQ(stats().recovered_units, 1) << "by the reset";
  EXPECT_EQ(Ask(kTen, kLocal, 1, "other").outcome->remaining, 9);
  store.AnswerAtOnce();
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kStore);
  EXPECT_TRUE(Reset({.key = "k", .limit = &kTen}).value());
  EXPECT_EQ(Ask(kTen, kLocal).outcome->remaining, 9);
}

TEST_F(GuardTest, WhatComesAfterGivingBackIsNotDeniedFromMemory) {
  const Charge one{.key = "k", .limit = &kTen};
  for (const Action action : {Action::kGive, Action::kSettle, Action::kReset}) {
    while (Ask(kTen, kClosed).outcome->allowed) {
    }
    ASSERT_EQ(Ask(kTen, kClosed).source, Source::kDenyCache);
    // A hold that has expired, and is settled for less.
    HoldTerms terms{.id = "late", .ttl = 1ms};
    if (action == Action::kSettle) {
      Reset(one);
      Charge held = one;
      held.cost = 10;
      Request hold{.charges = {&held, 1}, .action = Action::kHold, .hold = &terms};
      guard().Apply({&hold, 1}, [] {});
      ASSERT_TRUE(hold.outcome && hold.outcome->allowed);
      wall.Advance(1ms);
      EXPECT_FALSE(Ask(kTen, kClosed).outcome->allowed);
      ASSERT_EQ(Ask(kTen, kClosed).source, Source::kDenyCache);
    }
    // In one call.
    std::array requests{Request{.charges = {&one, 1}, .action = action},
                        Request{.charges = {&one, 1}}};
    if (action == Action::kSettle) requests[0].hold = &terms;
    guard().Apply(requests, [] {});
    EXPECT_EQ(requests[1].source, Source::kStore);
    ASSERT_TRUE(requests[1].outcome);
    EXPECT_TRUE(requests[1].outcome->allowed);
  }
}

TEST_F(GuardTest, ADenialOnItsWayDuringAResetIsNotRemembered) {
  for (int i = 0; i < 10; ++i) Ask(kTen, kClosed);
  store.Hold();
  const Charge charge{.key = "k", .limit = &kTen};
  const auto denied = Start({charge});
  const auto reset = Start({charge}, Action::kReset);
  store.AnswerAtOnce();
  store.AnswerHeld();
  EXPECT_FALSE(denied->request.outcome->allowed);
  EXPECT_TRUE(reset->request.existed);
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kStore);
}

TEST_F(GuardTest, ADenialBesideAResetThatFailedOrCameLateIsNotRemembered) {
  const Charge charge{.key = "k", .limit = &kTen};
  for (const bool late : {false, true}) {
    while (Ask(kTen, kClosed).outcome->allowed) {
    }
    store.Hold();
    const auto reset = Start({charge}, Action::kReset);
    if (late) guard().Wait();
    EXPECT_EQ(reset->done, late);
    store.AnswerAtOnce();
    EXPECT_EQ(Ask(kTen, kClosed).source, Source::kStore);
    EXPECT_EQ(Ask(kTen, kClosed).source, Source::kDenyCache);
    store.AnswerHeld(late ? std::nullopt : std::optional(ErrorCode::kOutcomeUnknown));
    EXPECT_FALSE(reset->request.outcome);
    const Answer next = Ask(kTen, kClosed);
    EXPECT_EQ(next.source, Source::kStore);
    EXPECT_EQ(next.outcome->allowed, late) << "it was reset after all";
  }
}

TEST_F(GuardTest, ManyResetsNeitherTakeTheSharesOfOthersNorLookLikeAnOverload) {
  options.in_flight_max = 64;
  store.Hold();
  std::vector<std::string> keys;
  for (int i = 0; i < 2'000; ++i) keys.push_back(std::to_string(i));
  std::vector<std::unique_ptr<Asked>> resets;
  for (const std::string& key : keys) {
    resets.push_back(Start({{.key = key, .limit = &kTen}}, Action::kReset));
  }
  EXPECT_EQ(stats().in_flight, 64 + 1'024);
  EXPECT_EQ(stats().in_flight_rejections, 2'000 - 64 - 1'024);
  EXPECT_EQ(stats().overloads, 0);
  EXPECT_EQ(resets.back()->request.outcome.error().code, ErrorCode::kUnavailable);
  store.AnswerHeld();
  EXPECT_TRUE(resets.front()->request.outcome);
  EXPECT_EQ(stats().in_flight, 0);
}

TEST_F(GuardTest, DeniesOneClientWithoutTheStoreWhileOthersUseTheLimitTheyShare) {
  const auto ask = [&](std::string_view client) {
    return Ask({{.key = "everybody", .limit = &kMany}, {.key = client, .limit = &kTen}});
  };
  for (int i = 0; i < 11; ++i) ask("attacker");
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(ask(std::to_string(i)).outcome->allowed);
    const Answer denied = ask("attacker");
    EXPECT_EQ(denied.source, Source::kDenyCache);
    EXPECT_TRUE(denied.each[0].allowed);
    EXPECT_EQ(denied.each[0].remaining, store.Remaining(kMany, "everybody"));
    EXPECT_FALSE(denied.each[1].allowed);
  }
}

TEST_F(GuardTest, KnownDenialsStayDenialsDuringAnOutage) {
  for (int i = 0; i < 11; ++i) Ask(kTen, kOpen);
  store.Fail(ErrorCode::kUnavailable);
  const Answer denied = Ask(kTen, kOpen);
  EXPECT_FALSE(denied.outcome->allowed);
  EXPECT_EQ(denied.source, Source::kDenyCache);
  EXPECT_EQ(Ask(kTen, kOpen, 1, "other").source, Source::kFailOpen);
}

TEST_F(GuardTest, GreaterCostsThanThatOfAKnownDenialAreDeniedDuringAnOutage) {
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=10,window=1d");
  Ask(log, kOpen, 8);
  EXPECT_FALSE(Ask(log, kOpen, 3).outcome->allowed);
  EXPECT_EQ(Ask(log, kOpen, 5).source, Source::kStore) << "which knows how long that takes";
  store.Fail(ErrorCode::kUnavailable);
  const Answer denied = Ask(log, kOpen, 4);
  EXPECT_FALSE(denied.outcome->allowed);
  EXPECT_EQ(denied.source, Source::kDenyCache);
  EXPECT_EQ(Ask(log, kOpen, 2).source, Source::kFailOpen) << "that may fit";
}

TEST_F(GuardTest, KnownDenialsByALogOutliveTheOldestOfItDuringAnOutage) {
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=10,window=1d");
  const auto advance = [&](Micros by) {
    wall.Advance(by);
    time.Advance(by);
  };
  Ask(log, kOpen, 4);
  advance(1h);
  Ask(log, kOpen, 4);
  EXPECT_EQ(Ask(log, kOpen, 7).outcome->retry_after, 24h);
  advance(23h);
  store.Fail(ErrorCode::kUnavailable);
  for (const std::int64_t cost : {7, 8}) {
    const Answer denied = Ask(log, kOpen, cost);
    EXPECT_EQ(denied.source, Source::kDenyCache);
    EXPECT_FALSE(denied.outcome->allowed);
    EXPECT_EQ(denied.outcome->remaining, 2) << "at least";
    EXPECT_EQ(denied.outcome->retry_after, 1h);
    EXPECT_EQ(denied.outcome->reset_after, 1h);
  }
  EXPECT_EQ(Ask(log, kOpen, 6).source, Source::kFailOpen) << "that fits";
  advance(1h);
  EXPECT_EQ(Ask(log, kOpen, 8).source, Source::kFailOpen);
}

TEST_F(GuardTest, NoWaitIsLongerBecauseTheStoreTookItsTime) {
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=10,window=1d");
  const Limit counter = *Limit::Parse("algorithm=sliding_window_counter,limit=10,window=1d");
  for (const Limit* limit : {&kTen, &log, &counter}) {
    Ask(*limit, kClosed, 10);
    store.Hold();
    const auto denied = Start({{.key = "k", .limit = limit}});
    wall.Advance(3s);
    time.Advance(3s);
    store.AnswerAtOnce();
    store.AnswerHeld();
    const Decision first = *denied->request.outcome;
    const Answer again = Ask(*limit, kClosed);
    EXPECT_EQ(again.source, Source::kDenyCache);
    EXPECT_EQ(again.outcome->retry_after, first.retry_after - 3s);
    EXPECT_EQ(again.outcome->reset_after, first.reset_after - 3s);
  }
}

TEST_F(GuardTest, AStoreThatTellsNoStateTeachesNothing) {
  store.tells_state = false;
  for (int i = 0; i < 11; ++i) Ask(kTen, kClosed);
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kStore);
  EXPECT_EQ(stats().deny_cache_entries, 0);
}

TEST_F(GuardTest, RemembersDenialsOfAsManyLimitsAsThereMayBe) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < kChargesMax; ++i) keys.push_back(std::to_string(i));
  std::vector<Charge> charges;
  for (const std::string& key : keys) charges.push_back({.key = key, .limit = &kMany});
  charges.back().limit = &kTen;
  for (int i = 0; i < 11; ++i) Ask(charges);
  const Answer denied = Ask(charges);
  EXPECT_EQ(denied.source, Source::kDenyCache);
  EXPECT_FALSE(denied.each.back().allowed);
}

TEST_F(GuardTest, AreDenialsForTheirWholeTimeIfTheStoreCannotBeAsked) {
  for (int i = 0; i < 11; ++i) Ask(kTen, kOpen);
  store.Fail(ErrorCode::kUnavailable);
  time.Advance(1h);
  const Answer denied = Ask(kTen, kOpen);
  EXPECT_FALSE(denied.outcome->allowed);
  EXPECT_EQ(denied.source, Source::kDenyCache);
  EXPECT_EQ(stats().known_denied, 1);
  EXPECT_EQ(stats().deny_cache_hits, 0) << "the store was asked";
  time.Advance(23h);
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kFailOpen);
}

TEST_F(GuardTest, BelievesADenialForALimitedTime) {
  for (int i = 0; i < 11; ++i) Ask(kTen, kClosed);
  time.Advance(10s - 1us);
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kDenyCache);
  time.Advance(1us);
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kStore) << "and that is believed again";
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kDenyCache);
}

TEST_F(GuardTest, BelievesWhatALogSaidOfEachCostForALimitedTime) {
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=10,window=1d");
  Ask(log, kClosed, 10);
  for (const std::int64_t cost : {1, 2, 3}) {
    EXPECT_EQ(Ask(log, kClosed, cost).source, Source::kStore);
    time.Advance(4s);
  }
  // The last answer showed that nothing has changed, but it was not for this cost.
  EXPECT_EQ(Ask(log, kClosed, 1).source, Source::kStore);
  for (const std::int64_t cost : {1, 2, 3}) {
    EXPECT_EQ(Ask(log, kClosed, cost).source, Source::kDenyCache);
  }
}

TEST_F(GuardTest, ForgetsWhatOthersMadeLarger) {
  const auto exhaust = [&] {
    for (const std::string_view key : {"k", "other"}) {
      for (int i = 0; i < 11; ++i) Ask(kTen, kClosed, 1, key);
      EXPECT_EQ(Ask(kTen, kClosed, 1, key).source, Source::kDenyCache);
    }
  };
  exhaust();
  const Charge charge{.key = "k", .limit = &kTen};
  EXPECT_TRUE(store.state.Reset(charge));
  store.raised(&charge);
  EXPECT_TRUE(Ask(kTen, kClosed).outcome->allowed);
  EXPECT_EQ(Ask(kTen, kClosed, 1, "other").source, Source::kDenyCache);
  exhaust();
  store.raised(nullptr);
  EXPECT_EQ(stats().deny_cache_entries, 0);
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kStore);
  EXPECT_EQ(Ask(kTen, kClosed, 1, "other").source, Source::kStore);
  exhaust();
  guard().Forget(nullptr);
  EXPECT_EQ(stats().deny_cache_entries, 0);
  DestroyGuard();
  store.raised(&charge);  // Nobody is left to hear it.
}

TEST_F(GuardTest, ADenialOnItsWayWhenOthersResetIsNotRemembered) {
  for (int i = 0; i < 10; ++i) Ask(kTen, kClosed);
  for (const bool all : {false, true}) {
    store.Hold();
    const Charge charge{.key = "k", .limit = &kTen};
    const auto denied = Start({charge});
    store.raised(all ? nullptr : &charge);
    store.AnswerAtOnce();
    store.AnswerHeld();
    EXPECT_FALSE(denied->request.outcome->allowed);
    EXPECT_EQ(stats().deny_cache_entries, 0);
  }
}

TEST_F(GuardTest, AnswersOfThePolicyAreNeverRemembered) {
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 11; ++i) Ask(kTen, kLocal);
  store.AnswerAtOnce();
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kStore);
}

TEST_F(GuardTest, BoundsItsDenyCache) {
  options.deny_cache_entries = 64;
  for (int i = 0; i < 10'000; ++i) {
    const std::string key = std::to_string(i);
    Ask(kFour, kClosed, 4, key);
    EXPECT_FALSE(Ask(kFour, kClosed, 1, key).outcome->allowed);
  }
  EXPECT_LE(stats().deny_cache_entries, 64);
  EXPECT_GE(stats().deny_cache_entries, 60);
  EXPECT_LE(stats().deny_cache_bytes, 64 * 96 + 64 * 64);
}

// Requests that wait for the store, and the answers they get.
class Waiting {
 public:
  Waiting(DrivenGuard& guard, const Limit& limit, std::string name, std::vector<std::string> keys)
      : name_(std::move(name)), keys_(std::move(keys)) {
    for (const std::string& key : keys_) {
      charges_.push_back({.key = key, .limit = &limit, .name = name_, .on_store_failure = kOpen});
    }
    requests_.resize(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      requests_[i].charges = std::span(charges_).subspan(i, 1);
      guard.Apply({&requests_[i], 1}, [this] { ++done_; });
    }
  }

  int done() const { return done_; }
  std::int64_t By(Source source) const {
    return std::ranges::count(requests_, source, &Request::source);
  }
  std::int64_t allowed() const {
    return std::ranges::count_if(requests_, [](const Request& r) { return r.outcome->allowed; });
  }

 private:
  const std::string name_;
  const std::vector<std::string> keys_;
  std::vector<Charge> charges_;
  std::vector<Request> requests_;
  int done_ = 0;
};

std::vector<std::string> Keys(std::string_view prefix, int count) {
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back(std::string(prefix) + std::to_string(i));
  return keys;
}

TEST_F(GuardTest, AStoreThatAnswersLateIsOverloadedAndOneThatIsSilentIsNotThere) {
  options.deadline = 5ms;
  store.Hold();
  for (int i = 0; i < 3; ++i) {
    time.Advance(900ms);
    EXPECT_EQ(Ask(kMany, kOpen).source, Source::kOverload) << i;
    store.AnswerHeld();
  }
  EXPECT_EQ(stats().overload_deadline, 3);
  EXPECT_EQ(Ask(kMany, kOpen).source, Source::kOverload);
  time.Advance(1s);
  EXPECT_EQ(Ask(kMany, kOpen).source, Source::kFailOpen);
  store.AnswerHeld();
  EXPECT_EQ(Ask(kMany, kOpen).source, Source::kOverload) << "it was heard again";
  EXPECT_EQ(stats().overload_deadline, 5);
  EXPECT_EQ(stats().failed_open, 1);
}

TEST_F(GuardTest, ABreakerThatIsOpenForSlownessDoesNotLetPassWhatOneThatIsOpenForErrorsDoes) {
  options.breaker.minimum_calls = 3;
  store.Hold();
  for (int i = 0; i < 3; ++i) {
    const auto asked = Start({{.key = "k", .limit = &kTen, .on_store_failure = kOpen}});
    time.Advance(15ms);
    store.AnswerHeld();
    EXPECT_TRUE(asked->done);
  }
  ASSERT_EQ(breaker(), State::kOpen);
  for (int i = 0; i < 20; ++i) {
    const Answer answer = Ask(kTen, kOpen);
    EXPECT_EQ(answer.source, Source::kOverload);
    EXPECT_EQ(answer.outcome->allowed, i < 10);
  }
  EXPECT_EQ(Ask(kTen, kClosed).outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(stats().overload_breaker, 21);
  EXPECT_EQ(stats().failed_open, 0);

  store.Fail(ErrorCode::kUnavailable);
  time.Advance(1s);
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kFailOpen) << "the probe";
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kFailOpen) << "and whoever comes after it";
  EXPECT_EQ(stats().overload_breaker, 21);

  store.AnswerAtOnce();
  time.Advance(1s);
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 10; }))
      << "what was granted under overload is taken from the budget";
  EXPECT_EQ(store.Remaining(kTen), 0);
}

// A flood of fresh keys may have filled it.
TEST_F(GuardTest, AFullStoreTurnsNoLimitOffAndIsStillAsked) {
  options.breaker.minimum_calls = 3;
  store.Fail(ErrorCode::kStoreFull);
  for (int i = 0; i < 30; ++i) {
    const Answer answer = Ask(kTen, kOpen);
    EXPECT_EQ(answer.source, Source::kOverload);
    EXPECT_EQ(answer.outcome->allowed, i < 10);
  }
  EXPECT_EQ(Ask(kTen, kClosed).outcome.error().code, ErrorCode::kStoreFull);
  EXPECT_EQ(breaker(), State::kClosed) << "it decides whatever takes no room";
  EXPECT_TRUE(status().overloaded);
  EXPECT_EQ(status().last_failure->code, ErrorCode::kStoreFull);
  EXPECT_EQ(stats().overload_full, 31);
  EXPECT_EQ(stats().store_failures, 31);
  EXPECT_EQ(stats().failed_open, 0);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 10; }));
  EXPECT_EQ(store.Remaining(kTen), 0);
}

// A store that has no place for anybody else.
class Busy {
 public:
  Busy(ScriptedStore& store, DrivenGuard& guard) : store_(store) {
    store_.Hold();
    taken_.emplace(guard, kMany, "", std::vector<std::string>{"busy"});
  }
  ~Busy() {
    store_.AnswerAtOnce();
    store_.AnswerHeld();
  }

 private:
  ScriptedStore& store_;
  std::optional<Waiting> taken_;
};

TEST_F(GuardTest, UnderOverloadAShareStartsFromWhatTheStoreLastTold) {
  options.in_flight_max = 1;
  for (const char* text :
       {"algorithm=token_bucket,capacity=10,refill=1,period=1d",
        "algorithm=leaky_bucket,capacity=10,leak=1,period=1d",
        "algorithm=gcra,burst=9,count=1,period=1d", "algorithm=fixed_window,limit=10,window=1d",
        "algorithm=sliding_window,limit=10,window=1d",
        "algorithm=sliding_window_counter,limit=10,window=1d"}) {
    const Limit limit = *Limit::Parse(text);
    EXPECT_EQ(Ask(limit, kOpen).source, Source::kStore);
    EXPECT_EQ(Ask(limit, kOpen, 6).outcome->remaining, 3) << text;
    {
      const Busy busy(store, guard());
      for (int i = 0; i < 6; ++i) {
        const Answer answer = Ask(limit, kOpen);
        EXPECT_EQ(answer.source, Source::kOverload) << text;
        EXPECT_EQ(answer.outcome->allowed, i < 3) << text << ", " << i;
      }
    }
    ASSERT_TRUE(Settles());
    EXPECT_EQ(store.Remaining(limit), 0) << text;
  }
  EXPECT_EQ(stats().reported_units, 6 * 3);
  EXPECT_EQ(stats().local_units, 6 * 3);
}

TEST_F(GuardTest, UnderOverloadEachInstanceHasItsPartOfWhatIsLeft) {
  options.in_flight_max = 1;
  options.instances = 3;
  const auto granted = [&](std::string_view key, std::int64_t used) {
    EXPECT_TRUE(Settles());
    Ask(kTen, kOpen, 1, key);
    Ask(kTen, kOpen, used - 1, key);
    const Busy busy(store, guard());
    std::int64_t sum = 0;
    for (int i = 0; i < 10; ++i) sum += Ask(kTen, kOpen, 1, key).outcome->allowed ? 1 : 0;
    return sum;
  };
  EXPECT_EQ(granted("a", 2), 3) << "most of it is left, and a third is this instance's";
  EXPECT_EQ(granted("b", 6), 1) << "a third of four";
  EXPECT_EQ(granted("c", 9), 1) << "at least one";
  EXPECT_EQ(granted("d", 10), 0);
}

// What the store counts as used leaves the local log when it would have left the store's.
TEST_F(GuardTest, UnderOverloadWhatIsUsedCountsForNoLongerThanAtTheStore) {
  options.in_flight_max = 1;
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=10,window=1h");
  Ask(log, kOpen);
  Ask(log, kOpen, 8);
  const auto pass = [&](Micros span) {
    wall.Advance(span);
    time.Advance(span);
  };
  pass(50min);
  const Busy busy(store, guard());
  EXPECT_TRUE(Ask(log, kOpen).outcome->allowed);
  EXPECT_FALSE(Ask(log, kOpen).outcome->allowed);
  pass(10min);
  // By now the store was silent for so long that kOpen would pass undecided.
  EXPECT_EQ(Ask(log, kLocal).outcome->remaining, 8) << "all but what was granted here";
}

TEST_F(GuardTest, WhatOthersMadeLargerIsNotKnownUnderOverloadEither) {
  options.in_flight_max = 1;
  const auto granted = [&] {
    const Busy busy(store, guard());
    return Ask(kTen, kOpen, 10).outcome->allowed;
  };
  Ask(kTen, kOpen);
  Ask(kTen, kOpen, 8);
  EXPECT_FALSE(granted());
  const Charge charge{.key = "k", .limit = &kTen};
  EXPECT_TRUE(Reset(charge).value());
  EXPECT_TRUE(granted());

  const Charge other{.key = "o", .limit = &kTen};
  for (const Charge* raised : {&other, static_cast<const Charge*>(nullptr)}) {
    ASSERT_TRUE(Settles());
    const std::string key = raised ? "o" : "p";
    Ask(kTen, kOpen, 1, key);
    Ask(kTen, kOpen, 8, key);
    store.raised(raised);
    const Busy busy(store, guard());
    EXPECT_TRUE(Ask(kTen, kOpen, 10, key).outcome->allowed);
  }
}

TEST_F(GuardTest, ARuleMaySayWhatAnOverloadMeansToIt) {
  options.in_flight_max = 1;
  store.Hold();
  const Waiting taken(guard(), kMany, "", {"other"});
  const auto ask = [&](OnStoreFailure policy, std::optional<OnStoreFailure> on_overload) {
    return Ask(
        {{.key = "k", .limit = &kTen, .on_store_failure = policy, .on_overload = on_overload}});
  };
  EXPECT_EQ(ask(kOpen, {}).source, Source::kOverload);
  EXPECT_EQ(ask(kOpen, kOpen).source, Source::kFailOpen);
  EXPECT_FALSE(ask(kOpen, kClosed).outcome);
  EXPECT_FALSE(ask(kClosed, {}).outcome);
  EXPECT_EQ(ask(kClosed, kLocal).source, Source::kOverload);
  EXPECT_EQ(stats().overload_in_flight, 5);
  EXPECT_EQ(stats().states_to_report, 1);
  store.AnswerAtOnce();
  store.AnswerHeld();
  ASSERT_TRUE(Eventually([&] { return stats().reported_units == 2; }));
  EXPECT_EQ(store.Remaining(kTen), 8) << "only what was decided locally";
}

// The trial on a small scale: a burst of distinct keys, clients that the store knows, and one it
// denied.
TEST_F(GuardTest, AFloodOfFreshKeysNeitherPassesNorTakesThePlacesOfOthers) {
  options.in_flight_max = 64;
  for (const std::string& key : Keys("honest", 16)) Ask(kFour, kOpen, 1, key);
  for (int i = 0; i < 5; ++i) Ask(kFour, kOpen, 1, "denied");
  store.Hold();

  std::vector<std::string> keys = Keys("fresh", 1'000);
  for (int i = 0; i < 9; ++i) {
    for (std::string& key : Keys("fresh", 100)) keys.push_back(std::move(key));
  }
  const Waiting flood(guard(), kFour, "", keys);
  const Waiting honest(guard(), kFour, "", Keys("honest", 16));
  const Waiting denied(guard(), kFour, "", {"denied", "denied"});
  EXPECT_EQ(denied.By(Source::kDenyCache), 2);
  EXPECT_EQ(honest.done(), 0) << "they have places";
  EXPECT_GE(flood.done(), static_cast<int>(keys.size()) - 32);
  time.Advance(20s);  // By now nobody would trust the denial if the store could be asked.
  const Waiting again(guard(), kFour, "", {"denied"});
  EXPECT_EQ(again.By(Source::kDenyCache) + again.By(Source::kStore), 1);

  store.AnswerAtOnce();
  store.AnswerHeld();
  EXPECT_EQ(honest.By(Source::kStore), 16);
  EXPECT_EQ(flood.By(Source::kStore) + flood.By(Source::kOverload) + flood.By(Source::kDenyCache),
            static_cast<std::int64_t>(keys.size()));
  EXPECT_LE(flood.By(Source::kStore), 32);
  EXPECT_EQ(stats().failed_open, 0) << "nothing passes undecided";
  EXPECT_LE(flood.allowed(), 4 * 1'000 + 32);
  ASSERT_TRUE(Eventually([&] {
    const auto now = stats();
    return now.in_flight == 0 && now.local_units == now.reported_units;
  })) << "to the unit";
  EXPECT_EQ(stats().dropped_units, 0);
}

TEST_F(GuardTest, FreshKeysThatAreAdmittedPushNoDenialOut) {
  options.in_flight_max = 1;
  options.deny_cache_entries = 4;
  for (int i = 0; i < 11; ++i) Ask(kTen, kOpen, 1, "denied");
  for (const std::string& key : Keys("fresh", 1'000)) {
    ASSERT_TRUE(Ask(kTen, kOpen, 1, key).outcome->allowed);
  }
  time.Advance(20s);  // Longer than a denial is trusted without asking.
  store.Hold();
  const Waiting taken(guard(), kMany, "", {"other"});
  const Answer denied = Ask(kTen, kOpen, 1, "denied");
  EXPECT_FALSE(denied.outcome->allowed);
  EXPECT_EQ(denied.source, Source::kDenyCache);
  EXPECT_EQ(Ask(kTen, kOpen, 1, "fresh").source, Source::kOverload);
  store.AnswerHeld();
}

TEST_F(GuardTest, ALimitThatIsFloodedLeavesPlacesToOthers) {
  options.in_flight_max = 64;
  for (const std::string& key : Keys("k", 200)) Ask(kMany, kOpen, 1, key);
  const Charge shop{.key = "k0", .limit = &kMany, .name = "shop", .on_store_failure = kOpen};
  for (int i = 0; i < 3; ++i) Ask({shop});
  for (const std::string& key : Keys("k", 200)) {
    Ask({{.key = key, .limit = &kMany, .name = "login", .on_store_failure = kOpen}});
  }
  store.Hold();
  const Waiting login(guard(), kMany, "login", Keys("k", 200));
  EXPECT_GT(login.done(), 130) << "all of them are known";
  EXPECT_LT(login.done(), 160);
  const Waiting other(guard(), kMany, "shop", {"k0", "k0"});
  EXPECT_EQ(other.done(), 0);
  store.AnswerAtOnce();
  store.AnswerHeld();
  EXPECT_EQ(other.By(Source::kStore), 2);
}

TEST_F(GuardTest, SaysWhenAnOverloadBeginsAndWhenItIsOver) {
  options.in_flight_max = 1;
  std::vector<GuardedStore::OverloadChange> seen;
  options.on_overload_change = [&](const GuardedStore::OverloadChange& change) {
    seen.push_back(change);
  };
  store.Hold();
  const Waiting taken(guard(), kMany, "", {"other"});
  EXPECT_FALSE(status().overloaded);
  for (int i = 0; i < 9; ++i) Ask(kMany, kOpen);
  EXPECT_EQ(seen.size(), 0U);
  Ask(kMany, kOpen);
  EXPECT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen[0].begins);
  EXPECT_TRUE(status().overloaded);
  store.AnswerAtOnce();
  store.AnswerHeld();
  time.Advance(5s);
  ASSERT_TRUE(Eventually([&] { return seen.size() == 2; })) << "by itself";
  EXPECT_FALSE(seen[1].begins);
  EXPECT_EQ(seen[1].decisions, 10);
  EXPECT_FALSE(status().overloaded);
  EXPECT_EQ(stats().overloads, 1);
}

// The same state machine as a list of events, without a driver.
class GuardEvents : public testing::Test {
 protected:
  // Asks for one unit of the key; returns the call for it.
  StoreCall* Ask(Request& request, TimePoint now) {
    if (guard.AnswerKnown({&request, 1}, now)) return nullptr;
    Guard::Done done = [this] { ++answered; };
    StoreCall* const call = guard.Apply({&request, 1}, done, now, actions);
    if (!call) done();
    return call;
  }

  // The store answers as `state` says, or with an error.
  void Answer(StoreCall* call, TimePoint now, std::optional<ErrorCode> error = {}) {
    if (!error) state.Apply(call->requests, [] {});
    for (Request& request : call->requests) {
      if (error) request.outcome = std::unexpected(Error{*error, "scripted"});
    }
    if (Guard::Done done = guard.OnAnswer(call, now, actions)) done();
  }

  // Runs the callbacks, and returns the calls to send.
  std::vector<StoreCall*> Take() {
    for (Guard::Done& done : actions.done) done();
    return std::exchange(actions, {}).send;
  }

  std::int64_t Remaining() {
    return state.Check({.key = "k", .limit = &kTen, .cost = 0})->remaining;
  }

  static constexpr TimePoint kStart{1h};
  const ManualClock wall{TimePoint{480'000h}};
  MemoryStore state{{.clock = &wall}};
  GuardedStore::Options options{
      .deadline = 20ms,
      .breaker = {.minimum_calls = 3, .probes_to_close = 1, .probe_deadline = 20ms},
      .local = {.clock = &wall}};
  Guard guard{options, false, Seed{1, 2}};
  Actions actions;
  int answered = 0;
  const Charge local{.key = "k", .limit = &kTen, .on_store_failure = kLocal};
  const Charge closed{.key = "k", .limit = &kTen};
};

TEST_F(GuardEvents, AnAnswerInTimeIsTheAnswer) {
  EXPECT_EQ(guard.NextWake(), Guard::kNever);
  Request request{.charges = {&closed, 1}};
  StoreCall* const call = Ask(request, kStart);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(guard.NextWake(), kStart + 20ms);
  EXPECT_EQ(guard.calls_out(), 1U);
  guard.OnTimer(kStart + 20ms - 1us, actions);
  EXPECT_EQ(answered, 0);
  Answer(call, kStart + 20ms - 1us);
  EXPECT_EQ(answered, 1);
  EXPECT_EQ(request.outcome->remaining, 9);
  EXPECT_EQ(guard.NextWake(), Guard::kNever);
  EXPECT_EQ(guard.calls_out(), 0U);
  EXPECT_TRUE(actions.empty());
}

TEST_F(GuardEvents, ALateAnswerIsAccountedForAndNeverChargedTwice) {
  struct Case {
    std::optional<ErrorCode> error;  // The store's late answer.
    std::int64_t charged, unreported, dropped;
  };
  for (const Case& late : {Case{{}, 1, 0, 0}, Case{ErrorCode::kUnavailable, 0, 1, 0},
                           Case{ErrorCode::kOutcomeUnknown, 0, 0, 1}}) {
    Guard fresh(options, false, Seed{1, 2});
    Request request{.charges = {&local, 1}};
    ASSERT_FALSE(fresh.AnswerKnown({&request, 1}, kStart));
    bool done = false;
    Guard::Done on_done = [&] { done = true; };
    StoreCall* const call = fresh.Apply({&request, 1}, on_done, kStart, actions);
    fresh.OnTimer(kStart + 20ms, actions);
    Take();
    EXPECT_TRUE(done);
    EXPECT_EQ(request.source, Source::kOverload);
    EXPECT_EQ(fresh.calls_out(), 1U) << "the store still owes an answer";
    const Decision decided = *request.outcome;
    if (late.error) {
      call->requests.front().outcome = std::unexpected(Error{*late.error, "late"});
    } else {
      state.Apply(call->requests, [] {});
    }
    EXPECT_FALSE(fresh.OnAnswer(call, kStart + 30ms, actions)) << "nobody waits any more";
    EXPECT_EQ(*request.outcome, decided);
    const auto stats = fresh.GetStats();
    EXPECT_EQ(stats.charged_units, late.charged);
    EXPECT_EQ(stats.states_to_report, late.unreported);
    EXPECT_EQ(stats.dropped_units, late.dropped);
    EXPECT_EQ(stats.in_flight + stats.abandoned, 0);
    EXPECT_TRUE(actions.empty());
  }
}

TEST_F(GuardEvents, ReportsBeforeItAsksForTheSameStateAgain) {
  Request first{.charges = {&local, 1}};
  Answer(Ask(first, kStart), kStart, ErrorCode::kUnavailable);
  EXPECT_EQ(first.source, Source::kLocal);
  EXPECT_EQ(guard.NextWake(), kStart + 100ms);

  Request second{.charges = {&local, 1}};
  StoreCall* const call = Ask(second, kStart + 1ms);
  const auto send = Take();
  ASSERT_EQ(send.size(), 1U) << "before the call itself";
  EXPECT_EQ(send.front()->requests.front().action, Action::kDebit);
  Answer(send.front(), kStart + 2ms);
  Answer(call, kStart + 2ms);
  EXPECT_EQ(second.outcome->remaining, 8);
  EXPECT_EQ(guard.GetStats().reported_units, 1);
  EXPECT_EQ(guard.NextWake(), Guard::kNever);
}

TEST_F(GuardEvents, ReportsByItself) {
  Request request{.charges = {&local, 1}};
  Answer(Ask(request, kStart), kStart, ErrorCode::kUnavailable);
  guard.OnTimer(kStart + 100ms, actions);
  auto send = Take();
  ASSERT_EQ(send.size(), 1U);
  Answer(send.front(), kStart + 101ms, ErrorCode::kUnavailable);
  EXPECT_EQ(guard.NextWake(), kStart + 201ms) << "provably not charged: again";
  guard.OnTimer(kStart + 201ms, actions);
  send = Take();
  ASSERT_EQ(send.size(), 1U);
  guard.OnTimer(kStart + 221ms, actions);
  EXPECT_EQ(guard.GetStats().abandoned, 1) << "its deadline has passed";
  EXPECT_TRUE(Take().empty());
  Answer(send.front(), kStart + 1s);
  EXPECT_EQ(guard.GetStats().reported_units, 1) << "late is not lost";
  EXPECT_EQ(Remaining(), 9);
}

TEST_F(GuardEvents, TheBreakerOpensProbesAndCloses) {
  std::vector<State> states;
  const auto told = [&] {
    for (const auto& transition : actions.transitions) states.push_back(transition.to);
    actions.transitions.clear();
  };
  Request request{.charges = {&closed, 1}};
  for (int i = 0; i < 3; ++i) Answer(Ask(request, kStart), kStart, ErrorCode::kUnavailable);
  EXPECT_EQ(Ask(request, kStart), nullptr);
  EXPECT_THAT(request.outcome.error().message, HasSubstr("breaker is open"));
  told();
  const TimePoint later = kStart + 1s;
  StoreCall* const probe = Ask(request, later);
  ASSERT_NE(probe, nullptr);
  told();
  Answer(probe, later);
  told();
  EXPECT_TRUE(request.outcome);
  EXPECT_THAT(states, ElementsAre(State::kOpen, State::kHalfOpen, State::kClosed));
  EXPECT_EQ(answered, 5);
}

TEST_F(GuardEvents, TellsOfAnOverloadAndOfItsEnd) {
  std::vector<Request> requests(10, Request{.charges = {&local, 1}});
  for (Request& request : requests) ASSERT_NE(Ask(request, kStart), nullptr);
  guard.OnTimer(kStart + 20ms, actions);
  ASSERT_EQ(actions.overload_changes.size(), 1U);
  EXPECT_TRUE(actions.overload_changes.front().begins);
  EXPECT_EQ(actions.done.size(), 10U);
  Take();
  guard.OnTimer(kStart + 6s, actions);
  ASSERT_EQ(actions.overload_changes.size(), 1U);
  EXPECT_FALSE(actions.overload_changes.front().begins);
  EXPECT_EQ(actions.overload_changes.front().decisions, 10);
}

TEST_F(GuardEvents, StopAnswersWhoeverWaitsAndOutlivesLateAnswers) {
  std::vector<Request> requests(2, Request{.charges = {&local, 1}});
  std::vector<StoreCall*> calls;
  for (Request& request : requests) calls.push_back(Ask(request, kStart));
  guard.Stop(kStart + 1ms, actions);
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(answered, 2);
  EXPECT_EQ(requests[1].source, Source::kOverload);
  EXPECT_EQ(guard.calls_out(), 2U);
  for (StoreCall* call : calls) Answer(call, kStart + 1s);
  EXPECT_EQ(guard.calls_out(), 0U);
  EXPECT_EQ(answered, 2);
}

TEST_F(GuardEvents, NoSingleEventExpiresVeryManyCalls) {
  std::vector<Request> requests(600, Request{.charges = {&local, 1}});
  for (Request& request : requests) ASSERT_NE(Ask(request, kStart), nullptr);
  for (const std::size_t expired : {256, 256, 88}) {
    EXPECT_EQ(guard.NextWake(), kStart + 20ms);
    guard.OnTimer(kStart + 20ms, actions);
    EXPECT_EQ(actions.done.size(), expired);
    Take();
  }
  EXPECT_EQ(answered, 600);
}

TEST_F(GuardEvents, TheSameEventsGiveTheSameActions) {
  const auto run = [&](const Seed& seed) {
    Guard fresh(options, false, seed);
    std::vector<std::string> sent;
    std::vector<std::string> keys;
    for (int i = 0; i < 50; ++i) keys.push_back(std::to_string(i));
    TimePoint now = kStart;
    for (const std::string& key : keys) {
      const Charge charge{.key = key, .limit = &kTen, .on_store_failure = kLocal};
      Request request{.charges = {&charge, 1}};
      Guard::Done done = [] {};
      if (fresh.AnswerKnown({&request, 1}, now)) continue;
      StoreCall* const call = fresh.Apply({&request, 1}, done, now, actions);
      if (!call) continue;
      call->requests.front().outcome = std::unexpected(Error{ErrorCode::kUnavailable, "down"});
      fresh.OnAnswer(call, now, actions);
    }
    for (int i = 0; i < 20; ++i) {
      now = std::max(now, fresh.NextWake());
      actions = {};
      fresh.OnTimer(now, actions);
      for (StoreCall* call : actions.send) {
        sent.push_back(std::to_string(now.time_since_epoch().count()));
        for (Request& request : call->requests) {
          sent.emplace_back(request.charges.front().key);
          request.outcome = std::unexpected(Error{ErrorCode::kUnavailable, "down"});
        }
        fresh.OnAnswer(call, now, actions);
      }
    }
    return sent;
  };
  const auto sent = run({1, 2});
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(run({1, 2}), sent);
  EXPECT_NE(run({3, 4}), sent);
}

}  // namespace
}  // namespace sluice::guard
