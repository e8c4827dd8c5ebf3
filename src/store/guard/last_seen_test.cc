// SPDX-License-Identifier: Apache-2.0
#include "store/guard/last_seen.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/seen.h"

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

const Limit kTen = *Limit::Parse("algorithm=fixed_window,limit=10,window=1h");
constexpr TimePoint kStart{1h};
constexpr std::int64_t kStoreUs = 480'000 * 3'600'000'000;  // The store's clock at that time.

SeenState Count(std::int64_t count) {
  const core::FixedWindow::State state{.start = kStoreUs, .count = count};
  return core::See<core::FixedWindow>(kTen, &state, TimePoint{Micros{kStoreUs}});
}

class LastSeenTest : public testing::Test {
 protected:
  void Note(std::uint64_t key, std::int64_t count, TimePoint asked = kStart) {
    seen.Note({key, key}, kTen, 10 - count, Count(count), asked);
  }
  std::int64_t Left(std::uint64_t key, TimePoint now = kStart) {
    const auto left = seen.Find({key, key}, kTen, now);
    return left ? left->units : -1;
  }

  LastSeen seen{16};
};

TEST_F(LastSeenTest, KnowsWhatIsLeftUntilItIsAllBack) {
  Note(1, 7);
  EXPECT_EQ(Left(1), 3);
  EXPECT_EQ(Left(1, kStart + 1h - 1us), 3);
  EXPECT_EQ(Left(1, kStart + 1h), 10);
  EXPECT_EQ(Left(1, kStart - 1us), -1) << "a clock that was set back";
  EXPECT_EQ(Left(2), -1);
  const Limit other = *Limit::Parse("algorithm=fixed_window,limit=11,window=1h");
  EXPECT_FALSE(seen.Find({1, 1}, other, kStart));
}

TEST_F(LastSeenTest, RemembersTheNewestOfBudgetsThatAreHalfUsedUp) {
  Note(1, 4);
  EXPECT_EQ(Left(1), -1);
  Note(1, 8, kStart + 1s);
  Note(1, 6, kStart);
  EXPECT_EQ(Left(1, kStart + 1s), 2) << "an answer that was overtaken";
  Note(1, 9, kStart + 2s);
  EXPECT_EQ(Left(1, kStart + 2s), 1);
  seen.Note({2, 2}, kTen, 0, SeenState{}, kStart);
  EXPECT_EQ(Left(2), -1) << "a store that tells nothing";
}

TEST_F(LastSeenTest, TheOldestMakesRoomAndWhatIsForgottenIsGone) {
  for (std::uint64_t i = 0; i < 5; ++i) Note(4 * i, 8, kStart + i * 1s);  // All in one set.
  const TimePoint now = kStart + 5s;
  EXPECT_EQ(Left(0, now), -1);
  for (std::uint64_t i = 1; i < 5; ++i) EXPECT_EQ(Left(4 * i, now), 2) << i;
  seen.Forget({4, 4});
  EXPECT_EQ(Left(4, now), -1);
  EXPECT_EQ(Left(8, now), 2);
  seen.Clear();
  EXPECT_EQ(Left(8, now), -1);
}

TEST_F(LastSeenTest, WithoutRoomRemembersNothing) {
  LastSeen none(0);
  none.Note({1, 1}, kTen, 0, Count(10), kStart);
  EXPECT_FALSE(none.Find({1, 1}, kTen, kStart));
  none.Forget({1, 1});
  none.Clear();
}

}  // namespace
}  // namespace sluice::guard
