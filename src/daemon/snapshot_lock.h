// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "sluice/error.h"

namespace sluice::daemon {

// A snapshot file belongs to one process: two would overwrite each other's state in turn. The lock
// is on a permanent file next to it, and on the snapshot itself if it exists, whatever other names
// that has. The locks end with the process, however that ends.
class SnapshotLock {
 public:
  // Error: kIo if another process has it, or if no files can be created next to the snapshot.
  static Expected<SnapshotLock> Take(const std::string& snapshot);

  SnapshotLock(SnapshotLock&& other) noexcept
      : file_(std::move(other.file_)),
        beside_(std::exchange(other.beside_, -1)),
        itself_(std::exchange(other.itself_, -1)) {}
  SnapshotLock& operator=(SnapshotLock&&) = delete;
  ~SnapshotLock();

  // The snapshot without symbolic links: the one name for reading and replacing it.
  const std::string& file() const { return file_; }

 private:
  explicit SnapshotLock(std::string file) : file_(std::move(file)) {}

  std::string file_;
  int beside_ = -1;
  int itself_ = -1;
};

}  // namespace sluice::daemon
