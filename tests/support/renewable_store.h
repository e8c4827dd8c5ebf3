// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "sluice/memory_store.h"

namespace sluice::testing_support {

// A memory store that can be replaced by a new one: the rest of an engine takes a thousand times
// longer to make than to use.
class RenewableStore final : public Store {
 public:
  void Renew(const Clock& clock) { memory_.emplace(Options{.clock = &clock}); }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    memory_->Apply(requests, std::move(done));
  }
  bool AnswersInline() const override { return true; }

 private:
  using Options = MemoryStore::Options;

  std::optional<MemoryStore> memory_;
};

}  // namespace sluice::testing_support
