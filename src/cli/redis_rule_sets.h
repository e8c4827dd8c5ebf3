// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "redis/client.h"
#include "reload/rule_set_store.h"

namespace sluice::cli {

// Keeps rule sets in Redis, for all instances: one hash, `<prefix>:rules`, from ids to documents.
// Each change is announced on the channel `<prefix>:rules:changed`; what an announcement does not
// reach, polling does. Neither is a state, so that removing states never touches them.
class RedisRuleSets final : public reload::RuleSetStore {
 public:
  explicit RedisRuleSets(redis::Client& client);

  Expected<reload::Documents> Load() override;
  Expected<void> Save(const std::string& id, const std::string& document) override;
  Expected<void> Remove(const std::string& id) override;
  void Watch(std::function<void()> changed) override;
  std::string_view Description() const override { return "Redis"; }

 private:
  Expected<void> Change(const std::string& command);

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

}  // namespace sluice::cli
