// SPDX-License-Identifier: Apache-2.0
// Holds while the store cannot be asked, and settles that it could not be told.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/guard_fixture.h"

namespace sluice::guard {
namespace {

const Limit kSlots = *Limit::Parse("algorithm=concurrency,limit=4,ttl=30s");

class GuardHoldsTest : public GuardTest {
 protected:
  struct Held {
    Answer answer;
    HoldTerms terms;
  };

  struct Wish {
    Micros ttl = 60s;
    OnExpiry on_expiry = OnExpiry::kCharge;
    TimePoint expires = {};
  };

  GuardHoldsTest() { options.instances = 2; }

  Held About(Action action, std::string_view id, std::vector<Charge> charges, const Wish& wish) {
    HoldTerms terms{
        .id = id, .ttl = wish.ttl, .on_expiry = wish.on_expiry, .expires = wish.expires};
    std::vector<Decision> each(charges.size());
    Request request{.charges = charges, .each = each, .action = action, .hold = &terms};
    bool done = false;
    guard().Apply({&request, 1}, [&] { done = true; });
    while (!done) guard().Wait();
    return {.answer = {std::move(request.outcome), request.source, std::move(each)},
            .terms = terms};
  }
  Held Hold(std::string_view id, std::vector<Charge> charges, const Wish& wish) {
    return About(Action::kHold, id, std::move(charges), wish);
  }
  Held Hold(std::string_view id, std::vector<Charge> charges) {
    return Hold(id, std::move(charges), Wish{});
  }
  Held Settle(std::string_view id, std::vector<Charge> charges, TimePoint expires = {}) {
    return About(Action::kSettle, id, std::move(charges), {.expires = expires});
  }

  static std::vector<Charge> Units(std::int64_t cost, OnStoreFailure policy = kLocal,
                                   const Limit& limit = kTen, std::string_view key = "k") {
    return {{.key = key, .limit = &limit, .cost = cost, .on_store_failure = policy}};
  }

  void Pass(Micros wait) {
    wall.Advance(wait);
    time.Advance(wait);
    guard().RunTimer();
  }

  bool AllTold() {
    return Eventually([this] {
      const auto now = stats();
      return now.in_flight == 0 && now.settles_waiting == 0 && now.states_to_report == 0;
    });
  }
};

TEST_F(GuardHoldsTest, ThatFailOpenHoldNothing) {
  store.Fail(ErrorCode::kUnavailable);
  const Held held = Hold("a", Units(3, kOpen));
  ASSERT_TRUE(held.answer.outcome->allowed);
  EXPECT_EQ(held.answer.source, Source::kFailOpen);
  EXPECT_FALSE(held.terms.held);
  EXPECT_EQ(held.terms.expires, wall.Now() + 60s);
  EXPECT_EQ(Hold("b", Units(1, kOpen, kSlots), {.ttl = 0s}).terms.expires, wall.Now() + 30s);
  EXPECT_EQ(stats().local_holds, 0);
}

TEST_F(GuardHoldsTest, ThatFailClosedAreAnOutage) {
  store.Fail(ErrorCode::kUnavailable);
  const Held held = Hold("a", Units(3, kClosed));
  EXPECT_EQ(held.answer.outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(stats().failed_closed, 1);
}

TEST_F(GuardHoldsTest, AreMadeAndSettledOnTheShareAndReportedAfterwards) {
  store.Fail(ErrorCode::kUnavailable);
  const Held held = Hold("a", Units(3));
  ASSERT_TRUE(held.answer.outcome->allowed);
  EXPECT_EQ(held.answer.source, Source::kLocal);
  EXPECT_TRUE(held.terms.held);
  EXPECT_EQ(held.answer.outcome->remaining, 2) << "half of ten, less three";
  EXPECT_EQ(held.answer.outcome->held, 3);
  EXPECT_FALSE(Hold("b", Units(3)).answer.outcome->allowed);
  EXPECT_EQ(stats().local_holds, 1);

  const Held settled = Settle("a", Units(1));
  EXPECT_EQ(settled.answer.source, Source::kLocal);
  EXPECT_EQ(settled.answer.outcome->remaining, 4);
  EXPECT_FALSE(settled.terms.late);
  EXPECT_EQ(stats().local_holds, 0);
  EXPECT_EQ(Settle("a", Units(5)).answer.outcome->remaining, 4) << "it was settled already";

  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 9);
  EXPECT_EQ(stats().local_units, 1);
  EXPECT_EQ(stats().reported_units, 1);
}

TEST_F(GuardHoldsTest, TheSameAgainTakesNothing) {
  store.Fail(ErrorCode::kUnavailable);
  Hold("a", Units(3));
  EXPECT_EQ(Hold("a", Units(3)).answer.outcome->remaining, 2);
  EXPECT_EQ(Hold("a", Units(2)).answer.outcome.error().code, ErrorCode::kHoldConflict);
  store.AnswerAtOnce();
  EXPECT_EQ(Hold("a", Units(3)).answer.source, Source::kLocal) << "it is here, and not there";
  EXPECT_EQ(store.Remaining(kTen), 10);
}

TEST_F(GuardHoldsTest, OfSlotsAreReleasedAndNotReported) {
  store.Fail(ErrorCode::kUnavailable);
  for (const char* id : {"a", "b"}) {
    EXPECT_TRUE(Hold(id, Units(1, kLocal, kSlots), {.ttl = 0s}).answer.outcome->allowed);
  }
  EXPECT_FALSE(Hold("c", Units(1, kLocal, kSlots), {.ttl = 0s}).answer.outcome->allowed);
  EXPECT_EQ(Settle("a", Units(0, kLocal, kSlots)).answer.outcome->remaining, 1);
  EXPECT_TRUE(Hold("c", Units(1, kLocal, kSlots), {.ttl = 0s}).answer.outcome->allowed);
  Pass(30s);
  EXPECT_EQ(stats().local_holds, 0);
  EXPECT_TRUE(Hold("d", Units(2, kLocal, kSlots), {.ttl = 0s}).answer.outcome->allowed);
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.debits(), 0);
}

TEST_F(GuardHoldsTest, ThatExpireAreChargedOrReleased) {
  store.Fail(ErrorCode::kUnavailable);
  Hold("charged", Units(2));
  Hold("released", Units(3), {.on_expiry = OnExpiry::kRelease});
  Pass(60s);
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 8);

  // What its expiry did is corrected; what was reported by then is not given back.
  EXPECT_TRUE(Settle("charged", Units(1)).terms.late);
  EXPECT_TRUE(Settle("released", Units(4)).terms.late);
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 4);
  Pass(61s);
  EXPECT_EQ(Settle("charged", Units(0)).answer.source, Source::kStore) << "it is forgotten here";
}

TEST_F(GuardHoldsTest, LastLongerIfTheyAreExtended) {
  store.Fail(ErrorCode::kUnavailable);
  Hold("a", Units(2));
  Pass(59s);
  const Held extended = About(Action::kExtend, "a", Units(0), {.ttl = 60s});
  ASSERT_TRUE(extended.answer.outcome);
  EXPECT_EQ(extended.terms.expires, wall.Now() + 60s);
  Pass(59s);
  EXPECT_EQ(stats().local_holds, 1);
  Pass(1s);
  EXPECT_EQ(stats().local_holds, 0);
  EXPECT_EQ(About(Action::kExtend, "a", Units(0), {}).answer.outcome.error().code,
            ErrorCode::kHoldLost);
}

TEST_F(GuardHoldsTest, OfSeveralBudgetsAreSettledWhereTheyAre) {
  store.Fail(ErrorCode::kUnavailable);
  const auto charges = [](std::int64_t a, std::int64_t b) {
    return std::vector<Charge>{{.key = "a", .limit = &kTen, .cost = a, .on_store_failure = kLocal},
                               {.key = "b", .limit = &kTen, .cost = b, .on_store_failure = kOpen}};
  };
  const Held held = Hold("x", charges(3, 7));
  EXPECT_EQ(held.answer.source, Source::kFailOpen);
  EXPECT_TRUE(held.terms.held) << "on one of them";
  EXPECT_EQ(held.answer.each[0].held, 3);
  EXPECT_EQ(held.answer.each[1].held, 0);
  Settle("x", charges(2, 6));
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen, "a"), 8);
  EXPECT_EQ(store.Remaining(kTen, "b"), 10);
}

TEST_F(GuardHoldsTest, ThatTheStoreMadeAreSettledWhenItIsBack) {
  const Held held = Hold("a", Units(5, kClosed));
  store.Fail(ErrorCode::kUnavailable);
  const Held settled = Settle("a", Units(2, kClosed), held.terms.expires);
  ASSERT_TRUE(settled.answer.outcome);
  EXPECT_EQ(settled.answer.source, Source::kLocal);
  Settle("a", Units(4, kClosed), held.terms.expires);
  EXPECT_EQ(stats().settles_waiting, 1) << "the first one counts";
  EXPECT_EQ(About(Action::kExtend, "a", Units(0, kClosed), {}).answer.outcome.error().code,
            ErrorCode::kUnavailable);
  Pass(10s);
  EXPECT_EQ(stats().settles_waiting, 1) << "it is tried again";
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 8);
  EXPECT_EQ(stats().settles_sent, 1);
  EXPECT_EQ(stats().settles_dropped, 0);
}

TEST_F(GuardHoldsTest, AreNotSettledOnceTheStoreMayHaveForgottenThem) {
  const Held held = Hold("a", Units(5, kClosed));
  store.Fail(ErrorCode::kUnavailable);
  Settle("a", Units(2, kClosed), held.terms.expires);
  Pass(91s);
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 5) << "two more would be too many";
  EXPECT_EQ(stats().settles_dropped, 1);
}

// A settle whose outcome is unknown may have been made: sending it again must find the id.
TEST_F(GuardHoldsTest, ThatMayHaveBeenSettledAreSettledAgain) {
  const Held held = Hold("a", Units(5, kClosed));
  store.Hold();
  options.deadline = 5ms;
  const Held settled = Settle("a", Units(2, kClosed), held.terms.expires);
  EXPECT_EQ(settled.answer.source, Source::kLocal) << "the deadline has passed";
  EXPECT_EQ(stats().settles_waiting, 1);
  store.AnswerHeld();
  EXPECT_EQ(stats().settles_waiting, 0) << "it was settled after all";
  EXPECT_EQ(stats().settles_kept, 1);
  EXPECT_EQ(stats().settles_sent, 1);
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 8);
}

TEST_F(GuardHoldsTest, ThatTheStoreMadeLateLiveThere) {
  store.Hold();
  EXPECT_EQ(Hold("a", Units(3)).answer.source, Source::kOverload);
  EXPECT_EQ(stats().local_holds, 1);
  store.AnswerHeld();
  EXPECT_EQ(stats().local_holds, 0);
  store.AnswerAtOnce();
  EXPECT_EQ(Settle("a", Units(1)).answer.source, Source::kStore);
  EXPECT_EQ(store.Remaining(kTen), 9);
  store.Fail(ErrorCode::kUnavailable);
  EXPECT_EQ(Hold("b", Units(5)).answer.outcome->remaining, 0) << "the whole share was there";
}

TEST_F(GuardHoldsTest, ThatNobodyWouldEndAreReleased) {
  options.on_overload = kOpen;
  store.Hold();
  const Held open = Hold("open", Units(3, kOpen));
  EXPECT_EQ(open.answer.source, Source::kFailOpen);
  EXPECT_FALSE(open.terms.held);
  const Held closed = Hold("closed", Units(2, kClosed));
  EXPECT_EQ(closed.answer.outcome.error().code, ErrorCode::kOutcomeUnknown);
  Hold("ended", Units(1));
  Settle("ended", Units(1));
  store.AnswerHeld();
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(store.Remaining(kTen), 7) << "one was reported; two may be held again by their client";
  EXPECT_EQ(stats().settles_sent, 2);

  // A store that does not know whether it has made one does not keep it, either.
  store.Fail(ErrorCode::kOutcomeUnknown);
  EXPECT_TRUE(Hold("unknown", Units(1)).answer.outcome->allowed);
  EXPECT_EQ(stats().settles_waiting, 1);
}

TEST_F(GuardHoldsTest, AreListedByTheStoreOrNotAtAll) {
  Hold("a", Units(3, kOpen));
  const auto list = [&](HoldList& listed) {
    const auto charges = Units(0, kOpen);
    Request request{.charges = charges, .action = Action::kListHolds, .listed = &listed};
    bool done = false;
    guard().Apply({&request, 1}, [&] { done = true; });
    while (!done) guard().Wait();
    return std::move(request.outcome);
  };
  HoldList listed{.only = "a"};
  ASSERT_TRUE(list(listed));
  ASSERT_EQ(listed.holds.size(), 1U);
  EXPECT_EQ(listed.holds.front().units, 3);
  EXPECT_EQ(listed.live, 1U);
  // The store answers after the deadline, when nobody waits any more.
  store.Hold();
  HoldList late;
  EXPECT_EQ(list(late).error().code, ErrorCode::kOutcomeUnknown);
  store.AnswerHeld();
  EXPECT_TRUE(late.holds.empty());
  store.Fail(ErrorCode::kUnavailable);
  EXPECT_EQ(list(late).error().code, ErrorCode::kUnavailable);
}

TEST_F(GuardHoldsTest, ThatNobodyKnowsOfAfterTheDeadlineAreReleased) {
  options.on_overload = kOpen;
  store.Hold();
  EXPECT_EQ(Hold("open", Units(3, kOpen)).answer.source, Source::kFailOpen);
  EXPECT_FALSE(Hold("closed", Units(2, kClosed)).answer.outcome);
  EXPECT_EQ(stats().settles_waiting, 0) << "the store has not said anything yet";
  store.AnswerHeld(ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(stats().settles_waiting, 1) << "a client that was refused may hold again";
  // For as long as the store may have it.
  store.Fail(ErrorCode::kUnavailable);
  Pass(45s);
  store.AnswerAtOnce();
  ASSERT_TRUE(AllTold());
  EXPECT_EQ(stats().settles_sent, 1);
}

TEST_F(GuardHoldsTest, OfMoreThanTheShareMayBeHeldAgain) {
  store.Hold();
  EXPECT_FALSE(Hold("a", Units(8)).answer.outcome) << "the share is 5";
  store.AnswerHeld();
  EXPECT_EQ(stats().settles_waiting, 0);
  store.AnswerAtOnce();
  EXPECT_TRUE(Hold("a", Units(8)).answer.outcome->allowed);
  EXPECT_EQ(store.Remaining(kTen), 2);
}

TEST_F(GuardHoldsTest, OfAFloodAreDecidedOnTheShare) {
  options.in_flight_max = 1;
  store.Hold();
  const auto first = Start(Units(1, kOpen, kTen, "other"));
  const Held held = Hold("a", Units(5, kOpen));
  EXPECT_EQ(held.answer.source, Source::kOverload);
  EXPECT_TRUE(held.terms.held);
  EXPECT_FALSE(Hold("b", Units(1, kOpen)).answer.outcome->allowed);
  store.AnswerHeld();
  EXPECT_TRUE(first->done);
}

TEST_F(GuardHoldsTest, AreBounded) {
  options.unreported_max = 1;
  Hold("x", Units(1, kClosed, kTen, "x"));
  Hold("y", Units(1, kClosed, kTen, "y"));
  store.Fail(ErrorCode::kUnavailable);
  EXPECT_TRUE(Hold("a", Units(1, kLocal, kTen, "a")).answer.outcome);
  EXPECT_EQ(Hold("b", Units(1, kLocal, kTen, "b")).answer.outcome.error().code,
            ErrorCode::kUnavailable);
  EXPECT_TRUE(Settle("x", Units(1, kClosed, kTen, "x")).answer.outcome);
  EXPECT_EQ(Settle("y", Units(1, kClosed, kTen, "y")).answer.outcome.error().code,
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::guard
