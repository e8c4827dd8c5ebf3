// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/counter.h"

namespace sluice::grpc {

// For the connections of one loop.
struct Counters {
  net::Counter calls;
  net::Counter refused;             // Calls with invalid headers or messages.
  net::Counter deadlines_exceeded;  // Calls that took too long.
  net::Counter resets;              // Calls that the client gave up, or lost by its own errors.
  net::Counter floods;              // Connections closed because of one.
  net::Counter timeouts;            // Connections closed because the client was silent.
};

}  // namespace sluice::grpc
