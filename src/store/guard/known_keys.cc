// SPDX-License-Identifier: Apache-2.0
#include "store/guard/known_keys.h"

#include <algorithm>

namespace sluice::guard {
namespace {

constexpr std::size_t kBitsPerKey = 16;
constexpr int kBitsSet = 4;

}  // namespace

KnownKeys::KnownKeys(std::size_t generation)
    : generation_max_(generation),
      words_((generation * kBitsPerKey + 63) / 64),
      bits_(2 * words_) {}

// All in one word, so that only one cache line is touched.
std::uint64_t KnownKeys::BitsOf(const Hash128& hash) {
  std::uint64_t bits = 0;
  for (int i = 0; i < kBitsSet; ++i) bits |= std::uint64_t{1} << (hash.high >> (6 * i) & 63);
  return bits;
}

bool KnownKeys::Add(const Hash128& hash) {
  if (words_ == 0) return false;
  const std::uint64_t bits = BitsOf(hash);
  std::uint64_t& word = Generation(generation_)[WordOf(hash)];
  if ((word & bits) == bits) return true;
  word |= bits;
  if (++added_ == generation_max_) {
    // The next generation replaces the one before last.
    std::fill_n(Generation(++generation_), words_, 0);
    added_ = 0;
  }
  return false;
}

bool KnownKeys::Contains(const Hash128& hash) const {
  if (words_ == 0) return false;
  const std::uint64_t bits = BitsOf(hash);
  const std::size_t word = WordOf(hash);
  return (bits_[word] & bits) == bits || (bits_[words_ + word] & bits) == bits;
}

}  // namespace sluice::guard
