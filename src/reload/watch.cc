// SPDX-License-Identifier: Apache-2.0
#include "reload/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <system_error>

namespace sluice::reload {
namespace {

// A save is several events; the last of them matters, not the first.
constexpr int kSettleMs = 30;

constexpr std::uint32_t kEvents = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                                  IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;

}  // namespace

FolderWatch::FolderWatch()
    : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

FolderWatch::~FolderWatch() {
  if (inotify_ >= 0) ::close(inotify_);
  if (wake_ >= 0) ::close(wake_);
}

void FolderWatch::Add(const std::string& path) {
  if (inotify_ < 0 || path.empty()) return;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return;
  ::inotify_add_watch(inotify_, absolute.parent_path().c_str(), kEvents | IN_ONLYDIR);
  ::inotify_add_watch(inotify_, absolute.c_str(), kEvents | IN_ONLYDIR);
}

void FolderWatch::Wait(std::chrono::milliseconds timeout) {
  std::array<pollfd, 2> fds = {pollfd{.fd = wake_, .events = POLLIN, .revents = 0},
                               pollfd{.fd = inotify_, .events = POLLIN, .revents = 0}};
  if (::poll(fds.data(), fds.size(), static_cast<int>(timeout.count())) <= 0) return;
  if ((fds[0].revents & POLLIN) == 0) ::poll(fds.data(), 1, kSettleMs);
  Drain();
}

void FolderWatch::Wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));
}

void FolderWatch::Drain() const {
  alignas(inotify_event) std::array<char, 4096> events;
  while (::read(inotify_, events.data(), events.size()) > 0) {
  }
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_, &count, sizeof count));
}

}  // namespace sluice::reload
