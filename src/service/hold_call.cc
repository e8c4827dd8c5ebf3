// SPDX-License-Identifier: Apache-2.0
#include "service/hold_call.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "base/text.h"

namespace sluice::service {
namespace {

// The names in that of a band: "<rule set>/<rule>/<label>". Empty in that of another limit.
struct BandName {
  std::string_view rule_set;
  std::string_view rule;
  std::string_view label;
};

BandName Split(std::string_view name) {
  const auto first = name.find('/');
  const auto last = name.rfind('/');
  if (first == last) return {};
  return {.rule_set = name.substr(0, first),
          .rule = name.substr(first + 1, last - first - 1),
          .label = name.substr(last + 1)};
}

const rules::Rule* FindRule(const Catalog& catalog, const BandName& name) {
  const rules::RuleSet* const rule_set =
      name.rule.empty() ? nullptr : catalog.rules->Find(name.rule_set);
  return rule_set ? rule_set->FindRule(name.rule) : nullptr;
}

const Limit* FindLabel(std::span<const rules::Band> bands, std::string_view label) {
  const auto found = std::ranges::find(bands, label, &rules::Band::label);
  return found == bands.end() ? nullptr : &found->limit;
}

// The limit under which a state is kept now. What was held under a limit whose numbers have changed
// since is settled under those that checks use, so that states are not converted back and forth. If
// it is gone, or that of an override, it is as it was.
const Limit* FindLimit(const Catalog& catalog, const HoldTicket::Part& part) {
  const Limit* current = nullptr;
  if (const auto named = catalog.limits.find(part.name); named != catalog.limits.end()) {
    current = &named->second;
  }
  const BandName name = Split(part.name);
  if (const rules::Rule* const rule = FindRule(catalog, name)) {
    current = FindLabel(rule->bands, name.label);
    const bool is_overridden =
        std::ranges::any_of(rule->overrides, [&](const rules::Override& override) {
          const Limit* const limit = FindLabel(override.bands, name.label);
          return limit && *limit == part.limit;
        });
    if (is_overridden) current = nullptr;
  }
  return current ? current : &part.limit;
}

// Of states with these names; each rule once.
template <std::ranges::input_range Names>
std::vector<RuleOfHold> RulesOf(const Catalog& catalog, const Names& names) {
  std::vector<const rules::Rule*> seen;
  std::vector<RuleOfHold> rules;
  for (const std::string_view name : names) {
    const BandName band = Split(name);
    const rules::Rule* const rule = FindRule(catalog, band);
    if (!rule || std::ranges::find(seen, rule) != seen.end()) continue;
    seen.push_back(rule);
    const auto found = catalog.rule_metrics.find(rule);
    if (found != catalog.rule_metrics.end()) {
      rules.push_back({.rule_set = band.rule_set, .rule = band.rule, .metrics = found->second});
    }
  }
  return rules;
}

std::vector<RuleOfHold> RulesOf(const Catalog& catalog, const HoldTicket& ticket) {
  return RulesOf(catalog, std::views::transform(ticket.parts, &HoldTicket::Part::name));
}

void CountEvent(const Engine& engine, std::span<const RuleOfHold> rules, HoldEvent event) {
  engine.metrics().Hold(event);
  for (const RuleOfHold& rule : rules) rule.metrics.Count(event);
}

}  // namespace

Expected<MadeHold> CountMade(Engine& engine, const Catalog& catalog, const HoldTicket& ticket) {
  auto id = ticket.ToText();
  if (!id) return std::unexpected(std::move(id.error()));
  MadeHold made{.id = *std::move(id),
                .holds = ticket.held && !ticket.parts.empty(),
                .expires = ticket.expires};
  const auto rules = RulesOf(catalog, ticket);
  CountEvent(engine, rules, HoldEvent::kMade);
  // Otherwise it ends without anybody noticing.
  if (made.holds) engine.live_holds().Add(ticket.id, ticket.expires, rules, engine.Now());
  return made;
}

void CountReleased(Engine& engine, const Catalog& catalog, std::string_view id,
                   std::span<const std::string_view> states) {
  engine.live_holds().Remove(id, engine.Now());
  CountEvent(engine, RulesOf(catalog, states), HoldEvent::kReleased);
}

Expected<void> HoldCall::Open(std::string_view ticket) {
  auto parsed = HoldTicket::Parse(ticket);
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  ticket_ = *std::move(parsed);
  // Those that count come first.
  auto counting_end = ticket_.parts.begin();
  for (auto part = ticket_.parts.begin(); part != ticket_.parts.end(); ++part) {
    if (part->shadow) continue;
    std::rotate(counting_end, part, std::next(part));
    ++counting_end;
  }
  actual_.assign(ticket_.parts.size(), 0);
  return {};
}

void HoldCall::Release() {
  action_ = Action::kSettle;
  releases_ = true;
  std::ranges::fill(actual_, 0);
}

void HoldCall::Settle() {
  action_ = Action::kSettle;
  std::ranges::transform(ticket_.parts, actual_.begin(), &HoldTicket::Part::held);
}

Expected<void> HoldCall::Settle(std::int64_t permits) {
  action_ = Action::kSettle;
  for (std::size_t i = 0; i < actual_.size(); ++i) {
    const HoldTicket::Part& part = ticket_.parts[i];
    if (permits >= 0 && !__builtin_mul_overflow(permits, part.units_per_permit, &actual_[i])) {
      continue;
    }
    return std::unexpected(Error{ErrorCode::kInvalidCost,
                                 text::Cat(permits, " permits of cost ", part.units_per_permit,
                                           "; expected 0 or more, and not so many")});
  }
  return {};
}

Expected<void> HoldCall::SettleRule(std::string_view rule, std::int64_t permits) {
  action_ = Action::kSettle;
  bool found = false;
  for (std::size_t i = 0; i < actual_.size(); ++i) {
    const HoldTicket::Part& part = ticket_.parts[i];
    if (Split(part.name).rule != rule) continue;
    found = true;
    if (permits < 0 || __builtin_mul_overflow(permits, part.units_per_permit, &actual_[i])) {
      return std::unexpected(
          Error{ErrorCode::kInvalidCost,
                text::Cat(permits, " permits of cost ", part.units_per_permit, " under rule ",
                          text::Quote(rule), "; expected 0 or more, and not so many")});
    }
  }
  if (found) return {};
  return std::unexpected(
      Error{ErrorCode::kNotFound, text::Cat("the hold is not on a rule ", text::Quote(rule))});
}

void HoldCall::Extend(std::optional<Micros> ttl) {
  action_ = Action::kExtend;
  ttl_ = ttl.value_or(ticket_.ttl);
}

void HoldCall::Gather() {
  if (!ticket_.held) return;
  terms_ = {.id = ticket_.id, .ttl = ttl_, .expires = ticket_.expires};
  const std::size_t parts = ticket_.parts.size();
  counting_ =
      static_cast<std::size_t>(std::ranges::count(ticket_.parts, false, &HoldTicket::Part::shadow));
  each_.assign(parts, Decision{});
  shadow_terms_.assign(parts - counting_, terms_);
  // Requests point to them: nothing may move from here on.
  charges_.reserve(parts);
  for (std::size_t i = 0; i < parts; ++i) {
    const HoldTicket::Part& part = ticket_.parts[i];
    charges_.push_back({.key = part.key,
                        .limit = FindLimit(*catalog_, part),
                        .name = part.name,
                        .cost = actual_[i]});
  }
  const auto ask = [&](std::size_t begin, std::size_t size, HoldTerms& terms) {
    requests_.push_back({.charges = std::span(charges_).subspan(begin, size),
                         .now = {},
                         .each = std::span(each_).subspan(begin, size),
                         .action = action_,
                         .hold = &terms});
  };
  if (counting_ > 0) ask(0, counting_, terms_);
  for (std::size_t i = counting_; i < parts; ++i) ask(i, 1, shadow_terms_[i - counting_]);
}

void HoldCall::Conclude(Engine& engine) {
  if (counting_ > 0) {
    decision_ = std::move(requests_.front().outcome);
    source_ = requests_.front().source;
  } else {
    decision_ = Decision{.allowed = true};
    terms_.expires = engine.Now() + ttl_;
  }
  if (decision_) Count(engine);
}

void HoldCall::Count(Engine& engine) const {
  const auto rules = RulesOf(*catalog_, ticket_);
  if (action_ == Action::kExtend) {
    engine.live_holds().Extend(ticket_.id, terms_.expires, engine.Now());
    return CountEvent(engine, rules, HoldEvent::kExtended);
  }
  engine.live_holds().Remove(ticket_.id, engine.Now());
  CountEvent(engine, rules, releases_ ? HoldEvent::kReleased : HoldEvent::kSettled);
  if (terms_.late) CountEvent(engine, rules, HoldEvent::kLate);
  if (terms_.overdrawn) CountEvent(engine, rules, HoldEvent::kOverdrawn);
}

std::vector<HoldCall::Outcome> HoldCall::outcomes() const {
  std::vector<Outcome> outcomes;
  outcomes.reserve(counting_);
  for (std::size_t i = 0; i < counting_; ++i) {
    outcomes.push_back({.part = ticket_.parts[i],
                        .limit = *charges_[i].limit,
                        .decision = each_[i],
                        .actual = actual_[i]});
  }
  return outcomes;
}

}  // namespace sluice::service
