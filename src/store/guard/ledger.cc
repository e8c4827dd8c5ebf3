// SPDX-License-Identifier: Apache-2.0
#include "store/guard/ledger.h"

#include <algorithm>
#include <utility>

#include "core/bucket.h"

namespace sluice::guard {

Ledger::Added Ledger::Add(const Charge& charge) {
  const Hash128 hash = StateHash(seed_, charge);
  const bool first = debts_.empty();
  const auto found = debts_.find(hash);
  if (found != debts_.end()) {
    Debt& debt = found->second;
    debt.limit = *charge.limit;
    debt.units = std::min(debt.units, core::kExactMax - charge.cost) + charge.cost;
    return Added::kAdded;
  }
  if (debts_.size() >= states_max_) return Added::kFull;
  debts_.emplace(hash, DebtOf(charge));
  return first ? Added::kFirst : Added::kAdded;
}

std::vector<Ledger::Debt> Ledger::Take(std::size_t states_max) {
  std::vector<Debt> taken;
  while (taken.size() < states_max && !debts_.empty()) {
    taken.push_back(std::move(debts_.begin()->second));
    debts_.erase(debts_.begin());
  }
  return taken;
}

std::vector<Ledger::Debt> Ledger::TakeOf(std::span<const Charge> charges) {
  std::vector<Debt> taken;
  if (size() == 0) return taken;
  for (const Charge& charge : charges) {
    const Hash128 hash = StateHash(seed_, charge);
    const auto found = debts_.find(hash);
    if (found == debts_.end()) continue;
    taken.push_back(std::move(found->second));
    debts_.erase(found);
  }
  return taken;
}

}  // namespace sluice::guard
