// SPDX-License-Identifier: Apache-2.0
#include "api/key_api.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/audit.h"
#include "api/key_search.h"
#include "api/key_state.h"
#include "base/duration.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "net/url.h"
#include "rules/key.h"
#include "service/hold_call.h"

namespace sluice::api {
namespace {

constexpr std::string_view kKeysAsShown =
    "a key as answers show it: ip:192.0.2.1, user:alice, apikey#…, global, or an attribute's name "
    "and value; or apikey: and the API key itself, or the ref of /admin/v1/top";

constexpr std::size_t kHoldsShownMax = 1'000;  // In one answer, which may have many limits.

// The budgets of one key, looked at or changed together.
struct KeyCall {
  explicit KeyCall(Reply own_reply) : reply(std::move(own_reply)) {}

  Reply reply;
  std::shared_ptr<const service::Catalog> catalog;
  std::string key;
  std::string hold;         // The id of one; empty if the request is not about one.
  bool everywhere = false;  // Not just in one rule set.
  std::vector<KeyLimit> limits;
  std::vector<Charge> charges;
  std::vector<SeenState> seen;
  std::vector<HoldList> listed;
  std::vector<Request> requests;

  // Of each limit on which the hold is: its number, and how it is released.
  std::vector<std::size_t> held_on;
  std::vector<HoldTerms> terms;
  std::vector<Request> releases;
  std::size_t unread = 0;  // Of the limits: those that could not be looked at.
};

// The key is most likely mistyped, rather than one with a full budget.
void FailUncounted(KeyCall& call, std::string_view by) {
  call.reply.Fail(404, "NOT_FOUND", text::Cat(by, " for this key; expected ", kKeysAsShown));
}

// The live holds on a budget, inside its object; no more than there is `room` for.
void AppendHolds(JsonWriter& json, const HoldList& listed, std::int64_t now_us, std::size_t& room) {
  if (listed.live == 0) return;
  const auto shown = std::span(listed.holds).first(std::min(room, listed.holds.size()));
  room -= shown.size();
  json.Field("liveHolds", listed.live).Key("holds").BeginArray();
  for (const HoldList::Hold& hold : shown) {
    const std::int64_t age_us = now_us - hold.taken.time_since_epoch().count();
    json.BeginObject().Field("id", hold.id).Field("units", hold.units);
    json.Field("ageMicros", std::max<std::int64_t>(0, age_us));
    json.Field("expiresAt", text::FormatTime(hold.expires));
    json.Field("expiresAtMicros", hold.expires.time_since_epoch().count());
    json.Field("onExpiry", ToString(hold.on_expiry)).EndObject();
  }
  json.EndArray();
}

void AnswerInspection(KeyCall& call) {
  // Named limits accept any key, so an unused one is not shown.
  const auto is_shown = [&](std::size_t i) {
    return !call.limits[i].any_key || !IsUntouched(call.requests[i]) || call.listed[i].live > 0;
  };
  std::size_t room = kHoldsShownMax;
  JsonWriter json(call.reply.body);
  json.BeginObject().BytesField("key", call.key).Field("generation", call.catalog->generation);
  json.Field("charged", false).Key(call.everywhere ? "limits" : "bands").BeginArray();
  bool any = false;
  for (std::size_t i = 0; i < call.limits.size(); ++i) {
    if (!is_shown(i)) continue;
    any = true;
    json.BeginObject();
    AppendPlace(json, call.limits[i]);
    AppendLook(json, *call.limits[i].limit, call.requests[i]);
    AppendHolds(json, call.listed[i], call.seen[i].now_us(), room);
    json.EndObject();
  }
  json.EndArray();
  if (call.everywhere) json.Field("more", call.limits.size() == kKeyLimitsMax);
  json.EndObject();
  if (!any) {
    call.reply.body.clear();
    return FailUncounted(call, "nothing was counted, and there is no band,");
  }
  call.reply.Send(200);
}

void AnswerReset(KeyCall& call) {
  std::size_t reset = 0;
  for (const Request& request : call.requests) {
    if (!request.outcome) return call.reply.Fail(request.outcome.error());
    reset += request.existed ? 1 : 0;
  }
  JsonWriter json(call.reply.body);
  json.BeginObject().BytesField("key", call.key).Field("bands", call.limits.size());
  json.Field("reset", reset).EndObject();
  call.reply.Send(200);
}

// Finds the key's limits in a rule set, or everywhere without one; answers, and returns null, if
// there are none.
std::shared_ptr<KeyCall> PrepareKey(service::Engine& engine, const Instruments& instruments,
                                    const http::Request& request, http::Exchange exchange,
                                    std::optional<std::string_view> rule_set) {
  auto call = std::make_shared<KeyCall>(Reply(std::move(exchange), request, instruments));
  call->catalog = engine.catalog();
  call->everywhere = !rule_set;
  const rules::RuleSet* found = rule_set ? call->catalog->rules->Find(*rule_set) : nullptr;
  if (rule_set && !found) {
    call->reply.Fail(404, "NOT_FOUND", text::Cat("there is no rule set ", text::Quote(*rule_set)));
    return nullptr;
  }
  std::array wanted = {net::WantedParameter{.name = "key"}, net::WantedParameter{.name = "rule"},
                       net::WantedParameter{.name = "hold"}};
  std::string scratch;
  if (const auto read = net::ReadQuery(request.query, wanted, scratch); !read) {
    call->reply.Fail(400, "INVALID_QUERY", read.error().message);
    return nullptr;
  }
  const auto& [key, rule, hold] = wanted;
  if (hold.value && hold.value->empty()) {
    call->reply.Fail(400, "INVALID_QUERY", "hold is empty; expected the id of one, or no hold");
    return nullptr;
  }
  call->hold = hold.value.value_or("");
  if (!key.value || key.value->empty()) {
    call->reply.Fail(400, "INVALID_KEY", text::Cat("expected ?key=", kKeysAsShown));
    return nullptr;
  }
  if (const std::string why = WhyNoKey(*key.value); !why.empty()) {
    call->reply.Fail(400, "INVALID_KEY", why);
    return nullptr;
  }
  call->limits = found ? LimitsOf(*found, *key.value) : LimitsOf(*call->catalog, *key.value);
  if (rule.value) {
    std::erase_if(call->limits, [&](const KeyLimit& limit) {
      return !limit.rule || limit.rule->id != *rule.value;
    });
  }
  if (call->limits.empty()) {
    const std::string under =
        rule.value ? text::Cat(" under the rule ", text::Quote(*rule.value)) : "";
    FailUncounted(
        *call, rule_set ? text::Cat("the rule set ", text::Quote(*rule_set), " has no band", under)
                        : text::Cat("there is no band", under));
    return nullptr;
  }
  // Not as in the request: that may contain a secret.
  call->key = rules::StoredKey(call->limits.front().key);
  for (const KeyLimit& limit : call->limits) call->charges.push_back(limit.look());
  return call;
}

// Looks at all budgets of the key, and at their holds, or the one that was asked for; then calls
// `done`. Takes nothing.
template <typename Done>
void LookAt(service::Engine& engine, KeyCall& call, Done done) {
  call.seen.resize(call.charges.size());
  call.listed.assign(call.charges.size(), {.only = call.hold});
  for (std::size_t i = 0; i < call.charges.size(); ++i) {
    call.requests.push_back({.charges = {&call.charges[i], 1},
                             .seen = {&call.seen[i], 1},
                             .action = Action::kListHolds,
                             .listed = &call.listed[i]});
  }
  engine.Apply(call.requests, std::move(done));
}

void AnswerWithLook(service::Engine& engine, std::shared_ptr<KeyCall> call) {
  if (!call) return;
  KeyCall& it = *call;
  LookAt(engine, it, [call = std::move(call)] { AnswerInspection(*call); });
}

void AnswerRelease(service::Engine& engine, KeyCall& call, const Author& author) {
  const auto failed = std::ranges::find_if(
      call.releases, [](const Request& release) { return !release.outcome.has_value(); });
  const bool is_known = failed == call.releases.end();
  LogChange(call.reply.logger(), author, call.reply.request_id(),
            {.action = "released",
             .target = text::Cat("hold ", call.hold, " of key ", call.key),
             .before = text::Cat("on ", call.releases.size(), " budgets"),
             .after = is_known ? "on none" : "unknown"});
  if (!is_known) return call.reply.Fail(failed->outcome.error());
  std::vector<std::string_view> states;
  JsonWriter json(call.reply.body);
  json.BeginObject().BytesField("key", call.key).Field("hold", call.hold);
  json.Key("released").BeginArray();
  for (std::size_t i = 0; i < call.releases.size(); ++i) {
    const std::size_t number = call.held_on[i];
    states.push_back(call.limits[number].state);
    json.BeginObject();
    AppendPlace(json, call.limits[number]);
    json.Field("units", call.listed[number].holds.front().units);
    json.Field("source", ToString(call.releases[i].source)).EndObject();
  }
  json.EndArray().Field("unread", call.unread);
  json.Field("more", call.limits.size() == kKeyLimitsMax).EndObject();
  service::CountReleased(engine, *call.catalog, call.hold, states);
  call.reply.Send(200);
}

// Ends the hold wherever it was found.
void Release(service::Engine& engine, std::shared_ptr<KeyCall> call, Author author) {
  KeyCall& it = *call;
  const sluice::Error* unread = nullptr;
  it.terms.reserve(it.requests.size());
  for (std::size_t i = 0; i < it.requests.size(); ++i) {
    if (!it.requests[i].outcome) {
      ++it.unread;
      if (!unread) unread = &it.requests[i].outcome.error();
      continue;
    }
    if (it.listed[i].holds.empty()) continue;
    it.held_on.push_back(i);
    it.terms.push_back({.id = it.hold, .expires = it.listed[i].holds.front().expires});
    it.releases.push_back(
        {.charges = {&it.charges[i], 1}, .action = Action::kSettle, .hold = &it.terms.back()});
  }
  if (it.releases.empty() && unread) return it.reply.Fail(*unread);
  if (it.releases.empty()) {
    return it.reply.Fail(404, "NOT_FOUND",
                         text::Cat("no hold ", text::Quote(it.hold),
                                   " is live on this key; "
                                   "expected an id that GET /admin/v1/keys shows for it"));
  }
  engine.Apply(it.releases, [&engine, call = std::move(call), author = std::move(author)] {
    AnswerRelease(engine, *call, author);
  });
}

}  // namespace

void KeyApi::AddRoutes(Router& router) const {
  constexpr std::string_view kOfRuleSet = "/admin/v1/rule-sets/{id}/keys";
  // NOLINTBEGIN(performance-unnecessary-value-param): an exchange is handed over.
  router.Add("GET", kOfRuleSet,
             [this](const http::Request& request, http::Exchange exchange, std::string_view id) {
               Inspect(request, std::move(exchange), id);
             });
  router.Add("DELETE", kOfRuleSet,
             [this](const http::Request& request, http::Exchange exchange, std::string_view id) {
               Reset(request, std::move(exchange), id);
             });
  router.Add("GET", "/admin/v1/keys",
             [this](const http::Request& request, http::Exchange exchange, std::string_view) {
               Find(request, std::move(exchange));
             });
  router.Add("DELETE", "/admin/v1/keys/holds",
             [this](const http::Request& request, http::Exchange exchange, std::string_view) {
               ReleaseHold(request, std::move(exchange));
             });
  // NOLINTEND(performance-unnecessary-value-param)
}

void KeyApi::Inspect(const http::Request& request, http::Exchange exchange,
                     std::string_view rule_set) const {
  AnswerWithLook(engine_,
                 PrepareKey(engine_, instruments_, request, std::move(exchange), rule_set));
}

void KeyApi::Find(const http::Request& request, http::Exchange exchange) const {
  AnswerWithLook(engine_,
                 PrepareKey(engine_, instruments_, request, std::move(exchange), std::nullopt));
}

void KeyApi::Reset(const http::Request& request, http::Exchange exchange,
                   std::string_view rule_set) const {
  const auto call = PrepareKey(engine_, instruments_, request, std::move(exchange), rule_set);
  if (!call) return;
  if (!call->hold.empty()) {
    return call->reply.Fail(400, "INVALID_QUERY",
                            "this resets whole budgets; expected no hold, or "
                            "DELETE /admin/v1/keys/holds to release one");
  }
  for (const Charge& charge : call->charges) {
    call->requests.push_back({.charges = {&charge, 1}, .action = Action::kReset});
  }
  engine_.Apply(call->requests,
                [call, author = Author::Of(request, access_), id = std::string(rule_set)] {
                  LogReset(call->reply.logger(), author, call->reply.request_id(),
                           text::Cat("key ", call->key, " of rule set ", id), call->requests);
                  AnswerReset(*call);
                });
}

void KeyApi::ReleaseHold(const http::Request& request, http::Exchange exchange) const {
  auto call = PrepareKey(engine_, instruments_, request, std::move(exchange), std::nullopt);
  if (!call) return;
  if (call->hold.empty()) {
    return call->reply.Fail(400, "INVALID_QUERY",
                            "expected &hold= and the id of a hold, as GET /admin/v1/keys shows it");
  }
  KeyCall& it = *call;
  LookAt(engine_, it,
         [this, call = std::move(call), author = Author::Of(request, access_)]() mutable {
           Release(engine_, std::move(call), std::move(author));
         });
}

}  // namespace sluice::api
