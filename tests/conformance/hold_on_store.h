// SPDX-License-Identifier: Apache-2.0
// Runs the scenarios that were worked out by hand on a store.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "conformance/hold_scenarios.h"
#include "conformance/model_spec.h"
#include "core/algorithms.h"
#include "sluice/store.h"

namespace sluice {

inline void ApplyAndWait(Store& store, Request& request) {
  std::promise<void> answered;
  store.Apply({&request, 1}, [&] { answered.set_value(); });
  answered.get_future().wait();
}

inline Action ActionOf(scenario::Op op) {
  switch (op) {
    case scenario::Op::kCheck:
      return Action::kCheck;
    case scenario::Op::kGive:
      return Action::kGive;
    case scenario::Op::kDebit:
      return Action::kDebit;
    case scenario::Op::kHold:
      return Action::kHold;
    case scenario::Op::kSettle:
      return Action::kSettle;
    case scenario::Op::kExtend:
      return Action::kExtend;
    case scenario::Op::kReset:
      return Action::kReset;
  }
  std::unreachable();
}

// An algorithm of this kind; the model does not tell GCRA from a token bucket.
inline Algorithm AlgorithmOf(model::Kind kind) {
  for (const core::AlgorithmRow& row : core::kAlgorithms) {
    if (KindOf(row.algorithm) == kind) return row.algorithm;
  }
  std::unreachable();
}

inline ErrorCode CodeOf(model::Status status) {
  switch (status) {
    case model::Status::kHoldLost:
      return ErrorCode::kHoldLost;
    case model::Status::kHoldConflict:
      return ErrorCode::kHoldConflict;
    case model::Status::kNeedsHold:
      return ErrorCode::kNeedsHold;
    case model::Status::kTooManyHolds:
      return ErrorCode::kTooManyHolds;
    case model::Status::kCostExceeds:
      return ErrorCode::kCostExceedsLimit;
    case model::Status::kOk:
    case model::Status::kLate:
      break;
  }
  return ErrorCode::kStoreError;  // No error at all.
}

inline bool IsError(model::Status status) {
  return status != model::Status::kOk && status != model::Status::kLate;
}

inline void RunOnStore(Store& store, const scenario::Scenario& scenario,
                       const std::string& key_prefix = {}) {
  std::vector<Limit> limits;
  for (const model::Spec& spec : scenario.limits) {
    limits.push_back(
        Limit::Make(AlgorithmOf(spec.kind), spec.amount, spec.refill, Micros{spec.span_us})
            .value());
  }
  for (std::size_t number = 0; number < scenario.steps.size(); ++number) {
    SCOPED_TRACE(scenario.name + ", step " + std::to_string(number));
    const scenario::Step& step = scenario.steps[number];
    const scenario::Want& want = step.want;
    const std::string key = key_prefix + step.key;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < limits.size(); ++i) names.push_back(std::to_string(i));
    std::vector<Charge> charges;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      const auto& units = step.units.each;
      const std::int64_t cost = units.size() == 1 ? units.front() : units.at(i);
      if (cost == scenario::kNotInRequest) continue;
      charges.push_back({.key = key, .limit = &limits[i], .name = names[i], .cost = cost});
    }
    HoldTerms terms{.id = step.id,
                    .ttl = Micros{step.ttl_us},
                    .on_expiry = step.on_expiry == model::OnExpiry::kRelease ? OnExpiry::kRelease
                                                                             : OnExpiry::kCharge};
    Request request{.charges = charges,
                    .now = TimePoint{Micros{scenario::kStartUs + step.at_us}},
                    .action = ActionOf(step.op),
                    .hold = step.id.empty() ? nullptr : &terms};
    ApplyAndWait(store, request);
    if (IsError(want.status)) {
      ASSERT_FALSE(request.outcome);
      ASSERT_EQ(ToString(request.outcome.error().code), ToString(CodeOf(want.status)));
      continue;
    }
    ASSERT_TRUE(request.outcome) << request.outcome.error().message;
    if (step.op == scenario::Op::kReset) continue;
    ASSERT_EQ(*request.outcome, (Decision{.allowed = want.allowed,
                                          .limit = request.outcome->limit,
                                          .remaining = want.remaining,
                                          .retry_after = Micros{want.retry},
                                          .reset_after = Micros{want.reset},
                                          .delay = Micros{want.delay},
                                          .held = want.held}));
    ASSERT_EQ(terms.late, want.status == model::Status::kLate);
    ASSERT_EQ(terms.overdrawn, want.overdrawn);
    if (want.expires == 0) continue;
    ASSERT_EQ(terms.expires.time_since_epoch().count(), scenario::kStartUs + want.expires);
  }
}

}  // namespace sluice
