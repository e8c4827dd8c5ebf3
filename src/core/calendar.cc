// SPDX-License-Identifier: Apache-2.0
#include "core/calendar.h"

#include <array>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "zones/database.h"

namespace sluice::core {
namespace {

using std::chrono::days;

constexpr int kAnchorBits = 11;
constexpr int kEveryBits = 3;
static_assert(zones::Zone::kKeyBits + kEveryBits + kAnchorBits < 53);

constexpr std::array<std::string_view, 5> kEveryNames = {"day", "week", "month", "quarter", "year"};
constexpr std::array<std::string_view, 7> kWeekdays = {
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"};

constexpr std::int64_t kMicros = 1'000'000;
constexpr std::int64_t kDaySeconds = 86'400;
constexpr std::int64_t kMonday = -3;  // The one before the epoch, in days.

constexpr std::int64_t FloorDiv(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// The day of a month, counted from January 1970, or its last if it does not have so many.
std::int64_t DayOfMonth(std::int64_t month, int day) {
  const std::chrono::year_month its{
      std::chrono::year{1970 + static_cast<int>(FloorDiv(month, 12))},
      std::chrono::month{static_cast<unsigned>(month - 12 * FloorDiv(month, 12) + 1)}};
  const std::chrono::sys_days first = its / 1;
  const std::chrono::sys_days last = its / std::chrono::last;
  return std::min(first + days{day - 1}, last).time_since_epoch().count();
}

std::int64_t MonthOf(std::int64_t day) {
  const std::chrono::year_month_day date{std::chrono::sys_days{days{day}}};
  const auto month = static_cast<int>(static_cast<unsigned>(date.month()));
  return 12 * (static_cast<int>(date.year()) - 1970) + month - 1;
}

// Windows are numbered in the order of time. Which of them contains a local time that is not
// affected by its anchor.
std::int64_t NumberAt(Every every, std::int64_t local) {
  const std::int64_t day = FloorDiv(local, kDaySeconds);
  switch (every) {
    case Every::kDay:
      return day;
    case Every::kWeek:
      return FloorDiv(day - kMonday, 7);
    case Every::kMonth:
      return MonthOf(day);
    case Every::kQuarter:
      return FloorDiv(MonthOf(day), 3);
    case Every::kYear:
      return FloorDiv(MonthOf(day), 12);
  }
  std::unreachable();
}

// The local time at which a window begins.
std::int64_t LocalStart(const CalendarTerms& terms, std::int64_t number) {
  switch (terms.every) {
    case Every::kDay:
      return number * kDaySeconds + std::int64_t{60} * terms.anchor;
    case Every::kWeek:
      return (number * 7 + kMonday + terms.anchor) * kDaySeconds;
    case Every::kMonth:
      return DayOfMonth(number, terms.anchor) * kDaySeconds;
    case Every::kQuarter:
      return DayOfMonth(3 * number, terms.anchor) * kDaySeconds;
    case Every::kYear:
      return DayOfMonth(12 * number + terms.anchor / 32 - 1, terms.anchor % 32) * kDaySeconds;
  }
  std::unreachable();
}

bool IsAnchor(Every every, int anchor) {
  switch (every) {
    case Every::kDay:
      return anchor >= 0 && anchor < 24 * 60;
    case Every::kWeek:
      return anchor >= 0 && anchor < 7;
    case Every::kMonth:
    case Every::kQuarter:
      return anchor >= 1 && anchor <= 31;
    case Every::kYear:
      return anchor / 32 >= 1 && anchor / 32 <= 12 && anchor % 32 >= 1;
  }
  std::unreachable();
}

// Two numbers of two digits each, with this between them.
std::optional<std::pair<int, int>> ParsePair(std::string_view text, char between) {
  if (text.size() != 5 || text[2] != between) return std::nullopt;
  const auto first = text::ParseNumber<unsigned>(text.substr(0, 2));
  const auto second = text::ParseNumber<unsigned>(text.substr(3));
  if (!first || !second) return std::nullopt;
  return std::pair(static_cast<int>(*first), static_cast<int>(*second));
}

std::string PairText(int first, int second, std::string_view between) {
  const auto digits = [](int number) { return text::Cat(number < 10 ? "0" : "", number); };
  return text::Cat(digits(first), between, digits(second));
}

}  // namespace

std::string_view NameOf(Every every) { return kEveryNames[static_cast<std::size_t>(every)]; }

std::optional<Every> EveryFrom(std::string_view name) {
  for (std::size_t i = 0; i < kEveryNames.size(); ++i) {
    if (text::EqualsIgnoreCase(kEveryNames[i], name)) return static_cast<Every>(i);
  }
  return std::nullopt;
}

Micros NominalSpan(Every every) {
  constexpr std::array<int, kEveryNames.size()> kDays = {1, 7, 31, 92, 366};
  return days{kDays[static_cast<std::size_t>(every)]};
}

std::int64_t CalendarTerms::ToNumber() const {
  return static_cast<std::int64_t>(zone << (kEveryBits + kAnchorBits) |
                                   static_cast<std::uint64_t>(every) << kAnchorBits |
                                   static_cast<std::uint64_t>(anchor));
}

std::optional<CalendarTerms> CalendarTerms::FromNumber(std::int64_t number) {
  if (number < 0 || number >> (zones::Zone::kKeyBits + kEveryBits + kAnchorBits) != 0) {
    return std::nullopt;
  }
  const std::int64_t every = number >> kAnchorBits & ((1 << kEveryBits) - 1);
  if (every >= static_cast<std::int64_t>(kEveryNames.size())) return std::nullopt;
  const CalendarTerms terms{
      .every = static_cast<Every>(every),
      .anchor = static_cast<int>(number & ((1 << kAnchorBits) - 1)),
      .zone = static_cast<std::uint64_t>(number >> (kEveryBits + kAnchorBits))};
  return IsAnchor(terms.every, terms.anchor) ? std::optional(terms) : std::nullopt;
}

std::string CalendarTerms::AnchorText() const {
  switch (every) {
    case Every::kDay:
      return PairText(anchor / 60, anchor % 60, ":");
    case Every::kWeek:
      return std::string(kWeekdays[static_cast<std::size_t>(anchor)]);
    case Every::kMonth:
    case Every::kQuarter:
      return text::Cat(anchor);
    case Every::kYear:
      return PairText(anchor / 32, anchor % 32, "-");
  }
  std::unreachable();
}

std::optional<int> CalendarTerms::AnchorFrom(Every every, std::string_view text) {
  std::optional<int> anchor;
  switch (every) {
    case Every::kDay:
      if (text.empty()) return 0;
      if (const auto time = ParsePair(text, ':'); time && time->second < 60) {
        anchor = 60 * time->first + time->second;
      }
      break;
    case Every::kWeek:
      if (text.empty()) return 0;
      for (std::size_t i = 0; i < kWeekdays.size(); ++i) {
        if (text::EqualsIgnoreCase(kWeekdays[i], text)) anchor = static_cast<int>(i);
      }
      break;
    case Every::kMonth:
    case Every::kQuarter:
      if (text.empty()) return 1;
      if (text.size() <= 2) anchor = text::ParseNumber<int>(text);
      break;
    case Every::kYear:
      if (text.empty()) return 32 + 1;
      if (const auto date = ParsePair(text, '-'); date && date->second < 32) {
        anchor = 32 * date->first + date->second;
      }
      break;
  }
  return anchor && IsAnchor(every, *anchor) ? anchor : std::nullopt;
}

std::string_view CalendarTerms::AnchorForm(Every every) {
  switch (every) {
    case Every::kDay:
      return "a time of day, 00:00 to 23:59";
    case Every::kWeek:
      return "a day, monday to sunday";
    case Every::kMonth:
    case Every::kQuarter:
      return "a day of the month, 1 to 31";
    case Every::kYear:
      return "a date, 01-01 to 12-31";
  }
  std::unreachable();
}

CalendarWindow Calendar::WindowAt(const Limit& limit, std::int64_t at_us) {
  const auto terms = *CalendarTerms::FromNumber(limit.refill());
  const zones::Offsets& offsets = limit.zone()->offsets();
  const std::int64_t at = at_us / kMicros;
  const auto start_of = [&](std::int64_t number) {
    return offsets.FirstMoment(LocalStart(terms, number));
  };
  // The anchor, and a change of the clock, may make it an earlier one, or the next.
  std::int64_t number = NumberAt(terms.every, at + offsets.At(at)) + 1;
  std::int64_t end = start_of(number);
  while (end <= at) end = start_of(++number);
  std::int64_t start = start_of(--number);
  while (start > at) {
    end = start;
    start = start_of(--number);
  }
  return {.start = std::max<std::int64_t>(0, start * kMicros), .end = end * kMicros};
}

}  // namespace sluice::core
