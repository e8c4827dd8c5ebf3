// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "client/hold_exchange.h"
#include "client/hold_run.h"
#include "client/http_client.h"

namespace sluice::client {

// Does what a HoldRun says: owns the command, the timers and the connection. Takes over the
// process's signals.
struct HoldShellOptions {
  Server server = {};
  std::string token = {};
  HoldWish wish = {};
  Micros wait{0};
  HoldRun::OnLost on_lost = HoldRun::OnLost::kTerminate;
  std::vector<std::string> command = {};  // A program and its arguments.
};

// Never returns: ends the process with the status that docs/reference/hold.md describes.
[[noreturn]] void RunWhileHeld(HoldShellOptions options);

}  // namespace sluice::client
