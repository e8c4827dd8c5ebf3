// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace sluice::daemon {
namespace {

namespace fs = std::filesystem;

// The file that a name leads to, whether it exists or not. A name that cannot be resolved is
// returned as far as it goes: opening files there will fail.
fs::path Resolved(fs::path file) {
  constexpr int kLinksMax = 40;  // The system's limit.
  std::error_code error;
  for (int i = 0; i < kLinksMax && fs::is_symlink(file, error); ++i) {
    const fs::path target = fs::read_symlink(file, error);
    if (error) break;
    file = file.parent_path() / target;  // Just the target if that is absolute.
  }
  const fs::path folder =
      fs::canonical(file.has_parent_path() ? file.parent_path() : fs::path("."), error);
  return error ? file : folder / file.filename();
}

}  // namespace

Expected<SnapshotLock> SnapshotLock::Take(const std::string& snapshot) {
  SnapshotLock lock(Resolved(snapshot).native());
  const std::string beside = lock.file_ + ".lock";
  const auto fail = [&](int error) {
    return std::unexpected(
        Error{ErrorCode::kIo, text::Cat("cannot write the snapshot ", text::Quote(snapshot), ": ",
                                        std::generic_category().message(error))});
  };
  const auto in_use = [&](std::string_view locked) {
    return std::unexpected(
        Error{ErrorCode::kIo,
              text::Cat("the snapshot ", text::Quote(snapshot),
                        " is in use by another process, which has locked ", text::Quote(locked),
                        "; expected a file of its own for each instance, or the other to end "
                        "first")});
  };
  lock.beside_ =
      ::open(beside.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (lock.beside_ < 0) return fail(errno);
  if (::flock(lock.beside_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail(errno);
    return in_use(beside);
  }
  // If it cannot be opened, restoring it will report that.
  lock.itself_ = ::open(lock.file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (lock.itself_ >= 0 && ::flock(lock.itself_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return in_use(lock.file_);
  }
  // An existing lock file does not show whether more files can be created.
  const auto folder = fs::path(beside).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) return fail(errno);
  return lock;
}

SnapshotLock::~SnapshotLock() {
  for (const int fd : {beside_, itself_}) {
    if (fd >= 0) ::close(fd);
  }
}

}  // namespace sluice::daemon
