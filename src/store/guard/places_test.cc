// SPDX-License-Identifier: Apache-2.0
#include "store/guard/places.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sluice/limit.h"
#include "store/guard/known_keys.h"

namespace sluice::guard {
namespace {

using Taken = Places::Taken;

constexpr std::size_t kMax = 1'024;

class PlacesTest : public testing::Test {
 protected:
  bool Take(std::uint64_t limit, std::uint64_t client, bool known) {
    Places::ScarcePlace place;
    const Taken taken = places.Take(
        [&] { return Places::Requester{.limit = limit, .client = client, .known = known}; }, place);
    if (taken == Taken::kScarce) scarce_places.push_back(place);
    return taken != Taken::kNo;
  }

  // How many of `count` clients of a limit get a place.
  int Flood(std::uint64_t limit, int count, bool known) {
    int taken = 0;
    for (int i = 0; i < count; ++i) taken += Take(limit, next_client++, known) ? 1 : 0;
    return taken;
  }

  Places places{kMax};
  std::vector<Places::ScarcePlace> scarce_places;
  std::uint64_t next_client = 0;
};

TEST_F(PlacesTest, NobodyIsAskedForWhileTheyArePlenty) {
  for (std::size_t i = 0; i < kMax / 4; ++i) EXPECT_TRUE(Take(1, 1, false));
  EXPECT_TRUE(scarce_places.empty());
}

TEST_F(PlacesTest, AFloodOfFreshKeysLeavesHalfToThoseThatAreKnown) {
  for (std::uint64_t limit = 1; limit <= 100; ++limit) Flood(limit, 1'000, false);
  EXPECT_LE(places.taken(), kMax / 2);
  EXPECT_EQ(Flood(1, kMax / 3, true), kMax / 3) << "of the same limits";
  EXPECT_EQ(Flood(200, 10, true), 10);
}

TEST_F(PlacesTest, AFloodOfOneLimitLeavesSomeToFreshKeysOfOthers) {
  const int first = Flood(1, 32'000, false);
  EXPECT_GE(first, kMax * 4 / 10);
  EXPECT_LE(first, kMax * 5 / 10);
  EXPECT_GT(Flood(2, 100, false), 10);
}

TEST_F(PlacesTest, OneLimitLeavesSomeToOthers) {
  const int first = Flood(1, 32'000, true);
  EXPECT_GE(first, kMax * 7 / 10);
  EXPECT_LE(first, kMax * 8 / 10);
  const int second = Flood(2, 32'000, true);
  EXPECT_GE(second, kMax / 8);
  EXPECT_GT(Flood(3, 32'000, true), 0) << "nor do two take all";
  EXPECT_EQ(Flood(1, 100, true), 0);
}

TEST_F(PlacesTest, OneClientLeavesSomeToOthersOfItsLimit) {
  int taken = 0;
  for (int i = 0; i < 32'000; ++i) taken += Take(1, 7, true) ? 1 : 0;
  EXPECT_EQ(taken, kMax / 4 + kMax / 8);
  EXPECT_TRUE(Take(1, 8, true));
}

TEST_F(PlacesTest, WhatIsGivenBackCanBeTakenAgain) {
  for (int round = 0; round < 10; ++round) {
    const int taken = Flood(1, 32'000, false);
    EXPECT_GE(taken, kMax * 4 / 10);
    EXPECT_FALSE(Take(1, 7, false));
    places.Release(static_cast<std::size_t>(taken), scarce_places);
    scarce_places.clear();
    EXPECT_EQ(places.taken(), 0U);
  }
}

TEST_F(PlacesTest, TheMaximumHoldsAndProbesHaveRoomBeyondIt) {
  int taken = 0;
  for (std::uint64_t limit = 0; limit < 100; ++limit) taken += Flood(limit, 1'000, true);
  EXPECT_LE(taken, kMax);
  EXPECT_EQ(places.taken(), static_cast<std::size_t>(taken));
  while (places.TakeBeyond(10)) continue;
  EXPECT_EQ(places.taken(), kMax + 10);
}

TEST(FewPlaces, GoToWhoeverComes) {
  Places few(3);
  Places::ScarcePlace place;
  const auto requester = [] { return Places::Requester{.limit = 1, .client = 1, .known = false}; };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(few.Take(requester, place), Taken::kYes);
  EXPECT_EQ(few.Take(requester, place), Taken::kNo);
}

Hash128 HashOf(std::uint64_t number) { return SipHash<1, 3>(Seed{1, 2}, std::array{number}, {}); }

TEST(KnownKeys, KnowsWhatWasAddedAndHardlyAnythingElse) {
  KnownKeys known(10'000);
  for (std::uint64_t i = 0; i < 9'000; ++i) known.Add(HashOf(i));
  for (std::uint64_t i = 0; i < 9'000; ++i) EXPECT_TRUE(known.Contains(HashOf(i)));
  int mistaken = 0;
  for (std::uint64_t i = 10'000; i < 20'000; ++i) mistaken += known.Contains(HashOf(i)) ? 1 : 0;
  EXPECT_LT(mistaken, 200);
}

TEST(KnownKeys, AFloodMakesItForgetOnlyThoseThatStayAway) {
  KnownKeys known(10'000);
  known.Add(HashOf(1));
  known.Add(HashOf(2));
  for (std::uint64_t i = 1'000; i < 101'000; ++i) {
    known.Add(HashOf(i));
    if (i % 5'000 == 0) known.Add(HashOf(1));
    ASSERT_TRUE(known.Contains(HashOf(1))) << i;
  }
  EXPECT_FALSE(known.Contains(HashOf(2)));
  int old = 0;
  for (std::uint64_t i = 1'000; i < 11'000; ++i) old += known.Contains(HashOf(i)) ? 1 : 0;
  EXPECT_LT(old, 300) << "and those of a flood go, too";
}

TEST(KnownKeys, MayKnowNothing) {
  KnownKeys known(0);
  known.Add(HashOf(1));
  EXPECT_FALSE(known.Contains(HashOf(1)));
  EXPECT_EQ(known.bytes(), 0U);
}

}  // namespace
}  // namespace sluice::guard
