// SPDX-License-Identifier: Apache-2.0
// The outcome of a gRPC call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::grpc {

// The gRPC codes that this server uses; the numbers are those on the wire.
enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
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

// The format of grpc-message: printable ASCII except '%' as it is, all else as %XX.
std::string PercentEncode(std::string_view text);

}  // namespace sluice::grpc
