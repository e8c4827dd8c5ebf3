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
#include "api/reply.h"
#include "api/top.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "net/url.h"
#include "rules/parse.h"

namespace sluice::api {
namespace {

constexpr std::string_view kRuleSetsPath = "/admin/v1/rule-sets";

// The entity tags in a field, over all of its lines.
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

// Whether a rule set is listed; without a hash there is none, so it is not.
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

// The conditions of a request that changes a rule set: If-Match and If-None-Match of RFC 9110.
reload::Keeper::Condition ConditionOf(const http::Request& request) {
  auto wanted = TagsOf(request, "If-Match");
  auto unwanted = UnwantedTags(request);
  if (wanted.empty() && unwanted.empty()) return nullptr;
  return [wanted = std::move(wanted),
          unwanted = std::move(unwanted)](std::optional<std::string_view> hash) {
    return (wanted.empty() || IsListed(wanted, hash)) && !IsListed(unwanted, hash);
  };
}

// A page can make a browser send requests here under a name that resolves to this machine, but that
// name is then not one of these.
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

// More than the public /health shows: which documents are not in force, and why.
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
  if (error.code == ErrorCode::kPreconditionFailed) {
    return reply.Fail(
        412, "PRECONDITION_FAILED",
        text::Cat(error.message, "; expected what If-Match and If-None-Match say of its ETag"));
  }
  reply.Fail(error);
}

// Answers with the result of a change, and logs it: 201 and its location if it created a rule set,
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

}  // namespace

AdminApi::AdminApi(Parts parts)
    : parts_(std::move(parts)),
      keys_(parts_.engine, parts_.instruments, parts_.access),
      descriptors_(parts_.engine, parts_.instruments, parts_.access),
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
  keys_.AddRoutes(router_);
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

// Reading a large document takes longer than a loop may be blocked.
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

void AdminApi::Top(const http::Request& request, http::Exchange exchange) const {
  AnswerTop(parts_.engine, parts_.keys, Reply(std::move(exchange), request, parts_.instruments),
            request.query);
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
  // Logs while the more verbose level is set.
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
