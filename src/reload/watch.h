// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "sluice/error.h"

namespace sluice::reload {

// Waits until files may have changed. Watches folders, not files: editors and Kubernetes replace
// the old file by a new one, and a watch would stay with the old. Not thread-safe, except Wake.
class FolderWatch {
 public:
  FolderWatch();
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  // Watches the folder that contains each path and, if it is a folder, the path itself. Whatever
  // cannot be watched is left to polling.
  void Add(const std::string& path);

  // Waits until something changed, Wake was called, or the time is over. Changes within a few
  // milliseconds of the first count as one.
  void Wait(std::chrono::milliseconds timeout);

  // Ends the wait of another thread, or the next one.
  void Wake();

 private:
  void Drain() const;

  int inotify_ = -1;
  int wake_ = -1;
};

}  // namespace sluice::reload
