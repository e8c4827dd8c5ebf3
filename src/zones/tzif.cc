// SPDX-License-Identifier: Apache-2.0
// Reads time zones as the system stores them: the TZif format of RFC 9636, and the rule for the
// future at the end of each file, in the form of the variable TZ of POSIX.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <tuple>
#include <utility>

#include "sluice/time.h"
#include "zones/offsets.h"

namespace sluice::zones {
namespace {

using Change = Offsets::Change;

// The year after the one in which the last window that a limit can see ends.
constexpr int kLastYear =
    static_cast<int>(
        std::chrono::year_month_day(std::chrono::floor<std::chrono::days>(kTimeMax)).year()) +
    2;

// Days between the epoch and a date.
std::int64_t DayOf(int year, unsigned month, unsigned day) {
  const std::chrono::sys_days date =
      std::chrono::year{year} / static_cast<int>(month) / static_cast<int>(day);
  return date.time_since_epoch().count();
}

// Consumes a text from its beginning. After the first thing that is not as expected, nothing else
// is.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && text_.empty(); }

  bool Accept(char c) {
    if (!ok_ || !text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void Expect(char c) { ok_ = ok_ && Accept(c); }

  bool NextIs(char c) const { return ok_ && text_.starts_with(c); }

  void Fail() { ok_ = false; }

  std::string_view Rest() const { return ok_ ? text_ : std::string_view(); }

  // A number of at most three digits.
  int Number(int min, int max) {
    int number = 0;
    std::size_t digits = 0;
    while (ok_ && digits < text_.size() && digits < 3 && text_[digits] >= '0' &&
           text_[digits] <= '9') {
      number = 10 * number + (text_[digits++] - '0');
    }
    ok_ = ok_ && digits > 0 && number >= min && number <= max;
    if (ok_) text_.remove_prefix(digits);
    return number;
  }

  // "CET", or "<+0330>".
  void Name() {
    const bool quoted = Accept('<');
    const auto belongs = [&](char c) {
      const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
      return letter || (quoted && ((c >= '0' && c <= '9') || c == '+' || c == '-'));
    };
    std::size_t size = 0;
    while (size < text_.size() && belongs(text_[size])) ++size;
    ok_ = ok_ && size >= 3;
    if (ok_) text_.remove_prefix(size);
    if (quoted) Expect('>');
  }

  // "-3", "+2:30" or "167:00:00", in seconds.
  std::int32_t Time(int hours_max) {
    const bool negative = Accept('-');
    if (!negative) Accept('+');
    std::int32_t seconds = 3600 * Number(0, hours_max);
    if (Accept(':')) seconds += 60 * Number(0, 59);
    if (Accept(':')) seconds += Number(0, 59);
    return negative ? -seconds : seconds;
  }

  std::uint64_t BigEndian(std::size_t bytes) {
    ok_ = ok_ && bytes <= text_.size();
    if (!ok_) return 0;
    std::uint64_t number = 0;
    for (const char c : text_.substr(0, bytes)) {
      number = number << 8 | static_cast<unsigned char>(c);
    }
    text_.remove_prefix(bytes);
    return number;
  }

  std::string_view Take(std::uint64_t bytes) {
    ok_ = ok_ && bytes <= text_.size();
    if (!ok_) return {};
    const std::string_view taken = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return taken;
  }

 private:
  std::string_view text_;
  bool ok_ = true;
};

// When in a year clocks change: "M3.5.0/3", "J60" or "59".
struct YearlyTime {
  enum class Form { kWeekday, kJulian, kDay };

  Form form = Form::kDay;
  unsigned month = 0;
  int week = 0;
  int day = 0;
  std::int32_t time = 2 * 3600;

  // In seconds of local time.
  std::int64_t In(int year) const { return DayIn(year) * 86'400 + time; }

 private:
  std::int64_t DayIn(int year) const {
    const std::int64_t first = DayOf(year, 1, 1);
    switch (form) {
      case Form::kDay:
        return first + day;
      case Form::kJulian: {
        // February 29 is never counted.
        const bool after_leap_day = std::chrono::year{year}.is_leap() && day >= 60;
        return first + day - 1 + (after_leap_day ? 1 : 0);
      }
      case Form::kWeekday: {
        const std::int64_t month_begins = DayOf(year, month, 1);
        // The epoch was a Thursday.
        const std::int64_t weekday = (month_begins + 4) % 7;
        std::int64_t found = month_begins + (day - weekday + 7) % 7 + std::int64_t{7} * (week - 1);
        const std::int64_t next_month =
            month == 12 ? DayOf(year + 1, 1, 1) : DayOf(year, month + 1, 1);
        if (found >= next_month) found -= 7;  // Week 5 is the last.
        return found;
      }
    }
    std::unreachable();
  }
};

YearlyTime ReadYearlyTime(Reader& reader) {
  YearlyTime when;
  reader.Expect(',');
  if (reader.Accept('M')) {
    when.form = YearlyTime::Form::kWeekday;
    when.month = static_cast<unsigned>(reader.Number(1, 12));
    reader.Expect('.');
    when.week = reader.Number(1, 5);
    reader.Expect('.');
    when.day = reader.Number(0, 6);
  } else if (reader.Accept('J')) {
    when.form = YearlyTime::Form::kJulian;
    when.day = reader.Number(1, 365);
  } else {
    when.day = reader.Number(0, 365);
  }
  if (reader.Accept('/')) when.time = reader.Time(167);
  return when;
}

// Appends the changes that a rule such as "CET-1CEST,M3.5.0,M10.5.0/3" makes after those that are
// there. Returns whether it is one.
bool AppendFuture(std::string_view rule, std::vector<Change>& changes) {
  Reader reader(rule);
  reader.Name();
  const std::int32_t standard = -reader.Time(24);
  if (reader.done()) return true;  // These clocks do not change.
  reader.Name();
  const std::int32_t daylight = reader.NextIs(',') ? standard + 3600 : -reader.Time(24);
  const YearlyTime begins = ReadYearlyTime(reader);
  const YearlyTime ends = ReadYearlyTime(reader);
  if (!reader.done()) return false;

  const std::int64_t last = changes.empty() ? 0 : changes.back().at;
  const auto year_of_last = std::chrono::year_month_day(
      std::chrono::floor<std::chrono::days>(std::chrono::sys_seconds{std::chrono::seconds{last}}));
  // Of two that meet, the one of the later year counts.
  std::vector<std::tuple<std::int64_t, int, std::int32_t>> future;
  for (int year = static_cast<int>(year_of_last.year()); year <= kLastYear; ++year) {
    future.emplace_back(begins.In(year) - standard, year, daylight);
    future.emplace_back(ends.In(year) - daylight, year, standard);
  }
  std::ranges::sort(future);
  for (const auto& [at, year, offset] : future) {
    if (changes.empty() || at > last) changes.push_back({at, offset});
  }
  return true;
}

// The sizes of the parts of a file.
struct Header {
  std::uint64_t universal, standard, leaps, times, types, characters;

  // Of the body that follows it, where a time has so many bytes.
  std::uint64_t BodyBytes(std::uint64_t time_bytes) const {
    return times * (time_bytes + 1) + types * 6 + characters + leaps * (time_bytes + 4) + standard +
           universal;
  }
};

Header ReadHeader(Reader& reader, char& version) {
  if (reader.Take(4) != "TZif") reader.Fail();
  const std::string_view written = reader.Take(1);
  version = written.empty() ? '\0' : written.front();
  reader.Take(15);
  Header header{};
  for (std::uint64_t* const size : {&header.universal, &header.standard, &header.leaps,
                                    &header.times, &header.types, &header.characters}) {
    *size = reader.BigEndian(4);
  }
  return header;
}

}  // namespace

std::expected<Offsets, std::string> Offsets::FromTzif(std::string_view file) {
  Reader reader(file);
  char version = '\0';
  const Header short_header = ReadHeader(reader, version);
  if (!reader.ok()) return std::unexpected("it is not in TZif format");
  if (version < '2') return std::unexpected("it is in version 1 of TZif; expected version 2");
  // The first body has times of four bytes, for programs of long ago.
  reader.Take(short_header.BodyBytes(4));
  const Header header = ReadHeader(reader, version);
  if (header.leaps > 0) return std::unexpected("its times count leap seconds");
  Reader times(reader.Take(header.times * 8));
  Reader type_of_time(reader.Take(header.times));
  Reader types(reader.Take(header.types * 6));
  reader.Take(header.characters + header.standard + header.universal);
  if (!reader.Accept('\n') || header.types == 0) return std::unexpected("it is damaged");

  std::vector<std::int32_t> offsets;
  for (std::uint64_t i = 0; i < header.types; ++i) {
    const auto offset = static_cast<std::int32_t>(types.BigEndian(4));
    types.Take(2);
    // RFC 9636 allows up to this.
    if (offset < -25 * 3600 || offset > 26 * 3600) return std::unexpected("it is damaged");
    offsets.push_back(offset);
  }
  std::vector<Change> changes;
  for (std::uint64_t i = 0; i < header.times; ++i) {
    const auto at = static_cast<std::int64_t>(times.BigEndian(8));
    const std::uint64_t type = type_of_time.BigEndian(1);
    if (type >= offsets.size() || (!changes.empty() && at <= changes.back().at)) {
      return std::unexpected("it is damaged");
    }
    changes.push_back({at, offsets[type]});
  }
  const std::string_view rule = reader.Rest();
  if (rule.empty() || rule.back() != '\n') return std::unexpected("it is damaged");
  if (rule.size() > 1 && !AppendFuture(rule.substr(0, rule.size() - 1), changes)) {
    return std::unexpected("it has no rule for the future that can be read");
  }
  return Offsets(offsets.front(), changes);
}

}  // namespace sluice::zones
