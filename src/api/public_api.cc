// SPDX-License-Identifier: Apache-2.0
#include "api/public_api.h"

#include <utility>

namespace sluice::api {

PublicApi::PublicApi(Parts parts)
    : parts_(std::move(parts)),
      rate_limits_(parts_.service.engine, parts_.service.instruments, parts_.clients,
                   parts_.on_store_failure),
      rules_(parts_.service.engine, parts_.service.instruments, parts_.clients, parts_.band_fields),
      holds_(parts_.service.engine, parts_.service.instruments, parts_.clients,
             parts_.on_store_failure, parts_.band_fields),
      service_(parts_.service),
      router_(parts_.service.instruments, "/docs") {
  const auto add_check = [&](std::string_view method, std::string_view path, const auto& api,
                             auto action) {
    Add(method, path, For::kCallers,
        [&api, action](const http::Request& request, http::Exchange exchange, Caller caller,
                       std::string_view) { (api.*action)(request, std::move(exchange), caller); });
  };
  add_check("GET", "/api/v1/rate-limit/check", rate_limits_, &RateLimitApi::Check);
  add_check("GET", "/api/v1/rate-limit/remaining", rate_limits_, &RateLimitApi::Remaining);
  add_check("POST", "/api/v1/check", rules_, &RuleApi::Check);
  add_check("POST", "/api/v1/check/batch", rules_, &RuleApi::CheckBatch);
  // Always about the caller, or whom a trusted proxy names.
  Add("", "/api/v1/authorize/{ruleSet}", For::kCallers,
      [this](const http::Request& request, http::Exchange exchange, Caller,
             std::string_view rule_set) {
        rules_.Authorize(rule_set, request, std::move(exchange));
      });

  const auto add = [&](std::string_view method, std::string_view path, For who, const auto& api,
                       auto action) {
    Add(method, path, who,
        [&api, action](const http::Request& request, http::Exchange exchange, Caller,
                       std::string_view) { (api.*action)(request, std::move(exchange)); });
  };
  add("DELETE", "/api/v1/rate-limit/reset", For::kTrusted, rate_limits_, &RateLimitApi::Reset);
  add("POST", "/api/v1/holds", For::kTrusted, holds_, &HoldApi::Make);
  const auto add_change = [&](std::string_view method, std::string_view path, auto action) {
    Add(method, path, For::kTrusted,
        [this, action](const http::Request& request, http::Exchange exchange, Caller,
                       std::string_view id) {
          (holds_.*action)(id, request, std::move(exchange));
        });
  };
  add_change("DELETE", "/api/v1/holds/{id}", &HoldApi::Release);
  add_change("POST", "/api/v1/holds/{id}/settle", &HoldApi::Settle);
  add_change("POST", "/api/v1/holds/{id}/extend", &HoldApi::Extend);
  if (parts_.rls_json) {
    // Descriptors are keys by another name.
    Add("POST", "/json", For::kTrusted,
        [this](const http::Request& request, http::Exchange exchange, Caller, std::string_view) {
          parts_.rls_json(request, std::move(exchange));
        });
  }
  for (const char* path : {"/metrics", "/actuator/prometheus"}) {
    add("GET", path, For::kTrusted, service_, &ServiceApi::Metrics);
  }
  // Monitoring asks these, and most tools cannot show a token.
  for (const char* path : {"/health", "/actuator/health"}) {
    add("GET", path, For::kAnyone, service_, &ServiceApi::HealthOf);
  }
  for (const char* path : {"/health/live", "/actuator/health/liveness"}) {
    add("GET", path, For::kAnyone, service_, &ServiceApi::Live);
  }
  for (const char* path : {"/health/ready", "/actuator/health/readiness"}) {
    add("GET", path, For::kAnyone, service_, &ServiceApi::Ready);
  }
  for (const char* path : {"/info", "/actuator/info"}) {
    add("GET", path, For::kTrusted, service_, &ServiceApi::Info);
  }
  add("GET", "/openapi.json", For::kCallers, service_, &ServiceApi::OpenApi);
  add("GET", "/docs", For::kCallers, service_, &ServiceApi::Docs);
  add("GET", "/", For::kCallers, service_, &ServiceApi::Docs);
}

void PublicApi::Handle(const http::Request& request, http::Exchange exchange) {
  router_.Route(request, std::move(exchange));
}

void PublicApi::Add(std::string_view method, std::string_view path, For who, Action action) {
  router_.Add(
      method, path,
      [this, who, action = std::move(action)](const http::Request& request, http::Exchange exchange,
                                              std::string_view parameter) {
        std::optional<Caller> caller = Caller::kAnonymous;
        if (who != For::kAnyone) caller = CallerOf(request);
        if (!caller) {
          return Reply(std::move(exchange), request, parts_.service.instruments)
              .FailUnauthorized("expected a token: Authorization: Bearer …");
        }
        if (who == For::kTrusted && caller != Caller::kTrusted) {
          return Reply(std::move(exchange), request, parts_.service.instruments)
              .Fail(403, "FORBIDDEN",
                    "this is for callers with a token; expected Authorization: Bearer …");
        }
        action(request, std::move(exchange), *caller, parameter);
      });
}

std::optional<Caller> PublicApi::CallerOf(const http::Request& request) const {
  if (parts_.access.open() || request.certified) return Caller::kTrusted;
  const std::string_view token = net::BearerToken(request.FindHeader("Authorization"));
  if (parts_.access.Knows(token)) return Caller::kTrusted;
  // A token that a proxy passes on from its client may be for somebody else.
  if (parts_.is_public) return Caller::kAnonymous;
  return std::nullopt;
}

}  // namespace sluice::api
