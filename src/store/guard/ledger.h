// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/store.h"
#include "store/hash.h"

namespace sluice::guard {

// What was taken locally and not yet reported to the store, by state. Bounded.
class Ledger {
 public:
  // Units of one state; owns what the charge pointed to.
  struct Debt {
    std::string key;
    std::string name;
    Limit limit;
    std::int64_t units;

    std::size_t bytes() const { return sizeof(Debt) + key.size() + name.size(); }

    // Points into it.
    Charge ToCharge() const {
      return {.key = key,
              .limit = &limit,
              .name = name,
              .cost = units,
              .on_store_failure = OnStoreFailure::kLocal};
    }
  };

  static Debt DebtOf(const Charge& charge) {
    return {.key = std::string(charge.key),
            .name = std::string(charge.name),
            .limit = *charge.limit,
            .units = charge.cost};
  }

  Ledger(std::size_t states_max, const Seed& seed) : states_max_(states_max), seed_(seed) {}

  enum class Added { kFirst, kAdded, kFull };

  // Adds the charge's cost. kFirst: the ledger was empty before; kFull: not added.
  Added Add(const Charge& charge);

  // Removes and returns some of it.
  std::vector<Debt> Take(std::size_t states_max);

  // Removes and returns the debts of these charges' states; costs nothing while there are none.
  std::vector<Debt> TakeOf(std::span<const Charge> charges);

  std::size_t size() const { return debts_.size(); }

 private:
  struct Low {
    std::size_t operator()(const Hash128& hash) const { return hash.low; }
  };

  const std::size_t states_max_;
  const Seed seed_;
  std::unordered_map<Hash128, Debt, Low> debts_;
};

}  // namespace sluice::guard
