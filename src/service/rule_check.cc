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
  const auto is_charged = [](const Outcome& outcome, bool shadow) {
    return outcome.selected->verdict == Verdict::kCharge &&
           outcome.selected->rule->shadow == shadow;
  };
  const auto append = [&](const Outcome& outcome) {
    for (const rules::Band& band : outcome.selected->bands) {
      charges_.push_back({.key = outcome.selected->key,
                          .limit = &band.limit,
                          .name = band.name,
                          .cost = outcome.selected->cost,
                          .on_store_failure = outcome.selected->rule->on_store_failure});
    }
  };
  // A request that is refused anyway takes nothing from the rules that count.
  std::size_t counting = 0;
  for (const bool shadow : {false, true}) {
    for (const Outcome& outcome : outcomes_) {
      if (is_charged(outcome, shadow) && (shadow || !refused_)) append(outcome);
    }
    if (!shadow) counting = charges_.size();
  }
  each_.assign(charges_.size(), Decision{});
  std::size_t at = 0;
  const auto take = [&](std::size_t count) {
    const std::size_t begin = std::exchange(at, at + count);
    return std::pair(std::span<const Charge>(charges_).subspan(begin, count),
                     std::span(each_).subspan(begin, count));
  };
  if (counting > 0) {
    const auto [charges, each] = take(counting);
    requests_.push_back({.charges = charges, .now = {}, .each = each});
  }
  std::size_t counted_at = 0;
  for (Outcome& outcome : outcomes_) {
    if (is_charged(outcome, false) && !refused_) {
      outcome.bands = std::span(each_).subspan(counted_at, outcome.selected->bands.size());
      counted_at += outcome.selected->bands.size();
    } else if (is_charged(outcome, true)) {
      const auto [charges, each] = take(outcome.selected->bands.size());
      requests_.push_back({.charges = charges, .now = {}, .each = each});
      outcome.bands = each;
    }
  }
  limited_ = counting > 0 || refused_;
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
