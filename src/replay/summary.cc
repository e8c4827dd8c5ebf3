// SPDX-License-Identifier: Apache-2.0
#include "replay/summary.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/duration.h"
#include "base/text.h"

namespace sluice::replay {
namespace {

constexpr std::size_t kTopKeys = 10;
constexpr std::int64_t kBarWidth = 48;

std::string Percent(std::int64_t part, std::int64_t whole) {
  // In tenths of a percent, with integers: the output is the same everywhere.
  const auto tenths =
      whole == 0 ? 0
                 : static_cast<std::int64_t>((static_cast<__int128>(part) * 2000 / whole + 1) / 2);
  return text::Cat(tenths / 10, ".", tenths % 10, " %");
}

std::string Padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

// JSON is UTF-8; other keys are shown with their bytes escaped.
boost::json::value JsonKey(std::string_view key) {
  boost::json::value value(boost::json::string_view(key.data(), key.size()));
  boost::json::error_code error;
  boost::json::parse(boost::json::serialize(value), error);
  if (error) value = text::Escape(key);
  return value;
}

std::string Width(std::int64_t width_us) {
  struct Unit {
    std::string_view name;
    std::int64_t micros;
  };
  constexpr std::array kUnits = {Unit{"d", 86'400'000'000}, Unit{"h", 3'600'000'000},
                                 Unit{"min", 60'000'000},   Unit{"s", 1'000'000},
                                 Unit{"ms", 1'000},         Unit{"us", 1}};
  const auto unit = std::ranges::find_if(
      kUnits, [&](const Unit& candidate) { return width_us % candidate.micros == 0; });
  return text::Cat(width_us / unit->micros, " ", unit->name);
}

}  // namespace

void Summary::Add(const Record& record, const Decision& overall, std::span<const Decision> each) {
  if (requests() == 0) first_us_ = last_us_ = record.timestamp_us;
  first_us_ = std::min(first_us_, record.timestamp_us);
  last_us_ = std::max(last_us_, record.timestamp_us);
  timeline_.Add(record.timestamp_us, overall.allowed);
  if (overall.allowed) {
    ++allowed_;
    return;
  }
  ++denied_;
  for (std::size_t i = 0; i < each.size(); ++i) denied_by_[i] += !each[i].allowed;
  const auto found = denied_keys_.find(record.key);
  if (found != denied_keys_.end()) {
    ++found->second;
  } else {
    denied_keys_.emplace(record.key, 1);
  }
}

std::vector<Summary::KeyCount> Summary::TopDenied() const {
  std::vector<KeyCount> top(std::min(kTopKeys, denied_keys_.size()));
  // Ties are broken by key: the map's own order differs between platforms.
  std::ranges::partial_sort_copy(denied_keys_, top, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return top;
}

std::string Summary::ToText() const {
  std::string out;
  const auto line = [&](const auto&... parts) { out += text::Cat(parts..., "\n"); };
  const std::size_t digits = std::to_string(requests()).size();
  const auto count = [&](std::int64_t number) { return Padded(std::to_string(number), digits); };

  line("requests  ", count(requests()));
  line("allowed   ", count(allowed_), "  ", Percent(allowed_, requests()));
  line("denied    ", count(denied_), "  ", Percent(denied_, requests()));
  if (bad_lines_ > 0) line("bad lines ", count(bad_lines_), "  skipped");
  if (requests() == 0) return out;
  line("from      ", text::FormatTime(TimePoint{Micros{first_us_}}));
  line("to        ", text::FormatTime(TimePoint{Micros{last_us_}}));

  line("\ndenied by");
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    line("  ", count(denied_by_[i]), "  ", limits_[i].ToString());
  }
  if (denied_ > 0) {
    line("\ntop denied keys");
    for (const auto& [key, denied] : TopDenied()) line("  ", count(denied), "  ", text::Quote(key));
  }

  line("\nover time, ", Width(timeline_.width_us()), " a row   # allowed  - denied");
  const auto& rows = timeline_.rows();
  std::int64_t most = 0;
  for (const auto& [number, row] : rows) most = std::max(most, row.allowed + row.denied);
  for (std::int64_t number = rows.begin()->first; number <= rows.rbegin()->first; ++number) {
    const auto found = rows.find(number);
    const Timeline::Counts row = found == rows.end() ? Timeline::Counts{} : found->second;
    // Rounded up, so that a single denial among thousands is visible.
    const auto bar = [&](std::int64_t n) {
      return static_cast<std::size_t>((n * kBarWidth + most - 1) / most);
    };
    const std::string bars = std::string(bar(row.allowed), '#') + std::string(bar(row.denied), '-');
    line("  ", text::FormatTime(TimePoint{Micros{number * timeline_.width_us()}}), "  ",
         count(row.allowed), " ", count(row.denied), bars.empty() ? "" : "  ", bars);
  }
  return out;
}

std::string Summary::ToJson() const {
  boost::json::array limits;
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    limits.push_back({{"limit", limits_[i].ToString()}, {"denied", denied_by_[i]}});
  }
  boost::json::array top;
  for (const auto& [key, denied] : TopDenied()) {
    top.push_back({{"key", JsonKey(key)}, {"denied", denied}});
  }
  boost::json::array timeline;
  for (const auto& [number, row] : timeline_.rows()) {
    timeline.push_back({{"start_us", number * timeline_.width_us()},
                        {"allowed", row.allowed},
                        {"denied", row.denied}});
  }
  boost::json::object summary = {{"requests", requests()},
                                 {"allowed", allowed_},
                                 {"denied", denied_},
                                 {"bad_lines", bad_lines_},
                                 {"first_us", first_us_},
                                 {"last_us", last_us_},
                                 {"limits", std::move(limits)},
                                 {"top_denied", std::move(top)},
                                 {"timeline_width_us", timeline_.width_us()},
                                 {"timeline", std::move(timeline)}};
  return boost::json::serialize(summary) + "\n";
}

}  // namespace sluice::replay
