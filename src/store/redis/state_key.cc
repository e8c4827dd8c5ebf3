// SPDX-License-Identifier: Apache-2.0
#include "store/redis/state_key.h"

#include "base/digest.h"
#include "base/hex.h"
#include "base/text.h"
#include "core/algorithms.h"

namespace sluice::redis {
namespace {

constexpr std::size_t kPartBytesMax = 128;
constexpr std::string_view kDigits = text::kLowerHex;

void AppendEscaped(std::string& out, char c) {
  const bool plain =
      c > ' ' && c <= '~' && c != '%' && c != '{' && c != '}' && c != '#' && c != '=';
  if (plain) {
    out += c;
  } else {
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
}

void AppendPart(std::string& out, std::string_view text) {
  const std::size_t before = out.size();
  for (const char c : text) {
    AppendEscaped(out, c);
    if (out.size() - before > kPartBytesMax) {
      out.resize(before);
      out += '#';
      AppendSha256(out, text);
      return;
    }
  }
}

}  // namespace

std::string KeyPrefix(std::string_view prefix, std::string_view key) {
  std::string out;
  out.reserve(prefix.size() + key.size() + 64);
  out += prefix;
  out += ":{";
  AppendPart(out, key);
  out += "}:";
  return out;
}

std::string StateKey(std::string_view prefix, const Charge& charge) {
  std::string out = KeyPrefix(prefix, charge.key);
  if (!charge.name.empty()) {
    AppendPart(out, charge.name);
  } else {
    const Limit& limit = *charge.limit;
    out += text::Cat("=", core::RowOf(limit.algorithm()).short_name, ",", limit.amount(), ",",
                     limit.refill(), ",", limit.span().count());
  }
  return out;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) AppendEscaped(out, c);
  return out;
}

std::optional<std::string> Unescape(std::string_view escaped) {
  std::string out;
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    char c = escaped[i];
    if (c == '%') {
      if (escaped.size() - i < 3) return std::nullopt;
      // Invalid digits give some other byte, which Escape would not write like this.
      c = static_cast<char>(kDigits.find(escaped[i + 1]) << 4 | kDigits.find(escaped[i + 2]));
      i += 2;
    }
    out += c;
  }
  if (Escape(out) != escaped) return std::nullopt;
  return out;
}

}  // namespace sluice::redis
