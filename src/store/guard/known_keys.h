// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "store/hash.h"

namespace sluice::guard {

// Which states the store has answered for of late, in fixed memory: a Bloom filter that ages. A
// state that was added is known until so many others were that it is of the generation before last;
// of the others about one in a hundred seems to be known. Hashes are under a secret seed, so that
// nobody can tell which.
//
// Thread-safe without a lock. What is added while a generation begins may be lost.
class KnownKeys {
 public:
  // A generation is over when it holds this many; 0: nothing is ever known.
  explicit KnownKeys(std::size_t generation = std::size_t{1} << 18);

  // Returns whether it was there already, of this generation.
  bool Add(const Hash128& hash);
  bool Contains(const Hash128& hash) const;

  std::size_t bytes() const { return 2 * words_ * sizeof(std::uint64_t); }

 private:
  using Word = std::atomic<std::uint64_t>;

  static std::uint64_t BitsOf(const Hash128& hash);
  std::size_t WordOf(const Hash128& hash) const { return hash.low % words_; }
  Word* Generation(std::size_t number) const { return bits_.get() + number % 2 * words_; }
  void Begin(std::size_t number);

  // Constant after construction.
  const std::size_t generation_max_;
  const std::size_t words_;  // Of one generation.
  const std::unique_ptr<Word[]> bits_;

  std::atomic<std::size_t> generation_ = 0;
  std::atomic<std::size_t> added_ = 0;  // To this generation.
};

}  // namespace sluice::guard
