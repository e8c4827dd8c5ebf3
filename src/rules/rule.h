// SPDX-License-Identifier: Apache-2.0
// Rules as they are written. docs/reference/rules.md explains them to users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules/path_pattern.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::rules {

inline constexpr std::size_t kIdBytesMax = 64;  // Of rule sets, rules and labels.
inline constexpr std::size_t kRulesMax = 100'000;
inline constexpr std::size_t kBandsMax = 16;
inline constexpr std::size_t kOverridesMax = 100'000;
inline constexpr std::size_t kOverridePatternsMax = 256;  // They are tried one by one.
inline constexpr std::size_t kPatternBytesMax = 1024;
inline constexpr std::size_t kListMax = 1024;  // Methods, paths, attributes and values of a rule.

// Attributes with this prefix are the values of `{name}` in the path that matched.
inline constexpr std::string_view kCapturePrefix = "path.";

// Whose budget it is.
enum class Scope : std::uint8_t { kGlobal, kPerIp, kPerUser, kPerApiKey, kCustom };

// What to do with a rule when the request has no value for its scope. Such requests never share a
// budget by accident.
enum class OnMissingKey : std::uint8_t {
  kSkip,   // The rule does not apply.
  kDeny,   // The request is denied.
  kUseIp,  // The client's address is used; the request is denied if that is unknown, too.
};

std::string_view ToString(Scope scope);                  // "PER_IP" and so on.
std::string_view ToString(OnMissingKey on_missing_key);  // "USE_IP" and so on.

// A limit of a rule.
struct Band {
  std::string label;

  // "<rule set>/<rule>/<label>", for Charge::name: what was used stays used when numbers change.
  std::string name;

  Limit limit;
};

// What an attribute must be. Without values it need only be present or, if `present` is false,
// missing.
struct AttributeCondition {
  std::string name;
  std::vector<std::string> values;  // Any of them; `*` matches any text.
  bool present = true;
};

// All conditions must hold; a rule without conditions applies to every request.
struct Match {
  std::vector<std::string> methods;  // In upper case.
  std::vector<PathPattern> paths;
  std::vector<AttributeCondition> attributes;
};

// Different treatment for some values of the scope.
struct Override {
  enum class Effect : std::uint8_t { kBands, kUnlimited, kBlocked };

  std::vector<std::string> keys;      // Compared exactly.
  std::vector<std::string> patterns;  // `*` matches any text.
  Effect effect = Effect::kBands;
  std::vector<Band> bands;  // For kBands. One labelled like a band of the rule shares its state.
  int line = 0;
};

// How many units one permit takes.
struct Cost {
  std::int64_t units = 1;           // Without an attribute, or if the request does not have it.
  std::string attribute;            // Empty: always `units`.
  std::optional<std::int64_t> max;  // Larger values of the attribute count as this.
};

// What a hold under a rule is like if whoever holds does not say.
struct HoldDefaults {
  std::optional<Micros> ttl;
  std::optional<OnExpiry> on_expiry;
};

struct Rule {
  std::string id;
  std::string description;
  bool enabled = true;
  bool shadow = false;  // Evaluated and counted, but never denies.
  Scope scope = Scope::kGlobal;
  std::string attribute;  // For kCustom; "path.NAME" is the value of {NAME} in a path.
  OnMissingKey on_missing_key = OnMissingKey::kSkip;
  OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;
  std::optional<OnStoreFailure> on_overload;  // None: see Charge.
  Cost cost;
  HoldDefaults hold;
  Match match;
  std::vector<Band> bands;
  std::vector<Override> overrides;
  int line = 0;  // In the rule set's file, from 1.
};

}  // namespace sluice::rules
