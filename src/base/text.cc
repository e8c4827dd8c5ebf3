// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>

#include "base/hex.h"

namespace sluice::text {
namespace {

constexpr std::size_t kQuotedBytesMax = 64;

constexpr char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

std::string_view Trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, ToLower, ToLower);
}

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += {'\\', c};
    } else if (c >= ' ' && c <= '~') {
      escaped += c;
    } else {
      escaped += "\\x";
      AppendHex(escaped, static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

std::string Quote(std::string_view text) {
  const bool cut = text.size() > kQuotedBytesMax;
  return Cat("\"", Escape(text.substr(0, kQuotedBytesMax)), cut ? "\"..." : "\"");
}

}  // namespace sluice::text
