// SPDX-License-Identifier: Apache-2.0
#include "telemetry/log_writer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <utility>

namespace sluice::telemetry {
namespace {

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// A reader that is gone is an error of the descriptor; by default the signal would end the process.
void BlockSigpipe() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

struct LogWriter::Queue {
  explicit Queue(Options given) : options(std::move(given)) {}

  // Returns how many lines could not be written.
  std::uint64_t Write(std::string_view lines) const {
    std::uint64_t failed = 0;
    while (!lines.empty() && !abandoned.load(std::memory_order_relaxed)) {
      const std::size_t end = lines.rfind('\n', kWriteBytesMax - 1);
      const std::string_view piece =
          lines.substr(0, end == std::string_view::npos ? kWriteBytesMax : end + 1);
      if (!WriteAll(options.fd, piece)) {
        failed += static_cast<std::uint64_t>(std::ranges::count(piece, '\n'));
      }
      lines.remove_prefix(piece.size());
    }
    return failed;
  }

  // Constant after construction. The notice may be called only while not abandoned, and with the
  // mutex held.
  const Options options;

  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;    // Guarded by the mutex.
  bool stopping = false;  // Guarded by the mutex.
  bool finished = false;  // Guarded by the mutex.

  std::atomic<bool> abandoned{false};  // Set with the mutex held.
  std::atomic<std::uint64_t> lost{0};
};

LogWriter::LogWriter(Options options)
    : queue_(std::make_shared<Queue>(std::move(options))),
      thread_([queue = queue_] { Run(*queue); }) {}

LogWriter::~LogWriter() {
  std::unique_lock lock(queue_->mutex);
  queue_->stopping = true;
  queue_->changed.notify_all();
  const bool finished = queue_->changed.wait_for(lock, queue_->options.flush_max,
                                                 [this] { return queue_->finished; });
  queue_->abandoned = !finished;
  lock.unlock();
  if (finished) {
    thread_.join();
  } else {
    thread_.detach();  // Nothing can interrupt its write(2); it ends with the process.
  }
}

void LogWriter::Put(std::string_view line) {
  const std::scoped_lock lock(queue_->mutex);
  if (queue_->waiting.size() + line.size() > kQueueBytesMax) {
    queue_->lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (queue_->waiting.empty()) queue_->changed.notify_all();
  queue_->waiting += line;
}

std::uint64_t LogWriter::lines_lost() const { return queue_->lost.load(std::memory_order_relaxed); }

void LogWriter::Run(Queue& queue) {
  BlockSigpipe();
  std::string lines;
  std::uint64_t reported = 0;  // Lost lines that a notice has reported.
  std::unique_lock lock(queue.mutex);
  while (!queue.abandoned) {
    if (queue.waiting.empty() && queue.stopping) break;
    if (queue.waiting.empty()) {
      queue.changed.wait(lock);
      continue;
    }
    lines.clear();
    lines.swap(queue.waiting);
    // The lines lost so far came after these lines, and before the next ones.
    const std::uint64_t lost = queue.lost;
    const std::string notice =
        lost > reported ? queue.options.notice(lost - reported) : std::string();
    lock.unlock();
    queue.lost += queue.Write(lines);
    if (!notice.empty() && queue.Write(notice) == 0) reported = lost;
    lock.lock();
  }
  queue.finished = true;
  queue.changed.notify_all();
}

}  // namespace sluice::telemetry
