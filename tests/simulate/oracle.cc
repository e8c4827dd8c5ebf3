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
      // Holds may be among what was given back.
      for (Step& step : steps) step.held = false;
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
      if (!step.held || step.at_us != group.whens[i] || units == 0) continue;
      const std::int64_t given = std::min(units, step.units);
      step.units -= given;
      units -= given;
    }
    Replay(group.keys[i]);
  }
}

}  // namespace sluice::simulate
