// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/door_plan.h"

namespace sluice::daemon {

// How many files the program may have open.
struct Descriptors {
  std::int64_t files_max = 0;  // According to the system now.
  std::int64_t needed = 0;     // For all connections that the settings allow.
};

// Raises the system's limit as far as needed and allowed. If that does not suffice, doors get fewer
// connections than the settings say (DoorPlan::connections_max): otherwise a flood of connections
// would also take the files that snapshots, rules, Redis and the admin door need.
Descriptors ReserveDescriptors(std::span<DoorPlan> doors, std::size_t loops);

// According to the system now.
std::int64_t FilesMax();

}  // namespace sluice::daemon
