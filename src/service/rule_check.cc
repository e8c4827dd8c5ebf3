// SPDX-License-Identifier: Apache-2.0
#include "service/rule_check.h"

#include <algorithm>
#include <utility>

#include "base/duration.h"
#include "base/text.h"
#include "core/algorithms.h"
#include "core/combine.h"
#include "core/seen.h"
#include "sluice/hold.h"

namespace sluice::service {

using Verdict = rules::Selected::Verdict;

namespace {

bool NeedsHold(const rules::Selected& selected) {
  return std::ranges::any_of(selected.bands,
                             [](const rules::Band& band) { return core::NeedsHold(band.limit); });
}

}  // namespace

Expected<void> RuleCheck::Prepare(std::string_view rule_set, const rules::Context& context,
                                  std::int64_t permits) {
  looks_ = permits == 0;
  holds_ = gives_ = false;
  // A look needs the cost of one permit.
  return PrepareUnheld(rule_set, context, looks_ ? 1 : permits);
}

Expected<void> RuleCheck::PrepareGive(std::string_view rule_set, const rules::Context& context,
                                      std::int64_t permits) {
  looks_ = holds_ = false;
  gives_ = true;
  return PrepareUnheld(rule_set, context, permits);
}

Expected<void> RuleCheck::PrepareUnheld(std::string_view rule_set, const rules::Context& context,
                                        std::int64_t permits) {
  if (auto selected = Select(rule_set, context, permits); !selected) return selected;
  if (const Outcome* const outcome = looks_ ? nullptr : FindUncheckable()) {
    return std::unexpected(
        Error{ErrorCode::kNeedsHold,
              text::Cat("rule ", text::Quote(outcome->selected->rule->id),
                        " limits what is in use at a time: it is held and released, not checked; "
                        "expected a hold")});
  }
  Gather();
  return {};
}

Expected<void> RuleCheck::PrepareHold(std::string_view rule_set, const rules::Context& context,
                                      std::int64_t permits, const HoldWish& wish) {
  looks_ = gives_ = false;
  holds_ = true;
  if (auto selected = Select(rule_set, context, permits); !selected) return selected;
  if (auto set = SetTerms(wish); !set) return set;
  Gather();
  // Before anything is held.
  HoldTicket longest = MakeTicket();
  longest.expires = kTimeMax;
  const auto text = longest.ToText();
  return text ? Expected<void>() : std::unexpected(text.error());
}

Expected<void> RuleCheck::Select(std::string_view rule_set, const rules::Context& context,
                                 std::int64_t permits) {
  charges_.clear();
  requests_.clear();
  outcomes_.clear();
  decision_ = Decision{.allowed = true};
  limited_ = refused_ = false;
  source_ = Source::kStore;
  denied_by_ = nullptr;
  denied_band_ = nullptr;

  rule_set_ = catalog_->rules->Find(rule_set);
  if (!rule_set_) {
    return std::unexpected(
        Error{ErrorCode::kNotFound, text::Cat("there is no rule set ", text::Quote(rule_set))});
  }
  auto chosen = rule_set_->Select(context, permits, selection_);
  if (!chosen) return chosen;

  for (const rules::Selected& selected : selection_.rules()) {
    outcomes_.push_back({.selected = &selected, .bands = {}, .error = {}});
    const bool refuses =
        selected.verdict == Verdict::kBlocked || selected.verdict == Verdict::kMissingKey;
    outcomes_.back().denied = refuses;
    if (refuses && !selected.rule->shadow) refused_ = true;
  }
  return {};
}

// A rule that counts, with a limit that can only be held; null if there is none.
const RuleCheck::Outcome* RuleCheck::FindUncheckable() const {
  const auto found = std::ranges::find_if(outcomes_, [](const Outcome& outcome) {
    return !outcome.selected->rule->shadow && NeedsHold(*outcome.selected);
  });
  return found == outcomes_.end() ? nullptr : &*found;
}

// The shortest ttl that any of the rules says: whoever holds must be back by then.
Expected<void> RuleCheck::SetTerms(const HoldWish& wish) {
  hold_id_ = wish.id.empty() ? NewHoldId() : std::string(wish.id);
  std::optional<Micros> shortest;
  bool charges = false;
  bool releases = false;
  for (const Outcome& outcome : outcomes_) {
    const rules::Rule& rule = *outcome.selected->rule;
    const auto add = [&](Micros ttl) { shortest = std::min(shortest.value_or(ttl), ttl); };
    if (rule.hold.ttl) add(*rule.hold.ttl);
    for (const rules::Band& band : outcome.selected->bands) {
      if (core::NeedsHold(band.limit)) {
        if (!rule.hold.ttl) add(band.limit.span());
      } else {
        const bool release = rule.hold.on_expiry == OnExpiry::kRelease;
        (release ? releases : charges) = true;
      }
    }
  }
  const auto ttl = wish.ttl ? wish.ttl : shortest;
  const bool is_limited = std::ranges::any_of(
      outcomes_, [](const Outcome& outcome) { return !outcome.selected->bands.empty(); });
  if (!ttl && is_limited) {
    return std::unexpected(Error{
        ErrorCode::kInvalidRequest,
        text::Cat("ttl: none of the rules that apply says how long a hold lasts; expected one, ",
                  text::FormatDuration(kHoldTtlMin), " to ", text::FormatDuration(kHoldTtlMax))});
  }
  terms_ = {.id = hold_id_,
            .ttl = ttl.value_or(Micros{0}),
            .on_expiry = wish.on_expiry.value_or(releases && !charges ? OnExpiry::kRelease
                                                                      : OnExpiry::kCharge)};
  return {};
}

// Charges of rules that count come first, as one all-or-nothing request; then each shadow rule
// follows as its own request.
void RuleCheck::Gather() {
  // What can only be held is left out of the checks of a shadow.
  const auto is_charged = [this](const Outcome& outcome) {
    return outcome.selected->verdict == Verdict::kCharge &&
           (holds_ || looks_ || !NeedsHold(*outcome.selected));
  };
  const auto is_shadow = [](const Outcome& outcome) { return outcome.selected->rule->shadow; };
  std::size_t most = 0;
  for (const Outcome& outcome : outcomes_) {
    if (is_charged(outcome)) most += outcome.selected->bands.size();
  }
  // Requests and outcomes point into both, so neither may grow from here on.
  charges_.reserve(most);
  each_.assign(most, Decision{});
  seen_.assign(looks_ ? most : 0, SeenState{});
  const auto charge = [&](Outcome& outcome) {
    // Asks even for what can never be granted: the store reports that, and takes nothing.
    const auto looks = [&](const rules::Band& band) {
      return looks_ && outcome.selected->cost <= band.limit.amount();
    };
    outcome.bands = std::span(each_).subspan(charges_.size(), outcome.selected->bands.size());
    for (const rules::Band& band : outcome.selected->bands) {
      charges_.push_back({.key = outcome.selected->key,
                          .limit = &band.limit,
                          .name = band.name,
                          .cost = looks(band) ? 0 : outcome.selected->cost,
                          .on_store_failure = outcome.selected->rule->on_store_failure,
                          .on_overload = outcome.selected->rule->on_overload});
    }
  };
  shadow_terms_.assign(holds_ ? outcomes_.size() : 0, terms_);
  const auto request_from = [&](std::size_t begin, HoldTerms* terms) {
    requests_.push_back({.charges = std::span(charges_).subspan(begin),
                         .now = {},
                         .each = std::span(each_).subspan(begin, charges_.size() - begin)});
    if (holds_) {
      requests_.back().action = Action::kHold;
      requests_.back().hold = terms;
    }
    if (gives_) requests_.back().action = Action::kGive;
    if (looks_) requests_.back().seen = std::span(seen_).subspan(begin, charges_.size() - begin);
  };
  for (Outcome& outcome : outcomes_) {
    // A request that is refused anyway takes nothing from the rules that count.
    if (is_charged(outcome) && !is_shadow(outcome) && !refused_) charge(outcome);
  }
  if (!charges_.empty()) request_from(0, &terms_);
  limited_ = refused_ || !charges_.empty();
  if (holds_ && refused_) return;
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    if (!is_charged(outcomes_[i]) || !is_shadow(outcomes_[i])) continue;
    const std::size_t begin = charges_.size();
    charge(outcomes_[i]);
    request_from(begin, holds_ ? &shadow_terms_[i] : nullptr);
  }
}

// What a hold asks first: the request of all rules that count or, if there is none, all requests.
std::span<Request> RuleCheck::CountingRequests() {
  return limited_ ? std::span(requests_).first(1) : std::span(requests_);
}

// What it asks then; nothing, and never more, if the hold was not made.
std::span<Request> RuleCheck::ShadowRequests() {
  if (!limited_) return {};
  const auto& outcome = requests_.front().outcome;
  if (outcome && outcome->allowed) return std::span(requests_).subspan(1);
  requests_.resize(1);
  for (Outcome& other : outcomes_) {
    if (other.selected->rule->shadow) other.bands = {};
  }
  return {};
}

HoldTicket RuleCheck::MakeTicket() const {
  HoldTicket ticket{.id = hold_id_,
                    .expires = terms_.expires,
                    .ttl = terms_.ttl,
                    .held = terms_.held,
                    .parts = {}};
  for (const Outcome& outcome : outcomes_) {
    const bool was_held = !outcome.bands.empty() && !outcome.denied && !outcome.error;
    if (was_held) AddParts(ticket, outcome);
  }
  return ticket;
}

void RuleCheck::AddParts(HoldTicket& ticket, const Outcome& outcome) const {
  const rules::Selected& selected = *outcome.selected;
  const rules::Cost& cost = selected.rule->cost;
  for (const rules::Band& band : selected.bands) {
    ticket.parts.push_back({.key = std::string(selected.key),
                            .limit = band.limit,
                            .name = band.name,
                            .held = selected.cost,
                            .units_per_permit = cost.attribute.empty() ? cost.units : 1,
                            .shadow = selected.rule->shadow});
  }
}

std::vector<Request> RuleCheck::Join(std::span<RuleCheck* const> checks) {
  std::vector<Request> all;
  for (const RuleCheck* check : checks) {
    all.insert(all.end(), check->requests_.begin(), check->requests_.end());
  }
  return all;
}

void RuleCheck::ConcludeAll(Engine& engine, std::span<RuleCheck* const> checks,
                            std::span<Request> all, const Engine::Span& span) {
  auto answered = all.begin();
  for (RuleCheck* check : checks) {
    for (Request& request : check->requests_) request = std::move(*answered++);
    check->Conclude(engine, span);
  }
}

void RuleCheck::Conclude(Engine& engine, const Engine::Span& span) {
  if (looks_) Foresee();
  Summarise();
  Count(engine, span);
}

// Replaces each look with what a request of one permit would get.
void RuleCheck::Foresee() {
  for (const Outcome& outcome : outcomes_) {
    const std::size_t first = FirstOf(outcome);
    for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
      Decision& decision = each_[first + i];
      decision = core::Foresee(outcome.selected->bands[i].limit, decision, seen_[first + i],
                               outcome.selected->cost);
    }
  }
  for (Request& request : requests_) {
    if (request.outcome) request.outcome = core::Combine(request.each);
  }
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
      if (!outcome.bands.empty()) {
        Request& own = requests_[next++];
        outcome.source = own.source;
        if (!own.outcome) {
          outcome.error = std::move(own.outcome.error());
        } else {
          outcome.denied = !own.outcome->allowed;
        }
      }
      continue;
    }
    outcome.source = source_;
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
  }
}

// Where a rule's bands are among all charges; only if it has any.
std::size_t RuleCheck::FirstOf(const Outcome& outcome) const {
  return outcome.bands.empty() ? 0 : static_cast<std::size_t>(outcome.bands.data() - each_.data());
}

void RuleCheck::Count(Engine& engine, const Engine::Span& span) const {
  if (looks_ || gives_) return;
  for (const Outcome& outcome : outcomes_) {
    CountRule(outcome);
    CountLimits(engine, outcome, span);
  }
  // A failed request is counted with its error, where it is answered.
  if (decision_) engine.CountRequest(DecidingLimit(), decision_->allowed, span);
}

void RuleCheck::CountLimits(Engine& engine, const Outcome& outcome,
                            const Engine::Span& span) const {
  const rules::Selected& selected = *outcome.selected;
  const bool shadow = selected.rule->shadow;
  const auto standing = shadow ? service::Standing::kShadow : service::Standing::kCounts;
  if (selected.verdict == Verdict::kBlocked) {
    const rules::Band& band = selected.rule->bands.front();
    const auto name = std::string_view(band.name).substr(0, band.name.size() - band.label.size());
    return engine.CountBlocked(name, selected.key, standing);
  }
  if (outcome.error || (!shadow && !decision_)) return;
  const std::size_t first = FirstOf(outcome);
  for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
    engine.CountLimit({.charge = charges_[first + i],
                       .decision = outcome.bands[i],
                       .source = source_,
                       .standing = standing,
                       .first = i == 0},
                      span.end);
  }
}

// What costs nothing decides nothing.
const Limit* RuleCheck::DecidingLimit() const {
  if (refused_) return nullptr;
  Deciding deciding;
  for (const Outcome& outcome : outcomes_) {
    if (outcome.selected->rule->shadow || outcome.selected->cost == 0) continue;
    for (std::size_t i = 0; i < outcome.bands.size(); ++i) {
      deciding.Add(outcome.selected->bands[i].limit, outcome.bands[i]);
    }
  }
  return deciding.limit();
}

void RuleCheck::CountRule(const Outcome& outcome) const {
  using service::RuleOutcome;
  const auto metrics = catalog_->rule_metrics.find(outcome.selected->rule);
  if (metrics == catalog_->rule_metrics.end()) return;
  const bool shadow = outcome.selected->rule->shadow;
  const bool was_asked = outcome.selected->verdict != Verdict::kCharge || !outcome.bands.empty();
  if (shadow && !was_asked) return;
  if (outcome.error || (!shadow && !decision_)) {
    metrics->second.Count(RuleOutcome::kError);
  } else if (outcome.denied) {
    metrics->second.Count(shadow ? RuleOutcome::kShadowDenied : RuleOutcome::kDenied);
  } else {
    metrics->second.Count(RuleOutcome::kAllowed);
  }
}

void LogDenial(telemetry::Logger& logger, const RuleCheck& check,
               const telemetry::LogField& which) {
  if (!logger.Enabled(telemetry::LogLevel::kDebug) || !check.refuses() || !check.denied_by())
    return;
  const auto denied =
      std::ranges::find_if(check.outcomes(), [&](const RuleCheck::Outcome& outcome) {
        return outcome.denied && outcome.selected->rule == check.denied_by();
      });
  const rules::Selected& selected = *denied->selected;
  std::string_view band = selected.verdict == Verdict::kBlocked ? "blocked" : "missing-key";
  if (check.denied_band() != nullptr) band = check.denied_band()->label;
  logger.Debug("denied by a rule", {{"rule_set", check.rule_set().id()},
                                    {"rule", selected.rule->id},
                                    {"band", band},
                                    {"key", selected.key},
                                    which});
}

}  // namespace sluice::service
