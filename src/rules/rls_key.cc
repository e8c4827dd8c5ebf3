// SPDX-License-Identifier: Apache-2.0
#include "rules/rls_key.h"

#include <algorithm>
#include <utility>

#include "base/percent.h"
#include "sluice/store.h"

namespace sluice::rules {
namespace {

constexpr std::string_view kSeparators = "=~#";

// Anything that is not %XX stands for itself, so that keys may be written by hand.
std::string Decode(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    const auto byte = text::DecodePercent(text);
    decoded += byte.value_or(text.front());
    text.remove_prefix(byte ? 3 : 1);
  }
  return decoded;
}

// Removes and returns the part before the next `|`; removes that, too.
std::string_view NextPart(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('|'));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

}  // namespace

std::optional<RlsKey> ReadRlsKey(std::string_view text) {
  if (!text.contains('|') || text.size() > kKeyBytesMax) return std::nullopt;
  RlsKey key{.domain = Decode(NextPart(text)), .entries = {}};
  while (!text.empty()) {
    const std::string_view part = NextPart(text);
    const auto at = part.find_first_of(kSeparators);
    if (at == std::string_view::npos || key.entries.size() == kRlsDepthMax) return std::nullopt;
    const bool hashed = part[at] == '#';
    key.entries.push_back({.key = Decode(part.substr(0, at)),
                           .value = hashed ? std::string() : Decode(part.substr(at + 1)),
                           .hashed = hashed});
  }
  if (key.entries.empty()) return std::nullopt;
  return key;
}

RlsMatch FindRlsLimit(const RlsConfig& domains, std::string_view text) {
  RlsMatch match;
  const auto key = ReadRlsKey(text);
  const RlsDomain* domain = key ? domains.Find(key->domain) : nullptr;
  if (domain == nullptr) return match;
  std::vector<RlsEntry> entries;
  for (const RlsKey::Entry& entry : key->entries) {
    entries.push_back({.key = entry.key, .value = entry.value});
  }
  domain->Match(entries, match);
  const auto is_hashed = [](const RlsKey::Entry& entry) { return entry.hashed; };
  if (std::ranges::any_of(key->entries, is_hashed)) match.key = text;
  return match;
}

}  // namespace sluice::rules
