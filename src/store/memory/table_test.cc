// SPDX-License-Identifier: Apache-2.0
#include "store/memory/table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace sluice::memory {
namespace {

using Key = std::pair<std::uint64_t, std::uint32_t>;

void ExpectSame(Table& table, const std::map<Key, std::uint64_t>& expected) {
  ASSERT_EQ(table.size(), expected.size());
  auto next = expected.begin();
  for (const Slot& slot : table.slots()) {
    if (slot.empty()) continue;
    ASSERT_NE(next, expected.end());
    ASSERT_EQ(slot.hash, next->first.first) << "slots lie in the order of their hashes";
    ++next;
  }
  for (const auto& [key, value] : expected) {
    const Slot* slot = table.Find({key.first, key.second});
    ASSERT_NE(slot, nullptr);
    ASSERT_EQ(slot->b, value);
  }
}

class TableAgainstMap : public testing::TestWithParam<int> {};

// Hashes use only the top `bits` bits: few bits make long runs and equal hashes.
TEST_P(TableAgainstMap, AgreesAfterAnySequenceOfChanges) {
  std::mt19937_64 random(7);
  Table table;
  std::map<Key, std::uint64_t> expected;
  for (int step = 0; step < 60'000; ++step) {
    const Key key{random() >> (64 - GetParam()) << (64 - GetParam()), random() % 4};
    Slot* slot = table.Find({key.first, key.second});
    ASSERT_EQ(slot != nullptr, expected.contains(key));
    // It first grows, then shrinks.
    const bool grow = random() % 10 < (step < 30'000 ? 8u : 2u);
    if (slot && !grow) {
      table.Erase(slot);
      table.ShrinkIfSparse();
      expected.erase(key);
    } else if (!slot && grow) {
      slot = table.Insert({key.first, key.second});
      slot->limit = 1;
      slot->b = expected[key] = random();
    }
    if (step % 5'000 == 0) ExpectSame(table, expected);
  }
  ExpectSame(table, expected);
}

INSTANTIATE_TEST_SUITE_P(HashBits, TableAgainstMap, testing::Values(2, 6, 10, 14, 63));

TEST(Table, HoldsAnyNumberOfKeysInLessThan48BytesEach) {
  std::mt19937_64 random(7);
  Table table;
  for (int keys = 1; keys <= 300'000; ++keys) {
    table.Insert({random(), 0})->limit = 1;
    if (keys >= 10'000) {
      ASSERT_LT(table.bytes(), static_cast<std::size_t>(keys) * 48);
    }
  }
}

TEST(Table, GivesMemoryBack) {
  std::mt19937_64 random(7);
  std::vector<Identity> identities;
  Table table;
  for (int i = 0; i < 100'000; ++i) {
    identities.push_back({random(), 0});
    table.Insert(identities.back())->limit = 1;
  }
  for (const Identity& identity : identities) {
    table.Erase(table.Find(identity));
    table.ShrinkIfSparse();
  }
  EXPECT_EQ(table.size(), 0u);
  EXPECT_LT(table.bytes(), 10'000u);
}

}  // namespace
}  // namespace sluice::memory
