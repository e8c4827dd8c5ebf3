// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "service/service_metrics.h"
#include "sluice/time.h"

namespace sluice::service {

// A rule that a hold is on.
struct RuleOfHold {
  std::string_view rule_set;
  std::string_view rule;
  RuleMetrics metrics;
};

// The holds that were made through this instance and are not over, as far as it knows: one that is
// ended through another instance seems to expire. For metrics only. Thread-safe; a lock, since
// holds are rare beside checks.
class LiveHolds {
 public:
  // Of further ones only the making and ending is counted.
  static constexpr std::size_t kMax = 1 << 16;

  explicit LiveHolds(const ServiceMetrics& metrics) : metrics_(metrics) {}
  LiveHolds(const LiveHolds&) = delete;
  LiveHolds& operator=(const LiveHolds&) = delete;

  // `rules` are those whose budgets it is on.
  void Add(std::string_view id, TimePoint expires, std::span<const RuleOfHold> rules,
           TimePoint now);
  void Extend(std::string_view id, TimePoint expires, TimePoint now);
  void Remove(std::string_view id, TimePoint now);

  // How many there are. Counts those that have expired since.
  std::size_t Count(TimePoint now);

  // How many there are under each rule that has any, by its rule set and itself.
  using ByRule = std::map<std::pair<std::string, std::string>, std::size_t>;
  ByRule CountByRule(TimePoint now);

 private:
  struct HeldRule {
    RuleMetrics metrics;
    ByRule::iterator live;
  };
  struct Hold {
    TimePoint expires;
    std::vector<HeldRule> rules;
  };
  using ById = std::unordered_map<std::string, Hold>;

  void Expire(TimePoint now);
  void Forget(ById::iterator hold);
  ById::iterator Find(std::string_view id) { return holds_.find(std::string(id)); }

  const ServiceMetrics& metrics_;

  std::mutex mutex_;
  // Guarded by mutex_.
  ById holds_;
  std::set<std::pair<TimePoint, std::string_view>> by_expiry_;  // Views of the keys of holds_.
  ByRule by_rule_;
};

}  // namespace sluice::service
