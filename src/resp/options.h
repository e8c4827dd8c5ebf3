// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include "net/access.h"
#include "sluice/store.h"

namespace sluice::resp {

// How much a peer may send at once; the same for every command.
struct Bounds {
  std::size_t arguments_max = 1'024;          // Of one command, its name among them.
  std::size_t bulk_bytes_max = 64 << 10;      // One argument.
  std::size_t inline_bytes_max = 64 << 10;    // A command that is one line of text.
  std::size_t request_bytes_max = 256 << 10;  // All of one command.

  // One round of a pipeline: so many commands are decided together and answered in one write. More
  // of them wait in the socket meanwhile.
  std::size_t pipeline_max = 1'024;

  // Replies held for a peer that does not read them. Past it nothing more is read from that peer.
  std::size_t output_bytes_max = 256 << 10;
};

struct SessionOptions {
  Bounds bounds = {};

  // The tokens that AUTH takes, for the user "default" or the one that a token's name says. Null,
  // or open: nothing needs to be said. Outlives the server.
  const net::Access* access = nullptr;

  // Of CL.THROTTLE, THROTTLE and SLUICE.CHECK LIMIT. What becomes of a rule set's charges is said
  // by its rules.
  OnStoreFailure on_store_failure = OnStoreFailure::kFailClosed;

  // How much of an IPv6 address tells clients apart, as at the other doors.
  int ipv6_prefix = 64;
};

}  // namespace sluice::resp
