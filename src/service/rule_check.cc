// SPDX-License-Identifier: Apache-2.0
#include "service/rule_check.h"

#include <algorithm>
#include <utility>

#include "core/text.h"

namespace sluice::service {

using Verdict = rules::Selected::Verdict;

Expected<void> RuleCheck::Prepare(std::string_view rule_set, const rules::Context& context,
                                  std::int64_t permits) {
  charges_.clear();
  requests_.clear();
  outcomes_.clear();
  decision_ = Decision{.allowed = true};
  peek_ = permits == 0;
  limited_ = refused_ = false;
  source_ = Source::kStore;
  denied_by_ = nullptr;
  denied_band_ = nullptr;

  rule_set_ = catalog_->rules->Find(rule_set);
  if (!rule_set_) {
    return std::unexpected(
        Error{ErrorCode::kNotFound, text::Cat("there is no rule set ", text::Quote(rule_set))});
  }
  if (auto selected = rule_set_->Select(context, permits, selection_); !selected) return selected;

  for (const rules::Selected& selected : selection_.rules()) {
    outcomes_.push_back({.selected = &selected, .bands = {}, .denied = false, .error = {}});
    const bool refuses =
        selected.verdict == Verdict::kBlocked || selected.verdict == Verdict::kMissingKey;
    outcomes_.back().denied = refuses;
    if (refuses && !selected.rule->shadow) refused_ = true;
  }
  Gather();
  return {};
}

// Charges of rules that count stand first and make one request, all or nothing; those of every
// shadow follow, each a request of its own.
void RuleCheck::Gather() {
  const auto is_charged = [](const Outcome& outcome) {
    return outcome.selected->verdict == Verdict::kCharge;
  };
  const auto is_shadow = [](const Outcome& outcome) { return outcome.selected->rule->shadow; };
  std::size_t most = 0;
  for (const Outcome& outcome : outcomes_) {
    if (is_charged(outcome)) most += outcome.selected->bands.size();
  }
  // Requests and outcomes point into both, so that neither may grow any more.
  charges_.reserve(most);
  each_.assign(most, Decision{});
  const auto charge = [&](Outcome& outcome) {
    outcome.bands = std::span(each_).subspan(charges_.size(), outcome.selected->bands.size());
    for (const rules::Band& band : outcome.selected->bands) {
      charges_.push_back({.key = outcome.selected->key,
                          .limit = &band.limit,
                          .name = band.name,
                          .cost = outcome.selected->cost,
                          .on_store_failure = outcome.selected->rule->on_store_failure,
                          .on_overload = outcome.selected->rule->on_overload});
    }
  };
  const auto request_from = [&](std::size_t begin) {
    requests_.push_back({.charges = std::span(charges_).subspan(begin),
                         .now = {},
                         .each = std::span(each_).subspan(begin, charges_.size() - begin)});
  };
  for (Outcome& outcome : outcomes_) {
    // A request that is refused anyway takes nothing from the rules that count.
    if (is_charged(outcome) && !is_shadow(outcome) && !refused_) charge(outcome);
  }
  if (!charges_.empty()) request_from(0);
  limited_ = refused_ || !charges_.empty();
  for (Outcome& outcome : outcomes_) {
    if (!is_charged(outcome) || !is_shadow(outcome)) continue;
    const std::size_t begin = charges_.size();
    charge(outcome);
    request_from(begin);
  }
}

void RuleCheck::Run(Engine& engine, std::move_only_function<void()> done) {
  if (requests_.empty()) {
    Summarise();
    return done();
  }
  engine.Apply(requests_, [this, done = std::move(done)]() mutable {
    Summarise();
    done();
  });
}

void RuleCheck::Summarise() {
  std::size_t next = 0;
  if (limited_ && !refused_) {
    Request& counted = requests_[next++];
    decision_ = std::move(counted.outcome);
    source_ = counted.source;
  } else if (refused_) {
    decision_ = Decision{.allowed = false};
  }
  const auto denies = [](std::span<const Decision> bands) {
    return std::ranges::find(bands, false, &Decision::allowed);
  };
  for (Outcome& outcome : outcomes_) {
    const rules::Selected& selected = *outcome.selected;
    if (selected.rule->shadow) {
      if (selected.verdict == Verdict::kCharge) {
        Request& own = requests_[next++];
        if (!own.outcome) {
          outcome.error = std::move(own.outcome.error());
        } else {
          outcome.denied = !own.outcome->allowed;
        }
      }
      Count(outcome);
      continue;
    }
    const rules::Band* band = nullptr;
    if (decision_ && !decision_->allowed) {
      if (const auto found = denies(outcome.bands); found != outcome.bands.end()) {
        band = &selected.bands[static_cast<std::size_t>(found - outcome.bands.begin())];
        outcome.denied = true;
      }
    }
    if (outcome.denied && !denied_by_) {
      denied_by_ = selected.rule;
      denied_band_ = band;
    }
    Count(outcome);
  }
}

void RuleCheck::Count(const Outcome& outcome) const {
  if (peek_) return;
  using telemetry::RuleOutcome;
  const auto metrics = catalog_->rule_metrics.find(outcome.selected->rule);
  if (metrics == catalog_->rule_metrics.end()) return;
  const bool shadow = outcome.selected->rule->shadow;
  if (outcome.error || (!shadow && !decision_)) {
    metrics->second.Count(RuleOutcome::kError);
  } else if (outcome.denied) {
    metrics->second.Count(shadow ? RuleOutcome::kShadowDenied : RuleOutcome::kDenied);
  } else {
    metrics->second.Count(RuleOutcome::kAllowed);
  }
}

}  // namespace sluice::service
