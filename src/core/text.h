// SPDX-License-Identifier: Apache-2.0
// Small helpers for text that people read or typed.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::text {

// Without blanks and tabs at either end.
std::string_view Trim(std::string_view text);

// ASCII only; no locale.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// A whole decimal number, perhaps with a minus sign, and nothing else.
std::optional<std::int64_t> ParseInteger(std::string_view text);

// With quotes, backslashes, control and non-ASCII bytes escaped.
std::string Escape(std::string_view text);

// Escaped, in double quotes, and cut if it is long: safe to print whatever a client sent.
std::string Quote(std::string_view text);

inline void Append(std::string& out, std::string_view part) { out += part; }
template <std::integral Number>
  requires(!std::same_as<Number, char> && !std::same_as<Number, bool>)
void Append(std::string& out, Number number) {
  out += std::to_string(number);
}

// The parts, texts and whole numbers, one after another.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::string out;
  (Append(out, parts), ...);
  return out;
}

}  // namespace sluice::text
