// SPDX-License-Identifier: Apache-2.0
#include "base/duration.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "base/text.h"

namespace sluice::text {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t micros;
};
// Largest first: FormatDuration picks the first that divides.
constexpr std::array kUnits = {Unit{"d", 86'400'000'000}, Unit{"h", 3'600'000'000},
                               Unit{"m", 60'000'000},     Unit{"s", 1'000'000},
                               Unit{"ms", 1'000},         Unit{"us", 1}};

std::unexpected<Error> InvalidDuration(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

}  // namespace

Expected<Micros> ParseDuration(std::string_view text) {
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  // Elsewhere, M means months.
  if (text.substr(digits) == "M") {
    return InvalidDuration(Cat(Quote(text), ": M could be minutes or months; expected ",
                               text.substr(0, digits), "m for minutes, or days such as 30d"));
  }
  const auto amount = ParseInteger(text.substr(0, digits));
  const auto unit = std::ranges::find_if(kUnits, [&](const Unit& candidate) {
    return EqualsIgnoreCase(candidate.name, text.substr(digits));
  });
  if (!amount || unit == kUnits.end()) {
    return InvalidDuration(Cat(
        Quote(text), ": expected a whole number followed by us, ms, s, m, h or d, such as 500ms"));
  }
  if (*amount > kSpanMax.count() / unit->micros) {
    return InvalidDuration(
        Cat(Quote(text), ": too long; expected at most ", kSpanMax.count(), "us"));
  }
  return Micros{*amount * unit->micros};
}

std::string FormatDuration(Micros duration) {
  if (duration == Micros{0}) return "0s";
  const auto unit = std::ranges::find_if(
      kUnits, [&](const Unit& candidate) { return duration.count() % candidate.micros == 0; });
  return Cat(duration.count() / unit->micros, unit->name);
}

std::string FormatTime(TimePoint time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ",
                static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()),
                static_cast<int>(clock.subseconds().count()));
  return buffer.data();
}

}  // namespace sluice::text
