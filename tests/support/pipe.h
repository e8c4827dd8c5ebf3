// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace sluice::testing_support {

// A pipe of 64 KiB. Its read end blocks.
class Pipe {
 public:
  explicit Pipe(int write_flags = 0) {
    EXPECT_EQ(::pipe2(fds_.data(), O_CLOEXEC), 0);
    ::fcntl(fds_[1], F_SETFL, write_flags);
  }
  ~Pipe() {
    CloseReadEnd();
    CloseWriteEnd();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int write_end() const { return fds_[1]; }
  void CloseReadEnd() { Close(fds_[0]); }
  void CloseWriteEnd() { Close(fds_[1]); }

  // Writes zeros until no more fit, and returns how many.
  std::size_t Fill() const {
    const int flags = ::fcntl(fds_[1], F_GETFL);
    ::fcntl(fds_[1], F_SETFL, flags | O_NONBLOCK);
    constexpr std::array<char, 4096> kZeros{};
    std::size_t filled = 0;
    for (ssize_t n; (n = ::write(fds_[1], kZeros.data(), kZeros.size())) > 0;) {
      filled += static_cast<std::size_t>(n);
    }
    ::fcntl(fds_[1], F_SETFL, flags);
    return filled;
  }

  // Until every write end is closed.
  std::string ReadToEnd() const {
    std::string text;
    std::array<char, 65536> buffer;
    for (ssize_t n; (n = ::read(fds_[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  static void Close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }

  std::array<int, 2> fds_{-1, -1};
};

}  // namespace sluice::testing_support
