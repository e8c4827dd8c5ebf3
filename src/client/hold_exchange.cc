// SPDX-License-Identifier: Apache-2.0
#include "client/hold_exchange.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <optional>

#include "base/base64url.h"
#include "base/duration.h"
#include "base/json_writer.h"
#include "base/parse_json.h"
#include "base/text.h"

namespace sluice::client {
namespace {

namespace json = boost::json;
using text::Cat;

constexpr std::size_t kDepthMax = 16;
constexpr std::array<std::string_view, 5> kContextFields = {"ip", "userId", "apiKey", "method",
                                                            "path"};

bool IsContextField(std::string_view name) {
  return std::ranges::find(kContextFields, name) != kContextFields.end();
}

// An empty object if it is none.
json::object ObjectIn(std::string_view body) {
  auto value = ParseJson(body, kDepthMax);
  return value && value->is_object() ? std::move(value->get_object()) : json::object();
}

std::string TextOf(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::int64_t NumberOf(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value && value->is_int64() ? value->get_int64() : 0;
}

// For somebody's terminal. Unicode has controls beyond those of ASCII: U+0080 to U+009F.
std::string WithoutControls(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_pair =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    out += byte < ' ' || byte == 0x7f || is_pair ? '?' : text[i];
    if (is_pair) ++i;
  }
  return out;
}

struct Failure {
  std::string code;
  std::string message;
};

Failure FailureIn(const Response& response) {
  const json::object body = ObjectIn(response.body);
  const json::value* const error = body.if_contains("error");
  Failure failure;
  if (error && error->is_object()) {
    failure = {TextOf(error->get_object(), "code"), TextOf(error->get_object(), "message")};
  }
  // Somebody else may answer, such as a proxy.
  failure.message = failure.code.empty() ? Cat("the server answered ", response.status)
                                         : Cat(failure.code, ": ", failure.message);
  failure.message = WithoutControls(failure.message);
  return failure;
}

bool IsPassing(int status) { return status == 408 || status == 429 || status >= 500; }

Answer Failed(const Response& response) {
  using Kind = Answer::Kind;
  const Kind kind = response.status == 410       ? Kind::kLost
                    : IsPassing(response.status) ? Kind::kAway
                                                 : Kind::kRefused;
  return {.kind = kind,
          .outcome = kind == Kind::kAway ? Answer::Outcome::kUnknown : Answer::Outcome::kNotMade,
          .message = FailureIn(response).message};
}

Answer Denied(const json::object& body) {
  const std::int64_t retry_us = NumberOf(body, "retryAfterMicros");
  const Micros retry_after{std::clamp(retry_us, std::int64_t{0}, kSpanMax.count())};
  const std::int64_t held = NumberOf(body, "held");
  return {.kind = Answer::Kind::kDenied,
          .outcome = Answer::Outcome::kGivenUp,
          .retry_after = retry_after,
          .may_pass_sooner = held > 0,
          .message = Cat("denied, ", NumberOf(body, "remaining"), " of ", NumberOf(body, "limit"),
                         " left", held > 0 ? Cat(", ", held, " on hold") : std::string())};
}

}  // namespace

Expected<std::pair<std::string, std::string>> ParseContext(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput,
              Cat("--context ", text::Quote(text), ": expected NAME=VALUE, such as userId=ann")});
  }
  return std::pair{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

std::string MakeBody(const HoldWish& wish, std::string_view id) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  if (wish.rule_set.empty()) {
    json.Field("limit", wish.limit).Field("key", wish.key);
  } else {
    json.Field("ruleSet", wish.rule_set).Key("context").BeginObject();
    for (const auto& [name, value] : wish.context) {
      if (IsContextField(name)) json.Field(name, value);
    }
    json.Key("attributes").BeginObject();
    for (const auto& [name, value] : wish.context) {
      if (!IsContextField(name)) json.Field(name, value);
    }
    json.EndObject().EndObject();
  }
  json.Field("permits", wish.permits).Field("ttl", text::FormatDuration(wish.ttl));
  json.Field("id", id).EndObject();
  return body;
}

Made ReadMade(const Response& response) {
  using Kind = Answer::Kind;
  using Outcome = Answer::Outcome;
  const json::object body = ObjectIn(response.body);
  if (response.status == 429 && body.contains("allowed")) return {.answer = Denied(body)};
  if (response.status == 201) {
    const json::value* const holds = body.if_contains("holds");
    const bool is_answer = holds && holds->is_bool();
    std::string ticket = TextOf(body, "id");
    // It goes into the targets of requests.
    const bool is_ticket = !ticket.empty() && text::ParseBase64Url(ticket);
    if (is_answer && holds->get_bool() && is_ticket) return {.ticket = std::move(ticket)};
    if (!is_answer || holds->get_bool()) {
      return {.answer = {.kind = Kind::kRefused,
                         .outcome = Outcome::kUnknown,
                         .message = "the server answered 201, but not as Sluice does"}};
    }
    const bool is_outage = TextOf(body, "source") == "fail-open";
    return {.answer = {.kind = is_outage ? Kind::kAway : Kind::kRefused,
                       .outcome = Outcome::kGivenUp,
                       .message = is_outage ? "the service cannot ask its store, so nothing is held"
                                            : "no limit applies, so nothing is held"}};
  }
  Made made{.answer = Failed(response)};
  const std::string code = FailureIn(response).code;
  if (code == "HOLD_CONFLICT") {
    made.answer.kind = Kind::kAway;
    made.answer.outcome = Outcome::kGivenUp;
  }
  if (code == "TOO_MANY_HOLDS") {
    made.answer.kind = Kind::kDenied;
    made.answer.outcome = Outcome::kGivenUp;
    made.answer.may_pass_sooner = true;
  }
  return made;
}

std::string ExtendBody(const HoldWish& wish) {
  std::string body;
  JsonWriter(body).BeginObject().Field("ttl", text::FormatDuration(wish.ttl)).EndObject();
  return body;
}

Answer ReadChanged(const Response& response) {
  return response.status == 200 ? Answer{} : Failed(response);
}

}  // namespace sluice::client
