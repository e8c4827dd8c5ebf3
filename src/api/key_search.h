// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "rules/envoy.h"
#include "rules/rule_set.h"
#include "service/catalog.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::api {

inline constexpr std::size_t kKeyLimitsMax = 1'000;  // Per key, in a search of everything.

// A limit that may count a key. Points into the catalog.
struct KeyLimit {
  // For a rule: its band. Otherwise null.
  const rules::RuleSet* rule_set = nullptr;
  const rules::Rule* rule = nullptr;
  const rules::Band* band = nullptr;

  std::string_view name = {};    // Otherwise: of the named limit, default, or descriptor's limit.
  std::string_view domain = {};  // For a descriptor.

  const Limit* limit = nullptr;
  std::string_view state = {};  // For Charge::name.
  std::string key = {};         // As stored.

  // A named limit or a default accepts any key: it counts this one only if something was used.
  bool any_key = false;

  Charge look() const {
    return {.key = key,
            .limit = limit,
            .name = state,
            .cost = 0,
            .on_store_failure = OnStoreFailure::kFailClosed};
  }
};

// All limits that may count a key, over all rule sets, named limits, the defaults of
// /api/v1/rate-limit and the domains of the Rate Limit Service; the first kKeyLimitsMax of them.
std::vector<KeyLimit> LimitsOf(const service::Catalog& catalog, std::string_view written);

// The same for one rule set, without a maximum.
std::vector<KeyLimit> LimitsOf(const rules::RuleSet& rule_set, std::string_view written);

// The limit of a descriptor; null if it is decided without one: unlimited, or never allowed.
KeyLimit LimitOf(const rules::RlsDomain& domain, rules::RlsMatch match);

// Finds the limit of a state by the name and key of its Charge; null if it is not in the catalog.
KeyLimit FindLimit(const service::Catalog& catalog, std::string_view state, std::string_view key);

// The parts of a state's name: "rule set/rule/band", with an empty band for a rule that denies
// without a limit, or some other name.
struct StateName {
  std::string_view rule_set = {};
  std::string_view rule = {};
  std::string_view band = {};
  std::string_view other = {};

  static StateName Read(std::string_view name);
  bool is_rule() const { return !rule_set.empty(); }
};

// A key with a hash, in a form that needs no escapes in a URL: "apikey:sha256:…" for "apikey#…".
// Empty if it has no hash.
std::string RefOf(std::string_view key);

// The place of a limit in the configuration, inside an object.
void AppendPlace(JsonWriter& json, const KeyLimit& limit);

// Whether the look found an unused budget.
bool IsUntouched(const Request& look);

// What a request of 1 would get, inside an object. `look` is for this limit, with the state seen.
void AppendLook(JsonWriter& json, const Limit& limit, const Request& look);

}  // namespace sluice::api
