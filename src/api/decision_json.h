// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/json_writer.h"
#include "core/algorithms.h"
#include "service/rate_limit_fields.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice::api {

// The message for a look: nothing was taken, and what a request of 1 would get.
constexpr std::string_view LookMessage(bool allowed) {
  return allowed ? "Nothing was charged; a request of 1 would be allowed"
                 : "Nothing was charged; a request of 1 would be denied";
}

// The fields of a decision, inside an object: whole seconds, rounded up, for display, and
// microseconds for computing.
inline void AppendDecision(JsonWriter& json, const Decision& decision) {
  json.Field("allowed", decision.allowed);
  json.Field("limit", decision.limit).Field("remaining", decision.remaining);
  json.Field("retryAfterSeconds", service::CeilSeconds(decision.retry_after));
  json.Field("resetAfterSeconds", service::CeilSeconds(decision.reset_after));
  json.Field("retryAfterMicros", decision.retry_after.count());
  json.Field("resetAfterMicros", decision.reset_after.count());
  json.Field("delayMicros", decision.delay.count());
  if (decision.held > 0) json.Field("held", decision.held);
}

// How much the limit holds, as a queue, if its algorithm is one.
inline void AppendQueued(JsonWriter& json, const Limit& limit, const Decision& decision) {
  if (!core::RowOf(limit.algorithm()).queues) return;
  json.Field("queued", decision.limit - decision.remaining);
}

}  // namespace sluice::api
