// SPDX-License-Identifier: Apache-2.0
// The script gives back what a part of a request took as if it had never been taken: random traffic
// with charges that are refunded later must leave the states of the reference model, which never
// heard of them.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "conformance/model_spec.h"
#include "conformance/script.h"
#include "conformance/traffic.h"

namespace sluice {
namespace {

using redis::Receipt;
using redis::Task;

using RefundTest = ScriptTest;

class Refund : public RefundTest, public testing::WithParamInterface<Algorithm> {};

TEST_P(Refund, LeavesNoTrace) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    int refunded = 0;
    int exact = 0;
    int after_others = 0;
    for (int round = 0; round < 60; ++round) {
      const Limit limit = RandomLimit(random, GetParam());
      SCOPED_TRACE(limit.ToString());
      const std::string key = std::to_string(seed) + ":" + std::to_string(round);
      model::Model model;
      std::int64_t now = kStartUs;
      Decision last;
      struct Hold {
        std::vector<Receipt> receipts;
        std::int64_t since;
      };
      std::vector<Hold> taken;
      // A state remembers for a minute what is on hold. After that it is not given back, so that
      // the state may have less left than the model's. A log remembers it as long as it has the
      // entry.
      const std::int64_t kRemembered =
          GetParam() == Algorithm::kSlidingWindow ? kSpanMax.count() : 60'000'000;
      bool may_hold_less = false;
      bool others = false;  // Took since the first hold.
      for (int step = 0; step < 60; ++step) {
        now = NextTime(random, now, limit, last, Time::kForward);
        const std::int64_t cost = std::min(limit.amount(), RandomCost(random, limit));
        const Charge charge{.key = key, .limit = &limit, .cost = cost};
        Request request{.charges = {&charge, 1}, .now = At(now)};
        if (random.OneIn(3)) {
          std::vector<Receipt> receipts;
          Run({.request = &request, .receipts = &receipts});
          last = request.outcome.value();
          if (receipts.empty()) continue;
          EXPECT_EQ(receipts.front().units, cost);
          taken.push_back({std::move(receipts), now});
          // At once, or after some others.
          if (random.OneIn(2)) continue;
        }
        while (!taken.empty() && (random.OneIn(2) || step == 59)) {
          const auto pick = static_cast<std::size_t>(
              random.Between(0, static_cast<std::int64_t>(taken.size()) - 1));
          Request refund{.charges = {}, .now = At(now)};
          Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &taken[pick].receipts});
          ASSERT_TRUE(refund.outcome);
          may_hold_less = may_hold_less || now - taken[pick].since > kRemembered;
          after_others += others && now - taken[pick].since <= kRemembered;
          others = others && taken.size() > 1;
          taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(pick));
          ++refunded;
        }
        if (!taken.empty()) {
          // Others are charged meanwhile. The model hears of those that passed, but not of those
          // that were denied for lack of what is given back later.
          Run({.request = &request});
          last = request.outcome.value();
          if (last.allowed) {
            const auto group = model.Decide({{key, "", SpecOf(limit), cost}}, now);
            ASSERT_TRUE(group.overall.allowed) << "more was granted than without the charges";
          }
          others = others || last.allowed;
          continue;
        }
        Request look{.charges = {&charge, 1}, .now = At(now)};
        const Charge peek{.key = key, .limit = &limit, .cost = 0};
        look.charges = {&peek, 1};
        Run({.request = &look});
        const Decision expected =
            DecisionOf(model.Decide({{key, "", SpecOf(limit), 0}}, now).overall);
        last = look.outcome.value();
        exact += *look.outcome == expected;
        if (*look.outcome == expected) continue;
        ASSERT_TRUE(may_hold_less) << "expected " << testing::PrintToString(expected) << " got "
                                   << testing::PrintToString(last);
        ASSERT_LE(last.remaining, expected.remaining);
        break;  // From here on the model has more left.
      }
    }
    EXPECT_GT(refunded, 200);
    EXPECT_GT(exact, 200);
    EXPECT_GT(after_others, 50);
  }
  EXPECT_EQ(server_.Cli("eval \"local n = 0; for _, k in ipairs(redis.call('keys', '*')) do "
                        "if redis.call('pttl', k) == -1 then n = n + 1 end end return n\" 0"),
            "0\n");
}

INSTANTIATE_TEST_SUITE_P(All, Refund, testing::ValuesIn(kAlgorithms),
                         [](const auto& param) { return std::string(ToString(param.param)); });

TEST_F(RefundTest, OfNothingDoesNothing) {
  for (const Algorithm algorithm : kAlgorithms) {
    const Limit limit = SimpleLimit(algorithm, 5, 1, Micros{1'000'000});
    std::vector<Receipt> receipts = {
        {.key = "p:{k}:n", .limit = limit, .units = 3, .when = kStartUs}};
    Request refund{.charges = {}, .now = At(kStartUs)};
    Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &receipts});
    EXPECT_TRUE(refund.outcome.value().allowed) << "nothing stays taken";
  }
  EXPECT_EQ(server_.Cli("dbsize"), "0\n");
}

// However busy a state is while something is on hold, it stays small; and once nothing is, it is as
// it was before there were holds.
TEST_F(RefundTest, AJournalIsBoundedAndEnds) {
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::kSlidingWindow) continue;
    SCOPED_TRACE(ToString(algorithm));
    const Limit limit = SimpleLimit(algorithm, 900'000, 1, std::chrono::days(30));
    const Charge charge{.key = "k", .limit = &limit};
    std::vector<Receipt> receipts;
    std::int64_t now = kStartUs;
    const auto take = [&](std::vector<Receipt>* hold) {
      Request request{.charges = {&charge, 1}, .now = At(now)};
      Run({.request = &request, .receipts = hold});
      ASSERT_TRUE(request.outcome.value().allowed);
      now += 1'000;
    };
    const auto length = [&] {
      return std::stoi(
          server_.Cli("eval \"return redis.call('strlen', redis.call('keys','*')[1])\" 0"));
    };
    for (int i = 0; i < 1'000; ++i) take(nullptr);
    const int plain = length();
    take(&receipts);
    EXPECT_GT(length(), plain);
    for (int i = 0; i < 1'000; ++i) take(i % 3 == 0 ? &receipts : nullptr);
    EXPECT_GT(length(), plain + 4'000);
    EXPECT_LT(length(), plain + 4'200);
    now += 61'000'000;
    take(nullptr);
    EXPECT_EQ(length(), plain);
    server_.Cli("flushall");
  }
}

// A log has no journal, but a refund changes every later entry.
TEST_F(RefundTest, OfALogIsBounded) {
  const Limit limit = *Limit::Make(Algorithm::kSlidingWindow, 1'000, 1, std::chrono::days(30));
  const Charge charge{.key = "k", .limit = &limit};
  const Charge peek{.key = "k", .limit = &limit, .cost = 0};
  for (const int others : {200, 300}) {
    std::int64_t now = kStartUs;
    std::vector<Receipt> receipts;
    for (int i = 0; i <= others; ++i, ++now) {
      Request request{.charges = {&charge, 1}, .now = At(now)};
      Run({.request = &request, .receipts = i == 0 ? &receipts : nullptr});
      ASSERT_TRUE(request.outcome.value().allowed);
    }
    Request refund{.charges = {}, .now = At(now)};
    Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &receipts});
    Request look{.charges = {&peek, 1}, .now = At(now)};
    Run({.request = &look});
    const bool given = others == 200;
    EXPECT_EQ(refund.outcome.value().allowed, given);
    EXPECT_EQ(look.outcome.value().remaining, 1'000 - others - (given ? 0 : 1));
    server_.Cli("flushall");
  }
}

// What a reset has restored is not given back once more.
TEST_F(RefundTest, AfterAResetGivesNothing) {
  for (const Algorithm algorithm : kAlgorithms) {
    SCOPED_TRACE(ToString(algorithm));
    const Limit limit = SimpleLimit(algorithm, 10, 1, std::chrono::days(30));
    const Charge all{.key = "k", .limit = &limit, .cost = 10};
    const Charge one{.key = "k", .limit = &limit, .cost = 1};
    for (const bool others_hold : {false, true}) {
      std::vector<Receipt> receipts;
      Request hold{.charges = {&all, 1}, .now = At(kStartUs)};
      Run({.request = &hold, .receipts = &receipts});
      ASSERT_EQ(receipts.size(), 1u);
      server_.Cli("flushall");
      std::vector<Receipt> others;
      Request again{.charges = {&all, 1}, .now = At(kStartUs + 1)};
      Run({.request = &again, .receipts = others_hold ? &others : nullptr});
      ASSERT_TRUE(again.outcome.value().allowed);
      Request refund{.charges = {}, .now = At(kStartUs + 2)};
      Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &receipts});
      Request check{.charges = {&one, 1}, .now = At(kStartUs + 3)};
      Run({.request = &check});
      EXPECT_FALSE(check.outcome.value().allowed);
      if (others_hold) {
        Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &others});
        Run({.request = &check});
        EXPECT_EQ(check.outcome.value().remaining, 9) << "theirs is";
      }
      server_.Cli("flushall");
    }
  }
}

// Neither a clock that was set back nor changed numbers give back more than was taken.
TEST_F(RefundTest, WhenTimeOrNumbersChangedGivesNoMore) {
  for (const Algorithm algorithm : kAlgorithms) {
    SCOPED_TRACE(ToString(algorithm));
    const Limit limit = SimpleLimit(algorithm, 10, 1, Micros{60'000'000});
    const Limit larger = SimpleLimit(algorithm, 20, 1, Micros{60'000'000});
    const auto run = [&](const Limit& under, std::int64_t cost, std::int64_t now,
                         std::vector<Receipt>* receipts = nullptr) {
      const Charge charge{.key = "k", .limit = &under, .name = "n", .cost = cost};
      Request request{.charges = {&charge, 1}, .now = At(now)};
      Run({.request = &request, .receipts = receipts});
      return request.outcome.value();
    };
    const auto give = [&](std::vector<Receipt>& receipts, std::int64_t now) {
      Request refund{.charges = {}, .now = At(now)};
      Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &receipts});
      return refund.outcome.value().allowed;
    };
    const std::int64_t now = kStartUs - kStartUs % 60'000'000 + 60'000'000;
    std::vector<Receipt> first;
    std::vector<Receipt> second;
    ASSERT_TRUE(run(limit, 4, now, &first).allowed);
    ASSERT_TRUE(run(limit, 3, now - 5'000'000, &second).allowed) << "a clock that was set back";
    EXPECT_EQ(run(limit, 0, now).remaining, 3);
    EXPECT_TRUE(give(second, now - 5'000'000));
    EXPECT_EQ(run(limit, 0, now).remaining, 6);
    EXPECT_EQ(run(larger, 0, now).remaining, 16);
    const bool bucket = limit.rate() > 0;
    EXPECT_EQ(give(first, now), !bucket) << "or it says so";
    EXPECT_EQ(run(larger, 0, now).remaining, bucket ? 16 : 20);
    EXPECT_EQ(give(first, now), algorithm == Algorithm::kSlidingWindow) << "what is gone is gone";
    EXPECT_EQ(run(larger, 0, now).remaining, bucket ? 16 : 20) << "only once";
    server_.Cli("flushall");
  }
}

// What was taken from a window that is over does not count any more: nothing of it stays taken.
TEST_F(RefundTest, OfAWindowThatIsOverIsComplete) {
  for (const Algorithm algorithm :
       {Algorithm::kFixedWindow, Algorithm::kSlidingWindowCounter, Algorithm::kSlidingWindow}) {
    SCOPED_TRACE(ToString(algorithm));
    const Limit limit = SimpleLimit(algorithm, 10, 1, Micros{1'000});
    const Charge charge{.key = "k", .limit = &limit, .cost = 4};
    std::vector<Receipt> receipts;
    Request hold{.charges = {&charge, 1}, .now = At(kStartUs)};
    Run({.request = &hold, .receipts = &receipts});
    std::vector<Receipt> others;
    Request later{.charges = {&charge, 1}, .now = At(kStartUs + 2'000)};
    Run({.request = &later, .receipts = &others});
    Request refund{.charges = {}, .now = At(kStartUs + 2'001)};
    Run({.request = &refund, .kind = Task::Kind::kRefund, .receipts = &receipts});
    EXPECT_TRUE(refund.outcome.value().allowed);
    const Charge look{.key = "k", .limit = &limit, .cost = 0};
    Request after{.charges = {&look, 1}, .now = At(kStartUs + 2'002)};
    Run({.request = &after});
    EXPECT_EQ(after.outcome.value().remaining, 6);
    server_.Cli("flushall");
  }
}

// Holds that were taken at the same moment, or from the same window, look alike.
TEST_F(RefundTest, SeveralInOneCallAreAllMade) {
  for (const Algorithm algorithm : kAlgorithms) {
    SCOPED_TRACE(ToString(algorithm));
    const Limit limit = SimpleLimit(algorithm, 5, 1, Micros{60'000'000});
    const auto charge = [&](std::string_view key, std::int64_t cost) {
      return Charge{.key = key, .limit = &limit, .cost = cost};
    };
    const auto look = [&](std::string_view key) {
      const Charge peek = charge(key, 0);
      Request request{.charges = {&peek, 1}, .now = At(kStartUs)};
      Run({.request = &request});
      return request.outcome.value().remaining;
    };
    std::vector<Receipt> receipts_a;
    std::vector<Receipt> receipts_b;
    for (auto& [key, receipts] : {std::pair{"a", &receipts_a}, std::pair{"b", &receipts_b}}) {
      const Charge three = charge(key, 3);
      Request request{.charges = {&three, 1}, .now = At(kStartUs)};
      Run({.request = &request, .receipts = receipts});
      ASSERT_EQ(receipts->size(), 1u);
    }
    const Charge one = charge("c", 1);
    Request refund_a{.charges = {}, .now = At(kStartUs)};
    Request refund_b{.charges = {}, .now = At(kStartUs)};
    Request check{.charges = {&one, 1}, .now = At(kStartUs)};
    RunTogether(std::vector<Task>{
        {.request = &refund_a, .kind = Task::Kind::kRefund, .receipts = &receipts_a},
        {.request = &refund_b, .kind = Task::Kind::kRefund, .receipts = &receipts_b},
        {.request = &check}});
    EXPECT_EQ(look("a"), 5);
    EXPECT_EQ(look("b"), 5);
    EXPECT_EQ(look("c"), 4);
    EXPECT_EQ(check.outcome.value().remaining, 4);
  }
}

}  // namespace
}  // namespace sluice
