// SPDX-License-Identifier: Apache-2.0
// Keyed identity of states. SipHash with a secret seed: nobody can find keys that collide, or keys
// that crowd one part of the table, without knowing the seed.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
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

// SipHash-c-d with 128 bits of output, over words and then bytes. What it has taken in so far can
// be copied, so that many messages with the same beginning take that in once.
template <int kCompressionRounds, int kFinalRounds>
class SipHasher {
 public:
  explicit SipHasher(const Seed& seed)
      : v0_(seed[0] ^ 0x736f6d6570736575),
        v1_(seed[1] ^ 0x646f72616e646f6d ^ 0xee),
        v2_(seed[0] ^ 0x6c7967656e657261),
        v3_(seed[1] ^ 0x7465646279746573) {}

  // The eight bytes of each word.
  template <std::size_t kWords>
  void Take(const std::array<std::uint64_t, kWords>& words) {
    for (const std::uint64_t word : words) Compress(word);
    taken_ += 8 * kWords;
  }

  // The hash of all that was taken, followed by `bytes`.
  Hash128 Finish(std::string_view bytes) const {
    SipHasher end = *this;
    return end.End(bytes);
  }

 private:
  Hash128 End(std::string_view bytes) {
    const char* next = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, next += 8) Compress(WordAt(next));
    Compress(static_cast<std::uint64_t>(bytes.size() + taken_) << 56 | Rest(bytes, left));

    v2_ ^= 0xee;
    Rounds(kFinalRounds);
    const std::uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
    v1_ ^= 0xdd;
    Rounds(kFinalRounds);
    return {low, v0_ ^ v1_ ^ v2_ ^ v3_};
  }

  static std::uint64_t WordAt(const char* bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    return word;
  }

  // The last `left` bytes, fewer than eight: the top of the last eight, if there are as many.
  static std::uint64_t Rest(std::string_view bytes, std::size_t left) {
    if (bytes.size() >= 8) return WordAt(bytes.data() + bytes.size() - 8) >> (56 - 8 * left) >> 8;
    std::uint64_t rest = 0;
    for (std::size_t i = 0; i < left; ++i) {
      rest |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return rest;
  }

  void Compress(std::uint64_t word) {
    v3_ ^= word;
    Rounds(kCompressionRounds);
    v0_ ^= word;
  }

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0_ += v1_;
      v1_ = std::rotl(v1_, 13) ^ v0_;
      v0_ = std::rotl(v0_, 32);
      v2_ += v3_;
      v3_ = std::rotl(v3_, 16) ^ v2_;
      v0_ += v3_;
      v3_ = std::rotl(v3_, 21) ^ v0_;
      v2_ += v1_;
      v1_ = std::rotl(v1_, 17) ^ v2_;
      v2_ = std::rotl(v2_, 32);
    }
  }

  std::uint64_t v0_;
  std::uint64_t v1_;
  std::uint64_t v2_;
  std::uint64_t v3_;
  std::size_t taken_ = 0;
};

// The same in one step.
template <int kCompressionRounds, int kFinalRounds, std::size_t kWords>
Hash128 SipHash(const Seed& seed, const std::array<std::uint64_t, kWords>& words,
                std::string_view bytes) {
  SipHasher<kCompressionRounds, kFinalRounds> hasher(seed);
  hasher.Take(words);
  return hasher.Finish(bytes);
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

// A hasher that has taken in the words of a charge.
inline SipHasher<1, 3> HasherOf(const Seed& seed, const Charge& charge) {
  SipHasher<1, 3> hasher(seed);
  hasher.Take(WordsOf(seed, charge));
  return hasher;
}

// The identity of the state that a charge takes from.
inline Hash128 StateHash(const Seed& seed, const Charge& charge) {
  return HasherOf(seed, charge).Finish(charge.key);
}

// The same for charges that come one by one. Most callers ask under one limit again and again, so
// each thread keeps the hasher of the last limit: comparing limits costs less than hashing one.
class LastLimitHasher {
 public:
  static Hash128 Of(const Seed& seed, const Charge& charge) {
    if (!charge.name.empty()) return StateHash(seed, charge);
    static constinit thread_local std::optional<LastLimitHasher> last;
    if (!last || last->limit_ != *charge.limit || last->seed_ != seed) [[unlikely]] {
      last.emplace(LastLimitHasher(seed, charge));
    }
    return last->hasher_.Finish(charge.key);
  }

 private:
  LastLimitHasher(const Seed& seed, const Charge& charge)
      : seed_(seed), limit_(*charge.limit), hasher_(HasherOf(seed, charge)) {}

  Seed seed_;
  Limit limit_;
  SipHasher<1, 3> hasher_;
};

// The same for charges that come together. Most of them share what identifies a state besides the
// key, which is hashed once.
class StateHasher {
 public:
  explicit StateHasher(const Seed& seed) : seed_(seed), hasher_(seed) {}

  // What charges point to must stay as it is until the last call.
  Hash128 Of(const Charge& charge) {
    const bool same = charge.name.empty() ? charge.limit == limit_ : charge.name == name_;
    if (!same) {
      hasher_ = HasherOf(seed_, charge);
      name_ = charge.name;
      limit_ = charge.name.empty() ? charge.limit : nullptr;
    }
    return hasher_.Finish(charge.key);
  }

 private:
  const Seed& seed_;
  std::string_view name_;         // Of the last charge, if it has one;
  const Limit* limit_ = nullptr;  // else its limit.
  SipHasher<1, 3> hasher_;
};

}  // namespace sluice
