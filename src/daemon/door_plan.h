// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace sluice::daemon {

enum class DoorKind : std::uint8_t { kHttp, kAdmin, kResp, kGrpc };

// A door as the settings describe it: what all doors have in common.
struct DoorPlan {
  DoorKind kind;
  std::string_view name;                 // In settings, log and metrics.
  std::string listen;                    // Empty: it stays closed.
  std::string token_file = {};           // Empty: none.
  std::string token = {};                // Given in the settings directly; empty: none.
  bool guarded = false;                  // It asks for credentials.
  bool has_certificate = false;          // For addresses beyond loopback.
  std::string_view certificate_setting;  // The setting for one.
  std::int64_t connections_max = 0;
  std::int64_t refusals_max = 0;  // Connections beyond the maximum that get an error.
  bool for_operators = false;     // Answers whatever clients do at other doors; closes last.

  bool is_open() const { return !listen.empty(); }
  bool has_tokens() const { return !token_file.empty() || !token.empty(); }
};

// All doors, including closed ones.
std::vector<DoorPlan> PlanDoors(const config::Settings& settings);

}  // namespace sluice::daemon
