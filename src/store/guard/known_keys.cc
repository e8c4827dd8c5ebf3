// SPDX-License-Identifier: Apache-2.0
#include "store/guard/known_keys.h"

namespace sluice::guard {
namespace {

constexpr std::size_t kBitsPerKey = 16;
constexpr int kBitsSet = 4;

}  // namespace

KnownKeys::KnownKeys(std::size_t generation)
    : generation_max_(generation),
      words_((generation * kBitsPerKey + 63) / 64),
      bits_(std::make_unique<Word[]>(2 * words_)) {}

// All in one word: one line of the cache is touched, and one atomic operation adds it.
std::uint64_t KnownKeys::BitsOf(const Hash128& hash) {
  std::uint64_t bits = 0;
  for (int i = 0; i < kBitsSet; ++i) bits |= std::uint64_t{1} << (hash.high >> (6 * i) & 63);
  return bits;
}

bool KnownKeys::Add(const Hash128& hash) {
  if (words_ == 0) return false;
  const std::size_t generation = generation_.load(std::memory_order_relaxed);
  const std::uint64_t bits = BitsOf(hash);
  Word& word = Generation(generation)[WordOf(hash)];
  // Whoever comes often writes nothing.
  if ((word.load(std::memory_order_relaxed) & bits) == bits) return true;
  word.fetch_or(bits, std::memory_order_relaxed);
  if (added_.fetch_add(1, std::memory_order_relaxed) + 1 == generation_max_) Begin(generation + 1);
  return false;
}

bool KnownKeys::Contains(const Hash128& hash) const {
  if (words_ == 0) return false;
  const std::uint64_t bits = BitsOf(hash);
  for (std::size_t generation = 0; generation < 2; ++generation) {
    const Word& word = Generation(generation)[WordOf(hash)];
    if ((word.load(std::memory_order_relaxed) & bits) == bits) return true;
  }
  return false;
}

// In place of the one before last.
void KnownKeys::Begin(std::size_t number) {
  Word* const bits = Generation(number);
  for (std::size_t i = 0; i < words_; ++i) bits[i].store(0, std::memory_order_relaxed);
  generation_.store(number, std::memory_order_relaxed);
  added_.store(0, std::memory_order_relaxed);
}

}  // namespace sluice::guard
