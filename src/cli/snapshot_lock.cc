// SPDX-License-Identifier: Apache-2.0
#include "cli/snapshot_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/text.h"

namespace sluice::cli {

Expected<SnapshotLock> SnapshotLock::Take(const std::string& snapshot) {
  const std::string file = snapshot + ".lock";
  const auto fail = [&](int error) {
    return std::unexpected(
        Error{ErrorCode::kIo, text::Cat("cannot write the snapshot ", text::Quote(snapshot), ": ",
                                        std::generic_category().message(error))});
  };
  const int fd = ::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) return fail(errno);
  SnapshotLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(errno);
    return std::unexpected(
        Error{ErrorCode::kIo,
              text::Cat("the snapshot ", text::Quote(snapshot),
                        " is in use by another process, which has locked ", text::Quote(file),
                        "; expected a file of its own for each instance, or the other to end "
                        "first")});
  }
  // A lock file that was there already does not tell whether more can be made.
  const auto folder = std::filesystem::path(file).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) return fail(errno);
  return lock;
}

SnapshotLock::~SnapshotLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace sluice::cli
