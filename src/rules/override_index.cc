// SPDX-License-Identifier: Apache-2.0
#include "rules/override_index.h"

#include "base/glob.h"
#include "net/address.h"
#include "rules/key.h"

namespace sluice::rules {

OverrideIndex::OverrideIndex(const Rule& rule) : secret_(KeyScope::Of(rule.scope, rule).secret) {
  for (const Override& override : rule.overrides) Add(override, rule);
}

void OverrideIndex::Add(const Override& override, const Rule& rule) {
  for (const std::string& key : override.keys) {
    if (secret_) {
      keys_.emplace(texts_.emplace_back(OverriddenKey(KeyScope::Of(rule.scope, rule), key)),
                    &override);
      continue;
    }
    if (rule.scope == Scope::kPerIp) {
      // In the form in which clients are known, however it is written here.
      if (const auto address = net::IpAddress::Parse(key)) {
        keys_.emplace(texts_.emplace_back(address->ToString()), &override);
        continue;
      }
      if (const auto network = net::Cidr::Parse(key)) {
        networks_.Add(*network, override);
        continue;
      }
    }
    keys_.emplace(key, &override);
  }
  for (const std::string& pattern : override.patterns) patterns_.emplace_back(pattern, &override);
}

const Override* OverrideIndex::Find(std::string_view value, std::string_view key) const {
  const auto exact = keys_.find(secret_ ? key : value);
  if (exact != keys_.end()) return exact->second;
  if (value.empty()) return nullptr;
  if (!networks_.empty()) {
    if (const Override* const found = networks_.Find(value)) return found;
  }
  for (const auto& [pattern, override] : patterns_) {
    if (GlobMatch(pattern, value)) return override;
  }
  return nullptr;
}

}  // namespace sluice::rules
