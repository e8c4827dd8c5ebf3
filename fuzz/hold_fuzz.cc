// SPDX-License-Identifier: Apache-2.0
// What clients say about holds over HTTP. An id is refused, or it is the text that was returned
// when the hold was made. A body is refused with a message, or it says the same when it is written
// anew, and can be done.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/hold_document.h"
#include "base/base64url.h"
#include "base/digest.h"
#include "base/duration.h"
#include "service/hold_call.h"
#include "service/limit_hold.h"
#include "service/rule_check.h"
#include "support/renewable_store.h"
#include "support/resp_session.h"

namespace {

namespace json = boost::json;
using sluice::Error;
using sluice::api::HoldDocument;
using sluice::service::HoldCall;
using sluice::service::HoldTicket;
using sluice::testing_support::RenewableStore;
using sluice::testing_support::RespEngine;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

void ExpectClear(const Error& error) {
  Expect(!error.outage() && !error.message.empty() && error.message.size() < 1'000);
  for (const char c : error.message) Expect(c >= ' ' && c <= '~');
}

// An engine whose store is empty.
sluice::service::Engine& NewEngine() {
  static RenewableStore store;
  static RespEngine parts(&store);
  store.Renew(parts.clock);
  return parts.engine;
}

// The text of an id that has these bytes, with the check at its end. See hold_ticket.cc.
std::string Sealed(std::string_view bytes) {
  std::string check;
  sluice::AppendSha256(check, bytes);
  std::string text;
  sluice::text::AppendBase64Url(text, std::string(bytes) + check.substr(0, 4));
  return text;
}

// Returns whether it was done.
bool Run(HoldCall& call, sluice::service::Engine& engine) {
  bool answered = false;
  call.Run(engine, [&] { answered = true; });
  Expect(answered);
  if (!call.decision()) ExpectClear(call.decision().error());
  return call.decision().has_value();
}

void CheckId(std::string_view text) {
  const auto ticket = HoldTicket::Parse(text);
  if (!ticket) return ExpectClear(ticket.error());
  Expect(ticket->ToText() == text);
  auto& engine = NewEngine();
  HoldCall first(engine.catalog());
  Expect(first.Open(text).has_value());
  first.Settle();
  if (!Run(first, engine)) return;
  HoldCall again(engine.catalog());
  Expect(again.Open(text).has_value());
  again.Release();
  Expect(Run(again, engine));
  Expect(*again.decision() == *first.decision());
  Expect(again.terms().late == first.terms().late && !again.terms().overdrawn);
}

void CheckMade(const HoldTicket& ticket) {
  const auto text = ticket.ToText();
  if (!text) return ExpectClear(text.error());
  const auto parsed = HoldTicket::Parse(*text);
  Expect(parsed && parsed->ToText() == *text && parsed->parts.size() == ticket.parts.size());
}

void Make(const HoldDocument& document) {
  auto& engine = NewEngine();
  const sluice::service::HoldWish wish{
      .id = document.id, .ttl = document.ttl, .on_expiry = document.on_expiry};
  if (document.limit.empty()) {
    sluice::service::RuleCheck check(engine.catalog());
    const auto ready = check.PrepareHold(document.check.rule_set, document.check.context,
                                         document.check.permits, wish);
    if (!ready) return ExpectClear(ready.error());
    check.Run(engine, [] {});
    if (!check.decision()) return ExpectClear(check.decision().error());
    if (!check.refuses()) CheckMade(check.MakeTicket());
    return;
  }
  sluice::service::LimitHold hold(engine.catalog());
  const auto ready = hold.Prepare(
      {.limit = document.limit, .key = document.key, .cost = document.check.permits, .wish = wish});
  if (!ready) return ExpectClear(ready.error());
  hold.Run(engine, [] {});
  if (!hold.decision()) return ExpectClear(hold.decision().error());
  if (hold.decision()->allowed) CheckMade(hold.MakeTicket());
}

void CheckMakeBody(std::string_view body) {
  auto value = sluice::api::ParseJson(body);
  if (!value) return ExpectClear(value.error());
  const auto document = HoldDocument::Read(*value);
  if (!document) return ExpectClear(document.error());
  Expect(document->limit.empty() != document->check.rule_set.empty());

  json::value written = *value;
  json::object& members = written.get_object();
  members["permits"] = document->check.permits;
  if (document->ttl) members["ttl"] = sluice::text::FormatDuration(*document->ttl);
  if (document->on_expiry) members["onExpiry"] = std::string(ToString(*document->on_expiry));
  const auto again = HoldDocument::Read(written);
  Expect(again && again->limit == document->limit && again->key == document->key &&
         again->id == document->id && again->ttl == document->ttl &&
         again->on_expiry == document->on_expiry &&
         again->check.rule_set == document->check.rule_set &&
         again->check.permits == document->check.permits);
  Make(*document);
}

// The id of a hold on two rules.
const std::string& Held() {
  static const std::string id = [] {
    HoldTicket ticket{.id = "h", .ttl = sluice::Micros{60'000'000}};
    for (const std::string_view name : {"llm/tokens/tpm", "llm/streams/open"}) {
      ticket.parts.push_back({.key = "user:u",
                              .limit = name.ends_with("tpm")
                                           ? *sluice::Limit::Parse("algorithm=fixed_window,"
                                                                   "limit=1000,window=1d")
                                           : *sluice::Limit::Parse("algorithm=concurrency,"
                                                                   "limit=2,ttl=30s"),
                              .name = std::string(name),
                              .held = 1});
    }
    return *ticket.ToText();
  }();
  return id;
}

std::vector<std::int64_t> ActualOf(const HoldCall& call) {
  std::vector<std::int64_t> actual;
  for (const auto& outcome : call.outcomes()) actual.push_back(outcome.actual);
  return actual;
}

void CheckSettleBody(std::string_view body) {
  auto& engine = NewEngine();
  HoldCall call(engine.catalog());
  Expect(call.Open(Held()).has_value());
  const auto read = sluice::api::ReadSettle(call, body);
  if (!read) return ExpectClear(read.error());
  if (!Run(call, engine)) return;
  const std::vector<std::int64_t> actual = ActualOf(call);
  Expect(actual.size() == 2 && actual[0] >= 0 && actual[1] >= 0);
  Expect(call.decision()->held == 0 && call.terms().late);

  const json::object written{
      {"permits", json::object{{"tokens", actual[0]}, {"streams", actual[1]}}}};
  HoldCall again(engine.catalog());
  Expect(again.Open(Held()).has_value());
  Expect(sluice::api::ReadSettle(again, json::serialize(written)).has_value());
  Expect(Run(again, engine) && ActualOf(again) == actual);
}

void CheckExtendBody(std::string_view body) {
  auto& engine = NewEngine();
  HoldCall call(engine.catalog());
  Expect(call.Open(Held()).has_value());
  const auto read = sluice::api::ReadExtend(call, body);
  if (!read) return ExpectClear(read.error());
  Expect(!Run(call, engine) && call.decision().error().code == sluice::ErrorCode::kHoldLost);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      CheckId(text);
      break;
    case 1:
      CheckId(Sealed(text));
      break;
    case 2:
      CheckMakeBody(text);
      break;
    default:
      CheckSettleBody(text);
      CheckExtendBody(text);
  }
  return 0;
}
