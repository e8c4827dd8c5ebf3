// SPDX-License-Identifier: Apache-2.0
#include "store/hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace sluice {
namespace {

// The published vectors of SipHash-2-4 with 128 bits: key 00..0f, message 00..(n-1). The tag is the
// message's first eight bytes.
TEST(SipHash, AgreesWithThePublishedVectors) {
  constexpr Seed kSeed = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string message(23, '\0');
  std::iota(message.begin(), message.end(), '\0');
  std::uint64_t tag = 0;
  std::memcpy(&tag, message.data(), 8);
  const auto hash_of_first = [&](std::size_t bytes) {
    return SipHash<2, 4>(kSeed, std::array{tag}, std::string_view(message).substr(8, bytes - 8));
  };
  EXPECT_EQ(hash_of_first(8), (Hash128{0x61f55862baa9623b, 0xb49714f364e2830f}));
  EXPECT_EQ(hash_of_first(9), (Hash128{0xabbad90a06994426, 0xed716dbb028b7fc4}));
  EXPECT_EQ(hash_of_first(15), (Hash128{0x11a8b03399e99354, 0xd9c3cf970fec087e}));
  EXPECT_EQ(hash_of_first(16), (Hash128{0xbb54b067caa4e26e, 0x77052385bf1533fd}));
  EXPECT_EQ(hash_of_first(23), (Hash128{0xe0f5a9d5dd84d1c9, 0x1c69bf9a9ae28ccf}));
}

TEST(SipHash, DependsOnSeedWordsAndEveryByte) {
  const auto hash = [](std::uint64_t seed, std::uint64_t word, std::string_view bytes) {
    return SipHash<1, 3>({1, seed}, std::array{word}, bytes);
  };
  const Hash128 one = hash(2, 3, "key");
  EXPECT_NE(one, hash(3, 3, "key"));
  EXPECT_NE(one, hash(2, 4, "key"));
  EXPECT_NE(one, hash(2, 3, "kez"));
  EXPECT_NE(one, hash(2, 3, std::string_view("key\0", 4)));
}

// However many bytes are left after the last whole word, and whatever was taken in before.
TEST(SipHasher, TakesInWordsAsTheirBytes) {
  constexpr Seed kSeed = {1, 2};
  std::string bytes(40, '\0');
  std::iota(bytes.begin(), bytes.end(), '\1');
  std::array<std::uint64_t, 2> words;
  std::memcpy(words.data(), bytes.data(), sizeof(words));
  SipHasher<1, 3> hasher(kSeed);
  hasher.Take(words);
  for (std::size_t size = sizeof(words); size <= bytes.size(); ++size) {
    const std::string message = bytes.substr(0, size);
    const Hash128 whole = SipHash<1, 3>(kSeed, std::array<std::uint64_t, 0>{}, message);
    EXPECT_EQ(hasher.Finish(message.substr(sizeof(words))), whole) << size;
  }
}

TEST(StateHash, IsTheSameWhateverCameBefore) {
  const Seed seed = {1, 2};
  const Limit one = *Limit::FixedWindow({.limit = 1, .window = Micros{1'000'000}});
  const Limit two = *Limit::FixedWindow({.limit = 2, .window = Micros{1'000'000}});
  StateHasher hasher(seed);
  for (const Charge& charge :
       {Charge{.key = "a", .limit = &one, .name = "n"},
        Charge{.key = "b", .limit = &two, .name = "n"},
        Charge{.key = "b", .limit = &one, .name = "m"}, Charge{.key = "b", .limit = &one},
        Charge{.key = "b", .limit = &two}, Charge{.key = "b", .limit = &two, .name = "m"},
        Charge{.key = "b", .limit = &two, .name = "mm"}}) {
    EXPECT_EQ(hasher.Of(charge), StateHash(seed, charge)) << charge.key << charge.name;
    for (const Seed& any : {seed, Seed{1, 3}, Seed{2, 2}, seed}) {
      EXPECT_EQ(LastLimitHasher::Of(any, charge), StateHash(any, charge));
    }
  }
}

}  // namespace
}  // namespace sluice
