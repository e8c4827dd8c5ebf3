// SPDX-License-Identifier: Apache-2.0
// Writes log lines, so that a thread that logs never waits for a reader.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace sluice::telemetry {

// A bounded queue of lines and the one thread that writes them, in order of arrival. A line that
// does not fit, or cannot be written, is lost and counted; a notice after the next written lines
// reports how many were lost. Lines are never split between two calls of write(2), and no call
// writes more than kWriteBytesMax, so that lines of several processes do not mix in a pipe.
// Put and lines_lost may be called from any thread, and never wait for the descriptor.
class LogWriter {
 public:
  // Of waiting lines; those being written take at most as much again.
  static constexpr std::size_t kQueueBytesMax = std::size_t{1} << 20;
  static constexpr std::size_t kWriteBytesMax = 4096;  // What a pipe writes atomically.
  static constexpr std::chrono::milliseconds kFlushMax{2'000};

  struct Options {
    int fd = 2;  // Not owned. May block or not, and be closed by its reader.
    // How long the destructor waits for lines to be written. If nobody reads, the rest is lost, and
    // the descriptor must stay open until the process ends: the thread may still be in write(2).
    std::chrono::milliseconds flush_max = kFlushMax;
    // Returns the notice as a line. Not called after the destructor has returned.
    std::function<std::string(std::uint64_t lines_lost)> notice;
  };

  // Throws std::system_error if the thread cannot be started.
  explicit LogWriter(Options options);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  void Put(std::string_view line);  // At most kWriteBytesMax, including the newline at its end.
  std::uint64_t lines_lost() const;

 private:
  struct Queue;
  static void Run(Queue& queue);

  std::shared_ptr<Queue> queue_;  // Shared with the thread, which may be stuck in write(2).
  std::thread thread_;
};

}  // namespace sluice::telemetry
