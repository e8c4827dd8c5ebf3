// SPDX-License-Identifier: Apache-2.0
// A blocking client of 127.0.0.1 that sends and reads raw bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::testing_support {

class TcpClient {
 public:
  // A read that takes longer than this fails the test.
  static constexpr int kTimeoutSeconds = 30;

  // `receive_bytes` bounds what the system buffers before it is read; 0: the default.
  explicit TcpClient(std::uint16_t port, int receive_bytes = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval timeout{.tv_sec = kTimeoutSeconds, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (receive_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    // Bytes that are sent separately arrive separately.
    const int no_delay = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(fd_);
      throw std::runtime_error("cannot connect");
    }
  }
  TcpClient(TcpClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpClient& operator=(TcpClient&&) = delete;
  ~TcpClient() { Close(); }

  // Returns whether everything could be sent.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // What comes next; empty at the end, and when the connection was reset.
  std::string ReadSome() {
    std::array<char, 65536> piece;
    ssize_t got = 0;
    do {
      got = ::recv(fd_, piece.data(), piece.size(), 0);
    } while (got < 0 && errno == EINTR);  // As after the program was stopped for a while.
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      throw std::runtime_error("nothing to read for too long");
    }
    return got > 0 ? std::string(piece.data(), static_cast<std::size_t>(got)) : std::string();
  }

  // Until the end.
  std::string ReadAll() {
    std::string all;
    while (true) {
      const std::string piece = ReadSome();
      if (piece.empty()) return all;
      all += piece;
    }
  }

  // Up to and including the text, and whatever came with it; less only if the end came first.
  std::string ReadUntil(std::string_view text) {
    std::string all;
    while (all.find(text) == std::string::npos) {
      const std::string piece = ReadSome();
      if (piece.empty()) break;
      all += piece;
    }
    return all;
  }

  void EndSending() { ::shutdown(fd_, SHUT_WR); }

  // As if the machine disappeared: the other side sees a reset.
  void Abort() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }

  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

}  // namespace sluice::testing_support
