// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/store.h"
#include "store/hash.h"

namespace sluice::guard {

// What was taken locally and the store does not know of yet, by state. Thread-safe and bounded.
class Ledger {
 public:
  // Units of one state; owns what the charge pointed to.
  struct Debt {
    std::string key;
    std::string name;
    Limit limit;
    std::int64_t units;
  };

  explicit Ledger(std::size_t states_max) : states_max_(states_max), seed_(RandomSeed()) {}

  enum class Added { kFirst, kAdded, kFull };

  // Adds the charge's cost. kFirst: there was nothing before; kFull: not taken in.
  Added Add(const Charge& charge);

  // Removes and returns some of it.
  std::vector<Debt> Take(std::size_t states_max);

  // Removes and returns what concerns the states of these charges; free while there is nothing.
  std::vector<Debt> TakeOf(std::span<const Charge> charges);

  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Low {
    std::size_t operator()(const Hash128& hash) const { return hash.low; }
  };

  const std::size_t states_max_;
  const Seed seed_;
  mutable std::mutex mutex_;
  std::unordered_map<Hash128, Debt, Low> debts_;  // Guarded by mutex_.
  std::atomic<std::size_t> size_ = 0;             // Of debts_, for those who only look.
};

}  // namespace sluice::guard
