// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "sluice/error.h"

namespace sluice::cli {

// A snapshot file belongs to one process: two would write over each other's state in turn. The lock
// is on a file beside it that stays there; the lock itself ends with the process, however that
// ends.
class SnapshotLock {
 public:
  // Error: kIo if another process has it, or files cannot be made beside the snapshot.
  static Expected<SnapshotLock> Take(const std::string& snapshot);

  SnapshotLock(SnapshotLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SnapshotLock& operator=(SnapshotLock&&) = delete;
  ~SnapshotLock();

 private:
  explicit SnapshotLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace sluice::cli
