// SPDX-License-Identifier: Apache-2.0
// The outcome of a gRPC call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::grpc {

// The gRPC codes that this server uses; the numbers are those on the wire.
enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

struct Status {
  StatusCode code = StatusCode::kOk;
  std::string message = {};

  bool ok() const { return code == StatusCode::kOk; }
  friend bool operator==(const Status&, const Status&) = default;
};

// The number as text, as in trailers. Static.
std::string_view ToText(StatusCode code);

// The gRPC name: "INVALID_ARGUMENT".
std::string_view ToString(StatusCode code);

// How sluice.v1.Limiter ends calls that fail; the message begins with the error's name.
Status StatusOf(const Error& error);

// The format of grpc-message: printable ASCII except '%' as it is, all else as %XX.
std::string PercentEncode(std::string_view text);

}  // namespace sluice::grpc
