// SPDX-License-Identifier: Apache-2.0
#include "rules/key.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/digest.h"
#include "base/hex.h"

namespace sluice::rules {
namespace {

// A hash has no colon before it, so that no value can look like one.
constexpr char kValueFollows = ':';
constexpr char kHashFollows = '#';

constexpr std::array<std::string_view, 7> kSecretWords = {
    "apikey", "authorization", "cookie", "password", "secret", "sessionid", "token"};

constexpr std::size_t kHashDigits = 64;

// Whether a name ends in a word, whatever separates its parts.
bool EndsIn(std::string_view name, std::string_view word) {
  while (!word.empty()) {
    if (name.empty()) return false;
    const char c = name.back();
    name.remove_suffix(1);
    if (c == '-' || c == '_' || c == '.') continue;
    if ((c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) != word.back()) return false;
    word.remove_suffix(1);
  }
  return true;
}

}  // namespace

bool IsSecretName(std::string_view name) {
  return std::ranges::any_of(kSecretWords,
                             [&](std::string_view word) { return EndsIn(name, word); });
}

bool IsHash(std::string_view named) {
  if (!named.starts_with(kHashPrefix)) return false;
  const std::string_view digits = named.substr(kHashPrefix.size());
  return digits.size() == kHashDigits &&
         std::ranges::all_of(digits, [](char c) { return text::HexValue(c) >= 0; });
}

KeyScope KeyScope::Of(Scope scope, const Rule& rule) {
  switch (scope) {
    case Scope::kGlobal:
      return {.name = "global"};
    case Scope::kPerIp:
      return {.name = "ip"};
    case Scope::kPerUser:
      return {.name = "user"};
    case Scope::kPerApiKey:
      return {.name = "apikey", .secret = true};
    case Scope::kCustom:
      return {.name = rule.attribute, .secret = IsSecretName(rule.attribute)};
  }
  std::unreachable();
}

void AppendKey(std::string& out, const KeyScope& scope, std::string_view value) {
  out += scope.name;
  if (value.empty()) return;
  if (!scope.secret && scope.name.size() + 1 + value.size() <= kKeyBytesMax) {
    out += kValueFollows;
    out += value;
  } else {
    out += kHashFollows;
    AppendSha256(out, value);
  }
}

std::string OverriddenKey(const KeyScope& scope, std::string_view named) {
  std::string key;
  if (IsHash(named)) {
    key = scope.name;
    key += kHashFollows;
    for (const char digit : named.substr(kHashPrefix.size())) {
      key += text::kLowerHex[static_cast<std::size_t>(text::HexValue(digit))];
    }
  } else {
    AppendKey(key, scope, named);
  }
  return key;
}

std::string StoredKey(std::string_view key) {
  const auto colon = key.find(kValueFollows);
  if (colon == std::string_view::npos || !IsSecretName(key.substr(0, colon))) {
    return std::string(key);
  }
  std::string stored;
  AppendKey(stored, {.name = key.substr(0, colon), .secret = true}, key.substr(colon + 1));
  return stored;
}

}  // namespace sluice::rules
