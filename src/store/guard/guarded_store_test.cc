// SPDX-License-Identifier: Apache-2.0
// Threads, the clock and destruction; guard_test.cc tests the decisions.
#include "sluice/guarded_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sluice/hold.h"
#include "support/eventually.h"
#include "support/reset.h"
#include "support/scripted_store.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing_support::Eventually;
using testing_support::ResetAndWait;
using testing_support::ScriptedStore;
using Steady = std::chrono::steady_clock;

constexpr auto kLocal = OnStoreFailure::kLocal;
constexpr auto kOpen = OnStoreFailure::kFailOpen;

const Limit kTen = *Limit::Parse("algorithm=fixed_window,limit=10,window=1d");
const Limit kMany = *Limit::Parse("algorithm=token_bucket,capacity=1000000,refill=1,period=1h");

class GuardedStoreTest : public testing::Test {
 protected:
  GuardedStore& guard() {
    if (!guard_) guard_.emplace(store, options);
    return *guard_;
  }

  // Asks for a unit of kTen and waits for the answer.
  Request Ask(OnStoreFailure policy) {
    const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = policy};
    Request request{.charges = {&charge, 1}};
    std::promise<void> done;
    guard().Apply({&request, 1}, [&] { done.set_value(); });
    done.get_future().wait();
    request.charges = {};
    return request;
  }

  ManualClock wall{TimePoint{480'000h}};
  ScriptedStore store{&wall};
  // No answer of the store misses this deadline, however busy the machine is.
  GuardedStore::Options options{
      .deadline = 1min, .breaker = {.minimum_calls = 1'000'000}, .local = {.clock = &wall}};
  std::optional<GuardedStore> guard_;
};

TEST_F(GuardedStoreTest, AnswersFromOtherThreadsReachTheirCallers) {
  store.Hold();
  auto answer = std::async(std::launch::async, [&] { return Ask(kOpen); });
  ASSERT_TRUE(Eventually([&] { return store.held() == 1; }));
  EXPECT_EQ(guard().GetStats().in_flight, 1);
  store.AnswerHeld();
  EXPECT_EQ(answer.get().outcome->remaining, 9);
}

TEST_F(GuardedStoreTest, HoldsReachTheStoreAndTheirTermsComeBack) {
  {
    auto hold = ScopedHold::Take(guard(), {.key = "k", .limit = &kTen, .cost = 6},
                                 {.id = "mine", .ttl = 1min});
    ASSERT_TRUE(hold && hold->allowed());
    EXPECT_EQ(Ask(kOpen).outcome->held, 6);
    // A denial of a budget with holds is not remembered: it grows when one of them ends.
    EXPECT_FALSE(ScopedHold::Take(guard(), {.key = "k", .limit = &kTen, .cost = 6}, {.ttl = 1min})
                     ->allowed());
    wall.Advance(90s);  // Its end is late, and corrects what the expiry charged.
  }
  const Charge charge{.key = "k", .limit = &kTen, .cost = 1};
  HoldTerms terms{.id = "nobody's", .ttl = {}};
  Request request{.charges = {&charge, 1}, .action = Action::kSettle, .hold = &terms};
  std::promise<void> done;
  guard().Apply({&request, 1}, [&] { done.set_value(); });
  done.get_future().wait();
  ASSERT_TRUE(request.outcome) << request.outcome.error().message;
  EXPECT_TRUE(terms.late);
  EXPECT_TRUE(terms.overdrawn);
  EXPECT_EQ(request.outcome->remaining, 8);
  EXPECT_EQ(guard().GetStats().deny_cache_entries, 0);
}

TEST_F(GuardedStoreTest, AHoldThatNobodyDecidedIsSettledByNobody) {
  store.Fail(ErrorCode::kUnavailable);
  {
    const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = kOpen};
    auto hold = ScopedHold::Take(guard(), charge, {.ttl = 1min});
    ASSERT_TRUE(hold && hold->allowed());
    hold->SettleAtEnd(5);
    EXPECT_TRUE(hold->Extend());
    store.AnswerAtOnce();
  }
  EXPECT_EQ(store.calls(), 1);
  EXPECT_EQ(store.Remaining(kTen), 10);
}

TEST_F(GuardedStoreTest, AHoldIsSettledWhenTheStoreIsBack) {
  {
    const Charge charge{.key = "k", .limit = &kTen, .cost = 4};
    auto hold = ScopedHold::Take(guard(), charge, {.ttl = 1min});
    ASSERT_TRUE(hold && hold->allowed());
    hold->SettleAtEnd(1);
    store.Fail(ErrorCode::kUnavailable);
  }
  EXPECT_EQ(guard().GetStats().settles_waiting, 1);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return guard().GetStats().settles_sent == 1; }));
  EXPECT_EQ(store.Remaining(kTen), 9);
}

TEST_F(GuardedStoreTest, DecidesByPolicyWhenTheDeadlinePasses) {
  options.deadline = 5ms;
  store.Hold();
  const auto start = Steady::now();
  EXPECT_NE(Ask(kLocal).source, Source::kStore);
  EXPECT_GE(Steady::now() - start, 5ms - 1us) << "in whole microseconds";
  EXPECT_EQ(guard().GetStats().abandoned, 1);
  store.AnswerHeld();
  EXPECT_EQ(guard().GetStats().charged_units, 1);
}

TEST_F(GuardedStoreTest, ReportsByItself) {
  store.Fail(ErrorCode::kUnavailable);
  EXPECT_EQ(Ask(kLocal).source, Source::kLocal);
  store.AnswerAtOnce();
  ASSERT_TRUE(Eventually([&] { return guard().GetStats().reported_units == 1; }));
  EXPECT_EQ(store.Remaining(kTen), 9);
}

TEST_F(GuardedStoreTest, CallsItsObserversWithoutALock) {
  std::atomic<int> transitions = 0;
  std::atomic<int> overloads = 0;
  options.deadline = 1ms;
  options.breaker = {.window = 1h, .minimum_calls = 12, .open_min = 1h, .open_max = 1h};
  options.on_transition = [&](const GuardedStore::Transition&) {
    (void)guard().GetStatus();
    ++transitions;
  };
  options.on_overload_change = [&](const GuardedStore::OverloadChange&) {
    (void)guard().GetStatus();
    ++overloads;
  };
  store.Hold();
  for (int i = 0; i < 12; ++i) {
    Ask(kOpen);
    store.AnswerHeld();  // Late, however busy the machine is: an overload, not an outage.
  }
  EXPECT_EQ(transitions, 1);
  EXPECT_EQ(overloads, 1);
}

TEST_F(GuardedStoreTest, DestructionDecidesWhatWaitsAndOutlivesLateAnswers) {
  options.deadline = 1h;
  store.Hold();
  const Charge charge{.key = "k", .limit = &kTen, .on_store_failure = kOpen};
  std::vector<Request> requests(2, Request{.charges = {&charge, 1}});
  int done = 0;
  for (Request& request : requests) guard().Apply({&request, 1}, [&] { ++done; });
  EXPECT_EQ(done, 0);
  guard_.reset();
  EXPECT_EQ(done, 2);
  EXPECT_EQ(requests[0].source, Source::kOverload);
  store.AnswerHeld();
  store.raised(&charge);  // Nobody is left to hear it.
}

// Answers inline, sometimes with a failure.
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

TEST_F(GuardedStoreTest, AroundAStoreThatAnswersInlineOnlyThePolicyIsAtWork) {
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

// Callers, answers, deadlines, resets and changing instances at once. Every caller is answered
// exactly once, and everything taken locally is accounted for to the unit.
TEST(GuardConcurrency, AnswersEveryCallerOnce) {
  constexpr int kCallers = 3;
  std::atomic<int> asked = 0;
  std::atomic<int> resets = 0;
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
            (void)ResetAndWait(guard, {.key = "3", .limit = &kTen});
            ++resets;
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
  EXPECT_LE(stats.failed_closed, resets) << "no policy stands in for the store there";
}

}  // namespace
}  // namespace sluice
