// SPDX-License-Identifier: Apache-2.0
// Small helpers for text that people read or typed.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::text {

// Removes blanks and tabs from both ends.
std::string_view Trim(std::string_view text);

// ASCII only; no locale.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// A whole number that the type can hold, and nothing else. A minus sign only if the type is signed.
template <std::integral Number>
std::optional<Number> ParseNumber(std::string_view text, int base = 10) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return number;
}

inline std::optional<std::int64_t> ParseInteger(std::string_view text) {
  return ParseNumber<std::int64_t>(text);
}

// Escapes quotes, backslashes, control and non-ASCII bytes.
std::string Escape(std::string_view text);

// Escaped, in double quotes, and cut if it is long: safe to print whatever a client sent.
std::string Quote(std::string_view text);

inline void Append(std::string& out, std::string_view part) { out += part; }
template <std::integral Number>
  requires(!std::same_as<Number, char> && !std::same_as<Number, bool>)
void Append(std::string& out, Number number) {
  out += std::to_string(number);
}

// Concatenates texts and whole numbers.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::string out;
  (Append(out, parts), ...);
  return out;
}

}  // namespace sluice::text
