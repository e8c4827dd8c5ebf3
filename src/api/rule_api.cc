// SPDX-License-Identifier: Apache-2.0
#include "api/rule_api.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/check_answer.h"
#include "api/check_document.h"
#include "api/decision_json.h"
#include "api/permits.h"
#include "api/reply.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "net/url.h"
#include "service/rule_check.h"

namespace sluice::api {
namespace {

using service::RuleCheck;

void LogDenial(const Reply& reply, const RuleCheck& check) {
  service::LogDenial(reply.logger(), check, {"request_id", reply.request_id()});
}

struct Call {
  Call(Reply own_reply, std::shared_ptr<const service::Catalog> catalog)
      : reply(std::move(own_reply)), check(std::move(catalog)) {}

  Reply reply;
  RuleCheck check;
  int denied_status = 429;
  bool with_body = true;
};

void Answer(Call& call, TimePoint now, service::BandFields band_fields) {
  Reply& reply = call.reply;
  const RuleCheck& check = call.check;
  if (!check.decision()) return reply.Fail(check.decision().error());
  const std::vector<service::Policy> policies = PoliciesOf(check);
  const Decision& decision = *check.decision();
  LogDenial(reply, check);
  AppendFields(reply.headers, check, policies, now, band_fields);
  const int status = check.refuses() ? call.denied_status : 200;
  if (status == 403) reply.headers += "X-Sluice-Status: 429\r\n";
  if (status != 200 && reply.wants_problem()) {
    service::AppendQuotaExceeded(reply.body, policies);
    return reply.Send(status, service::kProblemContentType);
  }
  JsonWriter json(reply.body);
  json.BeginObject();
  if (call.with_body) {
    AppendCheck(json, check);
  } else {
    json.Field("allowed", decision.allowed);
    if (decision.delay > Micros{0}) json.Field("delayMicros", decision.delay.count());
    json.Field("message", MessageOf(check));
  }
  json.EndObject();
  reply.Send(status);
}

void Run(std::unique_ptr<Call> call, service::Engine& engine, service::BandFields band_fields) {
  Call& it = *call;
  // Before it is decided: a window that ends with a second must not seem to end in the next.
  it.check.Run(engine, [call = std::move(call), now = engine.Now(), band_fields] {
    Answer(*call, now, band_fields);
  });
}

// Makes a check about the caller, with what is known about it. False: it names somebody else, or an
// attribute, which may decide whose budget is used.
bool MakeOwn(rules::Context& context, const Identity& caller) {
  const auto is_own = [](std::string_view named, std::string_view own) {
    return named.empty() || named == own;
  };
  if (!is_own(context.ip, caller.ip) || !is_own(context.user_id, caller.user_id) ||
      !is_own(context.api_key, caller.api_key) || !context.attributes.empty()) {
    return false;
  }
  context.ip = caller.ip;
  context.user_id = caller.user_id;
  context.api_key = caller.api_key;
  return true;
}

void RefuseForeign(Reply& reply) {
  reply.Fail(403, "FORBIDDEN",
             "context: without a token a check is about the caller's own address; expected "
             "Authorization: Bearer …, or no other ip, userId, apiKey and attributes");
}

// Several checks that are answered together, in order.
struct Batch {
  explicit Batch(Reply own_reply) : reply(std::move(own_reply)) {}

  struct Item {
    std::unique_ptr<RuleCheck> check;
    std::optional<Error> error;  // Why it was not run.
  };

  Reply reply;
  std::vector<Item> items;
};

void AnswerBatch(Batch& batch) {
  JsonWriter json(batch.reply.body);
  json.BeginObject().Key("results").BeginArray();
  for (const Batch::Item& item : batch.items) {
    const Error* error = item.error ? &*item.error : nullptr;
    if (!error && !item.check->decision()) error = &item.check->decision().error();
    json.BeginObject();
    if (error) {
      batch.reply.CountError(ToString(error->code));
      json.Field("status", StatusOf(error->code)).Key("error").BeginObject();
      json.Field("code", ToString(error->code)).Field("message", error->message).EndObject();
    } else {
      LogDenial(batch.reply, *item.check);
      json.Field("status", item.check->refuses() ? 429 : 200);
      AppendCheck(json, *item.check);
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
  batch.reply.Send(200);
}

}  // namespace

void RuleApi::Check(const http::Request& request, http::Exchange exchange, Caller caller) const {
  auto call =
      std::make_unique<Call>(Reply(std::move(exchange), request, instruments_), engine_.catalog());
  auto body = ParseJson(request.body);
  if (!body) return call->reply.Fail(body.error());
  auto document = CheckDocument::Read(*body);
  if (!document) return call->reply.Fail(document.error());
  const std::string ip = net::ClientKey(document->context.ip, clients_.ipv6_prefix);
  document->context.ip = ip;
  Expected<Identity> own;
  if (caller == Caller::kAnonymous) {
    own = Identify(request, clients_);
    if (!own) return call->reply.Fail(own.error());
    if (!MakeOwn(document->context, *own)) return RefuseForeign(call->reply);
  }
  const auto ready = call->check.Prepare(document->rule_set, document->context, document->permits);
  if (!ready) return call->reply.Fail(ready.error());
  Run(std::move(call), engine_, band_fields_);
}

void RuleApi::CheckBatch(const http::Request& request, http::Exchange exchange,
                         Caller caller) const {
  auto batch = std::make_shared<Batch>(Reply(std::move(exchange), request, instruments_));
  auto body = ParseJson(request.body);
  if (!body) return batch->reply.Fail(body.error());
  boost::json::value* checks = nullptr;
  if (body->is_array()) {
    checks = &*body;
  } else if (body->is_object() && body->get_object().size() == 1) {
    checks = body->get_object().if_contains("checks");
  }
  if (!checks || !checks->is_array() || checks->get_array().size() > service::kBatchMax) {
    return batch->reply.Fail(
        {ErrorCode::kInvalidInput,
         text::Cat("expected {\"checks\": [...]} with at most ", service::kBatchMax, " checks")});
  }
  Expected<Identity> own;
  if (caller == Caller::kAnonymous) own = Identify(request, clients_);
  if (!own) return batch->reply.Fail(own.error());
  const auto catalog = engine_.catalog();
  for (boost::json::value& element : checks->get_array()) {
    Batch::Item& item = batch->items.emplace_back();
    auto document = CheckDocument::Read(element);
    if (!document) {
      item.error = document.error();
      continue;
    }
    const std::string ip = net::ClientKey(document->context.ip, clients_.ipv6_prefix);
    document->context.ip = ip;
    if (caller == Caller::kAnonymous && !MakeOwn(document->context, *own)) {
      return RefuseForeign(batch->reply);
    }
    item.check = std::make_unique<RuleCheck>(catalog);
    const auto ready =
        item.check->Prepare(document->rule_set, document->context, document->permits);
    if (!ready) item.error = ready.error();
  }
  std::vector<RuleCheck*> ready;
  for (const Batch::Item& item : batch->items) {
    if (!item.error) ready.push_back(item.check.get());
  }
  RuleCheck::RunAll(engine_, std::move(ready), [batch] { AnswerBatch(*batch); });
}

void RuleApi::Authorize(std::string_view rule_set, const http::Request& request,
                        http::Exchange exchange) const {
  auto call =
      std::make_unique<Call>(Reply(std::move(exchange), request, instruments_), engine_.catalog());
  call->with_body = false;
  std::array wanted = {net::WantedParameter{.name = "mode"},
                       net::WantedParameter{.name = "permits"}};
  std::string scratch;
  if (const auto read = net::ReadQuery(request.query, wanted, scratch); !read) {
    return call->reply.Fail(400, "INVALID_QUERY", read.error().message);
  }
  const auto& [mode, permits_text] = wanted;
  if (mode.value && *mode.value != "nginx") {
    return call->reply.Fail(400, "INVALID_MODE",
                            text::Cat("mode ", text::Quote(*mode.value), ": expected nginx"));
  }
  if (mode.value) call->denied_status = 403;
  const auto permits = ReadPermits(permits_text.value);
  if (!permits) return call->reply.Fail(400, "INVALID_PERMITS", permits.error());
  // The caller may describe any request: lying would only change its own answer. Only trusted peers
  // may say who the client is.
  const auto identity = Identify(request, clients_);
  if (!identity) return call->reply.Fail(identity.error());
  const auto forwarded = ReadForwardedRequest(request);
  if (!forwarded) return call->reply.Fail(forwarded.error());
  const auto& [method, uri, forwarded_host] = *forwarded;
  const std::string host_name =
      net::HostName(forwarded_host.empty() ? request.FindHeader("Host") : forwarded_host);
  std::vector<rules::Attribute> attributes = {{.name = "host", .value = host_name}};
  if (const auto added = AddAttributes(request, clients_, attributes); !added) {
    return call->reply.Fail(added.error());
  }
  const rules::Context context{.ip = identity->ip,
                               .user_id = identity->user_id,
                               .api_key = identity->api_key,
                               .method = method.empty() ? request.method_text : method,
                               .path = uri,
                               .attributes = attributes};
  const auto ready = call->check.Prepare(rule_set, context, *permits);
  if (!ready) return call->reply.Fail(ready.error());
  Run(std::move(call), engine_, band_fields_);
}

}  // namespace sluice::api
