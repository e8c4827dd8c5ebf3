// SPDX-License-Identifier: Apache-2.0
#include "api/public_api.h"

#include <utility>

namespace sluice::api {

PublicApi::PublicApi(Parts parts)
    : parts_(std::move(parts)),
      rate_limits_(parts_.service.engine, parts_.service.instruments, parts_.clients,
                   parts_.on_store_failure),
      rules_(parts_.service.engine, parts_.service.instruments, parts_.clients),
      service_(parts_.service),
      router_(parts_.service.instruments, "/docs") {
  const auto add = [&](std::string_view method, std::string_view path, const auto& api,
                       auto action) {
    router_.Add(method, path,
                [&api, action](const http::Request& request, http::Exchange exchange,
                               std::string_view) { (api.*action)(request, std::move(exchange)); });
  };
  add("GET", "/api/v1/rate-limit/check", rate_limits_, &RateLimitApi::Check);
  add("GET", "/api/v1/rate-limit/remaining", rate_limits_, &RateLimitApi::Remaining);
  add("DELETE", "/api/v1/rate-limit/reset", rate_limits_, &RateLimitApi::Reset);
  add("POST", "/api/v1/check", rules_, &RuleApi::Check);
  add("POST", "/api/v1/check/batch", rules_, &RuleApi::CheckBatch);
  router_.Add(
      "", "/api/v1/authorize/{ruleSet}",
      [this](const http::Request& request, http::Exchange exchange, std::string_view rule_set) {
        rules_.Authorize(rule_set, request, std::move(exchange));
      });
  if (parts_.rls_json) {
    router_.Add("POST", "/json",
                [this](const http::Request& request, http::Exchange exchange, std::string_view) {
                  parts_.rls_json(request, std::move(exchange));
                });
  }
  for (const char* path : {"/metrics", "/actuator/prometheus"}) {
    add("GET", path, service_, &ServiceApi::Metrics);
  }
  for (const char* path : {"/health", "/actuator/health"}) {
    add("GET", path, service_, &ServiceApi::HealthOf);
  }
  for (const char* path : {"/health/live", "/actuator/health/liveness"}) {
    add("GET", path, service_, &ServiceApi::Live);
  }
  for (const char* path : {"/health/ready", "/actuator/health/readiness"}) {
    add("GET", path, service_, &ServiceApi::Ready);
  }
  for (const char* path : {"/info", "/actuator/info"}) {
    add("GET", path, service_, &ServiceApi::Info);
  }
  add("GET", "/openapi.json", service_, &ServiceApi::OpenApi);
  add("GET", "/docs", service_, &ServiceApi::Docs);
  add("GET", "/", service_, &ServiceApi::Docs);
}

void PublicApi::Handle(const http::Request& request, http::Exchange exchange) {
  router_.Route(request, std::move(exchange));
}

}  // namespace sluice::api
