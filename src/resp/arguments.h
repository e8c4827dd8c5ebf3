// SPDX-License-Identifier: Apache-2.0
// What commands read their arguments with.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "sluice/error.h"

namespace sluice::resp {

using Arguments = std::span<const std::string_view>;

inline std::unexpected<Error> Refuse(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidRequest, std::move(message)});
}

// Which of two values counts must not be guessed: a proxy may have added one and its client the
// other.
inline std::unexpected<Error> RefuseRepeated(std::string_view option) {
  return Refuse(text::Cat(option, " is given twice; expected it once"));
}

// Digits only, like nearly every number; otherwise uses text::ParseInteger.
inline std::optional<std::int64_t> ParseDigits(std::string_view text) {
  constexpr std::size_t kSafeDigits = 18;  // This many never overflow 64 bits.
  if (text.empty() || text.size() > kSafeDigits) return text::ParseInteger(text);
  std::int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return text::ParseInteger(text);
    number = number * 10 + (c - '0');
  }
  return number;
}

inline constexpr std::int64_t kNumberMax = (std::int64_t{1} << 53) - 1;

// A whole number as an argument.
struct Number {
  std::string_view name;
  std::int64_t min;
  std::int64_t max;

  // Every command has several: errors, which are large, are built only when needed.
  std::optional<std::int64_t> Parse(std::string_view text) const {
    const auto number = ParseDigits(text);
    return number && *number >= min && *number <= max ? number : std::nullopt;
  }
  std::unexpected<Error> NotIn(std::string_view text) const {
    return Refuse(text::Cat(name, " is ", text::Quote(text), "; expected a whole number from ", min,
                            " to ", max));
  }
};

inline constexpr Number kCost{.name = "COST", .min = 0, .max = kNumberMax};

// Takes `WORD value` pairs and single words one by one, each word at most once, except for words
// with a name and a value.
class Options {
 public:
  explicit Options(Arguments arguments) : rest_(arguments) {}

  bool done() const { return rest_.empty(); }
  std::string_view next() const { return rest_[0]; }

  bool Take(std::string_view word) {
    if (!text::EqualsIgnoreCase(rest_[0], word)) return false;
    rest_ = rest_.subspan(1);
    Note(word);
    return true;
  }

  // The word and its value.
  bool Take(std::string_view word, std::string_view& value) {
    if (rest_.size() < 2 || !text::EqualsIgnoreCase(rest_[0], word)) return false;
    value = rest_[1];
    rest_ = rest_.subspan(2);
    Note(word);
    return true;
  }

  // The word, a name and a value.
  bool Take(std::string_view word, std::string_view& name, std::string_view& value) {
    if (rest_.size() < 3 || !text::EqualsIgnoreCase(rest_[0], word)) return false;
    name = rest_[1];
    value = rest_[2];
    rest_ = rest_.subspan(3);
    return true;
  }

  // The word that was taken twice; empty if there is none.
  std::string_view repeated() const { return repeated_; }

 private:
  void Note(std::string_view word) {
    const auto before = std::span(taken_).first(count_);
    if (std::ranges::find(before, word) != before.end()) {
      repeated_ = word;
    } else {
      taken_[count_++] = word;
    }
  }

  static constexpr std::size_t kWordsMax = 10;  // Of any command.

  Arguments rest_;
  std::array<std::string_view, kWordsMax> taken_;
  std::size_t count_ = 0;
  std::string_view repeated_;
};

}  // namespace sluice::resp
