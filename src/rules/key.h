// SPDX-License-Identifier: Apache-2.0
// The keys of budgets, in every store, log and answer: a scope and one of its values.
#pragma once

#include <string>
#include <string_view>

#include "rules/rule.h"

namespace sluice::rules {

// Whether values under this name are secrets: names that end in "api key", "authorization",
// "cookie", "password", "secret", "session id" or "token", in any case and with or without - _ .
// between the words.
bool IsSecretName(std::string_view name);

struct KeyScope {
  std::string_view name;  // "global", "ip", "user", "apikey", or the attribute's name.
  bool secret = false;    // Its values are hashed.

  // A scope of a rule: its own, or kPerIp as its replacement. Reads the rule for kCustom only.
  static KeyScope Of(Scope scope, const Rule& rule);
};

// Appends the key of a value: "ip:192.0.2.1", or "global" without one. A secret, and a value that
// would make the key longer than kKeyBytesMax, is replaced by a hash: "apikey#" and its SHA-256.
void AppendKey(std::string& out, const KeyScope& scope, std::string_view value);

// An override of a secret scope may name a value by its hash, so that it need not be in a file:
// "sha256:" and 64 hexadecimal digits.
inline constexpr std::string_view kHashPrefix = "sha256:";
bool IsHash(std::string_view named);

// The key of a value in an override of a secret scope, given as it is or as its hash.
std::string OverriddenKey(const KeyScope& scope, std::string_view named);

// Converts a key that a person wrote to its stored form: "apikey:k" becomes "apikey#…". Others stay
// as they are.
std::string StoredKey(std::string_view key);

}  // namespace sluice::rules
