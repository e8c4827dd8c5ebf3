// SPDX-License-Identifier: Apache-2.0
// Percent-encoding (RFC 3986): bytes as %XX.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/hex.h"

namespace sluice::text {

// Letters, digits and - . _ ~, which every part of a URI accepts unescaped.
constexpr bool IsUnreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("-._~").find(c) != std::string_view::npos;
}

// Appends `text`, with every byte as %XX unless `keep` returns true for it.
template <typename Keep>
void AppendPercentEncoded(std::string& out, std::string_view text, Keep keep,
                          std::string_view digits = kUpperHex) {
  for (const char c : text) {
    if (keep(c)) {
      out += c;
    } else {
      out += '%';
      AppendHex(out, static_cast<unsigned char>(c), digits);
    }
  }
}

// The byte encoded by the %XX at the start of `text`; nothing if there is none.
constexpr std::optional<char> DecodePercent(std::string_view text) {
  if (text.size() < 3 || text[0] != '%') return std::nullopt;
  const int high = HexValue(text[1]);
  const int low = HexValue(text[2]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

}  // namespace sluice::text
