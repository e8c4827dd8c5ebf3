// SPDX-License-Identifier: Apache-2.0
#include "api/admin_api.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "api/audit.h"
#include "api/decision_json.h"
#include "api/key_state.h"
#include "api/reply.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "net/url.h"
#include "rules/parse.h"

namespace sluice::api {
namespace {

using telemetry::HeavyHitters;

constexpr std::size_t kTopDefault = 20;

constexpr std::string_view kRuleSetsPath = "/admin/v1/rule-sets";

constexpr std::string_view kKeysAsShown =
    "a key as answers show it: ip:192.0.2.1, user:alice, apikey#…, global, or an attribute's name "
    "and value; or apikey: and the API key itself";

// The entity tags that a field lists, over all of its lines.
std::vector<std::string> TagsOf(const http::Request& request, std::string_view field) {
  std::vector<std::string> tags;
  for (const http::Header& header : request.headers) {
    if (!text::EqualsIgnoreCase(header.name, field)) continue;
    for (const auto part : std::views::split(header.value, ',')) {
      const auto tag = text::Trim(std::string_view(part));
      if (!tag.empty()) tags.emplace_back(tag);
    }
  }
  return tags;
}

// Whether a rule set is among them; none if there is none, which is never listed.
bool IsListed(const std::vector<std::string>& tags, std::optional<std::string_view> hash) {
  if (!hash) return false;
  const std::string own = text::Cat("\"", *hash, "\"");
  return std::ranges::any_of(tags,
                             [&](const std::string& tag) { return tag == "*" || tag == own; });
}

// The tags of If-None-Match, which are compared weakly.
std::vector<std::string> UnwantedTags(const http::Request& request) {
  std::vector<std::string> tags = TagsOf(request, "If-None-Match");
  for (std::string& tag : tags) {
    if (tag.starts_with("W/")) tag.erase(0, 2);
  }
  return tags;
}

// What a request demands of the rule set that it changes: If-Match and If-None-Match of RFC 9110.
reload::Keeper::Condition ConditionOf(const http::Request& request) {
  auto wanted = TagsOf(request, "If-Match");
  auto unwanted = UnwantedTags(request);
  if (wanted.empty() && unwanted.empty()) return nullptr;
  return [wanted = std::move(wanted),
          unwanted = std::move(unwanted)](std::optional<std::string_view> hash) {
    return (wanted.empty() || IsListed(wanted, hash)) && !IsListed(unwanted, hash);
  };
}

// A page in a browser can make it send requests here under a name that leads to this machine, but
// the name it uses is then not one of these.
bool IsLocalName(std::string_view host) {
  for (const std::string_view name : {"127.0.0.1", "localhost", "[::1]"}) {
    if (!text::EqualsIgnoreCase(host.substr(0, name.size()), name)) continue;
    const std::string_view port = host.substr(name.size());
    return port.empty() || port.starts_with(':');
  }
  return false;
}

void AppendSummary(JsonWriter& json, const rules::RuleSet& rule_set,
                   const service::Catalog& catalog) {
  json.BeginObject().Field("id", rule_set.id()).Field("enabled", rule_set.enabled());
  json.Field("rules", rule_set.rules().size()).Field("hash", rule_set.hash());
  json.Field("managed", catalog.managed.contains(rule_set.id()));
  json.Field("file", rule_set.spec().file).Field("line", rule_set.spec().line).EndObject();
}

std::string JsonOf(std::string_view name, std::string_view value) {
  std::string out;
  JsonWriter(out).BeginObject().Field(name, value).EndObject();
  return out;
}

// More than /health tells to everybody: which documents are not in force, and why.
void AppendRules(JsonWriter& json, const reload::RulesStatus& rules, std::string_view managed_by) {
  json.BeginObject().Field("managedBy", managed_by);
  AppendRulesFields(json, rules);
  json.Field("revision", rules.revision);
  if (!rules.keep_problem.empty()) json.Field("keepProblem", rules.keep_problem);
  json.Key("rejectedRuleSets").BeginArray();
  for (const auto& rejected : rules.rejected) {
    json.BeginObject().Field("id", rejected.id).Field("problem", rejected.problem);
    json.Field("lastGoodInForce", rejected.has_last_good).EndObject();
  }
  json.EndArray().EndObject();
}

// Answers with why a change was not made.
void Refuse(Reply& reply, const reload::Keeper::Outcome& outcome) {
  if (!outcome.problems.empty()) return reply.Fail(outcome.problems);
  const Error& error = outcome.result.error();
  if (outcome.is_other) {
    return reply.Fail(
        412, "PRECONDITION_FAILED",
        text::Cat(error.message, "; expected what If-Match and If-None-Match say of its ETag"));
  }
  // What cannot be changed here is a conflict with what is there, not a malformed request.
  if (error.code == ErrorCode::kInvalidRequest) return reply.Fail(409, "CONFLICT", error.message);
  reply.Fail(error);
}

// Answers with what became of a change, and logs it: 201 and where it is if it made a rule set,
// else 200.
reload::Keeper::Done AnswerWith(std::shared_ptr<Reply> reply, Author author, std::string_view done,
                                std::string id) {
  return [reply = std::move(reply), author = std::move(author), done,
          id = std::move(id)](const reload::Keeper::Outcome& outcome) {
    LogChange(reply->logger(), author, reply->request_id(), outcome.created ? "created" : done, id,
              outcome);
    if (!outcome.result) return Refuse(*reply, outcome);
    reply->body = JsonOf(outcome.created ? "created" : done, id);
    if (outcome.created) {
      reply->headers = text::Cat("Location: ", kRuleSetsPath, "/", id, "\r\n");
    }
    reply->Send(outcome.created ? 201 : 200);
  };
}

// The budgets of one key, asked for or made whole together.
struct KeyCall {
  explicit KeyCall(Reply own_reply) : reply(std::move(own_reply)) {}

  Reply reply;
  std::shared_ptr<const service::Catalog> catalog;
  std::string key;
  std::vector<KeyBand> bands;
  std::vector<Charge> charges;
  std::vector<Request> requests;
  std::vector<Expected<bool>> held;   // Of a reset.
  std::atomic<std::size_t> open = 1;  // Under way, and one for whoever starts them.
};

void AnswerInspection(KeyCall& call) {
  JsonWriter json(call.reply.body);
  json.BeginObject().BytesField("key", call.key).Field("generation", call.catalog->generation);
  json.Key("bands").BeginArray();
  for (std::size_t i = 0; i < call.bands.size(); ++i) {
    const auto& [rule, band, key] = call.bands[i];
    json.BeginObject().Field("rule", rule->id).Field("band", band->label);
    json.Field("spec", band->limit.ToString());
    if (const auto& outcome = call.requests[i].outcome) {
      AppendDecision(json, *outcome);
      AppendQueued(json, band->limit, *outcome);
      json.Field("source", SourceName(call.requests[i].source));
    } else {
      json.Field("error", ToString(outcome.error().code));
    }
    json.EndObject();
  }
  json.EndArray().EndObject();
  call.reply.Send(200);
}

void AnswerReset(KeyCall& call) {
  std::size_t reset = 0;
  for (const auto& held : call.held) {
    if (!held) return call.reply.Fail(held.error());
    reset += *held ? 1 : 0;
  }
  JsonWriter json(call.reply.body);
  json.BeginObject().BytesField("key", call.key).Field("bands", call.bands.size());
  json.Field("reset", reset).EndObject();
  call.reply.Send(200);
}

void LogReset(const KeyCall& call, const Author& author, std::string_view rule_set) {
  const auto was_held = [](const Expected<bool>& held) { return held.value_or(false); };
  const bool known = std::ranges::all_of(call.held, &Expected<bool>::has_value);
  const std::string target = text::Cat("key ", call.key, " of rule set ", rule_set);
  const std::string before = text::Cat(std::ranges::count_if(call.held, was_held), " of ",
                                       call.held.size(), " budgets used");
  LogChange(call.reply.logger(), author, call.reply.request_id(),
            {.action = "reset",
             .target = target,
             .before = before,
             .after = known ? "all full" : "unknown"});
}

// Finds the key's bands; answers, and returns nothing, if there are none.
std::shared_ptr<KeyCall> PrepareKey(service::Engine& engine, const Instruments& instruments,
                                    const http::Request& request, http::Exchange exchange,
                                    std::string_view rule_set) {
  auto call = std::make_shared<KeyCall>(Reply(std::move(exchange), request, instruments));
  call->catalog = engine.catalog();
  const rules::RuleSet* found = call->catalog->rules->Find(rule_set);
  if (!found) {
    call->reply.Fail(404, "NOT_FOUND", text::Cat("there is no rule set ", text::Quote(rule_set)));
    return nullptr;
  }
  std::array wanted = {net::WantedParameter{.name = "key"}, net::WantedParameter{.name = "rule"}};
  std::string scratch;
  if (const auto read = net::ReadQuery(request.query, wanted, scratch); !read) {
    call->reply.Fail(400, "INVALID_QUERY", read.error().message);
    return nullptr;
  }
  if (!wanted[0].value || wanted[0].value->empty()) {
    call->reply.Fail(400, "INVALID_KEY", text::Cat("expected ?key=", kKeysAsShown));
    return nullptr;
  }
  call->key = *wanted[0].value;
  call->bands = BandsOf(*found, call->key);
  if (wanted[1].value) {
    std::erase_if(call->bands,
                  [&](const KeyBand& band) { return band.rule->id != *wanted[1].value; });
  }
  if (call->bands.empty()) {
    const std::string under =
        wanted[1].value ? text::Cat(" under the rule ", text::Quote(*wanted[1].value)) : "";
    call->reply.Fail(404, "NOT_FOUND",
                     text::Cat("the rule set ", text::Quote(rule_set), " has no band for this key",
                               under, "; expected ", kKeysAsShown));
    return nullptr;
  }
  // Not as it was asked for: that may be a secret.
  call->key = call->bands.front().key;
  for (const KeyBand& band : call->bands) {
    call->charges.push_back({.key = band.key,
                             .limit = &band.band->limit,
                             .name = band.band->name,
                             .cost = 0,
                             .on_store_failure = OnStoreFailure::kFailClosed});
  }
  return call;
}

}  // namespace

AdminApi::AdminApi(Parts parts)
    : parts_(std::move(parts)),
      descriptors_(parts_.engine, parts_.instruments),
      router_(parts_.instruments, "docs/reference/admin-api.md") {
  AddRoutes();
}

void AdminApi::AddRoutes() {
  // NOLINTBEGIN(performance-unnecessary-value-param): an exchange is handed over.
  using Plain = void (AdminApi::*)(const http::Request&, http::Exchange) const;
  using WithId = void (AdminApi::*)(const http::Request&, http::Exchange, std::string_view) const;
  const auto plain = [&](std::string_view method, std::string_view path, Plain action) {
    router_.Add(
        method, path,
        [this, action](const http::Request& request, http::Exchange exchange, std::string_view) {
          (this->*action)(request, std::move(exchange));
        });
  };
  const auto with_id = [&](std::string_view method, std::string_view path, WithId action) {
    router_.Add(
        method, path,
        [this, action](const http::Request& request, http::Exchange exchange, std::string_view id) {
          (this->*action)(request, std::move(exchange), id);
        });
  };
  const auto enable = [&](std::string_view path, Switch to) {
    router_.Add(
        "POST", path,
        [this, to](const http::Request& request, http::Exchange exchange, std::string_view id) {
          SetEnabled(request, std::move(exchange), id, to);
        });
  };
  // NOLINTEND(performance-unnecessary-value-param)
  plain("GET", "/admin/v1/status", &AdminApi::Status);
  plain("GET", "/admin/v1/rule-sets", &AdminApi::ListRuleSets);
  plain("POST", "/admin/v1/rule-sets", &AdminApi::CreateRuleSet);
  plain("POST", "/admin/v1/validate", &AdminApi::Validate);
  with_id("GET", "/admin/v1/rule-sets/{id}", &AdminApi::ReadRuleSet);
  with_id("PUT", "/admin/v1/rule-sets/{id}", &AdminApi::ReplaceRuleSet);
  with_id("DELETE", "/admin/v1/rule-sets/{id}", &AdminApi::DeleteRuleSet);
  enable("/admin/v1/rule-sets/{id}/enable", Switch::kOn);
  enable("/admin/v1/rule-sets/{id}/disable", Switch::kOff);
  with_id("GET", "/admin/v1/rule-sets/{id}/keys", &AdminApi::InspectKey);
  with_id("DELETE", "/admin/v1/rule-sets/{id}/keys", &AdminApi::ResetKey);
  descriptors_.AddRoutes(router_);
  plain("GET", "/admin/v1/top", &AdminApi::Top);
  plain("POST", "/admin/v1/reload", &AdminApi::Reload);
  plain("GET", "/admin/v1/log-level", &AdminApi::ReadLogLevel);
  plain("PUT", "/admin/v1/log-level", &AdminApi::SetLogLevel);
}

void AdminApi::Handle(const http::Request& request, http::Exchange exchange) {
  if (Admits(request, exchange)) router_.Route(request, std::move(exchange));
}

bool AdminApi::Admits(const http::Request& request, http::Exchange& exchange) const {
  if (!parts_.access.open()) {
    const std::string_view token = net::BearerToken(request.FindHeader("Authorization"));
    if (parts_.access.Knows(token)) return true;
    Reply(std::move(exchange), request, parts_.instruments)
        .FailUnauthorized("expected the admin token: Authorization: Bearer …");
    return false;
  }
  if (request.peer.is_loopback() && IsLocalName(request.host) &&
      request.FindHeader("Origin").empty()) {
    return true;
  }
  Reply(std::move(exchange), request, parts_.instruments)
      .Fail(403, "FORBIDDEN",
            "without a token, only programs on this machine are answered; set admin.token");
  return false;
}

Author AdminApi::AuthorOf(const http::Request& request) const {
  return Author::Of(request, parts_.access);
}

void AdminApi::ListRuleSets(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const auto catalog = parts_.engine.catalog();
  JsonWriter json(reply.body);
  json.BeginObject().Field("generation", catalog->generation);
  json.Field("managedBy", parts_.keeper.managed_by()).Key("ruleSets").BeginArray();
  for (const auto& rule_set : catalog->rules->rule_sets()) AppendSummary(json, *rule_set, *catalog);
  json.EndArray().EndObject();
  reply.Send(200);
}

void AdminApi::ReadRuleSet(const http::Request& request, http::Exchange exchange,
                           std::string_view id) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const auto catalog = parts_.engine.catalog();
  const rules::RuleSet* rule_set = catalog->rules->Find(id);
  if (!rule_set) {
    return reply.Fail(404, "NOT_FOUND", text::Cat("there is no rule set ", text::Quote(id)));
  }
  reply.headers = text::Cat("ETag: \"", rule_set->hash(), "\"\r\n");
  if (IsListed(UnwantedTags(request), rule_set->hash())) return reply.Send(304, {});
  reply.body = rule_set->ToJson();
  reply.Send(200);
}

// A large document takes longer to read than a loop may be held up.
void AdminApi::CreateRuleSet(const http::Request& request, http::Exchange exchange) const {
  auto reply = std::make_shared<Reply>(std::move(exchange), request, parts_.instruments);
  parts_.keeper.Post([this, reply, body = std::string(request.body),
                      author = AuthorOf(request)]() mutable {
    const auto parsed = rules::ParseRuleSet(body, "body");
    if (!parsed) return reply->Fail(parsed.error());
    const std::string& id = (*parsed)->id();
    parts_.keeper.Create(id, std::move(body), AnswerWith(reply, std::move(author), "created", id));
  });
}

void AdminApi::ReplaceRuleSet(const http::Request& request, http::Exchange exchange,
                              std::string_view id) const {
  auto reply = std::make_shared<Reply>(std::move(exchange), request, parts_.instruments);
  parts_.keeper.Post([this, reply, id = std::string(id), body = std::string(request.body),
                      condition = ConditionOf(request), author = AuthorOf(request)]() mutable {
    const auto parsed = rules::ParseRuleSet(body, "body");
    if (!parsed) return reply->Fail(parsed.error());
    if ((*parsed)->id() != id) {
      return reply->Fail(400, "INVALID_INPUT",
                         text::Cat("the body's id is ", text::Quote((*parsed)->id()), "; expected ",
                                   text::Quote(id)));
    }
    parts_.keeper.Save(id, std::move(body), std::move(condition),
                       AnswerWith(reply, std::move(author), "replaced", id));
  });
}

void AdminApi::DeleteRuleSet(const http::Request& request, http::Exchange exchange,
                             std::string_view id) const {
  auto reply = std::make_shared<Reply>(std::move(exchange), request, parts_.instruments);
  parts_.keeper.Remove(std::string(id), ConditionOf(request),
                       AnswerWith(reply, AuthorOf(request), "deleted", std::string(id)));
}

void AdminApi::SetEnabled(const http::Request& request, http::Exchange exchange,
                          std::string_view id, Switch to) const {
  auto reply = std::make_shared<Reply>(std::move(exchange), request, parts_.instruments);
  const bool enabled = to == Switch::kOn;
  parts_.keeper.Change(
      std::string(id),
      [enabled](const rules::RuleSet& rule_set) {
        rules::RuleSetSpec spec = rule_set.spec();
        spec.enabled = enabled;
        return rules::RuleSet::Compile(std::move(spec))->ToJson();
      },
      ConditionOf(request),
      AnswerWith(reply, AuthorOf(request), enabled ? "enabled" : "disabled", std::string(id)));
}

void AdminApi::Validate(const http::Request& request, http::Exchange exchange) const {
  auto reply = std::make_shared<Reply>(std::move(exchange), request, parts_.instruments);
  parts_.keeper.Post([reply, body = std::string(request.body)] {
    const auto parsed = rules::ParseRuleSet(body, "body");
    if (!parsed) return reply->Fail(parsed.error());
    JsonWriter json(reply->body);
    json.BeginObject().Field("valid", true).Field("id", (*parsed)->id());
    json.Field("rules", (*parsed)->rules().size());
    if (const Problems& warnings = (*parsed)->spec().warnings; !warnings.empty()) {
      json.Key("warnings").BeginArray();
      for (const Problem& warning : warnings) {
        json.BeginObject().Field("line", warning.line).Field("column", warning.column);
        json.Field("message", warning.message).EndObject();
      }
      json.EndArray();
    }
    json.EndObject();
    reply->Send(200);
  });
}

void AdminApi::InspectKey(const http::Request& request, http::Exchange exchange,
                          std::string_view rule_set) const {
  const auto call =
      PrepareKey(parts_.engine, parts_.instruments, request, std::move(exchange), rule_set);
  if (!call) return;
  for (const Charge& charge : call->charges) {
    call->requests.push_back({.charges = {&charge, 1}, .now = {}, .each = {}});
  }
  parts_.engine.Apply(call->requests, [call] { AnswerInspection(*call); });
}

void AdminApi::ResetKey(const http::Request& request, http::Exchange exchange,
                        std::string_view rule_set) const {
  const auto call =
      PrepareKey(parts_.engine, parts_.instruments, request, std::move(exchange), rule_set);
  if (!call) return;
  call->held.assign(call->charges.size(), false);
  const auto finish = [call, author = AuthorOf(request), id = std::string(rule_set)] {
    if (call->open.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    LogReset(*call, author, id);
    AnswerReset(*call);
  };
  for (std::size_t i = 0; i < call->charges.size(); ++i) {
    call->open.fetch_add(1, std::memory_order_relaxed);
    parts_.engine.Reset(call->charges[i], [call, i, finish](Expected<bool> held) {
      call->held[i] = std::move(held);
      finish();
    });
  }
  finish();
}

void AdminApi::Top(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  std::array wanted = {net::WantedParameter{.name = "by"}, net::WantedParameter{.name = "n"}};
  std::string scratch;
  if (const auto read = net::ReadQuery(request.query, wanted, scratch); !read) {
    return reply.Fail(400, "INVALID_QUERY", read.error().message);
  }
  const std::string_view by = wanted[0].value.value_or("denied");
  const auto n = text::ParseInteger(wanted[1].value.value_or(std::to_string(kTopDefault)));
  if ((by != "denied" && by != "busy") || !n || *n < 1 ||
      *n > static_cast<std::int64_t>(HeavyHitters::kTopMax)) {
    return reply.Fail(
        400, "INVALID_QUERY",
        text::Cat("expected ?by=denied or ?by=busy, and n from 1 to ", HeavyHitters::kTopMax));
  }
  const auto kind = by == "busy" ? HeavyHitters::Kind::kBusy : HeavyHitters::Kind::kDenied;
  JsonWriter json(reply.body);
  json.BeginObject().Field("by", by).Key("keys").BeginArray();
  for (const auto& entry :
       parts_.keys.Top(kind, static_cast<std::size_t>(*n), std::chrono::steady_clock::now())) {
    json.BeginObject().BytesField("key", entry.key).Field("cut", entry.cut);
    json.Field("countAtMost", entry.count).Field("countAtLeast", entry.count - entry.error);
    json.EndObject();
  }
  json.EndArray().EndObject();
  reply.Send(200);
}

void AdminApi::Reload(const http::Request& request, http::Exchange exchange) const {
  auto reply = std::make_shared<Reply>(std::move(exchange), request, parts_.instruments);
  const std::uint64_t generation = parts_.engine.catalog()->generation;
  parts_.reload([reply, &engine = parts_.engine, author = AuthorOf(request),
                 generation](const reload::Keeper::Outcome& outcome) {
    const std::string before = text::Cat("generation=", generation);
    const std::string after = text::Cat("generation=", engine.catalog()->generation,
                                        " problems=", outcome.problems.size());
    LogChange(reply->logger(), author, reply->request_id(),
              {.action = "reloaded", .target = "files", .before = before, .after = after});
    if (!outcome.problems.empty()) return reply->Fail(outcome.problems);
    JsonWriter(reply->body)
        .BeginObject()
        .Field("generation", engine.catalog()->generation)
        .EndObject();
    reply->Send(200);
  });
}

void AdminApi::ReadLogLevel(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  reply.body = JsonOf("level", ToString(parts_.instruments.logger.level()));
  reply.Send(200);
}

void AdminApi::SetLogLevel(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  std::array wanted = {net::WantedParameter{.name = "level"}};
  std::string scratch;
  const auto read = net::ReadQuery(request.query, wanted, scratch);
  const auto level = telemetry::ParseLogLevel(read ? wanted[0].value.value_or("") : "");
  if (!level) return reply.Fail(400, "INVALID_LEVEL", "?level=: " + level.error().message);
  telemetry::Logger& logger = parts_.instruments.logger;
  const telemetry::LogLevel before = logger.level();
  const auto log = [&] {
    LogChange(logger, AuthorOf(request), reply.request_id(),
              {.action = "set",
               .target = "log level",
               .before = ToString(before),
               .after = ToString(*level)});
  };
  // Under the level that lets more through.
  if (*level > before) log();
  logger.set_level(*level);
  if (*level <= before) log();
  reply.body = JsonOf("level", ToString(*level));
  reply.Send(200);
}

void AdminApi::Status(const http::Request& request, http::Exchange exchange) const {
  Reply reply(std::move(exchange), request, parts_.instruments);
  const Health health = parts_.health();
  JsonWriter json(reply.body);
  json.BeginObject().Field("generation", parts_.engine.catalog()->generation);
  json.Field("draining", health.draining).Key("store");
  AppendStore(json, health.store);
  json.Key("rules");
  AppendRules(json, parts_.keeper.status(), parts_.keeper.managed_by());
  json.Key("reload");
  AppendReload(json, health.reload);
  json.Key("guard").Raw(parts_.guard_status()).EndObject();
  reply.Send(200);
}

}  // namespace sluice::api
