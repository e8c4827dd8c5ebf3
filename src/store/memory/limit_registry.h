// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sluice/limit.h"

namespace sluice::memory {

// The limits under which a shard's states were written, numbered so that a slot refers to its own
// in 16 bits. A limit stays here as long as a slot refers to it.
class LimitRegistry {
 public:
  static constexpr std::size_t kLimitsMax = 65'534;  // Slot::kHeld is no limit's number.

  const Limit& operator[](std::uint16_t number) const { return entries_[number - 1].limit; }

  // Whether `count` Acquires of new limits, including this one, would succeed.
  bool CanAcquire(const Limit& limit, std::size_t count) const {
    return numbers_.size() + count <= kLimitsMax || numbers_.contains(limit);
  }

  // The limit's number, never 0, with one more slot referring to it. Requires CanAcquire.
  std::uint16_t Acquire(const Limit& limit) {
    auto found = numbers_.find(limit);
    if (found == numbers_.end()) found = numbers_.emplace(limit, Add(limit)).first;
    ++entries_[found->second - 1].uses;
    return found->second;
  }

  void Release(std::uint16_t number) {
    Entry& entry = entries_[number - 1];
    if (--entry.uses > 0) return;
    numbers_.erase(entry.limit);
    free_.push_back(number);
  }

  std::size_t bytes() const {
    return entries_.capacity() * sizeof(Entry) + numbers_.size() * (sizeof(Limit) + 32);
  }

 private:
  struct Entry {
    Limit limit;
    std::uint32_t uses;
  };
  struct Hash {
    std::size_t operator()(const Limit& limit) const { return limit.fingerprint(); }
  };

  std::uint16_t Add(const Limit& limit) {
    if (free_.empty()) {
      entries_.push_back({limit, 0});
      return static_cast<std::uint16_t>(entries_.size());
    }
    const std::uint16_t number = free_.back();
    free_.pop_back();
    entries_[number - 1] = {limit, 0};
    return number;
  }

  std::vector<Entry> entries_;
  std::vector<std::uint16_t> free_;
  std::unordered_map<Limit, std::uint16_t, Hash> numbers_;
};

}  // namespace sluice::memory
