// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "sluice/error.h"

namespace sluice::reload {

// Waits until files may have changed. Folders are watched, not files: editors and Kubernetes put a
// new file in the place of the old one, and a watch would stay with the old. Not thread-safe, but
// for Wake.
class FolderWatch {
 public:
  FolderWatch();
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  // Watches the folder in which each path lies and, if it is one, the folder itself. What cannot be
  // watched is left to polling.
  void Add(const std::string& path);

  // Until something changed, Wake was called, or the time is over. What changes within a few
  // milliseconds of the first change counts as one.
  void Wait(std::chrono::milliseconds timeout);

  // Ends the wait of another thread, or the next one.
  void Wake();

 private:
  void Drain() const;

  int inotify_ = -1;
  int wake_ = -1;
};

}  // namespace sluice::reload
