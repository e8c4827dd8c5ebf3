// SPDX-License-Identifier: Apache-2.0
#include "api/hold_api.h"

#include <boost/json.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/check_answer.h"
#include "api/decision_json.h"
#include "api/hold_document.h"
#include "api/rate_limit_api.h"
#include "base/duration.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/algorithms.h"
#include "net/address.h"
#include "service/hold_call.h"
#include "service/limit_hold.h"
#include "service/rule_check.h"

namespace sluice::api {
namespace {

using service::HoldCall;
using service::HoldTicket;
using service::RuleCheck;

// What a client keeps of its hold. One on no limit at all never expires.
void AppendMade(JsonWriter& json, const service::MadeHold& made, const HoldTicket& ticket) {
  json.Field("id", made.id).Field("holds", made.holds);
  if (ticket.parts.empty()) return;
  json.Field("expiresAt", text::FormatTime(made.expires));
  json.Field("expiresAtMicros", made.expires.time_since_epoch().count());
}

enum class Kind { kSettle, kRelease, kExtend };

// The budgets that it is on, as they are afterwards.
void AppendBudgets(JsonWriter& json, const HoldCall& call, Kind kind) {
  json.Key("limits").BeginArray();
  for (const HoldCall::Outcome& outcome : call.outcomes()) {
    json.BeginObject();
    json.Field("name", outcome.part.name.empty() ? outcome.limit.ToString() : outcome.part.name);
    json.BytesField("key", outcome.part.key);
    json.Field("algorithm", service::UpperName(outcome.limit.algorithm()));
    if (kind == Kind::kSettle && !core::NeedsHold(outcome.limit)) {
      json.Field("cost", outcome.actual);
    }
    json.Field("limit", outcome.decision.limit).Field("remaining", outcome.decision.remaining);
    json.Field("held", outcome.decision.held);
    json.Field("resetAfterMicros", outcome.decision.reset_after.count());
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

// A hold under the rules of a rule set.
struct HoldApi::RuleHold {
  RuleHold(Reply own_reply, std::shared_ptr<const service::Catalog> catalog)
      : reply(std::move(own_reply)), check(std::move(catalog)) {}

  Reply reply;
  RuleCheck check;
};

// A hold on one limit and key.
struct HoldApi::LimitHold {
  LimitHold(Reply own_reply, std::shared_ptr<const service::Catalog> catalog)
      : reply(std::move(own_reply)), hold(std::move(catalog)) {}

  Reply reply;
  service::LimitHold hold;
};

struct HoldApi::Change {
  Change(Reply own_reply, std::shared_ptr<const service::Catalog> catalog)
      : reply(std::move(own_reply)), call(std::move(catalog)) {}

  Reply reply;
  HoldCall call;
  Kind kind = Kind::kSettle;
};

void HoldApi::Make(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, instruments_);
  auto body = ParseJson(request.body);
  if (!body) return reply.Fail(body.error());
  auto document = HoldDocument::Read(*body);
  if (!document) return reply.Fail(document.error());
  const TimePoint now = engine_.Now();
  if (document->limit.empty()) {
    auto hold = std::make_unique<RuleHold>(std::move(reply), engine_.catalog());
    RuleHold& it = *hold;
    const std::string ip = net::ClientKey(document->check.context.ip, clients_.ipv6_prefix);
    document->check.context.ip = ip;
    const auto ready = it.check.PrepareHold(
        document->check.rule_set, document->check.context, document->check.permits,
        {.id = document->id, .ttl = document->ttl, .on_expiry = document->on_expiry});
    if (!ready) return it.reply.Fail(ready.error());
    it.check.Run(engine_, [this, hold = std::move(hold), now] { AnswerRules(*hold, now); });
    return;
  }
  auto hold = std::make_unique<LimitHold>(std::move(reply), engine_.catalog());
  LimitHold& it = *hold;
  if (!IsValidKey(document->key)) return it.reply.Fail(InvalidKey(document->key));
  const auto ready = it.hold.Prepare(
      {.limit = document->limit,
       .key = document->key,
       .cost = document->check.permits,
       .on_store_failure = on_store_failure_,
       .wish = {.id = document->id, .ttl = document->ttl, .on_expiry = document->on_expiry}});
  if (!ready) return it.reply.Fail(ready.error());
  it.hold.Run(engine_, [this, hold = std::move(hold), now] { AnswerLimit(*hold, now); });
}

void HoldApi::AnswerRules(RuleHold& hold, TimePoint now) const {
  Reply& reply = hold.reply;
  const RuleCheck& check = hold.check;
  if (!check.decision()) return reply.Fail(check.decision().error());
  const std::vector<service::Policy> policies = PoliciesOf(check);
  service::LogDenial(reply.logger(), check, {"request_id", reply.request_id()});
  AppendFields(reply.headers, check, policies, now, band_fields_);
  if (check.refuses() && reply.wants_problem()) {
    service::AppendQuotaExceeded(reply.body, policies);
    return reply.Send(429, service::kProblemContentType);
  }
  JsonWriter json(reply.body);
  json.BeginObject();
  if (!check.refuses()) {
    const HoldTicket ticket = check.MakeTicket();
    const auto made = service::CountMade(engine_, check.catalog(), ticket);
    if (!made) return reply.Fail(made.error());
    AppendMade(json, *made, ticket);
  }
  AppendCheck(json, check);
  json.EndObject();
  reply.Send(check.refuses() ? 429 : 201);
}

void HoldApi::AnswerLimit(LimitHold& limit_hold, TimePoint now) const {
  Reply& reply = limit_hold.reply;
  const service::LimitHold& hold = limit_hold.hold;
  if (!hold.decision()) return reply.Fail(hold.decision().error());
  const Decision& decision = *hold.decision();
  const HoldTicket::Part& part = hold.part();
  const std::string_view algorithm = service::UpperName(part.limit.algorithm());
  const service::Policy policy{.name = part.name.empty() ? algorithm : std::string_view(part.name),
                               .limit = &part.limit,
                               .decision = decision};
  service::AppendRateLimitFields(reply.headers, decision, {&policy, 1}, now);
  if (!decision.allowed && reply.wants_problem()) {
    service::AppendQuotaExceeded(reply.body, {&policy, 1});
    return reply.Send(429, service::kProblemContentType);
  }
  JsonWriter json(reply.body);
  json.BeginObject();
  if (decision.allowed) {
    const HoldTicket ticket = hold.MakeTicket();
    const auto made = service::CountMade(engine_, hold.catalog(), ticket);
    if (!made) return reply.Fail(made.error());
    AppendMade(json, *made, ticket);
  }
  json.BytesField("key", part.key).Field("algorithm", algorithm);
  AppendDecision(json, decision);
  AppendQueued(json, part.limit, decision);
  json.Field("source", ToString(hold.source()));
  json.Field("message", decision.allowed ? "Held" : "Rate limit exceeded").EndObject();
  reply.Send(decision.allowed ? 201 : 429);
}

std::unique_ptr<HoldApi::Change> HoldApi::Open(std::string_view id, const http::Request& request,
                                               http::Exchange exchange) const {
  auto change = std::make_unique<Change>(Reply(std::move(exchange), request, instruments_),
                                         engine_.catalog());
  const auto open = change->call.Open(id);
  if (open) return change;
  change->reply.Fail(open.error());
  return nullptr;
}

void HoldApi::Settle(std::string_view id, const http::Request& request,
                     http::Exchange exchange) const {
  auto change = Open(id, request, std::move(exchange));
  if (!change) return;
  const auto read = ReadSettle(change->call, request.body);
  if (!read) return change->reply.Fail(read.error());
  Run(std::move(change));
}

void HoldApi::Release(std::string_view id, const http::Request& request,
                      http::Exchange exchange) const {
  auto change = Open(id, request, std::move(exchange));
  if (!change) return;
  change->kind = Kind::kRelease;
  change->call.Release();
  Run(std::move(change));
}

void HoldApi::Extend(std::string_view id, const http::Request& request,
                     http::Exchange exchange) const {
  auto change = Open(id, request, std::move(exchange));
  if (!change) return;
  change->kind = Kind::kExtend;
  const auto read = ReadExtend(change->call, request.body);
  if (!read) return change->reply.Fail(read.error());
  Run(std::move(change));
}

void HoldApi::Run(std::unique_ptr<Change> change) const {
  Change& it = *change;
  it.call.Run(engine_, [change = std::move(change)] {
    Reply& reply = change->reply;
    const HoldCall& call = change->call;
    if (!call.decision()) return reply.Fail(call.decision().error());
    JsonWriter json(reply.body);
    json.BeginObject();
    if (change->kind == Kind::kExtend) {
      json.Field("extended", true);
      json.Field("expiresAt", text::FormatTime(call.terms().expires));
      json.Field("expiresAtMicros", call.terms().expires.time_since_epoch().count());
    } else {
      json.Field(change->kind == Kind::kRelease ? "released" : "settled", true);
      json.Field("late", call.terms().late).Field("overdrawn", call.terms().overdrawn);
    }
    json.Field("source", ToString(call.source()));
    AppendBudgets(json, call, change->kind);
    json.EndObject();
    reply.Send(200);
  });
}

}  // namespace sluice::api
