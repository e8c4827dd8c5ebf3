// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "redis/client.h"
#include "reload/rule_set_store.h"

namespace sluice::daemon {

// Keeps rule sets in Redis, for all instances: one hash, `<prefix>:rules`, from ids to documents,
// with the store's revision under `:revision`, which is not a valid id. It is a single key, so a
// script can change it in one step, in a Cluster, too. Each change is announced on the channel
// `<prefix>:rules:changed`; polling finds what an announcement does not reach. Neither is a state,
// so removing states never touches them.
class RedisRuleSets final : public reload::RuleSetStore {
 public:
  explicit RedisRuleSets(redis::Client& client);

  Expected<reload::Stored> Load() override;
  Expected<reload::Changed> Apply(const reload::Change& change) override;
  Expected<bool> Restore(const reload::Restoration& restoration) override;
  void Watch(std::function<void()> changed) override;
  std::string_view Description() const override { return "Redis"; }

 private:
  void Announce();

  // Outlives this object in the handlers of the client.
  struct Watcher {
    std::mutex mutex;
    std::function<void()> changed;  // Guarded by mutex.
  };

  redis::Client& client_;
  const std::string key_;
  const std::string channel_;
  const std::shared_ptr<Watcher> watcher_ = std::make_shared<Watcher>();
};

}  // namespace sluice::daemon
