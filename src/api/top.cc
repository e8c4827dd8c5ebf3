// SPDX-License-Identifier: Apache-2.0
#include "api/top.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/decision_json.h"
#include "api/key_search.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/seen.h"
#include "net/url.h"

namespace sluice::api {
namespace {

using telemetry::HeavyHitters;
using Kind = HeavyHitters::Kind;

constexpr std::size_t kTopDefault = 20;

constexpr std::array<std::pair<std::string_view, Kind>, 4> kKinds = {
    {{"denied", Kind::kDenied},
     {"busy", Kind::kBusy},
     {"near", Kind::kNear},
     {"shadow", Kind::kShadowDenied}}};

struct Question {
  std::string_view by = "denied";
  Kind kind = Kind::kDenied;
  std::size_t n = kTopDefault;
  std::optional<std::string> rule_set = {};
  std::optional<std::string> rule = {};

  bool Wants(std::string_view name) const {
    const StateName state = StateName::Read(name);
    return (!rule_set || state.rule_set == *rule_set) && (!rule || state.rule == *rule);
  }
};

// Answers, and returns nothing, if the query is wrong.
std::optional<Question> Read(std::string_view query, const service::Catalog& catalog,
                             Reply& reply) {
  std::array wanted = {net::WantedParameter{.name = "by"}, net::WantedParameter{.name = "n"},
                       net::WantedParameter{.name = "ruleSet"},
                       net::WantedParameter{.name = "rule"}};
  std::string scratch;
  if (const auto read = net::ReadQuery(query, wanted, scratch); !read) {
    reply.Fail(400, "INVALID_QUERY", read.error().message);
    return std::nullopt;
  }
  const auto& [by, n_text, rule_set, rule] = wanted;
  const auto kind = std::ranges::find(kKinds, by.value.value_or("denied"),
                                      &std::pair<std::string_view, Kind>::first);
  const auto n = text::ParseInteger(n_text.value.value_or(std::to_string(kTopDefault)));
  if (kind == kKinds.end() || !n || *n < 1 ||
      *n > static_cast<std::int64_t>(HeavyHitters::kTopMax)) {
    reply.Fail(400, "INVALID_QUERY",
               text::Cat("expected ?by=denied, busy, near or shadow, and n from 1 to ",
                         HeavyHitters::kTopMax));
    return std::nullopt;
  }
  Question question{.by = kind->first, .kind = kind->second, .n = static_cast<std::size_t>(*n)};
  if (rule_set.value) question.rule_set.emplace(*rule_set.value);
  if (rule.value) question.rule.emplace(*rule.value);
  if (rule_set.value && !catalog.rules->Find(*rule_set.value)) {
    reply.Fail(404, "NOT_FOUND", text::Cat("there is no rule set ", text::Quote(*rule_set.value)));
    return std::nullopt;
  }
  return question;
}

void AppendEntry(JsonWriter& json, const HeavyHitters::Entry& entry, Kind kind) {
  const StateName name = StateName::Read(entry.name);
  if (name.is_rule()) {
    json.Field("ruleSet", name.rule_set).Field("rule", name.rule);
    if (name.band.empty()) {
      json.Field("blocked", true);
    } else if (kind != Kind::kBusy) {
      // A busy key is busy under all bands of the rule.
      json.Field("band", name.band);
    }
  } else {
    json.Field("name", name.other);
  }
  json.BytesField("key", entry.key);
  if (const std::string ref = entry.cut ? "" : RefOf(entry.key); !ref.empty()) {
    json.Field("ref", ref);
  }
  json.Field("cut", entry.cut);
  json.Field("countAtMost", entry.count).Field("countAtLeast", entry.count - entry.error);
}

// Keys that were close to the end of their budgets, and what they have left now.
struct NearCall {
  struct Candidate {
    HeavyHitters::Entry entry;
    KeyLimit limit;
    SeenState seen = {};
    Charge charge = {.key = {}, .limit = nullptr};
  };

  Reply reply;
  std::size_t n;
  std::shared_ptr<const service::Catalog> catalog;
  std::vector<Candidate> candidates;
  std::vector<Request> requests;
};

void AnswerNear(NearCall& call) {
  struct Near {
    const NearCall::Candidate* candidate;
    Decision decision;
    double used;
  };
  std::vector<Near> found;
  for (std::size_t i = 0; i < call.candidates.size(); ++i) {
    const Request& request = call.requests[i];
    // Those that have recovered meanwhile are not near any more.
    if (!request.outcome || !service::IsNear(*request.outcome)) continue;
    const NearCall::Candidate& candidate = call.candidates[i];
    const Decision decision =
        core::Foresee(*candidate.limit.limit, *request.outcome, candidate.seen, 1);
    found.push_back({.candidate = &candidate,
                     .decision = decision,
                     .used = 1 - static_cast<double>(decision.remaining) /
                                     static_cast<double>(decision.limit)});
  }
  std::ranges::sort(found, [](const Near& a, const Near& b) {
    return a.used != b.used ? a.used > b.used : a.candidate < b.candidate;  // More requests first.
  });
  JsonWriter json(call.reply.body);
  json.BeginObject().Field("by", "near").Field("charged", false).Key("keys").BeginArray();
  for (const Near& near : std::span(found).first(std::min(call.n, found.size()))) {
    json.BeginObject();
    AppendEntry(json, near.candidate->entry, Kind::kNear);
    AppendDecision(json, near.decision);
    json.EndObject();
  }
  json.EndArray().EndObject();
  call.reply.Send(200);
}

// The counts tell who was near; the store tells whether they still are.
void LookWhoIsNear(service::Engine& engine, std::vector<HeavyHitters::Entry> entries,
                   std::shared_ptr<const service::Catalog> catalog, std::size_t n, Reply reply) {
  auto call = std::make_shared<NearCall>(NearCall{.reply = std::move(reply),
                                                  .n = n,
                                                  .catalog = std::move(catalog),
                                                  .candidates = {},
                                                  .requests = {}});
  for (HeavyHitters::Entry& entry : entries) {
    if (entry.cut) continue;
    KeyLimit limit = FindLimit(*call->catalog, entry.name, entry.key);
    if (!limit.limit) continue;
    call->candidates.push_back({.entry = std::move(entry), .limit = std::move(limit)});
  }
  if (call->candidates.empty()) return AnswerNear(*call);
  for (NearCall::Candidate& candidate : call->candidates) {
    candidate.charge = candidate.limit.look();
    call->requests.push_back({.charges = {&candidate.charge, 1}, .seen = {&candidate.seen, 1}});
  }
  const std::span<Request> requests = call->requests;
  engine.Apply(requests, [call = std::move(call)] { AnswerNear(*call); });
}

}  // namespace

void AnswerTop(service::Engine& engine, const HeavyHitters& keys, Reply reply,
               std::string_view query) {
  auto catalog = engine.catalog();
  const auto question = Read(query, *catalog, reply);
  if (!question) return;
  const bool near = question->kind == Kind::kNear;
  auto entries = keys.Top(question->kind, near ? HeavyHitters::kTopMax : question->n,
                          std::chrono::steady_clock::now(),
                          [&](std::string_view name) { return question->Wants(name); });
  if (near) {
    return LookWhoIsNear(engine, std::move(entries), std::move(catalog), question->n,
                         std::move(reply));
  }
  JsonWriter json(reply.body);
  json.BeginObject().Field("by", question->by).Key("keys").BeginArray();
  for (const HeavyHitters::Entry& entry : entries) {
    json.BeginObject();
    AppendEntry(json, entry, question->kind);
    json.EndObject();
  }
  json.EndArray().EndObject();
  reply.Send(200);
}

}  // namespace sluice::api
