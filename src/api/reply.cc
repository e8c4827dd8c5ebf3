// SPDX-License-Identifier: Apache-2.0
#include "api/reply.h"

#include <utility>

#include "base/json_writer.h"
#include "base/text.h"
#include "service/rate_limit_fields.h"

namespace sluice::api {
namespace {

constexpr std::size_t kUsualBytes = 320;

bool Accepts(std::string_view accept, std::string_view type) {
  while (!accept.empty()) {
    const auto comma = std::min(accept.find(','), accept.size());
    std::string_view part = accept.substr(0, comma);
    part = text::Trim(part.substr(0, part.find(';')));
    if (text::EqualsIgnoreCase(part, type)) return true;
    accept.remove_prefix(std::min(comma + 1, accept.size()));
  }
  return false;
}

}  // namespace

int StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidLimit:
    case ErrorCode::kInvalidKey:
    case ErrorCode::kInvalidCost:
    case ErrorCode::kCostExceedsLimit:
    case ErrorCode::kInvalidTime:
    case ErrorCode::kInvalidRequest:
    case ErrorCode::kInvalidInput:
    case ErrorCode::kNeedsHold:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kConflict:
    case ErrorCode::kHoldConflict:
    case ErrorCode::kTooManyHolds:
      return 409;
    case ErrorCode::kHoldLost:
      return 410;
    case ErrorCode::kPreconditionFailed:
      return 412;
    case ErrorCode::kTooLarge:
      return 413;
    case ErrorCode::kStoreFull:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kAccessDenied:
    case ErrorCode::kStoreError:
    case ErrorCode::kForeignState:
    case ErrorCode::kIo:
      return 503;
    case ErrorCode::kSnapshotDamaged:
      break;
  }
  return 500;
}

Reply::Reply(http::Exchange exchange, const http::Request& request, const Instruments& instruments)
    : exchange_(std::move(exchange)), instruments_(instruments) {
  // Enough for a decision on one limit, so that they need not grow.
  headers.reserve(kUsualBytes);
  body.reserve(kUsualBytes);
  std::string_view id;
  for (const http::Header& header : request.headers) {
    // By length first: this runs for every header of every request.
    switch (header.name.size()) {
      case 6:
        if (text::EqualsIgnoreCase(header.name, "accept")) {
          wants_problem_ = Accepts(header.value, service::kProblemContentType);
        }
        break;
      case 11:
        if (text::EqualsIgnoreCase(header.name, "traceparent") &&
            telemetry::IsTraceparent(header.value)) {
          traceparent_ = header.value;
        }
        break;
      case 12:
        if (text::EqualsIgnoreCase(header.name, "x-request-id")) id = header.value;
        break;
      default:
        break;
    }
  }
  id_ = telemetry::IdSource::OfThisThread().RequestIdFor(id);
  if (instruments_.logger.Enabled(telemetry::LogLevel::kDebug)) [[unlikely]] {
    logged_as_ = text::Cat(request.method_text, " ", request.path);
  }
}

void Reply::Send(int status, std::string_view content_type) {
  headers += "X-Request-Id: ";
  headers += id_.text();
  headers += "\r\n";
  if (!traceparent_.empty()) {
    headers += "traceparent: ";
    headers += traceparent_;
    headers += "\r\n";
  }
  instruments_.metrics.HttpResponse(status);
  if (!logged_as_.empty()) [[unlikely]] {
    instruments_.logger.Debug("answered", {{"request", logged_as_},
                                           {"status", status},
                                           {"request_id", id_.text()},
                                           {"traceparent", traceparent_}});
  }
  if (home_ != Mailbox::Here()) {
    return home_->Post([exchange = std::move(exchange_), status, type = std::string(content_type),
                        lines = std::move(headers), text = std::move(body)]() mutable {
      exchange.Respond({.status = status, .content_type = type, .headers = lines, .body = text});
    });
  }
  exchange_.Respond(
      {.status = status, .content_type = content_type, .headers = headers, .body = body});
}

void Reply::Fail(int status, std::string_view code, std::string_view message) {
  CountError(code);
  body.clear();
  if (wants_problem_) {
    service::AppendProblem(
        body,
        {.title = http::ReasonPhrase(status), .status = status, .detail = message, .code = code});
    return Send(status, service::kProblemContentType);
  }
  JsonWriter json(body);
  json.BeginObject().Key("error").BeginObject();
  json.Field("code", code).Field("message", message).EndObject().EndObject();
  Send(status);
}

void Reply::FailUnauthorized(std::string_view message) {
  headers += "WWW-Authenticate: Bearer\r\n";
  Fail(401, "UNAUTHORIZED", message);
}

void Reply::Fail(const Error& error) {
  Fail(StatusOf(error.code), ToString(error.code), error.message);
}

void Reply::Fail(const Problems& problems) {
  constexpr std::string_view kCode = "INVALID_INPUT";
  CountError(kCode);
  body.clear();
  JsonWriter json(body);
  json.BeginObject().Key("error").BeginObject();
  json.Field("code", kCode).Field("message", "not valid; see problems");
  json.Key("problems").BeginArray();
  for (const Problem& problem : problems) {
    json.BeginObject().Field("file", problem.file);
    json.Field("line", problem.line).Field("column", problem.column);
    json.Field("message", problem.message).EndObject();
  }
  json.EndArray().EndObject().EndObject();
  Send(400);
}

}  // namespace sluice::api
