// SPDX-License-Identifier: Apache-2.0
#include "daemon/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace sluice::daemon {
namespace {

std::int64_t Sum(std::span<const DoorPlan> doors) {
  std::int64_t sum = 0;
  for (const DoorPlan& door : doors) sum += door.is_open() ? door.connections_max : 0;
  return sum;
}

// Files other than clients' connections.
std::int64_t Own(std::span<const DoorPlan> doors, std::int64_t loops) {
  constexpr std::int64_t kFiles = 256;   // Snapshots, rules, the log, Redis.
  constexpr std::int64_t kEachLoop = 4;  // epoll, eventfd, timerfd, and a connection to refuse.
  std::int64_t own = kFiles + kEachLoop * loops;
  for (const DoorPlan& door : doors) {
    if (door.is_open()) own += loops + door.refusals_max;  // One acceptor per loop.
  }
  return own;
}

// Gives each door its share, and the operators' door enough to be useful.
void Fit(std::span<DoorPlan> doors, std::int64_t available) {
  if (Sum(doors) <= available) return;
  constexpr std::int64_t kOperatorsShare = 8;
  std::int64_t clients = 0;
  std::int64_t left = available;
  for (DoorPlan& door : doors) {
    if (!door.is_open()) continue;
    if (!door.for_operators) {
      clients += door.connections_max;
      continue;
    }
    const std::int64_t share = std::max(available / kOperatorsShare, std::int64_t{1});
    door.connections_max = std::min(door.connections_max, share);
    left -= door.connections_max;
  }
  for (DoorPlan& door : doors) {
    if (!door.is_open() || door.for_operators) continue;
    std::int64_t& most = door.connections_max;
    most = std::clamp(most * left / clients, std::int64_t{1}, most);
  }
}

void RaiseFilesMax(std::int64_t needed) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(needed);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Descriptors ReserveDescriptors(std::span<DoorPlan> doors, std::size_t loops) {
  const std::int64_t own = Own(doors, static_cast<std::int64_t>(loops));
  const std::int64_t needed = own + Sum(doors);
  RaiseFilesMax(needed);
  const std::int64_t files_max = FilesMax();
  // With very few files, most of them are still for the program itself.
  Fit(doors, std::max(files_max - own, files_max / 4));
  return {.files_max = files_max, .needed = needed};
}

std::int64_t FilesMax() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(limit.rlim_cur, static_cast<rlim_t>(kMost)));
}

}  // namespace sluice::daemon
