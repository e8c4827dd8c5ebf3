// SPDX-License-Identifier: Apache-2.0
#include "service/live_holds.h"

namespace sluice::service {

void LiveHolds::Add(std::string_view id, TimePoint expires, std::span<const RuleOfHold> rules,
                    TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  // The same hold may be made again: then it is the one that is there.
  if (holds_.size() >= kMax || Find(id) != holds_.end()) return;
  Hold hold{.expires = expires, .rules = {}};
  for (const auto& [rule_set, rule, metrics] : rules) {
    const auto live = by_rule_.try_emplace({std::string(rule_set), std::string(rule)}, 0).first;
    ++live->second;
    hold.rules.push_back({.metrics = metrics, .live = live});
  }
  const auto made = holds_.emplace(std::string(id), std::move(hold)).first;
  by_expiry_.emplace(expires, made->first);
}

void LiveHolds::Extend(std::string_view id, TimePoint expires, TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  const auto found = Find(id);
  if (found == holds_.end()) return;
  by_expiry_.erase({found->second.expires, found->first});
  found->second.expires = expires;
  by_expiry_.emplace(expires, found->first);
}

void LiveHolds::Remove(std::string_view id, TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  const auto found = Find(id);
  if (found != holds_.end()) Forget(found);
}

std::size_t LiveHolds::Count(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  return holds_.size();
}

LiveHolds::ByRule LiveHolds::CountByRule(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  return by_rule_;
}

void LiveHolds::Expire(TimePoint now) {
  while (!by_expiry_.empty() && by_expiry_.begin()->first <= now) {
    const auto found = Find(by_expiry_.begin()->second);
    metrics_.Hold(HoldEvent::kExpired);
    for (const HeldRule& rule : found->second.rules) rule.metrics.Count(HoldEvent::kExpired);
    Forget(found);
  }
}

void LiveHolds::Forget(ById::iterator hold) {
  by_expiry_.erase({hold->second.expires, hold->first});
  for (const HeldRule& rule : hold->second.rules) {
    if (--rule.live->second == 0) by_rule_.erase(rule.live);
  }
  holds_.erase(hold);
}

}  // namespace sluice::service
