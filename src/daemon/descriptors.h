// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/door_plan.h"

namespace sluice::daemon {

// Files that the program may have open.
struct Descriptors {
  std::int64_t files_max = 0;  // As the system has it now.
  std::int64_t needed = 0;     // For all connections that the settings allow.
};

// Raises the limit of the system as far as it is needed and as the system lets it. Where that does
// not suffice, doors get fewer connections than the settings say (DoorPlan::connections_max):
// otherwise a flood of connections would take the files that snapshots, rules, Redis and the admin
// door need, too.
Descriptors ReserveDescriptors(std::span<DoorPlan> doors, std::size_t loops);

// As the system has it now.
std::int64_t FilesMax();

}  // namespace sluice::daemon
