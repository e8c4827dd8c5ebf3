// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "sluice/memory_store.h"

namespace sluice {

// One limit over many keys, in this process:
//
//   auto limit = sluice::Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s});
//   sluice::Limiter limiter(*limit);
//   if (auto decision = limiter.Check("user:123"); decision && decision->allowed) Serve();
//
// Thread-safe; see MemoryStore for what a call costs. For several limits at once, all or nothing,
// use CheckAll of store().
class Limiter {
 public:
  explicit Limiter(const Limit& limit, const MemoryStore::Options& options = {})
      : limit_(limit), store_(std::make_unique<MemoryStore>(options)) {}

  // Takes `cost` units from the key's budget if it has them. A denial is a value, and takes
  // nothing. Errors: kInvalidKey, kInvalidCost, kCostExceedsLimit.
  Expected<Decision> Check(std::string_view key, std::int64_t cost = 1) {
    return store_->Check({.key = key, .limit = &limit_, .cost = cost});
  }

  // Returns the state of the key's budget; takes nothing.
  Expected<Decision> Peek(std::string_view key) { return Check(key, 0); }

  // Makes the key's budget full again. Returns whether anything had been taken.
  Expected<bool> Reset(std::string_view key) {
    return store_->Reset({.key = key, .limit = &limit_});
  }

  const Limit& limit() const { return limit_; }
  MemoryStore& store() { return *store_; }

 private:
  Limit limit_;
  std::unique_ptr<MemoryStore> store_;
};

}  // namespace sluice
