// SPDX-License-Identifier: Apache-2.0
#include "simulate/oracle.h"

#include <algorithm>
#include <stdexcept>

#include "conformance/model_spec.h"

namespace sluice::simulate {
namespace {

using Charge = model::Model::Charge;

std::vector<Decision> DecisionsOf(const std::vector<model::Answer>& answers) {
  std::vector<Decision> decisions;
  std::ranges::transform(answers, std::back_inserter(decisions), DecisionOf);
  return decisions;
}

bool IsAboutHold(const ScriptGroup& group) { return !group.id.empty(); }

std::optional<ErrorCode> ErrorOf(model::Status status) {
  switch (status) {
    case model::Status::kOk:
    case model::Status::kLate:
      return std::nullopt;
    case model::Status::kHoldLost:
      return ErrorCode::kHoldLost;
    case model::Status::kHoldConflict:
      return ErrorCode::kHoldConflict;
    case model::Status::kTooManyHolds:
      return ErrorCode::kTooManyHolds;
    case model::Status::kNeedsHold:
    case model::Status::kCostExceeds:
      break;
  }
  throw std::runtime_error("the store was asked what no store need be asked");
}

bool IsBucket(const Charge& charge) { return model::internal::IsBucket(charge.spec.kind); }

}  // namespace

// docs/adr/0008: a state that is ahead of the clock by more than it takes to recover, and by more
// than a second, was written with a wrong clock.
bool Oracle::IsVoid(const Charge& charge, std::int64_t newest_us, std::int64_t now_us) {
  const model::Spec& spec = charge.spec;
  const std::int64_t recovers_in =
      IsBucket(charge) ? (spec.amount * spec.span_us + spec.refill - 1) / spec.refill
                       : spec.span_us;
  const std::int64_t ahead = newest_us - now_us;
  return ahead > recovers_in && ahead > 1'000'000;
}

void Oracle::BeforeCall(const std::string& key, bool exists, std::int64_t now_us) {
  const auto steps = steps_.find(key);
  if (exists || steps == steps_.end() || steps->second.empty()) return;
  Charge charge = charge_of_(key);
  if (!model_.IsUntouched(charge, now_us) && !IsVoid(charge, model_.NewestUs(charge), now_us)) {
    throw std::runtime_error("the state of " + key + " is gone, but it still counts");
  }
  steps->second.clear();
  model_.Reset(key, "");
}

void Oracle::Replay(const std::string& key) {
  model_.Reset(key, "");
  Charge charge = charge_of_(key);
  for (const Step& step : steps_[key]) {
    charge.cost = step.units;
    switch (step.kind) {
      case Step::Kind::kTake:
        model_.Take(charge, step.at_us);
        break;
      case Step::Kind::kGive:
        model_.Give({charge}, step.at_us);
        break;
      case Step::Kind::kUntake:
        model_.Untake(charge, step.at_us);
        break;
      case Step::Kind::kReset:
        model_.Reset(key, "");
        break;
      case Step::Kind::kHold:
        model_.Hold({charge}, step.id, step.ttl_us, step.on_expiry, step.at_us);
        break;
      case Step::Kind::kSettle:
        model_.Settle({charge}, step.id, step.at_us);
        break;
      case Step::Kind::kExtend:
        model_.Extend({charge}, step.id, step.ttl_us, step.at_us);
        break;
    }
  }
}

Oracle::Steps& Oracle::Change(const std::string& key) {
  Steps& steps = steps_[key];
  undo_.push_back({position_, key, steps});
  return steps;
}

void Oracle::RollBack(std::size_t position) {
  for (; !undo_.empty() && undo_.back().position > position; undo_.pop_back()) {
    steps_[undo_.back().key] = std::move(undo_.back().steps);
    Replay(undo_.back().key);
  }
  position_ = position;
}

void Oracle::Move(const std::string& key, Oracle& to) {
  auto node = steps_.extract(key);
  model_.Reset(key, "");
  if (node.empty()) return;
  to.steps_.insert_or_assign(key, std::move(node.mapped()));
  to.Replay(key);
}

bool Oracle::HasHolds(const std::string& key) const {
  const auto steps = steps_.find(key);
  if (steps == steps_.end()) return false;
  for (auto step = steps->second.rbegin(); step != steps->second.rend(); ++step) {
    if (step->kind == Step::Kind::kReset) return false;
    if (!step->id.empty()) return true;
  }
  return false;
}

bool Oracle::WouldAllow(const std::string& key, std::int64_t cost, std::int64_t now_us) {
  Charge charge = charge_of_(key);
  charge.cost = cost;
  if (IsVoid(charge, model_.NewestUs(charge), now_us)) return true;
  return model_.Look({charge}, now_us).overall.allowed;
}

std::vector<Verdict> Oracle::OnCall(std::span<const ScriptGroup> groups, std::int64_t now_us) {
  ++position_;
  std::vector<Verdict> verdicts;
  for (const ScriptGroup& group : groups) {
    if (group.action == "refund") {
      Refund(group);
      continue;
    }
    if (IsAboutHold(group)) {
      verdicts.push_back(DecideOnHold(group, now_us));
      continue;
    }
    for (std::int64_t time = 0; time < group.times; ++time) {
      std::ranges::move(Decide(group, now_us), std::back_inserter(verdicts));
    }
  }
  return verdicts;
}

std::vector<Verdict> Oracle::Decide(const ScriptGroup& group, std::int64_t now_us) {
  using Kind = Step::Kind;
  std::vector<bool> is_void;
  const auto note = [&](std::size_t i, Kind kind, std::int64_t at_us, std::int64_t units) {
    Steps& steps = Change(group.keys[i]);
    if (is_void[i]) steps.clear();  // It is overwritten.
    if (kind == Kind::kGive) {
      // What may be refunded may be among what was given back.
      for (Step& step : steps) step.may_refund = false;
    }
    steps.push_back({kind, at_us, units, group.action == "hold"});
  };
  std::vector<Charge> charges;
  std::vector<std::int64_t> moments;  // Not before the state's newest.
  for (std::size_t i = 0; i < group.keys.size(); ++i) {
    Charge charge = charge_of_(group.keys[i]);
    charge.cost = group.costs[i];
    const std::int64_t newest = model_.NewestUs(charge);
    is_void.push_back(IsVoid(charge, newest, now_us));
    if (is_void.back()) model_.Reset(charge.key, charge.name);
    moments.push_back(std::max(now_us, is_void.back() ? 0 : newest));
    charges.push_back(std::move(charge));
  }
  model::Model::Group answer;
  if (group.action == "reset") {
    for (std::size_t i = 0; i < charges.size(); ++i) {
      model_.Reset(charges[i].key, "");
      note(i, Kind::kReset, now_us, 0);
      charges[i].cost = 0;
    }
    answer = model_.Look(charges, now_us);
  } else if (group.action == "look") {
    answer = model_.Look(charges, now_us);
  } else if (group.action == "give") {
    std::vector<bool> gives;
    for (std::size_t i = 0; i < charges.size(); ++i) {
      gives.push_back(charges[i].cost > 0 && !model_.IsUntouched(charges[i], moments[i]));
    }
    answer = model_.Give(charges, now_us);
    for (std::size_t i = 0; i < charges.size(); ++i) {
      if (gives[i]) note(i, Kind::kGive, moments[i], group.costs[i]);
    }
  } else if (group.action == "debit") {
    std::vector<std::int64_t> before;
    for (const Charge& charge : charges) {
      Charge peek = charge;
      peek.cost = 0;
      before.push_back(model_.Look({peek}, now_us).overall.remaining);
    }
    answer = model_.Debit(charges, now_us);
    for (std::size_t i = 0; i < charges.size(); ++i) {
      const std::int64_t units = std::min(group.costs[i], before[i]);
      if (units > 0) note(i, Kind::kTake, moments[i], units);
    }
  } else {
    answer = model_.Decide(charges, now_us);
    for (std::size_t i = 0; answer.overall.allowed && i < charges.size(); ++i) {
      if (group.costs[i] > 0) note(i, Kind::kTake, moments[i], group.costs[i]);
    }
  }
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (is_void[i]) Replay(group.keys[i]);  // A state that was not overwritten is unchanged.
  }
  return {{.action = group.action,
           .keys = group.keys,
           .costs = group.costs,
           .moments = moments,
           .overall = DecisionOf(answer.overall),
           .each = DecisionsOf(answer.each)}};
}

// The clock of a state with holds is never set back here, so that none is void.
Verdict Oracle::DecideOnHold(const ScriptGroup& group, std::int64_t now_us) {
  std::vector<Charge> charges;
  std::vector<std::int64_t> moments;
  bool is_known = false;
  for (std::size_t i = 0; i < group.keys.size(); ++i) {
    Charge charge = charge_of_(group.keys[i]);
    charge.cost = group.costs[i];
    moments.push_back(std::max(now_us, model_.NewestUs(charge)));
    is_known = is_known || model_.Remembers(charge, group.id, now_us);
    charges.push_back(std::move(charge));
  }
  const auto ask = [&] {
    if (group.action == "settle") return model_.Settle(charges, group.id, now_us);
    if (group.action == "extend") return model_.Extend(charges, group.id, group.ttl_us, now_us);
    return model_.Hold(charges, group.id, group.ttl_us, group.on_expiry, now_us);
  };
  model::Model::Group answer = ask();
  const bool holds = answer.overall.allowed && !is_known;
  if (group.action == "foresee" && holds) {
    for (const std::string& key : group.keys) Replay(key);
    answer = model_.Look(charges, now_us);
  }
  const bool is_new = group.action == "reserve" && holds;
  const bool changes =
      group.action == "extend" ? answer.overall.allowed : is_new || group.action == "settle";
  for (std::size_t i = 0; changes && i < charges.size(); ++i) {
    Change(group.keys[i])
        .push_back({.kind = is_new                     ? Step::Kind::kHold
                            : group.action == "settle" ? Step::Kind::kSettle
                                                       : Step::Kind::kExtend,
                    .at_us = moments[i],
                    .units = group.costs[i],
                    .id = group.id,
                    .ttl_us = group.ttl_us,
                    .on_expiry = group.on_expiry});
  }
  return {.action = group.action,
          .keys = group.keys,
          .costs = group.costs,
          .moments = moments,
          .overall = DecisionOf(answer.overall),
          .each = DecisionsOf(answer.each),
          .id = group.id,
          .error = ErrorOf(answer.status),
          .is_new = is_new,
          .expires_us = answer.overall.expires_us,
          .late = answer.status == model::Status::kLate,
          .overdrawn = answer.overall.overdrawn};
}

// As if it had never been taken: replays everything else without it. In a log, the entry shrinks.
void Oracle::Refund(const ScriptGroup& group) {
  for (std::size_t i = 0; i < group.keys.size(); ++i) {
    Steps& steps = Change(group.keys[i]);
    std::int64_t units = group.costs[i];
    if (charge_of_(group.keys[i]).spec.kind == model::Kind::kSlidingWindow) {
      steps.push_back({Step::Kind::kUntake, group.whens[i], units});
      Replay(group.keys[i]);
      continue;
    }
    for (Step& step : steps) {
      if (!step.may_refund || step.at_us != group.whens[i] || units == 0) continue;
      const std::int64_t given = std::min(units, step.units);
      step.units -= given;
      units -= given;
    }
    Replay(group.keys[i]);
  }
}

}  // namespace sluice::simulate
