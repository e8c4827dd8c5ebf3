// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include "net/access.h"
#include "sluice/store.h"

namespace sluice::resp {

// How much a peer may send at once; the same for every command.
struct Bounds {
  std::size_t arguments_max = 1'024;          // Of one command, including its name.
  std::size_t bulk_bytes_max = 64 << 10;      // One argument.
  std::size_t inline_bytes_max = 64 << 10;    // A command as one line of text.
  std::size_t request_bytes_max = 256 << 10;  // All of one command.

  // One round of a pipeline: up to this many commands are decided together and answered in one
  // write. Further ones wait in the socket meanwhile.
  std::size_t pipeline_max = 1'024;

  // Replies held for a peer that does not read them. Beyond it, the peer is not read from, either.
  std::size_t output_bytes_max = 256 << 10;
};

struct SessionOptions {
  Bounds bounds = {};

  // The tokens that AUTH accepts, for the user "default" or the one named by the token. Null, or
  // open: no AUTH is needed. Outlives the server.
  const net::Access* access = nullptr;

  // For CL.THROTTLE, THROTTLE and SLUICE.CHECK LIMIT. Rules have their own policies.
  OnStoreFailure on_store_failure = OnStoreFailure::kFailClosed;

  // How much of an IPv6 address identifies a client, as for the other doors.
  int ipv6_prefix = 64;
};

}  // namespace sluice::resp
