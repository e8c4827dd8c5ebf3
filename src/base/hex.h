// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
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

// The eight digits, the lowest one first. All of them at once: digits one by one take several times
// as long, and each request has an id of 32.
constexpr std::array<char, 8> HexDigits(std::uint32_t bits) {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  std::uint64_t digits = bits;
  digits = (digits | digits << 16U) & 0x0000ffff0000ffff;
  digits = (digits | digits << 8U) & 0x00ff00ff00ff00ff;
  digits = (digits | digits << 4U) & 0x0f0f0f0f0f0f0f0f;
  const std::uint64_t letters = (digits + kEach * 6) >> 4U & kEach;  // 1 from 10 on.
  digits += kEach * '0' + letters * ('a' - '0' - 10);
  static_assert(std::endian::native == std::endian::little);
  return std::bit_cast<std::array<char, 8>>(digits);
}

}  // namespace sluice::text
