// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/reply.h"
#include "http/message.h"
#include "http/server.h"
#include "service/engine.h"
#include "telemetry/heavy_hitters.h"

namespace sluice::api {

// Answers GET /admin/v1/top: whose requests were denied, and by what; who is busy; whose budget is
// nearly used up; and whom shadow rules would have denied.
void AnswerTop(service::Engine& engine, const telemetry::HeavyHitters& keys, Reply reply,
               std::string_view query);

}  // namespace sluice::api
