// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "sluice/limit.h"

namespace sluice::resp {

// Caches limits made from the numbers that clients repeat with every command; making one costs more
// than deciding on it. Fixed size: numbers that map to the same place replace each other.
class LimitCache {
 public:
  // Null if those numbers are not cached.
  const Limit* Find(const Limit::GcraSpec& spec) const {
    const Entry& entry = entries_[PlaceOf(spec)];
    const bool same = entry.limit && entry.spec.burst == spec.burst &&
                      entry.spec.count == spec.count && entry.spec.period == spec.period;
    return same ? &*entry.limit : nullptr;
  }

  // Valid until the next call.
  const Limit& Keep(const Limit::GcraSpec& spec, const Limit& limit) {
    Entry& entry = entries_[PlaceOf(spec)];
    entry = {.spec = spec, .limit = limit};
    return *entry.limit;
  }

 private:
  static constexpr int kPlaceBits = 8;

  struct Entry {
    Limit::GcraSpec spec;
    std::optional<Limit> limit;
  };

  static std::size_t PlaceOf(const Limit::GcraSpec& spec) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    std::uint64_t hash = static_cast<std::uint64_t>(spec.burst) * kOdd;
    hash = (hash ^ static_cast<std::uint64_t>(spec.count)) * kOdd;
    hash = (hash ^ static_cast<std::uint64_t>(spec.period.count())) * kOdd;
    return hash >> (64 - kPlaceBits);
  }

  std::array<Entry, 1 << kPlaceBits> entries_ = {};
};

}  // namespace sluice::resp
