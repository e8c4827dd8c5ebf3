// SPDX-License-Identifier: Apache-2.0
// The textual form of limits: `algorithm=token_bucket,capacity=100,refill=10,period=1s`.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/duration.h"
#include "base/text.h"
#include "core/algorithms.h"
#include "core/calendar.h"
#include "sluice/limit.h"

namespace sluice {
namespace {

using Fields = std::span<const std::string_view>;

constexpr std::size_t kPairsMax = 8;  // More than any algorithm has; bounds the work on bad input.

struct Pair {
  std::string_view name;
  std::string_view value;
};

std::unexpected<Error> InvalidText(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidLimit, std::move(message)});
}

std::string Join(Fields names) {
  std::string joined;
  for (const std::string_view name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

Expected<std::int64_t> ParseCount(const Pair& pair) {
  if (const auto value = text::ParseInteger(pair.value)) return *value;
  return InvalidText(
      text::Cat(pair.name, "=", text::Quote(pair.value), ": expected a whole number"));
}

Expected<Micros> ParseDuration(const Pair& pair) {
  auto duration = text::ParseDuration(pair.value);
  if (!duration) return InvalidText(text::Cat(pair.name, "=", duration.error().message));
  return duration;
}

class Pairs {
 public:
  static Expected<Pairs> Split(std::string_view text) {
    Pairs pairs;
    while (true) {
      const auto comma = std::min(text.find(','), text.size());
      const std::string_view part = text::Trim(text.substr(0, comma));
      const auto equals = part.find('=');
      if (equals == std::string_view::npos) {
        return InvalidText(text::Cat(text::Quote(part),
                                     " is not name=value; expected a limit such as "
                                     "algorithm=token_bucket,capacity=100,refill=10,period=1s"));
      }
      const Pair pair{text::Trim(part.substr(0, equals)), text::Trim(part.substr(equals + 1))};
      if (pairs.Find(pair.name)) {
        return InvalidText(text::Cat(text::Quote(pair.name), " is given twice; expected it once"));
      }
      if (pairs.count_ == kPairsMax)
        return InvalidText(text::Cat("more than ", kPairsMax, " fields; no limit has that many"));
      pairs.pairs_[pairs.count_++] = pair;
      if (comma == text.size()) return pairs;
      text.remove_prefix(comma + 1);
    }
  }

  const Pair* Find(std::string_view name) const {
    const auto all = std::span(pairs_).first(count_);
    const auto found = std::ranges::find_if(
        all, [&](const Pair& pair) { return text::EqualsIgnoreCase(pair.name, name); });
    return found == all.end() ? nullptr : &*found;
  }

  // Requires every field of the algorithm, and no other.
  Expected<void> Require(Algorithm algorithm) const {
    const Fields fields = core::RowOf(algorithm).fields();
    for (const Pair& pair : std::span(pairs_).first(count_)) {
      const auto same = [&](std::string_view field) {
        return text::EqualsIgnoreCase(pair.name, field);
      };
      if (!same("algorithm") && std::ranges::none_of(fields, same)) {
        return InvalidText(text::Cat(ToString(algorithm), " has no field ", text::Quote(pair.name),
                                     "; expected ", Join(fields)));
      }
    }
    for (const std::string_view field : core::RowOf(algorithm).required_fields()) {
      if (!Find(field)) {
        return InvalidText(
            text::Cat(ToString(algorithm), " needs ", field, "; expected ", Join(fields)));
      }
    }
    return {};
  }

 private:
  std::array<Pair, kPairsMax> pairs_;
  std::size_t count_ = 0;
};

Expected<Limit> ParseCalendar(const Pairs& pairs, std::int64_t amount) {
  const Pair& named = *pairs.Find("every");
  const auto every = core::EveryFrom(named.value);
  if (!every) {
    return InvalidText(text::Cat("every=", text::Quote(named.value),
                                 ": expected day, week, month, quarter or year"));
  }
  Limit::CalendarSpec spec{.limit = amount, .every = *every};
  if (const Pair* const zone = pairs.Find("zone")) spec.zone = zone->value;
  if (const Pair* const anchor = pairs.Find("anchor")) spec.anchor = anchor->value;
  return Limit::Calendar(spec);
}

}  // namespace

std::string_view ToString(Algorithm algorithm) { return core::RowOf(algorithm).name; }

Expected<Algorithm> ParseAlgorithm(std::string_view name) {
  for (const core::AlgorithmRow& row : core::kAlgorithms) {
    const bool is_alias = !row.alias.empty() && text::EqualsIgnoreCase(row.alias, name);
    if (is_alias || text::EqualsIgnoreCase(row.name, name)) return row.algorithm;
  }
  std::vector<std::string_view> names;
  names.reserve(2 * core::kAlgorithms.size());
  for (const core::AlgorithmRow& row : core::kAlgorithms) names.push_back(row.name);
  for (const core::AlgorithmRow& row : core::kAlgorithms) {
    if (!row.alias.empty()) names.push_back(row.alias);
  }
  return InvalidText(
      text::Cat("unknown algorithm ", text::Quote(name), "; expected one of ", Join(names)));
}

Expected<Limit> Limit::Parse(std::string_view text) {
  const auto pairs = Pairs::Split(text);
  if (!pairs) return std::unexpected(pairs.error());

  Algorithm algorithm = core::kDefaultAlgorithm;
  if (const Pair* named = pairs->Find("algorithm")) {
    const auto parsed = ParseAlgorithm(named->value);
    if (!parsed) return std::unexpected(parsed.error());
    algorithm = *parsed;
  }
  if (const auto complete = pairs->Require(algorithm); !complete) {
    return std::unexpected(complete.error());
  }

  const Fields fields = core::RowOf(algorithm).fields();
  const auto amount = ParseCount(*pairs->Find(fields.front()));
  if (!amount) return std::unexpected(amount.error());
  if (algorithm == Algorithm::kCalendar) return ParseCalendar(*pairs, *amount);
  const auto refill = core::RowOf(algorithm).refills() ? ParseCount(*pairs->Find(fields[1])) : 0;
  if (!refill) return std::unexpected(refill.error());
  const auto span = ParseDuration(*pairs->Find(fields.back()));
  if (!span) return std::unexpected(span.error());

  return FromFields(algorithm, *amount, *refill, *span);
}

std::string Limit::ToString() const {
  const core::AlgorithmRow& row = core::RowOf(algorithm_);
  const Fields fields = row.fields();
  std::string text =
      text::Cat("algorithm=", row.name, ",", fields.front(), "=", amount_ - row.amount_above_field);
  if (algorithm_ == Algorithm::kCalendar) {
    const CalendarSpec spec = calendar();
    return text::Cat(text, ",every=", core::NameOf(spec.every), ",zone=", spec.zone,
                     ",anchor=", spec.anchor);
  }
  if (row.refills()) text += text::Cat(",", fields[1], "=", refill_);
  return text + text::Cat(",", fields.back(), "=", text::FormatDuration(span_));
}

}  // namespace sluice
