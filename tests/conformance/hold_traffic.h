// SPDX-License-Identifier: Apache-2.0
// Random traffic of holds, for stores that are compared with the reference model.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/hold_on_store.h"
#include "conformance/model.h"
#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "core/algorithms.h"
#include "sluice/store.h"

namespace sluice {

inline constexpr auto kAllAlgorithms = [] {
  std::array<Algorithm, core::kAlgorithmCount> all{};
  std::ranges::transform(core::kAlgorithms, all.begin(), &core::AlgorithmRow::algorithm);
  return all;
}();

inline Algorithm AnyAlgorithm(Random& random) {
  return kAllAlgorithms[static_cast<std::size_t>(random.Between(0, kAllAlgorithms.size() - 1))];
}

// How often something happened, so that a test shows that it did.
struct HoldCounts {
  int live = 0;  // Settled in time.
  int late = 0;
  int conflicts = 0;
  int lost = 0;
};

// A request and what it asks of the model.
struct HoldStep {
  Action action = Action::kCheck;
  std::vector<model::Model::Charge> asked;
  std::string id;
  std::int64_t ttl_us = 0;
  OnExpiry on_expiry = OnExpiry::kCharge;
  std::int64_t now = 0;
};

inline void PrintTo(const HoldStep& step, std::ostream* out) {
  constexpr std::array kNames = {"check", "debit", "give", "reset", "hold", "settle", "extend"};
  *out << kNames[static_cast<std::size_t>(step.action)] << " now=" << step.now << " id=" << step.id
       << " ttl=" << step.ttl_us << (step.on_expiry == OnExpiry::kCharge ? " charge" : " release");
  for (const auto& charge : step.asked) {
    *out << " [" << charge.key << "/" << charge.name << " cost=" << charge.cost << "]";
  }
}

inline HoldStep RandomStep(Random& random, const std::vector<Limit>& limits, std::int64_t now) {
  HoldStep step;
  step.now = now;
  constexpr std::array kActions = {
      Action::kCheck, Action::kCheck,  Action::kHold,   Action::kHold,   Action::kHold,
      Action::kHold,  Action::kSettle, Action::kSettle, Action::kSettle, Action::kExtend,
      Action::kGive,  Action::kDebit,  Action::kCheck,  Action::kReset};
  step.action = kActions[static_cast<std::size_t>(random.Between(0, kActions.size() - 1))];
  // Resets are rare, or no state would live long enough.
  if (step.action == Action::kReset && !random.OneIn(4)) step.action = Action::kHold;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    if (random.OneIn(6) && !(i + 1 == limits.size() && step.asked.empty())) continue;
    const Limit& limit = limits[i];
    std::int64_t cost = RandomCost(random, limit, step.action);
    if (step.action == Action::kHold || step.action == Action::kCheck) {
      cost = random.OneIn(30) ? limit.amount() + 1 : std::min(limit.amount(), cost);
    }
    // The library takes any more for this much.
    if (step.action == Action::kSettle) cost = std::min(cost, (std::int64_t{1} << 53) - 1);
    step.asked.push_back(
        {std::to_string(random.OneIn(5) ? 1 : 0), std::to_string(i), SpecOf(limit), cost});
  }
  step.id = "id-" + std::to_string(random.Between(0, 5));
  step.ttl_us = random.OneIn(2) ? random.Between(1'000, 100'000)
                                : random.AnySize(kHoldTtlMax.count() - 1'000) + 1'000;
  step.on_expiry = random.OneIn(2) ? OnExpiry::kRelease : OnExpiry::kCharge;
  return step;
}

inline model::Model::Group Ask(model::Model& model, const HoldStep& step) {
  const auto on_expiry =
      step.on_expiry == OnExpiry::kRelease ? model::OnExpiry::kRelease : model::OnExpiry::kCharge;
  switch (step.action) {
    case Action::kCheck:
      return model.Decide(step.asked, step.now);
    case Action::kDebit:
      return model.Debit(step.asked, step.now);
    case Action::kGive:
      return model.Give(step.asked, step.now);
    case Action::kHold:
      return model.Hold(step.asked, step.id, step.ttl_us, on_expiry, step.now);
    case Action::kSettle:
      return model.Settle(step.asked, step.id, step.now);
    case Action::kExtend:
      return model.Extend(step.asked, step.id, step.ttl_us, step.now);
    case Action::kReset: {
      auto peek = step.asked;
      for (auto& charge : peek) {
        model.Reset(charge.key, charge.name);
        charge.cost = 0;
      }
      return model.Decide(peek, step.now);
    }
    case Action::kListHolds:
      break;  // See ExpectSameList.
  }
  std::unreachable();
}

// Whether the store lists the same holds as the model: all of them, or that of one id.
inline void ExpectSameList(Store& store, model::Model& model, const Charge& charge,
                           const model::Model::Charge& asked, std::string_view only,
                           std::int64_t now) {
  HoldList listed{.only = only};
  Request request{
      .charges = {&charge, 1}, .now = At(now), .action = Action::kListHolds, .listed = &listed};
  ApplyAndWait(store, request);
  ASSERT_TRUE(request.outcome) << request.outcome.error().message;
  auto peek = asked;
  peek.cost = 0;
  ASSERT_EQ(*request.outcome, DecisionOf(model.Decide({peek}, now).overall));
  const auto live = model.ListHolds(peek, now);
  ASSERT_EQ(listed.live, live.size());
  std::vector<HoldList::Hold> expected;
  for (const model::Model::Held& hold : live) {
    if (!only.empty() && hold.id != only) continue;
    const bool releases = hold.on_expiry == model::OnExpiry::kRelease;
    expected.push_back({.id = hold.id,
                        .units = hold.units,
                        .taken = At(hold.taken_us),
                        .expires = At(hold.expires_us),
                        .on_expiry = releases ? OnExpiry::kRelease : OnExpiry::kCharge});
  }
  ASSERT_EQ(listed.holds, expected);
}

// Asks the store and the model `steps` times, and compares all that they say.
inline void CompareHolds(Store& store, Random& random, const std::vector<Limit>& limits, int steps,
                         HoldCounts& counts, std::int64_t start = kStartUs,
                         std::string_view key_prefix = {}) {
  model::Model model;
  std::int64_t now = start + random.Between(0, std::min(limits.front().span().count(), kStartUs));
  Decision last;
  std::int64_t expires = 0;
  for (int number = 0; number < steps; ++number) {
    const auto pick =
        static_cast<std::size_t>(random.Between(0, static_cast<std::int64_t>(limits.size()) - 1));
    // Often to an expiry, and to the end of an id's memory, or one microsecond off.
    if (expires > now && random.OneIn(3)) {
      now = std::max(now, expires + random.Between(-1, 1));
    } else if (expires > 0 && random.OneIn(20)) {
      now = std::max(now, expires + kHoldRemembered.count() + random.Between(-1, 1));
    } else {
      now = NextTime(random, now, limits[pick], last, Time::kForward);
    }
    // The last expiry that can be told is the end of time.
    if (now > (kTimeMax - kHoldTtlMax).time_since_epoch().count()) return;
    const HoldStep step = RandomStep(random, limits, now);
    SCOPED_TRACE("step " + std::to_string(number) + ": " + testing::PrintToString(step));
    std::vector<std::string> keys;
    for (const auto& asked : step.asked) keys.push_back(std::string(key_prefix) + asked.key);
    std::vector<Charge> charges;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto& asked = step.asked[i];
      charges.push_back({.key = keys[i],
                         .limit = &limits[std::stoul(asked.name)],
                         .name = asked.name,
                         .cost = asked.cost});
    }
    HoldTerms terms{.id = step.id, .ttl = Micros{step.ttl_us}, .on_expiry = step.on_expiry};
    const bool about_hold = step.action == Action::kHold || step.action == Action::kSettle ||
                            step.action == Action::kExtend;
    std::vector<Decision> each(charges.size());
    Request request{.charges = charges,
                    .now = At(now),
                    .each = each,
                    .action = step.action,
                    .hold = about_hold ? &terms : nullptr};
    const auto expected = Ask(model, step);
    ApplyAndWait(store, request);
    const auto& outcome = request.outcome;
    if (random.OneIn(4)) {
      const std::string_view only = random.OneIn(2) ? std::string_view(step.id) : "";
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameList(store, model, charges.front(), step.asked.front(), only, now));
    }
    counts.conflicts += expected.status == model::Status::kHoldConflict;
    counts.lost += expected.status == model::Status::kHoldLost;
    if (IsError(expected.status)) {
      ASSERT_FALSE(outcome) << testing::PrintToString(*outcome);
      ASSERT_EQ(ToString(outcome.error().code), ToString(CodeOf(expected.status)));
      continue;
    }
    ASSERT_TRUE(outcome) << outcome.error().message;
    for (std::size_t i = 0; i < each.size(); ++i) {
      ASSERT_EQ(each[i], DecisionOf(expected.each[i])) << charges[i].limit->ToString();
    }
    ASSERT_EQ(*outcome, DecisionOf(expected.overall));
    last = *outcome;
    if (step.action == Action::kSettle) {
      ASSERT_EQ(terms.late, expected.status == model::Status::kLate);
      ASSERT_EQ(terms.overdrawn, expected.overall.overdrawn);
      ++(terms.late ? counts.late : counts.live);
    } else if (about_hold && outcome->allowed) {
      expires = expected.overall.expires_us;
      ASSERT_EQ(terms.expires.time_since_epoch().count(), expires);
    }
  }
}

}  // namespace sluice
