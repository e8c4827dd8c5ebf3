// SPDX-License-Identifier: Apache-2.0
#include "api/rate_limit_api.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/decision_json.h"
#include "api/permits.h"
#include "api/reply.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/algorithms.h"
#include "core/seen.h"
#include "net/url.h"
#include "service/rate_limit_fields.h"

namespace sluice::api {
namespace {

using service::UpperName;

std::array<std::string, core::kAlgorithmCount> StatesIn(std::string_view place) {
  std::array<std::string, core::kAlgorithmCount> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = text::Cat(place, core::kAlgorithms[i].name);
  }
  return names;
}

// The names of the states of these checks, so that states stay when the defaults change. The budget
// of a client's address is separate from that of a key that a caller names: otherwise anyone who
// writes an address could use up its budget, or reset it.
const std::array kNamedStates = StatesIn("api/");
const std::array kAddressStates = StatesIn("address/");

std::string_view SingleMessage(const Decision& decision, bool looks) {
  if (looks) return LookMessage(decision.allowed);
  return decision.allowed ? "Request allowed" : "Rate limit exceeded";
}

}  // namespace

std::string_view NamedState(Algorithm algorithm) {
  return kNamedStates[static_cast<std::size_t>(algorithm)];
}

std::string_view AddressState(Algorithm algorithm) {
  return kAddressStates[static_cast<std::size_t>(algorithm)];
}

bool IsValidKey(std::string_view key) {
  return !key.empty() && key.size() <= kKeyBytesMax &&
         std::ranges::none_of(key, [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

Error InvalidKey(std::string_view key) {
  return {ErrorCode::kInvalidKey, text::Cat("key ", text::Quote(key), ": expected 1 to ",
                                            kKeyBytesMax, " bytes without control characters")};
}

struct RateLimitApi::Call {
  Call(http::Exchange exchange, const http::Request& http, const Instruments& instruments)
      : reply(std::move(exchange), http, instruments) {}

  Reply reply;
  std::string key;
  std::optional<Limit> limit;
  Charge charge{.key = {}, .limit = nullptr};
  Request request;
  SeenState seen;  // For looks.
  bool peek = false;

  bool looks() const { return charge.cost == 0; }
  TimePoint asked;  // Before the decision: a window that ends with a second ends there.
};

std::unique_ptr<RateLimitApi::Call> RateLimitApi::Read(const http::Request& request,
                                                       http::Exchange exchange,
                                                       Caller caller) const {
  auto call = std::make_unique<Call>(std::move(exchange), request, instruments_);
  const auto refuse = [&](std::string_view code, std::string_view message) {
    call->reply.Fail(400, code, message);
    return nullptr;
  };
  std::array wanted = {net::WantedParameter{.name = "algorithm"},
                       net::WantedParameter{.name = "key"},
                       net::WantedParameter{.name = "permits"}};
  std::string scratch;
  if (const auto read = net::ReadQuery(request.query, wanted, scratch); !read) {
    return refuse("INVALID_QUERY", read.error().message);
  }
  const auto& [algorithm_text, key, permits_text] = wanted;

  const auto algorithm = ParseAlgorithm(algorithm_text.value.value_or("TOKEN_BUCKET"));
  if (!algorithm) return refuse("INVALID_ALGORITHM", algorithm.error().message);
  if (key.value) {
    if (caller == Caller::kAnonymous) {
      call->reply.Fail(403, "FORBIDDEN",
                       "key: only callers with a token may name one; expected Authorization: "
                       "Bearer …, or no key, which asks for the caller's own address");
      return nullptr;
    }
    if (!IsValidKey(*key.value)) {
      call->reply.Fail(InvalidKey(*key.value));
      return nullptr;
    }
    call->key = *key.value;
  } else {
    call->key = ClientAddress(request, clients_);
  }
  const auto permits = ReadPermits(permits_text.value);
  if (!permits) return refuse("INVALID_PERMITS", permits.error());
  call->limit = engine_.catalog()->defaults.at(*algorithm);
  call->charge = {.key = call->key,
                  .limit = &*call->limit,
                  .name = key.value ? NamedState(*algorithm) : AddressState(*algorithm),
                  .cost = *permits,
                  .on_store_failure = on_store_failure_};
  call->request.charges = {&call->charge, 1};
  call->asked = engine_.Now();
  return call;
}

void RateLimitApi::Check(const http::Request& request, http::Exchange exchange,
                         Caller caller) const {
  auto call = Read(request, std::move(exchange), caller);
  if (!call) return;
  Call& it = *call;
  if (it.looks()) it.request.seen = {&it.seen, 1};
  engine_.Apply({&it.request, 1}, [this, call = std::move(call)] { Answer(*call); });
}

void RateLimitApi::Remaining(const http::Request& request, http::Exchange exchange,
                             Caller caller) const {
  auto call = Read(request, std::move(exchange), caller);
  if (!call) return;
  Call& it = *call;
  it.peek = true;
  it.charge.cost = 0;
  engine_.Apply({&it.request, 1}, [this, call = std::move(call)] { Answer(*call); });
}

void RateLimitApi::Answer(Call& call) const {
  Reply& reply = call.reply;
  if (!call.request.outcome) return reply.Fail(call.request.outcome.error());
  const Decision& decision = *call.request.outcome;
  const std::string_view algorithm = UpperName(call.limit->algorithm());
  const service::Policy policy{.name = algorithm, .limit = &*call.limit, .decision = decision};
  service::AppendRateLimitFields(reply.headers, decision, {&policy, 1}, call.asked);
  if (!decision.allowed && reply.wants_problem()) {
    service::AppendQuotaExceeded(reply.body, {&policy, 1});
    return reply.Send(429, service::kProblemContentType);
  }
  // A look is answered with what a request of 1 would get; the status is its own.
  const Decision told =
      call.looks() ? core::Foresee(*call.limit, decision, call.seen, 1) : decision;
  JsonWriter json(reply.body);
  json.BeginObject();
  if (!call.peek) json.Field("allowed", told.allowed);
  json.BytesField("key", call.key).Field("algorithm", algorithm);
  if (call.peek) json.Field("limit", decision.limit);
  json.Field("remaining", decision.remaining);
  json.Field("resetAfterSeconds", service::CeilSeconds(decision.reset_after));
  if (!call.peek) json.Field("retryAfterSeconds", service::CeilSeconds(told.retry_after));
  AppendQueued(json, *call.limit, decision);
  if (decision.held > 0) json.Field("held", decision.held);
  if (!call.peek && decision.delay > Micros{0}) {
    json.Field("delayMicros", decision.delay.count());
  }
  if (call.request.source != Source::kStore) json.Field("source", ToString(call.request.source));
  if (!call.peek) json.Field("message", SingleMessage(told, call.looks()));
  json.EndObject();
  reply.Send(decision.allowed ? 200 : 429);
}

void RateLimitApi::Reset(const http::Request& request, http::Exchange exchange) const {
  auto call = Read(request, std::move(exchange), Caller::kTrusted);
  if (!call) return;
  call->request = {.charges = {&call->charge, 1}, .action = Action::kReset};
  const std::span<Request> requests{&call->request, 1};
  engine_.Apply(requests, [call = std::move(call)] {
    if (!call->request.outcome) return call->reply.Fail(call->request.outcome.error());
    JsonWriter json(call->reply.body);
    json.BeginObject().BytesField("key", call->key);
    json.Field("algorithm", UpperName(call->limit->algorithm()));
    json.Field("message", "Rate limit reset").EndObject();
    call->reply.Send(200);
  });
}

}  // namespace sluice::api
