// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/counter.h"

namespace sluice::grpc {

// Of the connections of one loop.
struct Counters {
  net::Counter calls;
  net::Counter refused;             // Calls whose headers or messages are not as they should be.
  net::Counter deadlines_exceeded;  // Calls that took longer than they may.
  net::Counter resets;              // Calls that the client gave up, or lost by errors of its own.
  net::Counter floods;              // Connections that were ended for one.
  net::Counter timeouts;            // Connections that were ended because the client was silent.
};

}  // namespace sluice::grpc
