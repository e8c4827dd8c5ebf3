// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sluice::text {

inline constexpr std::string_view kLowerHex = "0123456789abcdef";
inline constexpr std::string_view kUpperHex = "0123456789ABCDEF";

// The value of a digit in either case; -1 if it is not a digit.
constexpr int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Appends the byte as two digits.
inline void AppendHex(std::string& out, unsigned char byte, std::string_view digits = kLowerHex) {
  out += digits[byte >> 4U];
  out += digits[byte & 15U];
}

}  // namespace sluice::text
