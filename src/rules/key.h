// SPDX-License-Identifier: Apache-2.0
// What budgets are kept under, in every store, log and answer: a scope and a value of it.
#pragma once

#include <string>
#include <string_view>

#include "rules/rule.h"

namespace sluice::rules {

// Whether values under this name are secrets of whoever has them: names that end in "api key",
// "authorization", "cookie", "password", "secret", "session id" or "token", in any case and with or
// without - _ . between the words.
bool IsSecretName(std::string_view name);

struct KeyScope {
  std::string_view name;  // "global", "ip", "user", "apikey", or the attribute's name.
  bool secret = false;    // Its values are hashed.

  // A scope of a rule: its own, or kPerIp where that stands in. Reads the rule for kCustom only.
  static KeyScope Of(Scope scope, const Rule& rule);
};

// Appends the key of a value: "ip:192.0.2.1", or "global" without one. Of a secret, and where it
// would be longer than kKeyBytesMax, a hash stands in place of the value: "apikey#" and its
// SHA-256.
void AppendKey(std::string& out, const KeyScope& scope, std::string_view value);

// How an override of a secret scope names a value by its hash, so that it need not stand in a file:
// "sha256:" and 64 hexadecimal digits.
inline constexpr std::string_view kHashPrefix = "sha256:";
bool IsHash(std::string_view named);

// The key of what an override of a secret scope names: the value itself, or its hash.
std::string OverriddenKey(const KeyScope& scope, std::string_view named);

// A key that somebody wrote, as it is stored: "apikey:k" becomes "apikey#…". Others stay as they
// are.
std::string StoredKey(std::string_view key);

}  // namespace sluice::rules
