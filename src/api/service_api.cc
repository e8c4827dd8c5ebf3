// SPDX-License-Identifier: Apache-2.0
#include "api/service_api.h"

#include <string_view>
#include <utility>

#include "api/assets.h"
#include "api/reply.h"
#include "base/json_writer.h"

namespace sluice::api {
namespace {

// Without its store it still decides, by policy: that is worth an alarm, not a restart. If it has
// never read its rules, it cannot decide.
std::string_view StatusOf(const Health& health) {
  if (health.draining) return "OUT_OF_SERVICE";
  return health.ready() ? "UP" : "DOWN";
}

void AppendHtml(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
}

}  // namespace

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
  JsonWriter json(reply.body);
  json.BeginObject().Field("status", StatusOf(health));
  if (health.draining) {
    json.Field("reason", "draining");
  } else if (!health.ready()) {
    json.Field("reason", health.rules->problem);
  }
  json.EndObject();
  reply.Send(health.ready() ? 200 : 503);
}

void ServiceApi::HealthOf(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const Health health = parts_.health();
  JsonWriter json(reply.body);
  json.BeginObject().Field("status",
                           health.ready() && health.degraded() ? "DEGRADED" : StatusOf(health));
  if (!health.clock_believed) json.Field("clock", "the system's clock cannot be right");
  json.Key("store");
  AppendStore(json, health.store);
  if (health.rules) {
    json.Key("rules").BeginObject();
    AppendRulesFields(json, *health.rules);
    json.EndObject();
  }
  // Which files, and their content, is not for everybody.
  if (!health.reload.problems.empty()) {
    json.Key("reload").BeginObject().Field("status", "DEGRADED");
    json.Field("problem", "files are not valid or cannot be read, and the old ones are in force");
    json.EndObject();
  }
  json.EndObject();
  reply.Send(health.ready() ? 200 : 503);
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
  // The origin that the reader used. Behind a proxy with TLS, only the page itself knows it.
  constexpr std::string_view kOrigin = "{origin}";
  const auto at = kDocsPage.find(kOrigin);
  reply.body = kDocsPage.substr(0, at);
  reply.body += parts_.tls ? "https://" : "http://";
  AppendHtml(reply.body, request.host.empty() ? "localhost" : request.host);
  reply.body += kDocsPage.substr(at + kOrigin.size());
  reply.Send(200, "text/html; charset=utf-8");
}

}  // namespace sluice::api
