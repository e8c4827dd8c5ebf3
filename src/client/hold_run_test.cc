// SPDX-License-Identifier: Apache-2.0
#include "client/hold_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>

namespace sluice::client {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using Ask = HoldRun::Ask;
using Kind = Answer::Kind;
using Outcome = Answer::Outcome;
using Step = HoldRun::Step;

constexpr Micros kTtl = 30s;

class HoldRunTest : public testing::Test {
 protected:
  void Begin(HoldRun::Options options) {
    options.ttl = kTtl;
    options.random = [this] { return random_; };
    run_ = std::make_unique<HoldRun>(std::move(options), now_);
    const Step step = run_->Begin();
    ASSERT_EQ(step.ask, Ask::kMake);
    ASSERT_TRUE(step.new_id);
  }

  // Until the command runs.
  void BeginAndStart(HoldRun::OnLost on_lost = HoldRun::OnLost::kTerminate) {
    Begin({.ttl = kTtl, .on_lost = on_lost});
    ASSERT_TRUE(Answered(Kind::kDone).start);
  }

  Step Answered(Kind kind) { return run_->OnAnswer({.kind = kind, .message = "why"}, now_); }
  Step Unanswered(Outcome outcome = Outcome::kUnknown) {
    return run_->OnAnswer({.kind = Kind::kAway, .outcome = outcome, .message = "why"}, now_);
  }
  Step Denied(Micros retry_after, bool may_pass_sooner) {
    return run_->OnAnswer({.kind = Kind::kDenied,
                           .outcome = Outcome::kGivenUp,
                           .retry_after = retry_after,
                           .may_pass_sooner = may_pass_sooner,
                           .message = "denied"},
                          now_);
  }
  Step Ended(int status) { return run_->OnEnded(status, now_); }

  // Goes to when something is due, and returns what.
  Step Wake() {
    now_ = run_->wake().value();
    return run_->OnTime(now_);
  }
  Micros UntilWake() const {
    return std::chrono::duration_cast<Micros>(run_->wake().value() - now_);
  }

  Moment now_{1'000'000s};
  double random_ = 0.5;
  std::unique_ptr<HoldRun> run_;
};

TEST_F(HoldRunTest, RunsTheCommandWhileItHoldsAndThenSettles) {
  Begin({.ttl = kTtl});
  now_ += 1s;
  const Step made = Answered(Kind::kDone);
  EXPECT_TRUE(made.start);
  EXPECT_FALSE(made.exit);
  now_ += 2s;
  EXPECT_EQ(Ended(7).ask, Ask::kSettle);
  EXPECT_EQ(Answered(Kind::kDone).exit, 7);
  EXPECT_FALSE(run_->wake());
}

TEST_F(HoldRunTest, RenewsAtAThirdOfTheTtlFromWhenItAsked) {
  BeginAndStart();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(UntilWake(), kTtl / 3);
    EXPECT_EQ(Wake().ask, Ask::kExtend);
    const Step extended = Answered(Kind::kDone);
    EXPECT_EQ(extended.ask, Ask::kNothing);
    EXPECT_THAT(extended.message, IsEmpty());
  }
  // An answer that takes long does not make the hold longer.
  EXPECT_EQ(Wake().ask, Ask::kExtend);
  now_ += 4s;
  Answered(Kind::kDone);
  EXPECT_EQ(UntilWake(), kTtl / 3 - 4s);
}

TEST_F(HoldRunTest, ADenialEndsItUnlessItWaits) {
  Begin({.ttl = kTtl});
  const Step denied = Denied(10s, true);
  EXPECT_EQ(denied.exit, kExitDenied);
  EXPECT_EQ(denied.message, "denied");
}

TEST_F(HoldRunTest, WaitsUntilAnotherReleases) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  const Step first = Denied(20s, true);
  EXPECT_FALSE(first.exit);
  EXPECT_THAT(first.message, HasSubstr("waiting"));
  // Asks more and more seldom, but never less than every five seconds.
  Micros before{0};
  for (int i = 0; i < 20; ++i) {
    EXPECT_LE(UntilWake(), 5s);
    EXPECT_GE(UntilWake(), before);
    before = UntilWake();
    EXPECT_EQ(Wake().ask, Ask::kMake);
    EXPECT_THAT(Denied(20s, true).message, IsEmpty()) << "said once";
  }
  EXPECT_GT(before, 2s);
  Wake();
  EXPECT_TRUE(Answered(Kind::kDone).start);
}

TEST_F(HoldRunTest, ThoseThatWaitDoNotAskTogether) {
  random_ = 0.0;
  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(20s, true);
  const Micros early = UntilWake();
  random_ = 0.99;
  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(20s, true);
  EXPECT_LT(early * 3 / 2, UntilWake());
}

TEST_F(HoldRunTest, DoesNotAskBeforeABudgetCanHaveUnits) {
  for (const double random : {0.0, 0.99}) {
    random_ = random;
    Begin({.ttl = kTtl, .wait = 1h});
    Denied(40s, false);
    EXPECT_GE(UntilWake(), 40s);
    EXPECT_LE(UntilWake(), 41s);
  }
}

TEST_F(HoldRunTest, AsksAtTheLongestWaitOfHolders) {
  Begin({.ttl = kTtl, .wait = 1h});
  Denied(10ms, true);
  EXPECT_LE(UntilWake(), 10ms);
  EXPECT_GT(UntilWake(), 0ms);
}

TEST_F(HoldRunTest, GivesUpWhenTheWaitIsOver) {
  Begin({.ttl = kTtl, .wait = 7s});
  Denied(40s, false);
  EXPECT_EQ(UntilWake(), 7s);
  EXPECT_EQ(Wake().ask, Ask::kMake);
  EXPECT_EQ(Denied(33s, false).exit, kExitDenied);
}

TEST_F(HoldRunTest, AServiceThatWasNeverThereIsNotWaitedFor) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  const Step away = Answered(Kind::kAway);
  EXPECT_EQ(away.exit, kExitAway);
  EXPECT_EQ(away.message, "why");
}

TEST_F(HoldRunTest, AServiceThatGoesAwayIsWaitedFor) {
  Begin({.ttl = kTtl, .wait = 1min});
  Denied(1s, true);
  Wake();
  EXPECT_FALSE(Answered(Kind::kAway).exit);
  EXPECT_LE(UntilWake(), 1s);
  Wake();
  EXPECT_FALSE(Denied(1s, true).exit);
  now_ += 1min;
  EXPECT_EQ(run_->OnTime(now_).ask, Ask::kMake);
  EXPECT_EQ(Answered(Kind::kAway).exit, kExitAway);
}

TEST_F(HoldRunTest, AsksUnderAnotherIdAfterAnAnswer) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(1s, true);
  EXPECT_TRUE(Wake().new_id);
  Unanswered(Outcome::kGivenUp);
  EXPECT_TRUE(Wake().new_id);
  Unanswered();
  EXPECT_FALSE(Wake().new_id) << "the hold may be there";
  Unanswered(Outcome::kNotMade);
  EXPECT_FALSE(Wake().new_id) << "as it was";
  Denied(1s, true);
  EXPECT_TRUE(Wake().new_id);
}

TEST_F(HoldRunTest, HoldsFromTheFirstQuestionThatMayHaveMadeTheHold) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(1s, true);
  Wake();
  const Moment first = now_;
  for (int i = 0; i < 2; ++i) {
    now_ += 5s;
    Unanswered();
    EXPECT_FALSE(Wake().new_id);
  }
  EXPECT_TRUE(Answered(Kind::kDone).start);
  EXPECT_LE(run_->wake(), now_) << "renewed at once";
  EXPECT_EQ(run_->OnTime(now_).ask, Ask::kExtend);
  EXPECT_EQ(Wake().signal, SIGTERM);
  EXPECT_EQ(now_, first + kTtl);
}

TEST_F(HoldRunTest, DoesNotAskForOneHoldForSoLongThatItMayBeOver) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(1s, true);
  Wake();
  Moment first = now_;
  int ids = 1;
  for (int i = 0; i < 100; ++i) {
    Unanswered();
    if (Wake().new_id) {
      EXPECT_GE(now_ - first, kTtl / 2);
      first = now_;
      ++ids;
    }
    EXPECT_LE(now_ - first, kTtl / 2 + 1s);
  }
  EXPECT_GT(ids, 3);
  EXPECT_TRUE(Answered(Kind::kDone).start);
  EXPECT_EQ(run_->OnTime(now_).signal, 0) << "not over yet";
}

TEST_F(HoldRunTest, SaysThatAHoldMayHaveBeenMade) {
  const auto says_so = HasSubstr("may have been made: it expires within 30s");
  Begin({.ttl = kTtl});
  Step step = Unanswered();
  EXPECT_EQ(step.exit, kExitAway);
  EXPECT_THAT(step.message, says_so);

  Begin({.ttl = kTtl});
  run_->OnSignal(SIGINT);
  step = Unanswered();
  EXPECT_EQ(step.exit, kExitSignalled + SIGINT);
  EXPECT_THAT(step.message, says_so);

  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(1s, true);
  Wake();
  Unanswered();
  EXPECT_THAT(run_->OnSignal(SIGTERM).message, says_so);

  Begin({.ttl = kTtl});
  EXPECT_EQ(Unanswered(Outcome::kNotMade).message, "why");
}

TEST_F(HoldRunTest, ARefusalEndsItEvenIfItWaits) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  EXPECT_EQ(Answered(Kind::kRefused).exit, kExitRefused);
}

TEST_F(HoldRunTest, ASignalEndsTheWait) {
  Begin({.ttl = kTtl, .wait = Micros::max()});
  Denied(20s, true);
  EXPECT_EQ(run_->OnSignal(SIGTERM).exit, kExitSignalled + SIGTERM);
}

TEST_F(HoldRunTest, ASignalWhileTheHoldIsMadeReleasesItAndRunsNothing) {
  Begin({.ttl = kTtl});
  EXPECT_FALSE(run_->OnSignal(SIGINT).exit);
  const Step made = Answered(Kind::kDone);
  EXPECT_FALSE(made.start);
  EXPECT_EQ(made.ask, Ask::kRelease);
  EXPECT_EQ(Answered(Kind::kDone).exit, kExitSignalled + SIGINT);

  Begin({.ttl = kTtl, .wait = Micros::max()});
  run_->OnSignal(SIGINT);
  EXPECT_EQ(Denied(1s, true).exit, kExitSignalled + SIGINT);
}

TEST_F(HoldRunTest, SignalsArePassedOnAndItGoesOnHolding) {
  BeginAndStart();
  const Step step = run_->OnSignal(SIGHUP);
  EXPECT_EQ(step.signal, SIGHUP);
  EXPECT_FALSE(step.exit);
  EXPECT_EQ(Wake().ask, Ask::kExtend) << "the command may take long to end";
  Answered(Kind::kDone);
  EXPECT_EQ(Ended(0).ask, Ask::kSettle);
}

TEST_F(HoldRunTest, TriesToRenewUntilTheHoldIsOver) {
  BeginAndStart();
  const Moment made = now_;
  EXPECT_EQ(Wake().ask, Ask::kExtend);
  EXPECT_THAT(Answered(Kind::kAway).message, HasSubstr("trying again"));
  int tries = 0;
  Step step;
  while ((step = Wake()).ask == Ask::kExtend) {
    ++tries;
    EXPECT_THAT(Answered(Kind::kAway).message, IsEmpty()) << "said once";
  }
  EXPECT_GT(tries, 20);
  EXPECT_EQ(now_, made + kTtl) << "not sooner, and not later";
  EXPECT_EQ(step.signal, SIGTERM);
  EXPECT_THAT(step.message, HasSubstr("lost"));
  EXPECT_FALSE(run_->wake());
  // It may still be there, if it was the answers that were lost.
  EXPECT_EQ(Ended(kExitSignalled + SIGTERM).ask, Ask::kSettle);
  EXPECT_EQ(Answered(Kind::kAway).exit, kExitSignalled + SIGTERM);
}

TEST_F(HoldRunTest, IsLostEvenIfTheLastQuestionIsNotAnswered) {
  BeginAndStart();
  const Moment made = now_;
  EXPECT_EQ(Wake().ask, Ask::kExtend);
  EXPECT_EQ(Wake().signal, SIGTERM);
  EXPECT_EQ(now_, made + kTtl);
}

TEST_F(HoldRunTest, IsRenewedAfterAnOutage) {
  BeginAndStart();
  Wake();
  Answered(Kind::kAway);
  EXPECT_EQ(Wake().ask, Ask::kExtend);
  Answered(Kind::kDone);
  EXPECT_EQ(UntilWake(), kTtl / 3);
  Wake();
  EXPECT_THAT(Answered(Kind::kRefused).message, HasSubstr("trying again"))
      << "a token may be put right";
  EXPECT_EQ(Wake().ask, Ask::kExtend);
}

TEST_F(HoldRunTest, ALostHoldEndsTheCommand) {
  BeginAndStart();
  Wake();
  const Step lost = Answered(Kind::kLost);
  EXPECT_EQ(lost.signal, SIGTERM);
  EXPECT_FALSE(lost.exit);
  EXPECT_FALSE(run_->wake());
  Ended(3);
  EXPECT_EQ(Answered(Kind::kDone).exit, 3);
}

TEST_F(HoldRunTest, OrLetsItRun) {
  BeginAndStart(HoldRun::OnLost::kContinue);
  Wake();
  const Step lost = Answered(Kind::kLost);
  EXPECT_EQ(lost.signal, 0);
  EXPECT_THAT(lost.message, HasSubstr("runs on"));
  EXPECT_FALSE(run_->wake()) << "nothing is left to renew";
  EXPECT_EQ(run_->OnSignal(SIGTERM).signal, SIGTERM);
}

TEST_F(HoldRunTest, EndsAlsoWhileARenewalIsUnderWay) {
  BeginAndStart();
  Wake();
  EXPECT_EQ(Ended(0).ask, Ask::kSettle);
  EXPECT_EQ(Answered(Kind::kDone).exit, 0);
}

TEST_F(HoldRunTest, TriesToEndTheHoldForAWhileAndKeepsTheStatus) {
  BeginAndStart();
  Ended(9);
  const Moment ended = now_;
  Step step;
  while (!(step = Answered(Kind::kAway)).exit) {
    EXPECT_EQ(run_->OnSignal(SIGTERM).exit, std::nullopt);
    EXPECT_EQ(Wake().ask, Ask::kSettle);
  }
  EXPECT_EQ(step.exit, 9);
  EXPECT_THAT(step.message, HasSubstr("expires within 30s"));
  EXPECT_LE(now_ - ended, 5s);
  EXPECT_GE(now_ - ended, 3s);
}

TEST_F(HoldRunTest, ReleasesIfTheCommandCannotBeStarted) {
  BeginAndStart();
  EXPECT_EQ(run_->OnNotStarted(127, now_).ask, Ask::kRelease);
  EXPECT_FALSE(Answered(Kind::kAway).exit);
  EXPECT_EQ(Wake().ask, Ask::kRelease);
  EXPECT_EQ(Answered(Kind::kDone).exit, 127);
}

TEST_F(HoldRunTest, ALateAnswerOfNothingChangesNothing) {
  BeginAndStart();
  Wake();
  Answered(Kind::kLost);
  const Step late = Answered(Kind::kDone);
  EXPECT_EQ(late.ask, Ask::kNothing);
  EXPECT_FALSE(late.start);
}

}  // namespace
}  // namespace sluice::client
