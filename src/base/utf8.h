// SPDX-License-Identifier: Apache-2.0
// Which bytes are UTF-8, for output whose readers refuse anything else.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// The length of the well-formed UTF-8 sequence that `text` starts with; 0 if there is none.
// Overlong forms, surrogates and anything beyond U+10FFFF are not well-formed.
constexpr std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (text.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead < 0xF0) {
    if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
    return continues(1) && continues(2) ? 3 : 0;
  }
  if (lead > 0xF4 || (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return continues(1) && continues(2) && continues(3) ? 4 : 0;
}

// At most `bytes_max` bytes from the start, without cutting a character in half.
constexpr std::string_view CutUtf8(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  // A character has at most three continuation bytes; bytes that are not UTF-8 are cut anywhere.
  for (std::size_t back = 0; back < 4 && back < bytes_max; ++back) {
    const std::size_t at = bytes_max - back;
    if ((static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U) return text.substr(0, at);
  }
  return text.substr(0, bytes_max);
}

}  // namespace sluice::text
