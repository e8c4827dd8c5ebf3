// SPDX-License-Identifier: Apache-2.0
// Keyed identity of states. SipHash with a secret seed: nobody can find keys that collide, or keys
// that crowd one part of the table, without knowing the seed.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "sluice/store.h"

namespace sluice {

static_assert(std::endian::native == std::endian::little, "snapshots and hashes are little-endian");

using Seed = std::array<std::uint64_t, 2>;

// From the operating system.
Seed RandomSeed();

struct Hash128 {
  std::uint64_t low;
  std::uint64_t high;

  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// SipHash-c-d with 128 bits of output, over the eight bytes of each word followed by `bytes`.
template <int kCompressionRounds, int kFinalRounds, std::size_t kWords>
Hash128 SipHash(const Seed& seed, const std::array<std::uint64_t, kWords>& words,
                std::string_view bytes) {
  std::uint64_t v0 = seed[0] ^ 0x736f6d6570736575;
  std::uint64_t v1 = seed[1] ^ 0x646f72616e646f6d ^ 0xee;
  std::uint64_t v2 = seed[0] ^ 0x6c7967656e657261;
  std::uint64_t v3 = seed[1] ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto compress = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(kCompressionRounds);
    v0 ^= word;
  };

  for (const std::uint64_t word : words) compress(word);
  const char* next = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, next += 8) {
    std::uint64_t word;
    std::memcpy(&word, next, 8);
    compress(word);
  }
  std::uint64_t last = static_cast<std::uint64_t>(bytes.size() + 8 * kWords) << 56;
  for (std::size_t i = 0; i < left; ++i) {
    last |= static_cast<std::uint64_t>(static_cast<unsigned char>(next[i])) << (8 * i);
  }
  compress(last);

  v2 ^= 0xee;
  rounds(kFinalRounds);
  const std::uint64_t low = v0 ^ v1 ^ v2 ^ v3;
  v1 ^= 0xdd;
  rounds(kFinalRounds);
  return {low, v0 ^ v1 ^ v2 ^ v3};
}

// What identifies a state besides the key: the name, or else the limit's own numbers.
using StateWords = std::array<std::uint64_t, 3>;

inline StateWords WordsOf(const Seed& seed, const Charge& charge) {
  if (charge.name.empty()) {
    const Limit& limit = *charge.limit;
    return {static_cast<std::uint64_t>(limit.algorithm()) << 56 |
                static_cast<std::uint64_t>(limit.amount()),
            static_cast<std::uint64_t>(limit.refill()),
            static_cast<std::uint64_t>(limit.span().count())};
  }
  constexpr std::array<std::uint64_t, 0> kNoWords = {};
  const Hash128 name = SipHash<1, 3>(seed, kNoWords, charge.name);
  return {name.low, name.high, ~std::uint64_t{0}};
}

// The identity of the state that a charge takes from.
inline Hash128 StateHash(const Seed& seed, const Charge& charge) {
  return SipHash<1, 3>(seed, WordsOf(seed, charge), charge.key);
}

// The same for charges that come together. Most of them share one name, which is hashed once.
class StateHasher {
 public:
  explicit StateHasher(const Seed& seed) : seed_(seed) {}

  // What `charge` points to must stay in place until the next call.
  Hash128 Of(const Charge& charge) {
    if (charge.name.empty() || charge.name != name_) {
      words_ = WordsOf(seed_, charge);
      name_ = charge.name;
    }
    return SipHash<1, 3>(seed_, words_, charge.key);
  }

 private:
  const Seed& seed_;
  std::string_view name_;
  StateWords words_ = {};
};

}  // namespace sluice
