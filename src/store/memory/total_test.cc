// SPDX-License-Identifier: Apache-2.0
#include "store/memory/total.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace sluice::memory {
namespace {

TEST(TotalTest, ASmallOneIsExact) {
  Total total(3);
  std::vector<Total::Part> parts(2);
  parts[0].Add(2, total);
  EXPECT_TRUE(parts[1].HasRoom(total));
  EXPECT_FALSE(total.HasRoom(2));
  parts[1].Add(1, total);
  EXPECT_FALSE(parts[0].HasRoom(total));
  EXPECT_FALSE(parts[1].HasRoom(total));
  EXPECT_EQ(parts[0].Add(-1, total), 1);
  EXPECT_TRUE(parts[1].HasRoom(total));
}

TEST(TotalTest, PartsThatFillItUseAllOfIt) {
  constexpr std::int64_t kMax = 1'000'000;
  Total total(kMax);
  std::vector<Total::Part> parts(256);
  std::mt19937_64 random(1);
  std::int64_t count = 0;
  std::size_t failures = 0;
  while (failures < 10'000) {
    Total::Part& part = parts[random() % parts.size()];
    if (part.HasRoom(total)) {
      part.Add(1, total);
      ASSERT_LE(++count, kMax);
    } else {
      ++failures;
    }
  }
  EXPECT_EQ(count, kMax);
}

TEST(TotalTest, WhatIsBookedAheadIsGivenBackOnceThereIsLessRoom) {
  constexpr std::int64_t kMax = 100'000;
  Total total(kMax);
  std::vector<Total::Part> parts(2);
  parts[0].Add(1, total);
  parts[1].Add(kMax - 200, total);
  while (parts[1].HasRoom(total)) parts[1].Add(1, total);
  const std::int64_t missing = kMax - parts[1].count() - 1;
  EXPECT_GT(missing, 0) << "nothing was booked ahead";
  EXPECT_EQ(parts[0].Add(0, total), missing);
  EXPECT_TRUE(parts[1].HasRoom(total));
}

TEST(TotalTest, APartThatComesAndGoesLeavesTheTotalAlone) {
  Total total(1'000'000);
  Total::Part part;
  part.Add(1, total);
  for (int i = 0; i < 100; ++i) {
    part.Add(1, total);
    EXPECT_EQ(part.Add(-1, total), 0);
  }
  EXPECT_EQ(part.count(), 1);
}

}  // namespace
}  // namespace sluice::memory
