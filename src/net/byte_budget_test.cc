// SPDX-License-Identifier: Apache-2.0
#include "net/byte_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace sluice::net {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kFree = ByteBudget::kFreeBytes;

TEST(ByteBudget, CountsWhatIsHeldBeyondWhatIsFree) {
  ByteBudget budget(100 * kKiB);
  ByteBudget::Share share(budget);
  EXPECT_TRUE(share.Hold(kFree));
  EXPECT_EQ(budget.held(), 0U);
  EXPECT_TRUE(share.Hold(kFree + 1));
  EXPECT_EQ(budget.held(), 16 * kKiB);  // In steps.
  EXPECT_TRUE(share.Hold(kFree + 40 * kKiB));
  EXPECT_EQ(budget.held(), 48 * kKiB);
  EXPECT_FALSE(budget.IsScarce());
  EXPECT_TRUE(share.Hold(kFree + 60 * kKiB));
  EXPECT_TRUE(budget.IsScarce());
  EXPECT_TRUE(share.Hold(0));
  EXPECT_EQ(budget.held(), 0U);
  EXPECT_EQ(budget.refused(), 0U);
}

TEST(ByteBudget, RefusesWhatDoesNotFitAndKeepsWhatIsHeld) {
  ByteBudget budget(64 * kKiB);
  ByteBudget::Share small(budget);
  {
    ByteBudget::Share large(budget);
    EXPECT_TRUE(large.Hold(kFree + 64 * kKiB));
    EXPECT_FALSE(large.Hold(kFree + 64 * kKiB + 1));
    EXPECT_EQ(budget.held(), 64 * kKiB);
    EXPECT_FALSE(small.Hold(kFree + 1));
    EXPECT_EQ(budget.refused(), 2U);
    EXPECT_TRUE(small.Hold(kFree));  // Always.
  }
  EXPECT_EQ(budget.held(), 0U);
  EXPECT_TRUE(small.Hold(kFree + 64 * kKiB));
}

TEST(ByteBudget, IsNeverExceededByThreads) {
  constexpr std::size_t kMax = 64 * kKiB;
  ByteBudget budget(kMax);
  std::atomic<bool> exceeded = false;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        ByteBudget::Share share(budget);
        for (std::size_t round = 0; round < 10'000; ++round) {
          (void)share.Hold((i + 1) * round % 8 * 16 * kKiB);
          if (budget.held() > kMax) exceeded = true;
        }
      });
    }
  }
  EXPECT_FALSE(exceeded);
  EXPECT_GT(budget.refused(), 0U);
  EXPECT_EQ(budget.held(), 0U);
}

}  // namespace
}  // namespace sluice::net
