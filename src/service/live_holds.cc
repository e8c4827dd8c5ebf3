// SPDX-License-Identifier: Apache-2.0
#include "service/live_holds.h"

namespace sluice::service {

void LiveHolds::Add(std::string_view id, TimePoint expires, std::vector<RuleMetrics> rules,
                    TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  // The same hold may be made again: then it is the one that is there.
  if (holds_.size() >= kMax || Find(id) != holds_.end()) return;
  const auto made =
      holds_.emplace(std::string(id), Hold{.expires = expires, .rules = std::move(rules)}).first;
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
  if (found == holds_.end()) return;
  by_expiry_.erase({found->second.expires, found->first});
  holds_.erase(found);
}

std::size_t LiveHolds::Count(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  Expire(now);
  return holds_.size();
}

void LiveHolds::Expire(TimePoint now) {
  while (!by_expiry_.empty() && by_expiry_.begin()->first <= now) {
    const auto found = Find(by_expiry_.begin()->second);
    by_expiry_.erase(by_expiry_.begin());
    metrics_.Hold(HoldEvent::kExpired);
    for (const RuleMetrics& rule : found->second.rules) rule.Count(HoldEvent::kExpired);
    holds_.erase(found);
  }
}

}  // namespace sluice::service
