// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
  void Add(std::string_view id, TimePoint expires, std::vector<RuleMetrics> rules, TimePoint now);
  void Extend(std::string_view id, TimePoint expires, TimePoint now);
  void Remove(std::string_view id, TimePoint now);

  // How many there are. Counts those that have expired since.
  std::size_t Count(TimePoint now);

 private:
  struct Hold {
    TimePoint expires;
    std::vector<RuleMetrics> rules;
  };
  using ById = std::unordered_map<std::string, Hold>;

  void Expire(TimePoint now);
  ById::iterator Find(std::string_view id) { return holds_.find(std::string(id)); }

  const ServiceMetrics& metrics_;

  std::mutex mutex_;
  // Guarded by mutex_.
  ById holds_;
  std::set<std::pair<TimePoint, std::string_view>> by_expiry_;  // Views of the keys of holds_.
};

}  // namespace sluice::service
