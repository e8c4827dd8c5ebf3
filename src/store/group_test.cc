// SPDX-License-Identifier: Apache-2.0
#include "store/group.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace sluice {
namespace {

const Limit kTen = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
const Limit kFour = *Limit::Parse("algorithm=fixed_window,limit=4,window=1m");

std::optional<ErrorCode> Code(const std::vector<Charge>& charges, Action action = Action::kCheck) {
  const auto invalid = FirstInvalidInGroup({.charges = charges, .action = action});
  return invalid ? std::optional(invalid->code) : std::nullopt;
}

TEST(Group, ChargesOfOneStateAddUp) {
  const std::vector<Charge> charges = {{.key = "k", .limit = &kTen, .cost = 2},
                                       {.key = "l", .limit = &kTen},
                                       {.key = "k", .limit = &kTen, .cost = 3},
                                       {.key = "k", .limit = &kFour},
                                       {.key = "k", .limit = &kTen, .cost = 4}};
  const auto same = [&](std::size_t i, std::size_t j) {
    return IsSameState(charges[i], charges[j]);
  };
  StateGroup group;
  ASSERT_FALSE(AddUp(charges, Action::kCheck, same, group));
  EXPECT_EQ(std::vector<int>(group.first.begin(), group.first.begin() + 5),
            std::vector<int>({0, 1, 0, 3, 0}));
  EXPECT_EQ(group.cost[0], 9);
  EXPECT_EQ(group.cost[1], 1);
  EXPECT_EQ(group.cost[3], 1);
}

// Such a cost may exceed its limit, and two of them may overflow.
TEST(Group, WhatIsNoCheckStopsAtTheMost) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Charge all{.key = "k", .limit = &kTen, .cost = kMost};
  const std::vector<Charge> charges = {all, all};
  const auto same = [](std::size_t, std::size_t) { return true; };
  StateGroup group;
  for (const auto& [action, most] :
       {std::pair(Action::kDebit, kTen.amount()), std::pair(Action::kGive, core::kExactMax)}) {
    EXPECT_FALSE(AddUp(charges, action, same, group));
    EXPECT_EQ(group.cost[0], most);
    EXPECT_EQ(Code(charges, action), std::nullopt);
  }
}

TEST(Group, SaysWhatIsWrongWithTheRequestItself) {
  EXPECT_EQ(Code({{.key = "k", .limit = &kTen}, {.key = "l", .limit = &kTen, .cost = 10}}),
            std::nullopt);
  EXPECT_EQ(Code({}), ErrorCode::kInvalidRequest);
  EXPECT_EQ(Code({{.key = "", .limit = &kTen}}), ErrorCode::kInvalidKey);
  EXPECT_EQ(Code({{.key = "k", .limit = &kTen, .cost = -1}}), ErrorCode::kInvalidCost);
  EXPECT_EQ(Code({{.key = "k", .limit = &kTen, .cost = 11}}), ErrorCode::kCostExceedsLimit);
  EXPECT_EQ(
      Code({{.key = "k", .limit = &kTen, .cost = 6}, {.key = "k", .limit = &kTen, .cost = 5}}),
      ErrorCode::kCostExceedsLimit);
  EXPECT_EQ(
      Code({{.key = "k", .limit = &kTen, .name = "n"}, {.key = "k", .limit = &kFour, .name = "n"}}),
      ErrorCode::kInvalidRequest);
  EXPECT_EQ(Code({{.key = "k", .limit = &kTen, .cost = 6}, {.key = "k", .limit = &kFour}}),
            std::nullopt);
}

}  // namespace
}  // namespace sluice
