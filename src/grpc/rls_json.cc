// SPDX-License-Identifier: Apache-2.0
#include "grpc/rls_json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <memory>
#include <utility>

#include "base/parse_json.h"
#include "base/text.h"
#include "service/service_metrics.h"

namespace sluice::grpc {
namespace {

using envoy::service::ratelimit::v3::RateLimitRequest;
using Response = RlsBatch::Response;

// Protobuf's parser needs some hundred bytes of memory per level, and long for many values; it runs
// on the loop. Any useful request is far smaller.
constexpr std::size_t kBodyBytesMax = std::size_t{64} << 10;
constexpr std::size_t kDepthMax = 32;

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for messages that contain an Any.
  static_cast<void>(google::protobuf::util::MessageToJsonString(message, &json, options));
  return json;
}

JsonAnswer Failure(const service::Engine& engine, Status status) {
  engine.metrics().Failed(ToString(status.code));
  const int http_status = status.code == StatusCode::kInvalidArgument ? 400
                          : status.code == StatusCode::kUnavailable   ? 503
                                                                      : 500;
  google::protobuf::Struct error;
  (*error.mutable_fields())["error"].set_string_value(std::move(status.message));
  return {.http_status = http_status, .body = ToJson(error)};
}

JsonAnswer Answer(const service::Engine& engine, RlsBatch& batch) {
  std::string reply;
  Status status = batch.Answer(0, reply);
  if (!status.ok()) return Failure(engine, std::move(status));
  Response response;
  response.ParseFromString(reply);
  const bool over = response.overall_code() == Response::OVER_LIMIT;
  return {.http_status = over ? 429 : 200, .body = ToJson(response)};
}

}  // namespace

void HandleJson(service::Engine& engine, const RlsOptions& options, std::string_view body,
                std::move_only_function<void(JsonAnswer)> done, std::string_view request_id) {
  const auto refuse = [&](std::string message) {
    done(Failure(engine, {StatusCode::kInvalidArgument, std::move(message)}));
  };
  if (body.size() > kBodyBytesMax) {
    return refuse(text::Cat("a body of ", body.size(), " bytes; expected at most ", kBodyBytesMax));
  }
  // Protobuf's parser also accepts invalid JSON, and the last of two equal members.
  if (const auto json = ParseJson(body, kDepthMax); !json) {
    return refuse("the body: " + json.error().message);
  }
  RateLimitRequest request;
  google::protobuf::util::JsonParseOptions parse;
  parse.ignore_unknown_fields = true;  // Like the binary form.
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(body.data(), body.size()), &request, parse);
  if (!parsed.ok()) {
    return refuse("the body is not a RateLimitRequest: " + parsed.ToString());
  }
  const auto batch = std::make_shared<RlsBatch>(options);
  batch->Start(engine.catalog(), engine.Now());
  Status refused = batch->Add(request.SerializeAsString(), request_id);
  if (!refused.ok()) return done(Failure(engine, std::move(refused)));
  const std::span<Request> requests = batch->Requests();
  auto answer = [&engine, batch,
                 done = std::move(done)](const service::Engine::Span& span) mutable {
    batch->Count(engine, span);
    done(Answer(engine, *batch));
  };
  if (requests.empty()) return answer({});
  engine.ApplyParts(requests, std::move(answer));
}

}  // namespace sluice::grpc
