// SPDX-License-Identifier: Apache-2.0
// Holds in the reference model: the scenarios that were worked out by hand, and promises that hold
// under any traffic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/hold_scenarios.h"
#include "conformance/model.h"
#include "conformance/traffic.h"

namespace sluice {
namespace scenario {

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

}  // namespace scenario

namespace model {

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << (answer.allowed ? "allowed" : "denied") << " limit=" << answer.limit
       << " remaining=" << answer.remaining << " retry_after=" << answer.retry_after_us
       << " reset_after=" << answer.reset_after_us << " delay=" << answer.delay_us
       << " held=" << answer.held << (answer.overdrawn ? " overdrawn" : "")
       << " expires=" << answer.expires_us;
}

}  // namespace model

namespace {

using model::Answer;
using model::Model;
using model::OnExpiry;
using model::Status;
using scenario::Op;
using scenario::Scenario;
using scenario::Step;
using scenario::Want;

std::vector<Model::Charge> ChargesOf(const Scenario& scenario, const Step& step) {
  std::vector<Model::Charge> charges;
  for (std::size_t i = 0; i < scenario.limits.size(); ++i) {
    const auto& units = step.units.each;
    const std::int64_t cost = units.size() == 1 ? units.front() : units.at(i);
    if (cost == scenario::kNotInRequest) continue;
    charges.push_back({step.key, std::to_string(i), scenario.limits[i], cost});
  }
  return charges;
}

Model::Group Apply(Model& model, const Scenario& scenario, const Step& step) {
  const auto charges = ChargesOf(scenario, step);
  const std::int64_t now_us = scenario::kStartUs + step.at_us;
  switch (step.op) {
    case Op::kCheck:
      return model.Decide(charges, now_us);
    case Op::kGive:
      return model.Give(charges, now_us);
    case Op::kDebit:
      return model.Debit(charges, now_us);
    case Op::kHold:
      return model.Hold(charges, step.id, step.ttl_us, step.on_expiry, now_us);
    case Op::kSettle:
      return model.Settle(charges, step.id, now_us);
    case Op::kExtend:
      return model.Extend(charges, step.id, step.ttl_us, now_us);
    case Op::kReset:
      for (const Model::Charge& charge : charges) model.Reset(charge.key, charge.name);
      return {};
  }
  throw std::invalid_argument("unknown operation");
}

// The scenarios leave open which limit of a group is named.
Answer AnswerOf(const Want& want, std::int64_t limit) {
  return {.allowed = want.allowed,
          .limit = limit,
          .remaining = want.remaining,
          .retry_after_us = want.retry,
          .reset_after_us = want.reset,
          .delay_us = want.delay,
          .held = want.held,
          .overdrawn = want.overdrawn,
          .expires_us = want.expires == 0 ? 0 : scenario::kStartUs + want.expires};
}

class HoldScenarios : public testing::TestWithParam<Scenario> {};

TEST_P(HoldScenarios, AreDecidedByTheModelAsByHand) {
  const Scenario& scenario = GetParam();
  Model model;
  for (std::size_t i = 0; i < scenario.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const Step& step = scenario.steps[i];
    const Model::Group group = Apply(model, scenario, step);
    ASSERT_EQ(group.status, step.want.status);
    ASSERT_EQ(group.cost_exceeds, step.want.status == Status::kCostExceeds);
    if (step.op == Op::kReset) continue;
    const bool failed = group.status != Status::kOk && group.status != Status::kLate;
    ASSERT_EQ(group.overall, failed ? Answer{} : AnswerOf(step.want, group.overall.limit));
    ASSERT_EQ(group.each.size(), failed ? 0 : ChargesOf(scenario, step).size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, HoldScenarios, testing::ValuesIn(scenario::All()),
                         [](const auto& param) { return param.param.name; });

TEST(ModelHolds, AStateHasAtMost4096LiveHolds) {
  for (const model::Kind kind : {model::Kind::kFixedWindow, model::Kind::kConcurrency}) {
    const model::Spec spec{kind, 1'000'000, 0, 3'600'000'000};
    Model model;
    const auto hold = [&](const std::string& key, const std::string& id, std::int64_t ttl_us,
                          std::int64_t now_us) {
      return model.Hold({{key, "", spec, 0}}, id, ttl_us, OnExpiry::kCharge, now_us);
    };
    for (int i = 0; i < 4'096; ++i) {
      const std::int64_t ttl_us = i == 0 ? 10'000'000 : 20'000'000;
      ASSERT_EQ(hold("k", std::to_string(i), ttl_us, kStartUs).status, Status::kOk);
    }
    EXPECT_EQ(hold("k", "more", 20'000'000, kStartUs).status, Status::kTooManyHolds);
    EXPECT_EQ(hold("other", "more", 20'000'000, kStartUs).status, Status::kOk);
    EXPECT_EQ(hold("k", "7", 20'000'000, kStartUs).status, Status::kOk) << "the same again";
    // One expires, another is settled; both are remembered, but neither is live.
    EXPECT_EQ(hold("k", "more", 20'000'000, kStartUs + 9'999'999).status, Status::kTooManyHolds);
    EXPECT_EQ(hold("k", "more", 20'000'000, kStartUs + 10'000'000).status, Status::kOk);
    EXPECT_EQ(hold("k", "more2", 20'000'000, kStartUs + 10'000'000).status, Status::kTooManyHolds);
    model.Settle({{"k", "", spec, 0}}, "1", kStartUs + 10'000'000);
    EXPECT_EQ(hold("k", "more2", 20'000'000, kStartUs + 10'000'000).status, Status::kOk);
  }
}

TEST(ModelHolds, RefuseWhatIsOutsideTheirDomain) {
  Model model;
  const auto hold = [&](const model::Spec& spec, const std::string& id, std::int64_t ttl_us) {
    model.Hold({{"k", std::to_string(static_cast<int>(spec.kind)), spec, 0}}, id, ttl_us,
               OnExpiry::kCharge, kStartUs);
  };
  EXPECT_NO_THROW(hold(scenario::kBucket, "shortest", 1'000));
  EXPECT_THROW(hold(scenario::kBucket, "a", 999), std::invalid_argument);
  EXPECT_NO_THROW(hold(scenario::kBucket, "longest", 86'400'000'000));
  EXPECT_THROW(hold(scenario::kBucket, "a", 86'400'000'001), std::invalid_argument);
  EXPECT_THROW(hold(scenario::kBucket, "a", 0), std::invalid_argument);
  EXPECT_NO_THROW(hold(scenario::kSlots, "a", 0));
  EXPECT_THROW(hold(scenario::kBucket, "", 1'000), std::invalid_argument);
  EXPECT_NO_THROW(hold(scenario::kBucket, std::string(64, '~'), 1'000));
  EXPECT_THROW(hold(scenario::kBucket, std::string(65, '~'), 1'000), std::invalid_argument);
  EXPECT_THROW(hold(scenario::kBucket, "\n", 1'000), std::invalid_argument);
  EXPECT_THROW(hold(scenario::kBucket, "\x80", 1'000), std::invalid_argument);
}

struct Use {
  std::int64_t time_us;
  std::int64_t units;
};

struct Held {
  std::string id;
  std::int64_t units;
  std::int64_t taken_us;
  std::int64_t expires_us;
  OnExpiry on_expiry;
};

// Whoever holds may use the units at any moment until the hold ends. As long as nobody settles for
// more than was held or corrects an expiry, no choice of these moments lets more through than the
// bucket promises.
TEST(ModelHolds, OfABucketNeverHandOutMoreThanBurstPlusRateOverAnyInterval) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int round = 0; round < 100; ++round) {
      const model::Spec spec{model::Kind::kTokenBucket, random.Between(1, 30),
                             random.Between(1, 30), random.Between(1, 20) * 1'000'000};
      const std::int64_t token_us = std::max<std::int64_t>(2'000, spec.span_us / spec.refill);
      Model model;
      std::vector<Use> uses;
      std::vector<Held> open;
      const auto use = [&](std::int64_t units, std::int64_t from_us, std::int64_t to_us) {
        uses.push_back({random.OneIn(2) ? to_us : random.Between(from_us, to_us), units});
      };
      // What became of a hold that ends now, by a settle or because nobody looks any longer.
      const auto end = [&](const Held& held, std::int64_t actual, std::int64_t now_us) {
        if (now_us >= held.expires_us && held.on_expiry == OnExpiry::kRelease) return;
        use(actual, held.taken_us, std::min(now_us, held.expires_us));
      };
      std::int64_t now_us = kStartUs;
      for (int step = 0; step < 150; ++step) {
        now_us += random.Between(0, 2 * token_us);
        const std::int64_t cost = random.Between(1, spec.amount);
        if (random.OneIn(3)) {
          if (model.Decide({{"k", "", spec, cost}}, now_us).overall.allowed) {
            use(cost, now_us, now_us);
          }
        } else if (random.OneIn(2)) {
          const Held held{std::to_string(step), cost, now_us,
                          now_us + random.Between(1'000, 5 * token_us),
                          random.OneIn(2) ? OnExpiry::kRelease : OnExpiry::kCharge};
          const Model::Group group = model.Hold({{"k", "", spec, cost}}, held.id,
                                                held.expires_us - now_us, held.on_expiry, now_us);
          ASSERT_EQ(group.status, Status::kOk);
          if (group.overall.allowed) open.push_back(held);
        } else if (!open.empty()) {
          const auto pick = static_cast<std::size_t>(
              random.Between(0, static_cast<std::int64_t>(open.size()) - 1));
          const Held held = open[pick];
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick));
          const bool late = now_us >= held.expires_us;
          if (now_us >= held.expires_us + 60'000'000) {
            end(held, held.units, now_us);  // Forgotten, so its units stay what they became.
            continue;
          }
          // Late, it leaves things as the expiry left them. A correction would hand out again what
          // had come back since, or take what is not there any more.
          const std::int64_t as_expired = held.on_expiry == OnExpiry::kRelease ? 0 : held.units;
          const std::int64_t actual = late ? as_expired : random.Between(0, held.units);
          const Model::Group group = model.Settle({{"k", "", spec, actual}}, held.id, now_us);
          ASSERT_EQ(group.status, late ? Status::kLate : Status::kOk);
          ASSERT_FALSE(group.overall.overdrawn);
          end(held, actual, now_us);
        }
        const Answer now = model.Decide({{"k", "", spec, 0}}, now_us).overall;
        ASSERT_LE(now.remaining + now.held, spec.amount);
      }
      for (const Held& held : open) end(held, held.units, now_us);

      std::ranges::sort(uses, {}, &Use::time_us);
      for (std::size_t from = 0; from < uses.size(); ++from) {
        model::internal::Int128 units = 0;
        for (std::size_t to = from; to < uses.size(); ++to) {
          units += uses[to].units;
          const model::internal::Int128 elapsed_us = uses[to].time_us - uses[from].time_us;
          ASSERT_TRUE(units * spec.span_us <= model::internal::Int128{spec.amount} * spec.span_us +
                                                  elapsed_us * spec.refill);
        }
      }
    }
  }
}

// A hold that is released while it is live leaves a window as one that was never made, for all who
// did not need its units meanwhile.
TEST(ModelHolds, OfAWindowLeaveNoTraceWhenReleased) {
  for (const std::uint64_t seed : Seeds()) {
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    for (const model::Kind kind : {model::Kind::kFixedWindow, model::Kind::kSlidingWindow,
                                   model::Kind::kSlidingWindowCounter}) {
      int compared = 0;
      for (int round = 0; round < 100; ++round) {
        const model::Spec spec{kind, random.Between(1, 30), 0, random.Between(1, 20) * 1'000'000};
        Model with;
        Model without;
        std::vector<std::string> open;
        std::int64_t now_us = kStartUs;
        for (int step = 0; step < 60; ++step) {
          now_us += random.OneIn(2) ? 0 : random.Between(0, spec.span_us / 2);
          const std::int64_t cost = random.Between(0, spec.amount);
          const std::string id = std::to_string(step);
          if (random.OneIn(3)) {
            const bool expires = random.OneIn(2);
            const std::int64_t ttl_us =
                expires ? random.Between(1'000, spec.span_us) : 86'400'000'000;
            const auto group =
                with.Hold({{"k", "", spec, cost}}, id, ttl_us, OnExpiry::kRelease, now_us);
            if (group.overall.allowed && !expires) open.push_back(id);
          } else if (with.Decide({{"k", "", spec, cost}}, now_us).overall.allowed) {
            ASSERT_TRUE(without.Decide({{"k", "", spec, cost}}, now_us).overall.allowed);
          }
          if (random.OneIn(3)) {
            for (const std::string& held : open) {
              const auto group = with.Settle({{"k", "", spec, 0}}, held, now_us);
              ASSERT_EQ(group.status, Status::kOk);
            }
            open.clear();
          }
          const Answer now = with.Decide({{"k", "", spec, 0}}, now_us).overall;
          const Answer never = without.Decide({{"k", "", spec, 0}}, now_us).overall;
          ASSERT_LE(now.remaining, never.remaining);
          if (!open.empty() || now.held > 0) continue;
          ASSERT_EQ(now, never);
          ++compared;
        }
      }
      EXPECT_GT(compared, 500);
    }
  }
}

}  // namespace
}  // namespace sluice
