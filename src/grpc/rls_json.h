// SPDX-License-Identifier: Apache-2.0
// ShouldRateLimit as envoyproxy/ratelimit offers it over HTTP: a POST with a RateLimitRequest as
// JSON, answered with a RateLimitResponse as JSON.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "grpc/rls.h"
#include "service/engine.h"

namespace sluice::grpc {

struct JsonAnswer {
  // 200 if the request may pass, 429 if not, 400 if it is not valid, 503 if a store has failed and
  // its policy does not let the request pass, 500 otherwise.
  int http_status = 500;
  std::string body;  // JSON: the response, or {"error": "…"}.
};

// `done` is called exactly once, perhaps before this returns and perhaps on another thread. The
// body is used only during the call.
void HandleJson(service::Engine& engine, const RlsOptions& options, std::string_view body,
                std::move_only_function<void(JsonAnswer)> done, std::string_view request_id = {});

}  // namespace sluice::grpc
