// SPDX-License-Identifier: Apache-2.0
#include "service/catalog.h"

#include <string_view>
#include <utility>
#include <vector>

namespace sluice::service {

void AddDescriptorMetrics(Catalog& catalog, const service::ServiceMetrics& metrics) {
  const auto path_of = [](const rules::RlsDomain& domain, const rules::RlsLimit& limit) {
    return std::string_view(limit.path).substr(domain.name().size() + 1);
  };
  std::vector<std::pair<std::string_view, std::string_view>> names;
  for (const rules::RlsDomain& domain : catalog.domains->domains()) {
    names.emplace_back(domain.name(), rules::kRlsOverridePath);
    for (const rules::RlsLimit& limit : domain.limits()) {
      names.emplace_back(domain.name(), path_of(domain, limit));
    }
  }
  metrics.RetainDescriptors(names);  // First: removed ones make room.
  for (const rules::RlsDomain& domain : catalog.domains->domains()) {
    catalog.rls_override_metrics.emplace(
        &domain, metrics.Descriptor(domain.name(), rules::kRlsOverridePath));
    for (const rules::RlsLimit& limit : domain.limits()) {
      catalog.rls_metrics.emplace(&limit,
                                  metrics.Descriptor(domain.name(), path_of(domain, limit)));
    }
  }
}

}  // namespace sluice::service
