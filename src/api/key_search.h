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

inline constexpr std::size_t kKeyLimitsMax = 1'000;  // Of a key that is looked for everywhere.

// A limit that may count a key. Points into the catalog.
struct KeyLimit {
  // Of a rule: its band. Else null.
  const rules::RuleSet* rule_set = nullptr;
  const rules::Rule* rule = nullptr;
  const rules::Band* band = nullptr;

  std::string_view name = {};    // Else: of a named limit, of a default, of a descriptor's limit.
  std::string_view domain = {};  // Of a descriptor.

  const Limit* limit = nullptr;
  std::string_view state = {};  // For Charge::name.
  std::string key = {};         // As it is stored.

  // Any key can be asked for under a named limit or a default: it counts this one only if something
  // was used.
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

// Those of one rule set, all of them.
std::vector<KeyLimit> LimitsOf(const rules::RuleSet& rule_set, std::string_view written);

// That of a descriptor; a null limit if it is decided without one, unlimited or never.
KeyLimit LimitOf(const rules::RlsDomain& domain, rules::RlsMatch match);

// Finds the limit of a state by what Charge calls them; a null limit if it is not in the catalog.
KeyLimit FindLimit(const service::Catalog& catalog, std::string_view state, std::string_view key);

// What the name of a state says: "rule set/rule/band", of a rule that denies without a limit with
// an empty band, or whatever else it may be.
struct StateName {
  std::string_view rule_set = {};
  std::string_view rule = {};
  std::string_view band = {};
  std::string_view other = {};

  static StateName Read(std::string_view name);
  bool is_rule() const { return !rule_set.empty(); }
};

// A key with a hash, in the form in which a URL needs no escapes: "apikey:sha256:…" for "apikey#…".
// Empty if it has none.
std::string RefOf(std::string_view key);

// Where a limit stands in the configuration, inside an object.
void AppendPlace(JsonWriter& json, const KeyLimit& limit);

// Whether nothing is counted under what was looked at.
bool IsUntouched(const Request& look);

// What a request of 1 would get, inside an object. `look` is of this limit, with the state seen.
void AppendLook(JsonWriter& json, const Limit& limit, const Request& look);

}  // namespace sluice::api
