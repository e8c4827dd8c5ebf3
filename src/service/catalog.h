// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "rules/envoy.h"
#include "rules/rule_book.h"
#include "service/service_metrics.h"
#include "sluice/limit.h"

namespace sluice::service {

// Everything configured about limits, at one moment. Immutable; a request sees exactly one catalog
// from beginning to end.
struct Catalog {
  std::uint64_t generation = 0;  // Grows by one with every reload that took effect.

  // Limits that clients may name: "limits:" of the configuration.
  std::map<std::string, Limit, std::less<>> limits;

  // The limits of /api/v1/rate-limit, one per algorithm: "defaults:".
  std::map<Algorithm, Limit> defaults;

  std::set<std::string, std::less<>> managed;  // Rule sets that the admin API may change, by id.

  std::shared_ptr<const rules::RuleBook> rules;  // Never null.
  std::unordered_map<const rules::Rule*, service::RuleMetrics> rule_metrics;

  std::shared_ptr<const rules::RlsConfig> domains;  // Of the Envoy Rate Limit Service; never null.
  std::unordered_map<const rules::RlsLimit*, service::RlsMetrics> rls_metrics;
  // For limits that requests to a domain bring themselves.
  std::unordered_map<const rules::RlsDomain*, service::RlsMetrics> rls_override_metrics;
};

// A limit that a client chose.
struct ChosenLimit {
  Limit limit;
  std::string_view name;  // As the client wrote it; empty if it wrote the limit out.
};

// A configured limit by its name, or one that is written out. Error: kInvalidRequest,
// kInvalidLimit.
Expected<ChosenLimit> FindLimit(const Catalog& catalog, std::string_view text);

// Gives each descriptor of the Rate Limit Service its counters, and removes those that no
// descriptor of this catalog has.
void AddDescriptorMetrics(Catalog& catalog, const service::ServiceMetrics& metrics);

}  // namespace sluice::service
