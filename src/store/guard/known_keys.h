// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/hash.h"

namespace sluice::guard {

// Which states the store has answered for lately, in fixed memory: a Bloom filter that ages. A
// state stays known until so many others were added that its generation is the one before last.
// About one in a hundred other states seems to be known. Hashes use a secret seed, so that nobody
// can tell which.
class KnownKeys {
 public:
  // A generation is complete when it holds this many; 0: nothing is ever known.
  explicit KnownKeys(std::size_t generation = std::size_t{1} << 18);

  // Returns whether this generation already had it.
  bool Add(const Hash128& hash);
  bool Contains(const Hash128& hash) const;

  std::size_t bytes() const { return 2 * words_ * sizeof(std::uint64_t); }

 private:
  static std::uint64_t BitsOf(const Hash128& hash);
  std::size_t WordOf(const Hash128& hash) const { return hash.low % words_; }
  std::uint64_t* Generation(std::size_t number) { return bits_.data() + number % 2 * words_; }

  // Constant after construction.
  const std::size_t generation_max_;
  const std::size_t words_;  // Of one generation.

  std::vector<std::uint64_t> bits_;  // Of both.
  std::size_t generation_ = 0;
  std::size_t added_ = 0;  // To this generation.
};

}  // namespace sluice::guard
