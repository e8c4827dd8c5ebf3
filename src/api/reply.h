// SPDX-License-Identifier: Apache-2.0
// Answers in the common format of the API.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/mailbox.h"
#include "base/problem.h"
#include "http/message.h"
#include "http/server.h"
#include "service/service_metrics.h"
#include "sluice/error.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace sluice::api {

inline constexpr std::string_view kJson = "application/json";

// Where answers are counted and logged.
struct Instruments {
  const service::ServiceMetrics& metrics;
  telemetry::Logger& logger;

  // For an answer that the HTTP server made itself.
  void CountRefusal(int status, std::string_view code) const {
    metrics.HttpResponse(status);
    metrics.Failed(code);
  }
};

// A request that will be answered, now or later: keeps what the answer needs.
class Reply {
 public:
  Reply(http::Exchange exchange, const http::Request& request, const Instruments& instruments);

  // Extra header lines and the body, to be filled before Send.
  std::string headers;
  std::string body;

  bool wants_problem() const { return wants_problem_; }  // According to Accept.
  std::string_view request_id() const { return id_.text(); }
  telemetry::Logger& logger() const { return instruments_.logger; }

  // On another thread, such as the keeper's, this passes the answer to the loop that asked.
  void Send(int status, std::string_view content_type = kJson);

  // {"error":{"code":…,"message":…}}, or problem+json for clients that ask for it.
  void Fail(int status, std::string_view code, std::string_view message);

  // 401: the caller must show a token.
  void FailUnauthorized(std::string_view message);

  // The same, with the status of the code.
  void Fail(const Error& error);

  // 400 with all of them.
  void Fail(const Problems& problems);

  // For an error inside an answer; Fail counts its own.
  void CountError(std::string_view code) const { instruments_.metrics.Failed(code); }

 private:
  http::Exchange exchange_;
  Mailbox* const home_ = Mailbox::Here();
  const Instruments& instruments_;
  telemetry::RequestId id_;
  std::string traceparent_;  // From the client, if it is valid.
  std::string logged_as_;    // Method and path, if the answer is to be logged.
  bool wants_problem_ = false;
};

// The HTTP status of an error: 400 for what the client did, 503 for an outage.
int StatusOf(ErrorCode code);

}  // namespace sluice::api
