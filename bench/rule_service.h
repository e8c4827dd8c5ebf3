// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "api/check_answer.h"
#include "api/check_document.h"
#include "base/json_writer.h"
#include "rules/rule_set.h"
#include "service/engine.h"
#include "service/rule_check.h"
#include "sluice/memory_store.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"

namespace sluice::bench {

// A service with these rules and nothing around it.
class RuleService {
 public:
  explicit RuleService(std::shared_ptr<const rules::RuleSet> rule_set) {
    auto catalog = std::make_shared<service::Catalog>();
    catalog->rules = rules::RuleBook::Build({std::move(rule_set)}, 1).value();
    catalog->domains = rules::RlsConfig::Parse({}).value();
    engine_.SetCatalog(std::move(catalog));
  }

  // The body of POST /api/v1/check to the body of its answer.
  std::size_t Check(const std::string& body) {
    auto json = api::ParseJson(body).value();
    const auto document = api::CheckDocument::Read(json).value();
    service::RuleCheck check(engine_.catalog());
    if (!check.Prepare(document.rule_set, document.context, document.permits)) std::abort();
    check.Run(engine_, [] {});
    std::string answer;
    JsonWriter writer(answer);
    writer.BeginObject();
    api::AppendCheck(writer, check);
    writer.EndObject();
    return check.outcomes().size();
  }

 private:
  MemoryStore store_;
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::HeavyHitters keys_;
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  service::Engine engine_{{.store = store_, .metrics = metrics_, .keys = keys_, .logger = logger_},
                          nullptr};
};

}  // namespace sluice::bench
