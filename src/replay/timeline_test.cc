// SPDX-License-Identifier: Apache-2.0
#include "replay/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "sluice/time.h"

namespace sluice::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Counts = std::pair<std::int64_t, std::int64_t>;  // Allowed, denied.
using Rows = std::map<std::int64_t, Counts>;

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kDay = 86'400 * kSecond;
constexpr std::int64_t kTimeMaxUs = kTimeMax.time_since_epoch().count();

struct Event {
  std::int64_t time_us;
  bool allowed;
};

Timeline TimelineOf(const std::vector<Event>& events) {
  Timeline timeline;
  for (const Event& event : events) timeline.Add(event.time_us, event.allowed);
  return timeline;
}

Rows RowsOf(const Timeline& timeline) {
  Rows rows;
  for (const auto& [number, row] : timeline.rows()) rows[number] = {row.allowed, row.denied};
  return rows;
}

// The same rows, counted anew at a given width.
Rows CountAt(std::int64_t width_us, const std::vector<Event>& events) {
  Rows rows;
  for (const Event& event : events) {
    auto& [allowed, denied] = rows[event.time_us / width_us];
    ++(event.allowed ? allowed : denied);
  }
  return rows;
}

// The range of the rows, including empty ones.
std::int64_t RowSpan(const Timeline& timeline) {
  return timeline.rows().rbegin()->first - timeline.rows().begin()->first + 1;
}

// The width that results from two moments.
std::int64_t WidthFor(std::int64_t first_us, std::int64_t last_us) {
  return TimelineOf({{first_us, true}, {last_us, true}}).width_us();
}

TEST(Timeline, IsEmptyAtFirst) {
  EXPECT_THAT(Timeline().rows(), IsEmpty());
  EXPECT_EQ(Timeline().width_us(), 1);
}

TEST(Timeline, CountsAllowedAndDeniedApart) {
  const Timeline timeline = TimelineOf({{7, true}, {7, false}, {7, true}, {8, false}});
  EXPECT_EQ(timeline.width_us(), 1);
  EXPECT_THAT(RowsOf(timeline), ElementsAre(Pair(7, Counts{2, 1}), Pair(8, Counts{0, 1})));
}

TEST(Timeline, RowsWithoutRequestsAreAbsent) {
  EXPECT_THAT(RowsOf(TimelineOf({{10, true}, {20, true}})),
              ElementsAre(Pair(10, Counts{1, 0}), Pair(20, Counts{1, 0})));
}

TEST(Timeline, TakesTheFirstAndTheLastMoment) {
  EXPECT_THAT(RowsOf(TimelineOf({{0, true}})), ElementsAre(Pair(0, Counts{1, 0})));
  EXPECT_THAT(RowsOf(TimelineOf({{kTimeMaxUs, false}})),
              ElementsAre(Pair(kTimeMaxUs, Counts{0, 1})));
}

TEST(Timeline, WidensOnlyWhenTheRowsRunOut) {
  Timeline timeline;
  for (std::int64_t time = 1'000; time < 1'000 + Timeline::kRowsMax; ++time) {
    timeline.Add(time, true);
    EXPECT_EQ(timeline.width_us(), 1);
  }
  EXPECT_EQ(RowSpan(timeline), Timeline::kRowsMax);

  timeline.Add(1'000 + Timeline::kRowsMax, true);
  EXPECT_EQ(timeline.width_us(), 2);
  EXPECT_EQ(RowSpan(timeline), Timeline::kRowsMax / 2 + 1);
}

TEST(Timeline, WidensAsFarAsNeededAtOnce) {
  const Timeline timeline = TimelineOf({{0, true}, {0, false}, {3'600 * kSecond, true}});
  EXPECT_EQ(timeline.width_us(), 600 * kSecond);
  EXPECT_THAT(RowsOf(timeline), ElementsAre(Pair(0, Counts{1, 1}), Pair(6, Counts{1, 0})));
}

TEST(Timeline, WidensForEarlierMomentsToo) {
  const Timeline timeline = TimelineOf({{kSecond, true}, {kSecond, false}, {0, false}});
  EXPECT_EQ(timeline.width_us(), kSecond / 10);
  EXPECT_THAT(RowsOf(timeline), ElementsAre(Pair(0, Counts{0, 1}), Pair(10, Counts{1, 1})));
}

TEST(Timeline, RowsStartAtMultiplesOfTheirWidth) {
  // A second apart, but not on a whole second: rows are aligned to wall-clock time.
  const std::int64_t start_us = 1'700'000'000'123'456;
  const Timeline timeline = TimelineOf({{start_us, true}, {start_us + kSecond, true}});
  EXPECT_EQ(timeline.rows().begin()->first * timeline.width_us(), 1'700'000'000'100'000);
  EXPECT_EQ(timeline.rows().rbegin()->first * timeline.width_us(), 1'700'000'001'100'000);
}

TEST(Timeline, WidthsAreThoseThatPeopleRead) {
  EXPECT_EQ(WidthFor(0, 23), 1);
  EXPECT_EQ(WidthFor(0, 24), 2);
  EXPECT_EQ(WidthFor(0, 1'000), 100);
  EXPECT_EQ(WidthFor(0, 10 * kSecond), kSecond);
  EXPECT_EQ(WidthFor(0, 60 * kSecond), 10 * kSecond);
  EXPECT_EQ(WidthFor(0, 600 * kSecond), 60 * kSecond);
  EXPECT_EQ(WidthFor(0, 23 * 3'600 * kSecond), 3'600 * kSecond);
  EXPECT_EQ(WidthFor(0, kDay), 7'200 * kSecond);
  EXPECT_EQ(WidthFor(0, 365 * kDay), 20 * kDay);
}

TEST(Timeline, CoversAllOfTime) {
  const Timeline timeline = TimelineOf({{0, true}, {kTimeMaxUs, false}});
  EXPECT_LE(RowSpan(timeline), Timeline::kRowsMax);
  EXPECT_EQ(RowsOf(timeline), CountAt(timeline.width_us(), {{0, true}, {kTimeMaxUs, false}}));
}

TEST(Timeline, EveryWidthIsAMultipleOfTheOneBefore) {
  std::int64_t before = 1;
  for (std::int64_t last_us = 1; last_us <= kTimeMaxUs; last_us += last_us / 8 + 1) {
    const std::int64_t width = WidthFor(0, last_us);
    EXPECT_GE(width, before);
    EXPECT_EQ(width % before, 0) << width << " after " << before;
    before = width;
  }
}

// Requests at random moments of a random period.
std::vector<Event> RandomEvents(std::mt19937_64& random) {
  const auto number = [&](std::int64_t min, std::int64_t max) {
    return std::uniform_int_distribution<std::int64_t>(min, max)(random);
  };
  const std::int64_t span_us = number(0, kTimeMaxUs >> number(0, 51));
  const std::int64_t start_us = number(0, kTimeMaxUs - span_us);
  std::vector<Event> events;
  for (std::int64_t i = number(1, 300); i > 0; --i) {
    events.push_back({start_us + number(0, span_us), number(0, 2) > 0});
  }
  return events;
}

class RandomTimeline : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  std::mt19937_64 random_{GetParam()};
};

TEST_P(RandomTimeline, RowsHoldWhatCountingAfreshAtTheirWidthGives) {
  for (int round = 0; round < 200; ++round) {
    const std::vector<Event> events = RandomEvents(random_);
    const Timeline timeline = TimelineOf(events);
    ASSERT_EQ(RowsOf(timeline), CountAt(timeline.width_us(), events));
    ASSERT_LE(RowSpan(timeline), Timeline::kRowsMax);
  }
}

TEST_P(RandomTimeline, NoRequestIsLostOrCountedTwiceWhileItWidens) {
  for (int round = 0; round < 50; ++round) {
    Timeline timeline;
    Counts added;
    for (const Event& event : RandomEvents(random_)) {
      timeline.Add(event.time_us, event.allowed);
      ++(event.allowed ? added.first : added.second);
      Counts held;
      for (const auto& [number, row] : timeline.rows()) {
        held.first += row.allowed;
        held.second += row.denied;
      }
      ASSERT_EQ(held, added);
    }
  }
}

TEST_P(RandomTimeline, OrderOfArrivalMakesNoDifference) {
  for (int round = 0; round < 50; ++round) {
    std::vector<Event> events = RandomEvents(random_);
    const Timeline timeline = TimelineOf(events);
    std::ranges::shuffle(events, random_);
    const Timeline shuffled = TimelineOf(events);
    ASSERT_EQ(shuffled.width_us(), timeline.width_us());
    ASSERT_EQ(RowsOf(shuffled), RowsOf(timeline));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomTimeline, ::testing::Range<std::uint64_t>(1, 6));

}  // namespace
}  // namespace sluice::replay
