// SPDX-License-Identifier: Apache-2.0
// Random traffic under random limits: the memory store must agree with the reference model in every
// field of every decision, and keep the promises that users rely on.
//
// Each test prints its seed when it fails; SLUICE_TEST_SEED=<seed> runs it again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "conformance/model.h"
#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "sluice/limiter.h"
#include "sluice/memory_store.h"

namespace sluice {
namespace {

struct Case {
  Algorithm algorithm;
  Time time;
};

void PrintTo(const Case& test, std::ostream* out) {
  *out << ToString(test.algorithm) << (test.time == Time::kForward ? " forward" : " any direction");
}

model::Model::Group Ask(model::Model& model, Action action,
                        const std::vector<model::Model::Charge>& charges, std::int64_t now) {
  if (action == Action::kGive) return model.Give(charges, now);
  return action == Action::kDebit ? model.Debit(charges, now) : model.Decide(charges, now);
}

Expected<Decision> Ask(Store& store, Action action, std::span<const Charge> charges,
                       std::span<Decision> each, std::int64_t now) {
  Request request{.charges = charges, .now = At(now), .each = each, .action = action};
  store.Apply({&request, 1}, [] {});
  return request.outcome;
}

class AgreesWithModel : public testing::TestWithParam<Case> {};

TEST_P(AgreesWithModel, InEveryFieldOfEveryDecision) {
  const auto [algorithm, time] = GetParam();
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 400; ++round) {
      const Limit limit = RandomLimit(random, algorithm);
      SCOPED_TRACE(limit.ToString());
      // Where time may go back, a store that forgets recovered state may rightly differ.
      MemoryStore store({.recovered_kept_for = time == Time::kForward ? Micros{0} : Micros::max()});
      model::Model model;
      std::int64_t now = kStartUs + random.Between(0, std::min(limit.span().count(), kStartUs));
      Decision last;
      for (int step = 0; step < 150; ++step) {
        now = NextTime(random, now, limit, last, time);
        const std::string key = std::to_string(random.Between(0, random.OneIn(3) ? 2 : 0));
        const Action action = RandomAction(random);
        const std::int64_t cost = RandomCost(random, limit, action);
        SCOPED_TRACE("step " + std::to_string(step) + " now=" + std::to_string(now) +
                     " key=" + key +
                     (action == Action::kDebit  ? " debit="
                      : action == Action::kGive ? " give="
                                                : " cost=") +
                     std::to_string(cost));
        const auto expected = Ask(model, action, {{key, "", SpecOf(limit), cost}}, now);
        const Charge charge{.key = key, .limit = &limit, .cost = cost};
        const auto decision = Ask(store, action, {&charge, 1}, {}, now);
        if (expected.cost_exceeds) {
          ASSERT_FALSE(decision);
          ASSERT_EQ(decision.error().code, ErrorCode::kCostExceedsLimit);
          continue;
        }
        ASSERT_TRUE(decision) << decision.error().message;
        ASSERT_EQ(*decision, DecisionOf(expected.overall));
        last = *decision;
      }
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Algorithm algorithm : kAlgorithms) {
    cases.push_back({algorithm, Time::kForward});
    cases.push_back({algorithm, Time::kAnyDirection});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, AgreesWithModel, testing::ValuesIn(Cases()), [](const auto& param) {
  return std::string(ToString(param.param.algorithm)) +
         (param.param.time == Time::kForward ? "_forward" : "_any_direction");
});

TEST(GroupsAgreeWithModel, OverSeveralKeysAndLimits) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 400; ++round) {
      std::vector<Limit> limits;
      for (std::int64_t i = random.Between(1, 5); i > 0; --i) {
        limits.push_back(RandomLimit(random));
      }
      MemoryStore store({.recovered_kept_for = Micros::max()});
      model::Model model;
      std::int64_t now = kStartUs;
      Decision last;
      for (int step = 0; step < 100; ++step) {
        const auto pick = static_cast<std::size_t>(
            random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
        now = NextTime(random, now, limits[pick], last, Time::kAnyDirection);
        const Action action = RandomAction(random);
        const std::int64_t cost = RandomCost(random, limits[pick], action);
        std::vector<model::Model::Charge> asked;
        for (std::size_t i = 0; i < limits.size(); ++i) {
          if (random.OneIn(4) && !(i + 1 == limits.size() && asked.empty())) continue;
          asked.push_back({std::to_string(random.Between(0, 1)), std::to_string(i),
                           SpecOf(limits[i]), random.OneIn(5) ? 0 : cost});
        }
        std::vector<Charge> charges;
        for (const auto& charge : asked) {
          charges.push_back({.key = charge.key,
                             .limit = &limits[std::stoul(charge.name)],
                             .name = charge.name,
                             .cost = charge.cost});
        }
        const auto expected = Ask(model, action, asked, now);
        std::vector<Decision> each(charges.size());
        const auto decision = Ask(store, action, charges, each, now);
        if (expected.cost_exceeds) {
          ASSERT_FALSE(decision);
          ASSERT_EQ(decision.error().code, ErrorCode::kCostExceedsLimit);
          continue;
        }
        ASSERT_TRUE(decision) << decision.error().message;
        ASSERT_EQ(*decision, DecisionOf(expected.overall));
        for (std::size_t i = 0; i < each.size(); ++i) {
          ASSERT_EQ(each[i], DecisionOf(expected.each[i])) << limits[i].ToString();
        }
        last = *decision;
      }
    }
  }
}

TEST(TickAgreesWithModel, ForLimitsOfAllSizes) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    std::map<std::int64_t, int> seen;
    for (int i = 0; i < 50'000; ++i) {
      const Algorithm algorithm = RandomAlgorithm(random);
      // The counter's amount has a bound of its own; see Limit.
      const bool counter = algorithm == Algorithm::kSlidingWindowCounter;
      if (algorithm == Algorithm::kCalendar) continue;  // Below.
      const std::int64_t amount = random.AnySize((1LL << (counter ? 46 : 53)) - 1);
      const std::int64_t refill = random.AnySize((1LL << 53) - 1);
      std::int64_t span = random.AnySize(kSpanMax.count());
      if (random.OneIn(2)) span = std::max<std::int64_t>(1'000'000, span - span % 1'000'000);
      const auto limit = Limit::Make(algorithm, amount, refill, Micros{span});
      const std::int64_t tick = model::TickUs(
          {.kind = KindOf(algorithm), .amount = amount, .refill = refill, .span_us = span});
      ASSERT_EQ(limit ? limit->tick().count() : 0, tick)
          << ToString(algorithm) << " " << amount << " " << refill << " " << span;
      ++seen[tick];
    }
    EXPECT_EQ(seen.size(), 4u) << "every tick and the refusal occur";
    for (int i = 0; i < 1'000; ++i) {
      const std::int64_t amount = random.AnySize((1LL << 53) - 1);
      const auto limit = Limit::Calendar({.limit = amount, .every = Every::kWeek});
      ASSERT_EQ(limit ? limit->tick().count() : 0,
                model::TickUs({.kind = model::Kind::kCalendar, .amount = amount}));
    }
  }
}

// The promise in Decision::retry_after, without a model: walk up to it.
TEST(Retry, IsDeniedOneMicrosecondBeforeAndAdmittedExactlyThen) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    int walked = 0;
    for (int round = 0; round < 600; ++round) {
      const Limit limit = RandomLimit(random);
      SCOPED_TRACE(limit.ToString());
      MemoryStore store;
      std::int64_t now = kStartUs;
      Decision last;
      for (int step = 0; step < 30; ++step) {
        now = NextTime(random, now, limit, last, Time::kForward);
        const std::int64_t cost = std::min(limit.amount(), RandomCost(random, limit));
        const Charge charge{.key = "k", .limit = &limit, .cost = cost};
        last = store.Check(charge, At(now)).value();
        if (last.allowed) continue;
        ASSERT_GT(last.retry_after.count(), 0);
        if (last.retry_after > kTimeMax - At(now)) continue;
        ASSERT_FALSE(store.Check(charge, At(now) + last.retry_after - Micros{1})->allowed);
        now += last.retry_after.count();
        ASSERT_TRUE(store.Check(charge, At(now))->allowed);
        ++walked;
      }
    }
    EXPECT_GT(walked, 1000);
  }
}

TEST(Reset, IsWholeExactlyThenAndNotBefore) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 2'000; ++round) {
      const Limit limit = RandomLimit(random);
      SCOPED_TRACE(limit.ToString());
      MemoryStore store;
      std::int64_t now = kStartUs;
      Decision last;
      for (int step = 0; step < 5; ++step) {
        last = store
                   .Check({.key = "k", .limit = &limit, .cost = random.Between(1, limit.amount())},
                          At(now))
                   .value();
        now = NextTime(random, now, limit, {}, Time::kForward);
      }
      const auto peek = [&](TimePoint at) {
        return store.Check({.key = "k", .limit = &limit, .cost = 0}, at).value();
      };
      last = peek(At(now));
      if (last.reset_after > kTimeMax - At(now) || last.reset_after == Micros{0}) continue;
      EXPECT_EQ(peek(At(now) + last.reset_after).remaining, limit.amount());
      if (last.remaining < limit.amount()) {
        EXPECT_LT(peek(At(now) + last.reset_after - Micros{1}).remaining, limit.amount());
      }
    }
  }
}

struct Admission {
  std::int64_t time;
  std::int64_t units;
};

std::vector<Admission> Flood(Random& random, const Limit& limit, int requests) {
  MemoryStore store;
  std::vector<Admission> admitted;
  std::int64_t now = kStartUs;
  Decision last;
  for (int i = 0; i < requests; ++i) {
    now = NextTime(random, now, limit, last, Time::kForward);
    const std::int64_t cost =
        std::clamp<std::int64_t>(RandomCost(random, limit), 1, limit.amount());
    last = store.Check({.key = "k", .limit = &limit, .cost = cost}, At(now)).value();
    if (last.allowed) admitted.push_back({now, cost});
  }
  return admitted;
}

TEST(Bound, BucketsNeverAdmitMoreThanBurstPlusRateOverAnyInterval) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 100; ++round) {
      const Limit limit =
          RandomLimit(random, kAlgorithms[static_cast<std::size_t>(random.Between(0, 2))]);
      SCOPED_TRACE(limit.ToString());
      const auto admitted = Flood(random, limit, 150);
      for (std::size_t from = 0; from < admitted.size(); ++from) {
        __int128 units = 0;
        for (std::size_t to = from; to < admitted.size(); ++to) {
          units += admitted[to].units;
          // A request is booked at the start of its tick, so the interval counts that much longer.
          const __int128 elapsed =
              admitted[to].time - admitted[from].time + limit.tick().count() - 1;
          ASSERT_TRUE(units * limit.span().count() <=
                      static_cast<__int128>(limit.amount()) * limit.span().count() +
                          elapsed * limit.refill());
        }
      }
    }
  }
}

TEST(Bound, LogsNeverAdmitMoreThanTheLimitInAnyWindow) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 100; ++round) {
      const Limit limit = RandomLimit(random, Algorithm::kSlidingWindow);
      SCOPED_TRACE(limit.ToString());
      const auto admitted = Flood(random, limit, 150);
      for (std::size_t from = 0; from < admitted.size(); ++from) {
        std::int64_t units = 0;
        for (std::size_t to = from; to < admitted.size(); ++to) {
          if (admitted[to].time >= admitted[from].time + limit.span().count()) break;
          units += admitted[to].units;
          ASSERT_LE(units, limit.amount());
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
