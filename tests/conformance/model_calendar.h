// SPDX-License-Identifier: Apache-2.0
//
// Calendars for the reference model (HOLDS.md, section 5). Shares nothing with the implementation:
// what clocks show comes from the C library, asked twice a day for the whole time that a limit can
// see, and dates from its timegm.

#ifndef SLUICE_TESTS_CONFORMANCE_MODEL_CALENDAR_H_
#define SLUICE_TESTS_CONFORMANCE_MODEL_CALENDAR_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::model {

enum class Every { kDay, kWeek, kMonth, kQuarter, kYear };

// The anchor is `major` and `minor`: hour and minute; weekday from Monday (0); day; month and day.
struct CalendarSpec {
  Every every = Every::kDay;
  std::string_view zone = "UTC";
  int major = 0;
  int minor = 0;

  friend bool operator==(const CalendarSpec&, const CalendarSpec&) = default;
};

namespace internal {

// When clocks of a zone show something else than UTC, by how much. In seconds.
class ZoneClocks {
 public:
  static const ZoneClocks& Of(std::string_view name) {
    static std::map<std::string, ZoneClocks, std::less<>> known;
    auto found = known.find(name);
    if (found == known.end()) {
      found = known.emplace(std::string(name), ZoneClocks(std::string(name))).first;
    }
    return found->second;
  }

  // What clocks show, as if it were UTC.
  std::int64_t Shown(std::int64_t utc) const { return utc + SpanOf(utc)->offset; }

  // When they first show this, or what comes after it.
  std::int64_t First(std::int64_t shown) const {
    for (auto span = SpanOf(shown - 2 * kDay);; ++span) {
      const std::int64_t at = std::max(span->begin, shown - span->offset);
      if (span + 1 == spans_.end() || at < (span + 1)->begin) return at;
    }
  }

  static constexpr std::int64_t kDay = 86'400;

 private:
  struct Span {
    std::int64_t begin;
    std::int64_t offset;
  };

  explicit ZoneClocks(const std::string& name) {
    const char* const set = std::getenv("TZ");
    const std::string before = set ? set : "";
    setenv("TZ", (":" + name).c_str(), 1);
    tzset();
    const std::int64_t first = -3 * 366 * kDay;
    const std::int64_t last = 147 * 366 * kDay;
    spans_.push_back({std::numeric_limits<std::int64_t>::min(), Offset(first)});
    for (std::int64_t at = first; at < last; at += kDay / 2) {
      if (Offset(at + kDay / 2) == Offset(at)) continue;
      std::int64_t low = at;
      std::int64_t high = at + kDay / 2;
      while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (Offset(middle) == Offset(at) ? low : high) = middle;
      }
      spans_.push_back({high, Offset(high)});
    }
    set ? setenv("TZ", before.c_str(), 1) : unsetenv("TZ");
    tzset();
  }

  static std::int64_t Offset(std::time_t utc) {
    std::tm shown{};
    localtime_r(&utc, &shown);
    return shown.tm_gmtoff;
  }

  std::vector<Span>::const_iterator SpanOf(std::int64_t utc) const {
    return std::ranges::upper_bound(spans_, utc, {}, &Span::begin) - 1;
  }

  std::vector<Span> spans_;
};

// When the window begins that contains this moment, in microseconds; and when the next one does.
class CalendarWindows {
 public:
  explicit CalendarWindows(const CalendarSpec& spec)
      : spec_(spec), clocks_(ZoneClocks::Of(spec.zone)) {}

  struct Window {
    std::int64_t begin;
    std::int64_t end;
  };

  Window At(std::int64_t at_us) const {
    const std::int64_t at = at_us / kSecond;
    const std::time_t shown = clocks_.Shown(at);
    std::tm date{};
    gmtime_r(&shown, &date);
    Window window{0, std::numeric_limits<std::int64_t>::max()};
    for (int i = -2; i <= 2; ++i) {
      const std::int64_t begin = clocks_.First(Near(date, i));
      if (begin <= at) window.begin = std::max(window.begin, begin * kSecond);
      if (begin > at) window.end = std::min(window.end, begin * kSecond);
    }
    return window;
  }

 private:
  static constexpr std::int64_t kSecond = 1'000'000;

  static std::int64_t SecondsOf(int years, int months, int day) {
    std::tm date{};
    date.tm_year = years;
    date.tm_mon = months;
    date.tm_mday = day;
    return timegm(&date);
  }

  // A day of a month, or its last.
  static std::int64_t Clipped(int years, int months, int day) {
    return std::min(SecondsOf(years, months, day), SecondsOf(years, months + 1, 0));
  }

  // What clocks show when a window begins: the one of this date, or so many later.
  std::int64_t Near(const std::tm& date, int later) const {
    const int years = date.tm_year;
    switch (spec_.every) {
      case Every::kDay:
        return SecondsOf(years, date.tm_mon, date.tm_mday + later) + spec_.major * 3600 +
               spec_.minor * 60;
      case Every::kWeek: {
        const int since = (date.tm_wday + 6 - spec_.major + 7) % 7;
        return SecondsOf(years, date.tm_mon, date.tm_mday - since + 7 * later);
      }
      case Every::kMonth:
        return Clipped(years, date.tm_mon + later, spec_.major);
      case Every::kQuarter:
        return Clipped(years, date.tm_mon / 3 * 3 + 3 * later, spec_.major);
      case Every::kYear:
        return Clipped(years + later, spec_.major - 1, spec_.minor);
    }
    return 0;
  }

  const CalendarSpec spec_;
  const ZoneClocks& clocks_;
};

}  // namespace internal
}  // namespace sluice::model

#endif  // SLUICE_TESTS_CONFORMANCE_MODEL_CALENDAR_H_
