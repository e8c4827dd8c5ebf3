// SPDX-License-Identifier: Apache-2.0
#include "sluice/guarded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/seen.h"
#include "support/eventually.h"
#include "support/reset.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::Eventually;
using testing_support::ResetAndWait;
using State = GuardedStore::BreakerState;
using Reason = GuardedStore::Reason;
using Steady = std::chrono::steady_clock;

constexpr auto kLocal = OnStoreFailure::kLocal;
constexpr auto kOpen = OnStoreFailure::kFailOpen;
constexpr auto kClosed = OnStoreFailure::kFailClosed;

const Limit kTen = *Limit::Parse("algorithm=fixed_window,limit=10,window=1d");
const Limit kFour = *Limit::Parse("algorithm=fixed_window,limit=4,window=1d");
const Limit kMany = *Limit::Parse("algorithm=token_bucket,capacity=1000000,refill=1,period=1h");

// Decides as a memory store does, when and as the test says.
class ScriptedStore final : public Store {
 public:
  explicit ScriptedStore(const Clock* clock) : state(MemoryStore::Options{.clock = clock}) {}
  ~ScriptedStore() override { AnswerHeld(ErrorCode::kUnavailable); }

  // The next calls: answered before Apply returns (with an error, if there is one), or held.
  void AnswerAtOnce() { Become(false, std::nullopt); }
  void Fail(ErrorCode code) { Become(false, code); }
  void Hold() { Become(true, std::nullopt); }

  // Debits are held from now on, whatever becomes of the rest, until the next of the above.
  void HoldDebits() {
    const std::lock_guard lock(mutex_);
    hold_debits_ = true;
  }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    std::optional<ErrorCode> error;
    {
      const std::lock_guard lock(mutex_);
      ++calls_;
      for (const Request& request : requests) {
        debits_ += request.action == Action::kDebit ? 1 : 0;
      }
      if (hold_ || (hold_debits_ && requests.front().action == Action::kDebit)) {
        held_.push_back({requests, std::move(done)});
        return;
      }
      error = error_;
    }
    Answer(requests, error);
    done();
  }

  void Watch(OnRaised on_raised) override { raised = std::move(on_raised); }

  // Answers what is held: as the state says, or with an error.
  void AnswerHeld(std::optional<ErrorCode> error = {}) {
    std::vector<Held> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (Held& one : held) {
      Answer(one.requests, error);
      one.done();
    }
  }

  std::size_t held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  int debits() const {
    const std::lock_guard lock(mutex_);
    return debits_;
  }

  std::int64_t Remaining(const Limit& limit, std::string_view key = "k") {
    return state.Check({.key = key, .limit = &limit, .cost = 0})->remaining;
  }

  MemoryStore state;
  OnRaised raised;  // Tells the guard.
  bool tells_state = true;

 private:
  struct Held {
    std::span<Request> requests;
    std::move_only_function<void()> done;
  };

  void Become(bool hold, std::optional<ErrorCode> error) {
    const std::lock_guard lock(mutex_);
    hold_ = hold;
    hold_debits_ = false;
    error_ = error;
  }

  void Answer(std::span<Request> requests, std::optional<ErrorCode> error) {
    if (!error) state.Apply(requests, [] {});
    for (Request& request : requests) {
      if (error) request.outcome = std::unexpected(Error{*error, "scripted"});
      if (!tells_state) std::ranges::fill(request.seen, SeenState{});
    }
  }

  mutable std::mutex mutex_;
  bool hold_ = false;
  bool hold_debits_ = false;
  std::optional<ErrorCode> error_;
  std::vector<Held> held_;
  int calls_ = 0;
  int debits_ = 0;
};

struct Answer {
  Expected<Decision> outcome;
  Source source;
  std::vector<Decision> each;
};

class GuardTest : public testing::Test {
 protected:
  GuardedStore& guard() {
    if (!guard_) guard_.emplace(store, options);
    return *guard_;
  }

  // Asks and waits for the answer.
  Answer Ask(std::vector<Charge> charges) {
    std::vector<Decision> each(charges.size());
    Request request{.charges = charges, .each = each};
    std::promise<void> done;
    guard().Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
    return {std::move(request.outcome), request.source, std::move(each)};
  }
  Answer Ask(const Limit& limit, OnStoreFailure policy, std::int64_t cost = 1,
             std::string_view key = "k") {
    return Ask({{.key = key, .limit = &limit, .cost = cost, .on_store_failure = policy}});
  }

  GuardedStore::Stats stats() { return guard().GetStats(); }
  State breaker() { return guard().GetStatus().breaker; }

  // Until all that was granted locally is reported, and places are free again.
  bool Settles() {
    return Eventually([this] {
      const auto now = stats();
      return now.in_flight == 0 && now.local_units == now.reported_units;
    });
  }

  void DestroyGuard() { guard_.reset(); }

  ManualClock wall{TimePoint{480'000h}};
  ManualClock time{TimePoint{1h}};
  ScriptedStore store{&wall};
  // Nothing that is to be answered by the store misses this, however busy the machine is.
  GuardedStore::Options options{.deadline = 1min,
                                .breaker = {.minimum_calls = 1'000'000,
                                            .jitter_percent = 0,
                                            .jitter_seed = 1,
                                            .probe_deadline = 1min,
                                            .idle_probe_after = 10'000h},
                                .local = {.clock = &wall},
                                .deny_cache_trust = 10s,
                                .clock = &time};

 private:
  std::optional<GuardedStore> guard_;
};

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

// Whoever asks for states gets the store's, whether the guard wants them for itself or not.
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

TEST_F(GuardTest, AnswersFromOtherThreadsReachTheirCallers) {
  store.Hold();
  auto answer = std::async(std::launch::async, [&] { return Ask(kTen, kClosed); });
  ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
  EXPECT_EQ(stats().in_flight, 1);
  store.AnswerHeld();
  EXPECT_EQ(answer.get().outcome->remaining, 9);
}

TEST_F(GuardTest, DecidesByPolicyWhenTheDeadlinePasses) {
  options.deadline = 5ms;
  store.Hold();
  const auto start = Steady::now();
  const Answer closed = Ask(kTen, kClosed);
  EXPECT_GE(Steady::now() - start, 5ms);
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
  EXPECT_EQ(guard().GetStatus().last_failure, std::nullopt);
}

TEST_F(GuardTest, BeyondTheInFlightMaximumThePolicyDecidesAtOnce) {
  options.in_flight_max = 2;
  store.Hold();
  const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = kOpen};
  std::vector<Request> requests(3, Request{.charges = {&charge, 1}});
  std::promise<void> done;
  guard().Apply(requests, [&] { done.set_value(); });
  EXPECT_EQ(Ask(kTen, kClosed).outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Ask(kTen, kOpen).source, Source::kOverload);
  store.AnswerHeld();
  done.get_future().wait();
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
  // One probe is a report, by whoever comes first; the other one, a request, would need another.
  auto first = std::async(std::launch::async, [&] { return Ask(kMany, kClosed, 1, "c"); });
  ASSERT_TRUE(Eventually([&] { return store.held() == 2; }));
  EXPECT_EQ(Ask(kTen, kLocal, 1, "a").source, Source::kLocal);
  EXPECT_EQ(Ask(kTen, kLocal, 1, "b").source, Source::kLocal);
  store.AnswerHeld();
  EXPECT_EQ(first.get().source, Source::kStore);
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
  std::mutex mutex;
  std::vector<std::pair<State, Reason>> seen;
  options.breaker.minimum_calls = 3;
  options.breaker.probes_to_close = 2;
  options.on_transition = [&](const GuardedStore::Transition& transition) {
    (void)guard().GetStatus();  // No lock is held.
    const std::lock_guard lock(mutex);
    seen.emplace_back(transition.to, transition.reason);
  };
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 3; ++i) Ask(kMany, kOpen);
  EXPECT_EQ(breaker(), State::kOpen);
  EXPECT_EQ(guard().GetStatus().last_transition->last_failure->message, "scripted");
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
    auto answer = std::async(std::launch::async, [&] { return Ask(kMany, kClosed); });
    ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
    time.Advance(15ms);
    store.AnswerHeld();
    EXPECT_EQ(answer.get().source, Source::kStore);
  }
  EXPECT_EQ(breaker(), State::kOpen);
  EXPECT_EQ(guard().GetStatus().last_transition->reason, Reason::kSlowCalls);
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

TEST_F(GuardTest, DestructionDecidesWhatWaitsAndOutlivesLateAnswers) {
  options.deadline = 1h;
  store.Hold();
  const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = kOpen};
  std::vector<Request> requests(2, Request{.charges = {&charge, 1}});
  int done = 0;
  for (Request& request : requests) guard().Apply({&request, 1}, [&] { ++done; });
  EXPECT_EQ(done, 0);
  DestroyGuard();
  EXPECT_EQ(done, 2);
  EXPECT_EQ(requests[0].source, Source::kOverload);
  store.AnswerHeld();
}

TEST_F(GuardTest, ResetMakesBothBudgetsWhole) {
  for (int i = 0; i < 10; ++i) Ask(kTen, kLocal);
  EXPECT_FALSE(Ask(kTen, kLocal).outcome->allowed);
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kDenyCache);
  store.Fail(ErrorCode::kUnavailable);
  Ask(kTen, kLocal, 1, "other");
  for (const std::string_view key : {"k", "other"}) {
    EXPECT_EQ(ResetAndWait(guard(), {.key = key, .limit = &kTen}).error().code,
              ErrorCode::kUnavailable);
  }
  EXPECT_EQ(stats().states_to_report, 0);
  EXPECT_EQ(stats().recovered_units, 1) << "by the reset";
  EXPECT_EQ(Ask(kTen, kLocal, 1, "other").outcome->remaining, 9);
  store.AnswerAtOnce();
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kStore);
  EXPECT_TRUE(ResetAndWait(guard(), {.key = "k", .limit = &kTen}).value());
  EXPECT_EQ(Ask(kTen, kLocal).outcome->remaining, 9);
}

TEST_F(GuardTest, ADenialOnItsWayDuringAResetIsNotRemembered) {
  for (int i = 0; i < 10; ++i) Ask(kTen, kClosed);
  store.Hold();
  auto denied = std::async(std::launch::async, [&] { return Ask(kTen, kClosed); });
  ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
  auto reset = std::async(std::launch::async,
                          [&] { return ResetAndWait(guard(), {.key = "k", .limit = &kTen}); });
  ASSERT_TRUE(Eventually([&] { return store.held() == 2; }));
  store.AnswerAtOnce();
  store.AnswerHeld();
  EXPECT_FALSE(denied.get().outcome->allowed);
  EXPECT_TRUE(reset.get().value());
  EXPECT_EQ(Ask(kTen, kClosed).source, Source::kStore);
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
    auto denied = std::async(std::launch::async, [&] { return Ask(*limit, kClosed); });
    ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
    wall.Advance(3s);
    time.Advance(3s);
    store.AnswerAtOnce();
    store.AnswerHeld();
    const Answer first = denied.get();
    const Answer again = Ask(*limit, kClosed);
    EXPECT_EQ(again.source, Source::kDenyCache);
    EXPECT_EQ(again.outcome->retry_after, first.outcome->retry_after - 3s);
    EXPECT_EQ(again.outcome->reset_after, first.outcome->reset_after - 3s);
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
  // The last one said that nothing has changed, but not this.
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
  guard().ForgetDenials();
  EXPECT_EQ(stats().deny_cache_entries, 0);
  DestroyGuard();
  store.raised(&charge);  // Nobody is left to hear it.
}

TEST_F(GuardTest, ADenialOnItsWayWhenOthersResetIsNotRemembered) {
  for (int i = 0; i < 10; ++i) Ask(kTen, kClosed);
  for (const bool all : {false, true}) {
    store.Hold();
    auto denied = std::async(std::launch::async, [&] { return Ask(kTen, kClosed); });
    ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
    const Charge charge{.key = "k", .limit = &kTen};
    store.raised(all ? nullptr : &charge);
    store.AnswerAtOnce();
    store.AnswerHeld();
    EXPECT_FALSE(denied.get().outcome->allowed);
    EXPECT_EQ(stats().deny_cache_entries, 0);
  }
}

TEST_F(GuardTest, AnswersOfThePolicyAreNeverRemembered) {
  store.Fail(ErrorCode::kUnavailable);
  for (int i = 0; i < 11; ++i) Ask(kTen, kLocal);
  store.AnswerAtOnce();
  EXPECT_EQ(Ask(kTen, kLocal).source, Source::kStore);
}

// Answers inline, at times with a failure.
class InlineStore final : public Store {
 public:
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    for (Request& request : requests) {
      if (fails) {
        request.outcome = std::unexpected(Error{ErrorCode::kStoreFull, "full"});
      } else {
        request.outcome = Decision{.allowed = true, .limit = 10, .remaining = 9};
      }
    }
    done();
  }
  bool AnswersInline() const override { return true; }

  bool fails = false;
};

TEST_F(GuardTest, AroundAStoreThatAnswersInlineOnlyThePolicyIsAtWork) {
  InlineStore inner;
  GuardedStore inline_guard(inner, options);
  EXPECT_TRUE(inline_guard.AnswersInline());
  for (const auto& [fails, source] :
       {std::pair(false, Source::kStore), std::pair(true, Source::kOverload)}) {
    inner.fails = fails;
    const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = kOpen};
    Request request{.charges = {&charge, 1}};
    bool done = false;
    inline_guard.Apply({&request, 1}, [&] { done = true; });
    EXPECT_TRUE(done);
    EXPECT_TRUE(request.outcome->allowed);
    EXPECT_EQ(request.source, source);
  }
  EXPECT_EQ(inline_guard.GetStats().store_failures, 1);
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
  Waiting(GuardedStore& guard, const Limit& limit, std::string name, std::vector<std::string> keys)
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
  std::atomic<int> done_ = 0;
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
    auto answer = std::async(std::launch::async, [&] { return Ask(kTen, kOpen); });
    ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
    time.Advance(15ms);
    store.AnswerHeld();
    EXPECT_EQ(answer.get().source, Source::kStore);
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
  EXPECT_TRUE(guard().GetStatus().overloaded);
  EXPECT_EQ(guard().GetStatus().last_failure->code, ErrorCode::kStoreFull);
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
  Busy(ScriptedStore& store, GuardedStore& guard) : store_(store) {
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

// What the store counts as used leaves a log when it would have left there.
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
  // By now nothing was heard for so long that kOpen would pass undecided.
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
  EXPECT_TRUE(ResetAndWait(guard(), charge).value());
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

// The trial in small: a burst of distinct keys, clients that the store knows, and one it denied.
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
  time.Advance(20s);  // By now nobody would believe the denial if the store could be asked.
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
  time.Advance(20s);  // Beyond what is believed without asking.
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
  std::mutex mutex;
  std::vector<GuardedStore::OverloadChange> seen;
  options.on_overload_change = [&](const GuardedStore::OverloadChange& change) {
    (void)guard().GetStatus();  // No lock is held.
    const std::lock_guard lock(mutex);
    seen.push_back(change);
  };
  const auto changes = [&] {
    const std::lock_guard lock(mutex);
    return seen.size();
  };
  store.Hold();
  const Waiting taken(guard(), kMany, "", {"other"});
  EXPECT_FALSE(guard().GetStatus().overloaded);
  for (int i = 0; i < 9; ++i) Ask(kMany, kOpen);
  EXPECT_EQ(changes(), 0U);
  Ask(kMany, kOpen);
  EXPECT_EQ(changes(), 1U);
  EXPECT_TRUE(seen[0].begins);
  EXPECT_TRUE(guard().GetStatus().overloaded);
  store.AnswerAtOnce();
  store.AnswerHeld();
  time.Advance(5s);
  ASSERT_TRUE(Eventually([&] { return changes() == 2; })) << "by itself";
  EXPECT_FALSE(seen[1].begins);
  EXPECT_EQ(seen[1].decisions, 10);
  EXPECT_FALSE(guard().GetStatus().overloaded);
  EXPECT_EQ(stats().overloads, 1);
}

// Callers, answers, deadlines, resets and changing instances at once; every caller is answered
// exactly once, and what was taken locally is accounted for to the unit.
TEST(GuardConcurrency, AnswersEveryCallerOnce) {
  constexpr int kCallers = 3;
  std::atomic<int> asked = 0;
  int resets = 0;
  int resets_failed = 0;
  const ManualClock wall{TimePoint{480'000h}};
  ScriptedStore store(&wall);
  std::atomic<int> done = 0;
  std::atomic<bool> stop = false;
  GuardedStore::Stats stats;
  {
    GuardedStore guard(store, {.deadline = 1ms,
                               .in_flight_max = 16,
                               .breaker = {.window = 10ms,
                                           .minimum_calls = 5,
                                           .open_min = 1ms,
                                           .open_max = 2ms,
                                           .probes_to_close = 1,
                                           .probe_deadline = 1ms},
                               .local = {.clock = &wall},
                               .deny_cache_entries = 256});
    std::jthread script([&] {
      for (int i = 0; !stop; ++i) {
        switch (i % 4) {
          case 0:
            store.AnswerAtOnce();
            break;
          case 1:
            store.Hold();
            break;
          case 2:
            store.Fail(i % 8 == 2 ? ErrorCode::kUnavailable : ErrorCode::kOutcomeUnknown);
            break;
          default:
            guard.SetInstances(1 + i % 3);
            ++resets;
            if (!ResetAndWait(guard, {.key = "3", .limit = &kTen})) ++resets_failed;
        }
        std::this_thread::sleep_for(1500us);
        store.AnswerHeld(i % 3 ? std::nullopt : std::optional(ErrorCode::kUnavailable));
      }
      store.AnswerAtOnce();
      store.AnswerHeld();
    });
    {
      std::vector<std::jthread> callers;
      for (int caller = 0; caller < kCallers; ++caller) {
        callers.emplace_back([&, caller] {
          for (int i = 0; !stop; ++i) {
            ++asked;
            const std::string key = std::to_string((i + caller) % 50);
            const OnStoreFailure policy = i % 2 ? kLocal : kOpen;
            const std::vector<Charge> charges = {
                {.key = key, .limit = &kMany, .on_store_failure = policy},
                {.key = key, .limit = &kTen, .on_store_failure = kLocal}};
            std::vector<Decision> each(2);
            std::vector<Request> requests = {{.charges = charges, .each = each},
                                             {.charges = std::span(charges).first(1)}};
            std::promise<void> answered;
            guard.Apply(requests, [&] {
              ++done;
              answered.set_value();
            });
            answered.get_future().wait();
            EXPECT_TRUE(requests[0].outcome);
            EXPECT_TRUE(requests[1].outcome);
          }
        });
      }
      EXPECT_TRUE(Eventually([&] {
        const auto now = guard.GetStats();
        return now.deadline_misses > 20 && now.local_allowed > 20 && now.local_denied > 20 &&
               now.by_store > 20 && now.transitions > 20 && now.deny_cache_hits > 20 &&
               now.in_flight_rejections > 20 && now.reported_units > 20 && now.charged_units > 20 &&
               now.overload_allowed > 20 && now.overload_denied > 20;
      })) << "all of it happened";
      stop = true;
    }
    script.join();
    ASSERT_TRUE(Eventually([&] {
      const auto now = guard.GetStats();
      return now.in_flight == 0 && now.states_to_report == 0;
    }));
    stats = guard.GetStats();
  }
  EXPECT_EQ(done, asked);
  EXPECT_EQ(stats.abandoned, 0);
  EXPECT_EQ(stats.deadline_misses,
            stats.late_charged + stats.late_not_charged + stats.late_unknown);
  EXPECT_EQ(stats.by_store + stats.deadline_misses + stats.store_failures +
                stats.breaker_rejections + stats.in_flight_rejections + stats.deny_cache_hits,
            2 * asked + resets);
  EXPECT_EQ(stats.failed_closed, resets_failed) << "no policy stands in for a reset";
}

}  // namespace
}  // namespace sluice
