// SPDX-License-Identifier: Apache-2.0
#include "service/catalog.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace sluice::service {

Expected<ChosenLimit> FindLimit(const Catalog& catalog, std::string_view text) {
  if (text.contains('=')) {
    auto limit = Limit::Parse(text);
    if (!limit) return std::unexpected(std::move(limit.error()));
    return ChosenLimit{.limit = *limit, .name = {}};
  }
  const auto found = catalog.limits.find(text);
  if (found != catalog.limits.end()) return ChosenLimit{.limit = found->second, .name = text};
  return std::unexpected(
      Error{ErrorCode::kInvalidRequest,
            text::Cat("no limit is named ", text::Quote(text),
                      "; expected one of the configuration, or one written out, such as "
                      "algorithm=token_bucket,capacity=100,refill=10,period=1s")});
}

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
