// SPDX-License-Identifier: Apache-2.0
#include "base/base64url.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::text {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr unsigned kBits = 6;  // Of a digit.
constexpr unsigned kMask = (1U << kBits) - 1;
constexpr std::int8_t kNone = -1;

// By character: its value, or kNone.
constexpr auto kValues = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(kNone);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}();

}  // namespace

void AppendBase64Url(std::string& out, std::string_view bytes) {
  std::uint32_t pending = 0;
  unsigned bits = 0;
  for (const char c : bytes) {
    pending = pending << 8U | static_cast<unsigned char>(c);
    for (bits += 8; bits >= kBits;) {
      bits -= kBits;
      out += kDigits[pending >> bits & kMask];
    }
    pending &= (1U << bits) - 1;
  }
  if (bits > 0) out += kDigits[pending << (kBits - bits) & kMask];
}

std::optional<std::string> ParseBase64Url(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  std::uint32_t pending = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const std::int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNone) return std::nullopt;
    pending = pending << kBits | static_cast<unsigned>(value);
    bits += kBits;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(pending >> bits & 0xFFU);
    pending &= (1U << bits) - 1;
  }
  // What is left over is shorter than a digit, and zero.
  if (bits >= kBits || pending != 0) return std::nullopt;
  return bytes;
}

}  // namespace sluice::text
