// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sluice/store.h"
#include "store/guard/ledger.h"

namespace sluice::guard {

// Settles that the store could not be told, to be sent later. Sending one twice does no harm for as
// long as the store remembers the id; after that, it would take the units again. Bounded.
class KeptSettles {
 public:
  struct Settle {
    std::string id;
    std::vector<Ledger::Debt> parts;  // What each charge has cost.
    TimePoint until;                  // Not to be sent later than this.
  };

  KeptSettles(std::size_t settles_max, std::size_t bytes_max)
      : settles_max_(settles_max), bytes_max_(bytes_max) {}

  // Returns false if there is no room. Of several for the same hold on the same states, the first
  // counts.
  bool Add(Settle settle);

  // The store knows it after all. Returns whether it was here.
  bool Forget(std::string_view id, const Charge& first);

  // Removes and returns up to `most`, the oldest first. Drops and counts those that are too late.
  std::vector<Settle> Take(std::size_t most, TimePoint now);

  std::size_t size() const { return settles_.size(); }
  std::int64_t too_late() const { return too_late_; }

 private:
  using Settles = std::list<Settle>;

  // Rules that count and shadow rules settle their own states under one id.
  static std::string KeyOf(std::string_view id, const Charge& first);
  static std::size_t BytesOf(const Settle& settle);
  Settle Remove(Settles::iterator settle);

  const std::size_t settles_max_;
  const std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::int64_t too_late_ = 0;
  Settles settles_;
  std::unordered_map<std::string, Settles::iterator> by_key_;
};

}  // namespace sluice::guard
