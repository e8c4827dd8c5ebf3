// SPDX-License-Identifier: Apache-2.0
#include "store/redis/hold_status.h"

#include <gtest/gtest.h>

namespace sluice::redis {
namespace {

TEST(HoldStatus, IsReadFromWhatTheScriptSays) {
  const auto check = ReadHoldStatus("h 3 0 17", false, 2);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->admitted, 3);
  EXPECT_EQ(check->held[1], 17);
  const auto denied = ReadHoldStatus("h 0 0 0 0 0 5 1700000000000000", true, 1);
  ASSERT_TRUE(denied);
  EXPECT_EQ(denied->outcome, HoldStatus::Outcome::kDenied);
  EXPECT_EQ(denied->fits[0], 1'700'000'000'000'000);
  const auto settled = ReadHoldStatus("h 1 0 0 1 0 5 0", true, 1);
  ASSERT_TRUE(settled);
  EXPECT_TRUE(settled->late);
  EXPECT_FALSE(settled->overdrawn);
}

TEST(HoldStatus, IsNoneIfAnyNumberIsNotInItsRange) {
  for (const char* text : {"h ", "h 1", "h 1 ", "h 1 2 3", "h 1 -2", "h 1 2 ", "h 1  2", "h 1 x",
                           "h 1 9007199254740992", "h 1 99999999999999999999", "hx1 2", "h +1 2"}) {
    EXPECT_FALSE(ReadHoldStatus(text, false, 1)) << text;
  }
  for (const char* text :
       {"h 6 0 0 0 0 0 0", "h 1 2 0 0 0 0 0", "h 1 0 4503599627370496 0 0 0 0", "h 1 0 0 2 0 0 0",
        "h 1 0 0 0 2 0 0", "h 1 0 0 0 0 0 4503599627370496", "h 4 0 0 0 0 0 0", "h 1 0 0 0 0 0"}) {
    EXPECT_FALSE(ReadHoldStatus(text, true, 1)) << text;
  }
  EXPECT_FALSE(IsHoldStatus("ERR h 1 2"));
}

TEST(HoldStatus, ListsHolds) {
  const auto list = ReadHoldList("\n3\n70 50 8 c chat 1\n90 60 0 r x");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->live, 3U);
  ASSERT_EQ(list->holds.size(), 2U);
  EXPECT_EQ(list->holds[0], (HoldList::Hold{.id = "chat 1",
                                            .units = 8,
                                            .taken = TimePoint{Micros{50}},
                                            .expires = TimePoint{Micros{70}}}));
  EXPECT_EQ(list->holds[1].on_expiry, OnExpiry::kRelease);
  EXPECT_TRUE(ReadHoldList("\n0"));
}

TEST(HoldStatus, ListsNothingIfAnyLineIsNotAsExpected) {
  std::string too_many = "\n4096";
  for (std::size_t i = 0; i <= kListedHoldsMax; ++i) too_many += "\n9 8 7 c x";
  for (const std::string& text :
       {std::string(), std::string("3"), std::string("\n"), std::string("\n4097"),
        std::string("\n1\n"), std::string("\n1\n9 8 7 c"), std::string("\n1\n9 8 7 c "),
        std::string("\n1\n9 8 7 d x"), std::string("\n1\n9 8 7 cx"), std::string("\n1\n9 8 c x"),
        std::string("\n1\n9 8 -7 c x"), std::string("\n1\n4503599627370496 8 7 c x"),
        std::string("\n1\n9 8 7 c x\n"), std::string("\n1\n9 8 7 c x\ty"),
        std::string("\n0\n9 8 7 c x"), "\n1\n9 8 7 c " + std::string(65, 'x'), too_many}) {
    EXPECT_FALSE(ReadHoldList(text)) << text;
  }
}

}  // namespace
}  // namespace sluice::redis
