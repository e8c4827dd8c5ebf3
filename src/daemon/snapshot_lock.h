// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "sluice/error.h"

namespace sluice::daemon {

// A snapshot file belongs to one process: two would write over each other's state in turn. The lock
// is on a file beside it that stays there, and on the snapshot itself if there is one, whatever
// other names that has; the locks end with the process, however that ends.
class SnapshotLock {
 public:
  // Error: kIo if another process has it, or files cannot be made beside the snapshot.
  static Expected<SnapshotLock> Take(const std::string& snapshot);

  SnapshotLock(SnapshotLock&& other) noexcept
      : file_(std::move(other.file_)),
        beside_(std::exchange(other.beside_, -1)),
        itself_(std::exchange(other.itself_, -1)) {}
  SnapshotLock& operator=(SnapshotLock&&) = delete;
  ~SnapshotLock();

  // Where the snapshot is, without symbolic links: the one name to read and to replace it by.
  const std::string& file() const { return file_; }

 private:
  explicit SnapshotLock(std::string file) : file_(std::move(file)) {}

  std::string file_;
  int beside_ = -1;
  int itself_ = -1;
};

}  // namespace sluice::daemon
