// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace sluice::testing_support {

// Listens on 127.0.0.1, sends the same to everyone who connects, and then waits in silence: what
// may be at an address where a Redis should be.
class FixedAnswerServer {
 public:
  explicit FixedAnswerServer(std::string answer) : answer_(std::move(answer)) {
    Accept();
    thread_ = std::jthread([this] { context_.run(); });
  }
  ~FixedAnswerServer() { context_.stop(); }
  FixedAnswerServer(const FixedAnswerServer&) = delete;
  FixedAnswerServer& operator=(const FixedAnswerServer&) = delete;

  std::string Uri(const std::string& query = "") const {
    return "redis://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()) + query;
  }

 private:
  using Tcp = boost::asio::ip::tcp;

  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, Tcp::socket socket) {
      if (error) return;
      const auto kept = std::make_shared<Tcp::socket>(std::move(socket));
      boost::asio::async_write(*kept, boost::asio::buffer(answer_),
                               [this, kept](auto, std::size_t) { WaitForEnd(kept); });
      Accept();
    });
  }

  void WaitForEnd(const std::shared_ptr<Tcp::socket>& socket) {
    socket->async_read_some(boost::asio::buffer(ignored_), [this, socket](auto error, std::size_t) {
      if (!error) WaitForEnd(socket);
    });
  }

  const std::string answer_;
  char ignored_[4096];
  boost::asio::io_context context_{1};
  Tcp::acceptor acceptor_{context_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::jthread thread_;
};

}  // namespace sluice::testing_support
