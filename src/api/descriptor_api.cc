// SPDX-License-Identifier: Apache-2.0
#include "api/descriptor_api.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/audit.h"
#include "api/key_search.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "net/url.h"
#include "rules/envoy.h"

namespace sluice::api {
namespace {

using rules::RlsLimit;

// Whether a unit and a number fully describe the limit.
bool IsPlain(const RlsLimit& limit) {
  return !limit.limit || (limit.limit->algorithm() == rules::kRlsAlgorithm &&
                          limit.limit->span() == rules::SpanOf(limit.unit));
}

void AppendLine(std::string& out, const RlsLimit& limit) {
  out += text::Cat(text::Escape(limit.path), ": unit=", ToString(limit.unit),
                   " requests_per_unit=", limit.requests_per_unit,
                   ", shadow_mode: ", limit.shadow_mode ? "true" : "false");
  if (limit.kind == RlsLimit::Kind::kUnlimited) out += ", unlimited: true";
  if (limit.quota_mode) out += ", quota_mode: true";
  if (limit.postpaid) out += ", postpaid: true";
  if (!IsPlain(limit)) out += ", " + limit.limit->ToString();
  out += '\n';
}

// The entries of a query, in order.
struct Entries {
  std::deque<std::string> texts;  // They do not move.
  std::vector<rules::RlsEntry> entries;
};

Expected<Entries> ReadEntries(std::string_view query) {
  Entries read;
  const auto decode = [&](std::string_view raw) -> Expected<std::string_view> {
    std::string& text = read.texts.emplace_back();
    if (net::AppendDecoded(text, raw, net::Plus::kSpace)) return text;
    return std::unexpected(Error{ErrorCode::kInvalidInput,
                                 "a % in the query is not followed by two hexadecimal digits"});
  };
  net::QueryReader parameters(query);
  while (const auto parameter = parameters.Next()) {
    if (read.entries.size() == rules::kRlsDepthMax) {
      return std::unexpected(Error{ErrorCode::kInvalidInput,
                                   text::Cat("more than ", rules::kRlsDepthMax, " entries")});
    }
    const auto key = decode(parameter->name);
    if (!key) return std::unexpected(key.error());
    const auto value = decode(parameter->value);
    if (!value) return std::unexpected(value.error());
    read.entries.push_back({.key = *key, .value = *value});
  }
  if (read.entries.empty()) {
    return std::unexpected(Error{ErrorCode::kInvalidInput,
                                 "expected the entries of a descriptor in their order, such as "
                                 "?area=login&remote_address=192.0.2.1"});
  }
  return read;
}

// One descriptor, while its budget is asked for.
struct DescriptorCall {
  explicit DescriptorCall(Reply own_reply) : reply(std::move(own_reply)) {}

  Reply reply;
  std::shared_ptr<const service::Catalog> catalog;
  const RlsLimit* configured = nullptr;
  KeyLimit limit = {};
  Charge charge = {};
  SeenState seen = {};
  Request request = {};

  // Otherwise it is decided without a store: unlimited, or zero.
  bool limited() const { return limit.limit != nullptr; }
};

// The descriptor's limit; answers, and returns null, if there is none.
std::shared_ptr<DescriptorCall> Prepare(service::Engine& engine, const Instruments& instruments,
                                        const http::Request& request, http::Exchange exchange,
                                        std::string_view domain) {
  auto call = std::make_shared<DescriptorCall>(Reply(std::move(exchange), request, instruments));
  call->catalog = engine.catalog();
  const rules::RlsDomain* const found = call->catalog->domains->Find(domain);
  if (!found) {
    call->reply.Fail(404, "NOT_FOUND", text::Cat("there is no domain ", text::Quote(domain)));
    return nullptr;
  }
  const auto read = ReadEntries(request.query);
  if (!read) {
    call->reply.Fail(400, "INVALID_QUERY", read.error().message);
    return nullptr;
  }
  rules::RlsMatch match;
  found->Match(read->entries, match);
  call->configured = match.limit;
  if (!match.limit) {
    call->reply.Fail(404, "NOT_FOUND",
                     text::Cat("the domain ", text::Quote(domain),
                               " has no limit for these entries; GET /rlconfig lists its limits"));
    return nullptr;
  }
  call->limit = LimitOf(*found, std::move(match));
  call->charge = call->limit.look();
  return call;
}

// The beginning of both answers. The key is as stored, and contains no secret.
void AppendDescriptor(JsonWriter& json, const DescriptorCall& call) {
  json.Field("domain", call.limit.domain).Field("descriptor", call.configured->path);
  json.BytesField("key", call.limit.key).Field("generation", call.catalog->generation);
}

void AnswerInspection(DescriptorCall& call) {
  if (call.limited() && !call.request.outcome) return call.reply.Fail(call.request.outcome.error());
  const RlsLimit& configured = *call.configured;
  JsonWriter json(call.reply.body);
  json.BeginObject();
  AppendDescriptor(json, call);
  json.Field("shadow", configured.shadow_mode).Field("quota", configured.quota_mode);
  json.Field("charged", false);
  if (call.limited()) {
    AppendLook(json, *call.limit.limit, call.request);
  } else if (configured.kind == RlsLimit::Kind::kUnlimited) {
    json.Field("unlimited", true).Field("allowed", true);
  } else {
    json.Field("allowed", false);
    json.Field("limit", std::int64_t{0}).Field("remaining", std::int64_t{0});
  }
  json.EndObject();
  call.reply.Send(200);
}

void AnswerReset(DescriptorCall& call) {
  if (!call.request.outcome) return call.reply.Fail(call.request.outcome.error());
  JsonWriter json(call.reply.body);
  json.BeginObject();
  AppendDescriptor(json, call);
  json.Field("reset", call.request.existed).EndObject();
  call.reply.Send(200);
}

}  // namespace

void DescriptorApi::AddRoutes(Router& router) const {
  constexpr std::string_view kDescriptor = "/admin/v1/domains/{domain}/descriptor";
  // NOLINTBEGIN(performance-unnecessary-value-param): an exchange is handed over.
  router.Add("GET", "/rlconfig",
             [this](const http::Request& request, http::Exchange exchange, std::string_view) {
               ReadConfig(request, std::move(exchange));
             });
  router.Add("GET", kDescriptor,
             [this](const http::Request& request, http::Exchange exchange,
                    std::string_view domain) { Inspect(request, std::move(exchange), domain); });
  router.Add("DELETE", kDescriptor,
             [this](const http::Request& request, http::Exchange exchange,
                    std::string_view domain) { Reset(request, std::move(exchange), domain); });
  // NOLINTEND(performance-unnecessary-value-param)
}

void DescriptorApi::ReadConfig(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, instruments_);
  const auto catalog = engine_.catalog();
  for (const rules::RlsDomain& domain : catalog->domains->domains()) {
    for (const RlsLimit& limit : domain.limits()) AppendLine(reply.body, limit);
  }
  reply.Send(200, "text/plain; charset=utf-8");
}

void DescriptorApi::Inspect(const http::Request& request, http::Exchange exchange,
                            std::string_view domain) const {
  const auto call = Prepare(engine_, instruments_, request, std::move(exchange), domain);
  if (!call) return;
  if (!call->limited()) return AnswerInspection(*call);
  call->request = {.charges = {&call->charge, 1}, .seen = {&call->seen, 1}};
  engine_.Apply({&call->request, 1}, [call] { AnswerInspection(*call); });
}

void DescriptorApi::Reset(const http::Request& request, http::Exchange exchange,
                          std::string_view domain) const {
  const auto call = Prepare(engine_, instruments_, request, std::move(exchange), domain);
  if (!call) return;
  if (!call->limited()) return AnswerReset(*call);
  call->request = {.charges = {&call->charge, 1}, .action = Action::kReset};
  engine_.Apply({&call->request, 1}, [call, author = Author::Of(request, access_)] {
    LogReset(call->reply.logger(), author, call->reply.request_id(),
             text::Cat("key ", call->limit.key, " of domain ", call->limit.domain),
             {&call->request, 1});
    AnswerReset(*call);
  });
}

}  // namespace sluice::api
