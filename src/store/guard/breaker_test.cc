// SPDX-License-Identifier: Apache-2.0
#include "store/guard/breaker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;
using State = Breaker::State;
using Reason = Breaker::Reason;

constexpr Breaker::Result kGood{.failed = false, .took = 1ms};
constexpr Breaker::Result kSlow{.failed = false, .took = 15ms};
constexpr Breaker::Result kFailed{.failed = true, .took = 1ms};

const Breaker::Options kOptions{.window = 1s,
                                .minimum_calls = 10,
                                .failure_percent = 50,
                                .slow_percent = 80,
                                .slow_after = 15ms,
                                .open_min = 200ms,
                                .open_max = 1s,
                                .settled_after = 10s,
                                .jitter_percent = 0,
                                .jitter_seed = 1,
                                .probes_max = 3,
                                .probes_to_close = 5,
                                .probe_deadline = 20ms};

class BreakerTest : public testing::Test {
 protected:
  // One call from admission to its end; false if it was not admitted.
  bool Make(const Breaker::Result& call) {
    const auto pass = breaker.Admit(now);
    if (pass) breaker.Record(*pass, call, now);
    return pass.has_value();
  }
  void Make(int times, const Breaker::Result& call) {
    for (int i = 0; i < times; ++i) ASSERT_TRUE(Make(call)) << i;
  }
  void Open() {
    Make(10, kFailed);
    ASSERT_EQ(breaker.state(), State::kOpen);
  }

  Breaker breaker{kOptions};
  TimePoint now{1h};
};

TEST_F(BreakerTest, StaysClosedBelowTheMinimumOfCalls) {
  Make(9, kFailed);
  EXPECT_EQ(breaker.state(), State::kClosed);
  Make(1, kFailed);
  EXPECT_EQ(breaker.state(), State::kOpen);
  EXPECT_EQ(breaker.last_transition()->reason, Reason::kFailures);
  EXPECT_EQ(breaker.last_transition()->failures, 10);
}

TEST_F(BreakerTest, OpensAtTheFailureRatioAndNotBelow) {
  Make(51, kGood);
  Make(50, kFailed);
  EXPECT_EQ(breaker.state(), State::kClosed);
  Make(1, kFailed);
  EXPECT_EQ(breaker.state(), State::kOpen) << "51 of 102";
}

TEST_F(BreakerTest, OpensAtTheSlowRatioWhereFailuresCountAsSlow) {
  Make(20, kGood);
  Make(10, kFailed);
  Make(69, kSlow);
  EXPECT_EQ(breaker.state(), State::kClosed) << "79 of 99";
  Make(1, kSlow);
  EXPECT_EQ(breaker.state(), State::kOpen);
  EXPECT_EQ(breaker.last_transition()->reason, Reason::kSlowCalls);
}

TEST_F(BreakerTest, NeverOpensForARatioAboveAHundred) {
  Breaker::Options options = kOptions;
  options.failure_percent = 101;
  options.slow_percent = 101;
  Breaker patient(options);
  for (int i = 0; i < 1000; ++i) patient.Record(*patient.Admit(now), i % 2 ? kSlow : kFailed, now);
  EXPECT_EQ(patient.state(), State::kClosed);
}

TEST_F(BreakerTest, ForgetsCallsThatHaveLeftTheWindow) {
  Make(9, kFailed);
  now += 1s;
  Make(9, kFailed);
  EXPECT_EQ(breaker.state(), State::kClosed);
  now += 500ms;
  Make(1, kFailed);
  EXPECT_EQ(breaker.state(), State::kOpen) << "these are within one window";
}

TEST_F(BreakerTest, AdmitsNothingWhileOpenAndThenAFewProbes) {
  Open();
  EXPECT_FALSE(breaker.Admit(now));
  now += 200ms - 1us;
  EXPECT_FALSE(breaker.Admit(now));
  now += 1us;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(breaker.Admit(now)->probe);
  EXPECT_EQ(breaker.state(), State::kHalfOpen);
  EXPECT_FALSE(breaker.Admit(now)) << "three are on their way";
}

TEST_F(BreakerTest, ClosesAfterEnoughGoodProbesAndStartsAfresh) {
  Open();
  now += 200ms;
  Make(4, kGood);
  EXPECT_EQ(breaker.state(), State::kHalfOpen);
  Make(1, kGood);
  EXPECT_EQ(breaker.state(), State::kClosed);
  EXPECT_EQ(breaker.last_transition()->reason, Reason::kProbesSucceeded);
  Make(9, kFailed);
  EXPECT_EQ(breaker.state(), State::kClosed) << "failures from before count no more";
}

TEST_F(BreakerTest, ASlowProbeIsNoGoodUnlessSlownessDoesNotMatter) {
  Open();
  now += 200ms;
  Make(1, kSlow);
  EXPECT_EQ(breaker.state(), State::kOpen);

  Breaker::Options options = kOptions;
  options.slow_percent = 101;
  Breaker patient(options);
  for (int i = 0; i < 10; ++i) patient.Record(*patient.Admit(now), kFailed, now);
  now += 200ms;
  for (int i = 0; i < 5; ++i) patient.Record(*patient.Admit(now), kSlow, now);
  EXPECT_EQ(patient.state(), State::kClosed);
}

TEST_F(BreakerTest, OpenTimeDoublesUpToItsMaximumWhileProbesFail) {
  Open();
  for (const Micros expected : {400ms, 800ms, 1000ms, 1000ms}) {
    now += breaker.last_transition()->open_for;
    Make(1, kFailed);
    EXPECT_EQ(breaker.last_transition()->reason, Reason::kProbeFailed);
    EXPECT_EQ(breaker.last_transition()->open_for, expected);
  }
}

TEST_F(BreakerTest, OpenTimeGoesOnGrowingIfItOpensAgainSoonAfterClosing) {
  Open();
  now += 200ms;
  Make(5, kGood);
  now += 9s;
  Open();
  EXPECT_EQ(breaker.last_transition()->open_for, 400ms);
  now += 400ms;
  Make(5, kGood);
  now += 10s;
  Open();
  EXPECT_EQ(breaker.last_transition()->open_for, 200ms) << "it had settled";
}

TEST_F(BreakerTest, AProbeThatIsNeverHeardOfDoesNotWedgeIt) {
  Open();
  now += 200ms;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(breaker.Admit(now));
  now += 20ms - 1us;
  EXPECT_FALSE(breaker.Admit(now));
  EXPECT_EQ(breaker.state(), State::kHalfOpen);
  now += 1us;
  EXPECT_FALSE(breaker.Admit(now));
  EXPECT_EQ(breaker.state(), State::kOpen);
  now += 400ms;
  Make(5, kGood);
  EXPECT_EQ(breaker.state(), State::kClosed);
}

TEST_F(BreakerTest, AProbeThatIsGivenBackMakesRoomForAnother) {
  Open();
  now += 200ms;
  const auto unused = breaker.Admit(now);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(breaker.Admit(now));
  ASSERT_FALSE(breaker.Admit(now));
  breaker.GiveBack(*unused);
  EXPECT_TRUE(breaker.Admit(now));
  EXPECT_FALSE(breaker.Admit(now));
}

TEST_F(BreakerTest, WhatWasAdmittedBeforeATransitionCountsNoMore) {
  const auto before = breaker.Admit(now);
  Open();
  now += 200ms;
  const auto probe = breaker.Admit(now);
  breaker.Record(*before, kFailed, now);
  EXPECT_EQ(breaker.state(), State::kHalfOpen);
  breaker.Record(*probe, kFailed, now);
  EXPECT_EQ(breaker.state(), State::kOpen);
  breaker.Record(*before, kGood, now);
  breaker.Record(*probe, kGood, now);
  EXPECT_EQ(breaker.state(), State::kOpen);
}

TEST_F(BreakerTest, JitterAddsUpToItsPercentageAndFollowsTheSeed) {
  std::set<Micros> seen;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Breaker::Options options = kOptions;
    options.jitter_percent = 20;
    options.jitter_seed = seed;
    const auto open_for = [&] {
      Breaker jittery(options);
      for (int i = 0; i < 10; ++i) jittery.Record(*jittery.Admit(now), kFailed, now);
      return jittery.last_transition()->open_for;
    };
    EXPECT_EQ(open_for(), open_for());
    EXPECT_GE(open_for(), 200ms);
    EXPECT_LE(open_for(), 240ms);
    seen.insert(open_for());
  }
  EXPECT_GT(seen.size(), 5U);
}

// Every sequence of events up to a length, on a breaker with small numbers. Whatever happened, the
// bounds hold, each transition is one of those that exist, and a store that has recovered is asked
// again.
class AllSequences {
 public:
  static constexpr int kEvents = 7;
  static constexpr int kLength = 7;

  void Run() {
    for (int length = 1; length <= kLength; ++length) {
      events_.assign(static_cast<std::size_t>(length), 0);
      do {
        Walk();
      } while (Next());
    }
    EXPECT_EQ(seen_.size(), 5U) << "every kind of transition happened";
  }

 private:
  bool Next() {
    for (int& event : events_) {
      if (++event < kEvents) return true;
      event = 0;
    }
    return false;
  }

  void Walk() {
    Breaker breaker({.window = 100ms,
                     .minimum_calls = 1,
                     .failure_percent = 50,
                     .slow_percent = 80,
                     .slow_after = 15ms,
                     .open_min = 10ms,
                     .open_max = 40ms,
                     .settled_after = 100ms,
                     .jitter_percent = 0,
                     .jitter_seed = 1,
                     .probes_max = 2,
                     .probes_to_close = 2,
                     .probe_deadline = 5ms});
    TimePoint now{1h};
    std::vector<Breaker::Pass> out;
    std::optional<TimePoint> opened;
    std::int64_t known = 0;
    const auto look = [&] {
      ASSERT_LE(breaker.transitions(), known + 1);
      if (breaker.transitions() == known) return;
      known = breaker.transitions();
      const Breaker::Transition& last = *breaker.last_transition();
      ASSERT_EQ(last.to, breaker.state());
      ASSERT_EQ(last.number, known);
      ASSERT_TRUE(Legal(last));
      seen_.insert(std::tuple(last.from, last.to, last.reason));
      opened.reset();
      if (last.to == State::kOpen) opened = now;
      std::erase_if(out, [](const Breaker::Pass& pass) { return pass.probe; });
    };
    const auto end = [&](const Breaker::Result& call) {
      if (out.empty()) return;
      const Breaker::Pass first = out.front();
      out.erase(out.begin());
      breaker.Record(first, call, now);
      look();
    };
    for (const int event : events_) {
      switch (event) {
        case 0:
        case 1: {
          const bool was_open = opened.has_value();
          const TimePoint opened_at = opened.value_or(now);
          const auto pass = breaker.Admit(now);
          look();
          if (pass) {
            ASSERT_NE(breaker.state(), State::kOpen);
            ASSERT_EQ(pass->probe, breaker.state() == State::kHalfOpen);
            if (was_open) {
              ASSERT_GE(now - opened_at, Micros(10ms));
            }
            if (event == 0) out.push_back(*pass);  // Else it is never answered.
          }
          ASSERT_LE(std::ranges::count(out, true, &Breaker::Pass::probe), 2);
          break;
        }
        case 2:
          end(kGood);
          break;
        case 3:
          end(kFailed);
          break;
        case 4:
          end(kSlow);
          break;
        case 5:
          now += 5ms;
          break;
        case 6:
          now += 41ms;
          break;
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    // Two probes suffice, after at most the longest open time and one deadline.
    for (int i = 0; i < 12 && breaker.state() != State::kClosed; ++i) {
      if (const auto pass = breaker.Admit(now)) {
        breaker.Record(*pass, kGood, now);
      } else {
        now += 41ms;
      }
    }
    ASSERT_EQ(breaker.state(), State::kClosed);
  }

  static bool Legal(const Breaker::Transition& t) {
    if (t.from == State::kClosed) {
      return t.to == State::kOpen &&
             (t.reason == Reason::kFailures || t.reason == Reason::kSlowCalls);
    }
    if (t.from == State::kOpen) {
      return t.to == State::kHalfOpen && t.reason == Reason::kOpenTimeOver;
    }
    return (t.to == State::kOpen && t.reason == Reason::kProbeFailed) ||
           (t.to == State::kClosed && t.reason == Reason::kProbesSucceeded);
  }

  std::vector<int> events_;
  std::set<std::tuple<State, State, Reason>> seen_;
};

TEST(BreakerSequences, HoldItsBoundsAndAlwaysRecover) { AllSequences().Run(); }

// Why it is open, which decides how rejected requests are treated.
TEST_F(BreakerTest, TellsErrorsFromMissedDeadlinesAndSlowAnswers) {
  constexpr Breaker::Result kMissed{.failed = true, .took = 20ms, .missed = true};
  for (const Breaker::Result& call : {kFailed, kMissed, kSlow}) {
    Breaker fresh{kOptions};
    for (int i = 0; i < 10; ++i) fresh.Record(*fresh.Admit(now), call, now);
    ASSERT_EQ(fresh.state(), State::kOpen);
    EXPECT_EQ(fresh.failing(), call.failed && !call.missed);
  }
  Make(4, kFailed);
  Make(6, kMissed);
  ASSERT_EQ(breaker.state(), State::kOpen);
  EXPECT_FALSE(breaker.failing()) << "the errors alone would not have opened it";

  now += 200ms;
  Make(1, kFailed);
  ASSERT_EQ(breaker.state(), State::kOpen);
  EXPECT_TRUE(breaker.failing()) << "by its probe";
  now += 400ms;
  Make(1, kMissed);
  ASSERT_EQ(breaker.state(), State::kOpen);
  EXPECT_FALSE(breaker.failing());
  now += 1s;
  Make(5, kGood);
  EXPECT_EQ(breaker.state(), State::kClosed);
}

}  // namespace
}  // namespace sluice::guard
