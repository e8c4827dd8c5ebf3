// SPDX-License-Identifier: Apache-2.0
#include "daemon/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <string>

#include "resp/server.h"

namespace sluice::daemon {
namespace {

// People and their tools, not traffic.
constexpr std::int64_t kAdminConnectionsMax = 256;

ConnectionMaxima Wanted(const config::Settings& settings) {
  const auto door = [](const std::string& listen, std::int64_t connections_max) {
    return listen.empty() ? 0 : connections_max;
  };
  return {.http = door(settings.http.listen, settings.http.connections_max),
          .admin = door(settings.admin.listen, kAdminConnectionsMax),
          .resp = door(settings.resp.listen, settings.resp.connections_max),
          .grpc = door(settings.grpc.listen, settings.grpc.connections_max)};
}

std::int64_t Sum(const ConnectionMaxima& maxima) {
  return maxima.http + maxima.admin + maxima.resp + maxima.grpc;
}

// What is no client's connection.
std::int64_t Own(const ConnectionMaxima& doors, std::int64_t loops) {
  constexpr std::int64_t kFiles = 256;   // Snapshots, rules, the log, Redis.
  constexpr std::int64_t kEachLoop = 4;  // epoll, eventfd, timerfd, and a connection to refuse.
  std::int64_t own = kFiles + kEachLoop * loops;
  for (const std::int64_t connections : {doors.http, doors.admin, doors.resp, doors.grpc}) {
    if (connections > 0) own += loops;  // An acceptor on each.
  }
  if (doors.resp > 0) own += static_cast<std::int64_t>(resp::Server::kRefusalsMax);
  return own;
}

// Each door its part, but the admin door enough to be of use.
ConnectionMaxima Fit(const ConnectionMaxima& wanted, std::int64_t available) {
  if (Sum(wanted) <= available) return wanted;
  constexpr std::int64_t kAdminShare = 8;
  ConnectionMaxima fitted = wanted;
  fitted.admin = std::min(wanted.admin, std::max(available / kAdminShare, std::int64_t{1}));
  const std::int64_t clients = Sum(wanted) - wanted.admin;
  const std::int64_t left = available - fitted.admin;
  for (std::int64_t* door : {&fitted.http, &fitted.resp, &fitted.grpc}) {
    if (*door > 0) *door = std::clamp(*door * left / clients, std::int64_t{1}, *door);
  }
  return fitted;
}

void RaiseFilesMax(std::int64_t needed) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(needed);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Descriptors ReserveDescriptors(const config::Settings& settings, std::size_t loops) {
  const ConnectionMaxima wanted = Wanted(settings);
  const std::int64_t own = Own(wanted, static_cast<std::int64_t>(loops));
  const std::int64_t needed = own + Sum(wanted);
  RaiseFilesMax(needed);
  const std::int64_t files_max = FilesMax();
  // With very few files, most of them are still for the program itself.
  const std::int64_t available = std::max(files_max - own, files_max / 4);
  return {.files_max = files_max, .needed = needed, .connections = Fit(wanted, available)};
}

std::int64_t FilesMax() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(limit.rlim_cur, static_cast<rlim_t>(kMost)));
}

}  // namespace sluice::daemon
