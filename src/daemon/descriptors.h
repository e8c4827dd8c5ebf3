// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "config/settings.h"

namespace sluice::daemon {

// Connections that each door may have at a time; 0 if it is closed.
struct ConnectionMaxima {
  std::int64_t http = 0;
  std::int64_t admin = 0;
  std::int64_t resp = 0;
  std::int64_t grpc = 0;

  friend bool operator==(const ConnectionMaxima&, const ConnectionMaxima&) = default;
};

// What the files that the program may have open are shared out to.
struct Descriptors {
  std::int64_t files_max = 0;  // As the system has it now.
  std::int64_t needed = 0;     // For all connections that the settings allow.
  ConnectionMaxima connections;
};

// Raises the limit of the system as far as it is needed and as the system lets it. Where that does
// not suffice, doors get fewer connections than the settings say: otherwise a flood of connections
// would take the files that snapshots, rules, Redis and the admin door need, too.
Descriptors ReserveDescriptors(const config::Settings& settings, std::size_t loops);

// Files that the program may have open.
std::int64_t FilesMax();

}  // namespace sluice::daemon
