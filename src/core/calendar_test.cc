// SPDX-License-Identifier: Apache-2.0
// What the conformance suite and tests/calendar do not cover: how calendars are written, and states
// from those whose time zones are not the same.
#include "core/calendar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace sluice::core {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

TimePoint Utc(int year, unsigned month, unsigned day, Micros time = {}) {
  return std::chrono::sys_days{std::chrono::year{year} / static_cast<int>(month) /
                               static_cast<int>(day)} +
         time;
}

Limit Parsed(std::string_view text) {
  const auto limit = Limit::Parse(text);
  EXPECT_TRUE(limit) << text << ": " << limit.error().message;
  return *limit;
}

std::string Refused(std::string_view text) {
  const auto limit = Limit::Parse(text);
  if (limit) return "no error: " + limit->ToString();
  EXPECT_EQ(limit.error().code, ErrorCode::kInvalidLimit);
  return limit.error().message;
}

TEST(CalendarText, ReadsWhatItWrites) {
  for (const std::string_view text :
       {"algorithm=calendar,limit=1000,every=month,zone=Europe/Berlin,anchor=15",
        "algorithm=calendar,limit=1,every=day,zone=UTC,anchor=00:00",
        "algorithm=calendar,limit=1,every=day,zone=Asia/Kolkata,anchor=23:59",
        "algorithm=calendar,limit=1,every=week,zone=UTC,anchor=sunday",
        "algorithm=calendar,limit=1,every=quarter,zone=UTC,anchor=31",
        "algorithm=calendar,limit=70368744177663,every=year,zone=UTC,anchor=02-29"}) {
    const Limit limit = Parsed(text);
    EXPECT_EQ(limit.ToString(), text);
    EXPECT_EQ(Limit::Make(limit.algorithm(), limit.amount(), limit.refill(), limit.span()), limit);
    EXPECT_EQ(Limit::Calendar(limit.calendar()), limit);
    EXPECT_LT(limit.refill(), std::int64_t{1} << 53) << "a number that Redis can hold";
  }
}

TEST(CalendarText, BeginsWithTheFirstMomentInUtcUnlessItSaysOtherwise) {
  EXPECT_EQ(Parsed("ALGORITHM=CALENDAR,LIMIT=5,EVERY=WEEK").ToString(),
            "algorithm=calendar,limit=5,every=week,zone=UTC,anchor=monday");
  EXPECT_EQ(Parsed("algorithm=calendar,limit=5,every=year").ToString(),
            "algorithm=calendar,limit=5,every=year,zone=UTC,anchor=01-01");
}

TEST(CalendarText, SaysWhatIsWrong) {
  EXPECT_THAT(Refused("algorithm=calendar,limit=1"), HasSubstr("needs every"));
  EXPECT_THAT(Refused("algorithm=calendar,limit=1,every=hour"),
              HasSubstr("every=\"hour\": expected day, week, month, quarter or year"));
  EXPECT_THAT(Refused("algorithm=calendar,limit=1,every=day,window=1d"),
              HasSubstr("has no field \"window\"; expected limit, every, zone, anchor"));
  EXPECT_THAT(Refused("algorithm=calendar,limit=0,every=day"),
              HasSubstr("limit=0 is out of range"));
  EXPECT_THAT(Refused("algorithm=calendar,limit=70368744177664,every=day"),
              HasSubstr("expected 1 to 70368744177663"));
  EXPECT_THAT(Refused("algorithm=calendar,limit=1,every=day,zone=Europe/Berln"),
              AllOf(HasSubstr("zone=\"Europe/Berln\""), HasSubstr("did you mean Europe/Berlin?")));
  for (const auto& [every, anchor] :
       std::initializer_list<std::pair<const char*, const char*>>{{"day", "24:00"},
                                                                  {"day", "12:60"},
                                                                  {"day", "9:00"},
                                                                  {"day", "monday"},
                                                                  {"week", "1"},
                                                                  {"week", "mon"},
                                                                  {"month", "0"},
                                                                  {"month", "32"},
                                                                  {"month", "-1"},
                                                                  {"quarter", "01-15"},
                                                                  {"year", "13-01"},
                                                                  {"year", "00-10"},
                                                                  {"year", "01-00"},
                                                                  {"year", "01-32"},
                                                                  {"year", "1-1"},
                                                                  {"month", "015"}}) {
    EXPECT_THAT(
        Refused(std::string("algorithm=calendar,limit=1,every=") + every + ",anchor=" + anchor),
        HasSubstr(std::string("anchor=\"") + anchor + "\" in windows of a " + every))
        << every;
  }
}

TEST(CalendarText, MakesNoCalendarFromOtherNumbers) {
  const Limit limit = Parsed("algorithm=calendar,limit=5,every=month,anchor=31");
  EXPECT_FALSE(Limit::Make(Algorithm::kCalendar, 0, limit.refill(), limit.span()));
  EXPECT_FALSE(Limit::Make(Algorithm::kCalendar, 5, -1, limit.span()));
  EXPECT_FALSE(Limit::Make(Algorithm::kCalendar, 5, 0, limit.span())) << "no such zone";
  EXPECT_FALSE(Limit::Make(Algorithm::kCalendar, 5, (std::int64_t{1} << 53) - 1, limit.span()));
  EXPECT_EQ(Limit::Make(Algorithm::kCalendar, 5, limit.refill(), Micros{7}), limit)
      << "the span follows from the rest";
}

TEST(CalendarWindows, EndWithTheMonthInItsZone) {
  const Limit limit = Parsed("algorithm=calendar,limit=2,every=month,zone=Europe/Berlin,anchor=15");
  const TimePoint start = Utc(2026, 3, 14, 23h);  // Winter.
  const TimePoint end = Utc(2026, 4, 14, 22h);    // Summer.
  const auto first = Calendar::Decide(limit, nullptr, start, 2);
  EXPECT_EQ(first.decision.reset_after, end - start);
  const auto last = Calendar::Decide(limit, &first.next, end - 1us, 1);
  EXPECT_FALSE(last.decision.allowed);
  EXPECT_EQ(last.decision.retry_after, 1us);
  EXPECT_TRUE(Calendar::Decide(limit, &first.next, end, 1).decision.allowed);
}

// By our data a window of a month ends at 22:00, and somebody else's began or ended an hour off.
class OtherData : public testing::Test {
 protected:
  const Limit limit_ =
      Parsed("algorithm=calendar,limit=10,every=month,zone=Europe/Berlin,anchor=1");
  const TimePoint start_ = Utc(2026, 5, 31, 22h);
  const TimePoint end_ = Utc(2026, 6, 30, 22h);

  static Calendar::State Window(TimePoint from, TimePoint to, std::int64_t count) {
    return {.start = Us(from), .length = (to - from).count(), .count = count};
  }
};

TEST_F(OtherData, AWindowThatBeganEarlierIsNotGrantedAgain) {
  const auto theirs = Window(start_ - 1h, end_ - 1h, 10);
  for (const TimePoint now : {start_ - 30min, start_, start_ + 24h, end_ - 2h}) {
    const auto step = Calendar::Decide(limit_, &theirs, now, 1);
    EXPECT_FALSE(step.decision.allowed);
    EXPECT_EQ(step.next, theirs);
    EXPECT_EQ(step.decision.reset_after, end_ - now) << "when a window begins that is not theirs";
  }
  // Theirs is over, and ours that overlaps with it is not: no window begins in between.
  EXPECT_FALSE(Calendar::Decide(limit_, &theirs, end_ - 30min, 1).decision.allowed);
  EXPECT_TRUE(Calendar::Decide(limit_, &theirs, end_, 1).decision.allowed);
}

TEST_F(OtherData, AWindowThatBeganLaterIsNotGrantedAgain) {
  const auto theirs = Window(start_ + 1h, end_ + 1h, 10);
  EXPECT_FALSE(Calendar::Decide(limit_, &theirs, start_ + 2h, 1).decision.allowed);
  EXPECT_FALSE(Calendar::Decide(limit_, &theirs, end_, 1).decision.allowed) << "theirs lasts";
  const auto denied = Calendar::Decide(limit_, &theirs, end_ + 2h, 1);
  EXPECT_FALSE(denied.decision.allowed) << "ours has begun before theirs was over";
  EXPECT_EQ(end_ + 2h + denied.decision.retry_after, Utc(2026, 7, 31, 22h));
  EXPECT_TRUE(Calendar::Decide(limit_, &theirs, Utc(2026, 7, 31, 22h), 1).decision.allowed);
}

TEST_F(OtherData, InstancesThatDisagreeGrantNoMoreThanOneWindowAtATime) {
  // They take turns, each for all that is left, in days that begin at different times.
  const Limit ours = Parsed("algorithm=calendar,limit=10,every=day,zone=Etc/GMT-2");
  const Limit theirs = Parsed("algorithm=calendar,limit=10,every=day,zone=Etc/GMT-3");
  std::optional<Calendar::State> state;
  std::int64_t granted = 0;
  constexpr int kDays = 20;
  for (int turn = 0; turn < kDays * 48; ++turn) {
    const Limit& limit = turn % 2 == 0 ? ours : theirs;
    const TimePoint now = start_ + turn * 30min;
    const auto look = Calendar::Decide(limit, state ? &*state : nullptr, now, 0);
    const std::int64_t left = look.decision.remaining;
    if (left == 0) continue;
    const auto taken = Calendar::Decide(limit, state ? &*state : nullptr, now, left);
    ASSERT_TRUE(taken.decision.allowed);
    if (state) {
      EXPECT_GE(taken.next.start, state->end()) << "windows do not overlap";
    }
    granted += left;
    state = taken.next;
  }
  EXPECT_GE(granted, 10 * (kDays - 1));
  EXPECT_LE(granted, 10 * (kDays + 1));
}

TEST_F(OtherData, TimeDoesNotRunBackwards) {
  const auto newer = Window(end_, Utc(2026, 7, 31, 22h), 4);
  const auto step = Calendar::Decide(limit_, &newer, start_ + 24h, 1);
  EXPECT_TRUE(step.decision.allowed);
  EXPECT_EQ(step.next.start, newer.start);
  EXPECT_EQ(step.next.count, 5);
  EXPECT_EQ(step.decision.reset_after, Micros{newer.length});
}

TEST_F(OtherData, IsRecoveredWhenANewWindowBegins) {
  const auto theirs = Window(start_ - 1h, end_ - 1h, 3);
  EXPECT_FALSE(Calendar::Recovered(limit_, theirs, end_ - 1us));
  EXPECT_TRUE(Calendar::Recovered(limit_, theirs, end_));
  EXPECT_TRUE(Calendar::Recovered(limit_, Window(start_, end_, 0), start_));
  EXPECT_FALSE(Calendar::Recovered(limit_, Window(start_, end_, 0), start_ - 1us));
}

TEST(CalendarWindows, ReachFromTheEpochToTheEndOfTime) {
  for (const char* every : {"day", "week", "month", "quarter", "year"}) {
    const Limit limit =
        Parsed(std::string("algorithm=calendar,limit=1,zone=Pacific/Kiritimati,every=") + every);
    const auto first = Calendar::WindowAt(limit, 0);
    EXPECT_EQ(first.start, 0) << "it began before";
    EXPECT_LE(first.end, limit.span().count());
    const auto last = Calendar::WindowAt(limit, Us(kTimeMax));
    EXPECT_LE(last.start, Us(kTimeMax));
    EXPECT_GT(last.end, Us(kTimeMax));
    EXPECT_LT(last.end, std::int64_t{1} << 53);
    const auto step = Calendar::Decide(limit, nullptr, kTimeMax, 1);
    EXPECT_TRUE(Calendar::IsSound(limit, step.next, kTimeMax));
  }
}

TEST(CalendarState, IsSoundIfItsNumbersAreInRange) {
  const Limit limit = Parsed("algorithm=calendar,limit=1,every=day");
  constexpr std::int64_t kMost = (std::int64_t{1} << 46) - 1;
  EXPECT_TRUE(Calendar::IsSound(limit, {.start = 0, .length = 1, .count = 0}, {}));
  EXPECT_TRUE(
      Calendar::IsSound(limit, {.start = Us(kTimeMax), .length = kMost, .count = kMost}, {}));
  EXPECT_FALSE(Calendar::IsSound(limit, {.start = -1, .length = 1, .count = 0}, {}));
  EXPECT_FALSE(Calendar::IsSound(limit, {.start = Us(kTimeMax) + 1, .length = 1, .count = 0}, {}));
  EXPECT_FALSE(Calendar::IsSound(limit, {.start = 0, .length = 0, .count = 0}, {}));
  EXPECT_FALSE(Calendar::IsSound(limit, {.start = 0, .length = kMost + 1, .count = 0}, {}));
  EXPECT_FALSE(Calendar::IsSound(limit, {.start = 0, .length = 1, .count = -1}, {}));
  EXPECT_FALSE(Calendar::IsSound(limit, {.start = 0, .length = 1, .count = kMost + 1}, {}));
}

}  // namespace
}  // namespace sluice::core
