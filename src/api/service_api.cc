// SPDX-License-Identifier: Apache-2.0
#include "api/service_api.h"

#include <utility>

#include "api/assets.h"
#include "api/reply.h"
#include "core/json_writer.h"

namespace sluice::api {
void ServiceApi::Metrics(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  reply.body = parts_.registry.Text();
  reply.Send(200, telemetry::kMetricsContentType);
}

void ServiceApi::Live(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  reply.body = R"({"status":"UP"})";
  reply.Send(200);
}

void ServiceApi::Ready(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const Health health = parts_.health();
  reply.body =
      health.draining ? R"({"status":"OUT_OF_SERVICE","reason":"draining"})" : R"({"status":"UP"})";
  reply.Send(health.draining ? 503 : 200);
}

void ServiceApi::HealthOf(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const Health health = parts_.health();
  JsonWriter json(reply.body);
  // Without its store it still decides, by policy: that is worth an alarm, not a restart.
  json.BeginObject().Field("status", health.draining          ? "OUT_OF_SERVICE"
                                     : health.store.decides() ? "UP"
                                                              : "DEGRADED");
  json.Key("store");
  AppendStore(json, health.store);
  json.EndObject();
  reply.Send(health.draining ? 503 : 200);
}

void ServiceApi::Info(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const auto catalog = parts_.engine.catalog();
  JsonWriter json(reply.body);
  json.BeginObject().Field("name", "sluice").Field("version", parts_.version);
  json.Field("generation", catalog->generation);
  json.Field("ruleSets", catalog->rules->rule_sets().size());
  json.Field("limits", catalog->limits.size());
  json.Field("rlsDomains", catalog->domains->domains().size()).EndObject();
  reply.Send(200);
}

void ServiceApi::OpenApi(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  reply.body = kOpenApi;
  reply.Send(200);
}

void ServiceApi::Docs(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  reply.headers =
      "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src "
      "'unsafe-inline'; connect-src 'self'\r\n";
  reply.body = kDocsPage;
  reply.Send(200, "text/html; charset=utf-8");
}

}  // namespace sluice::api
