// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "reload/sources.h"
#include "sluice/error.h"

namespace sluice::reload {

// Where rule sets live that are made while the service runs. Methods may block; only the keeper's
// thread calls them.
class RuleSetStore {
 public:
  virtual ~RuleSetStore() = default;

  virtual Expected<Documents> Load() = 0;
  virtual Expected<void> Save(const std::string& id, const std::string& document) = 0;
  virtual Expected<void> Remove(const std::string& id) = 0;

  // From now on, calls `changed` when somebody else changed them, on any thread; null: no more, and
  // when this returns no call is under way.
  virtual void Watch(std::function<void()> changed) = 0;

  virtual std::string_view Description() const = 0;  // For people: "this process", "Redis".
};

// Keeps them in this process: they are gone when it ends.
class ProcessRuleSetStore final : public RuleSetStore {
 public:
  Expected<Documents> Load() override { return documents_; }
  Expected<void> Save(const std::string& id, const std::string& document) override {
    documents_.insert_or_assign(id, document);
    return {};
  }
  Expected<void> Remove(const std::string& id) override {
    documents_.erase(id);
    return {};
  }
  void Watch(std::function<void()>) override {}
  std::string_view Description() const override { return "this process"; }

 private:
  Documents documents_;
};

}  // namespace sluice::reload
