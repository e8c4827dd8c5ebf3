// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "redis/resp.h"

namespace sluice::testing_support {

// Listens on 127.0.0.1 and answers each command as its script says, on one thread: while the script
// runs, nothing is read from anybody.
class ScriptedServer {
 public:
  using Arguments = std::vector<std::string>;

  // Returns the encoded reply, or nothing to hang up.
  using Script = std::function<std::optional<std::string>(const Arguments&)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    Accept();
    thread_ = std::jthread([this] { context_.run(); });
  }
  ~ScriptedServer() { context_.stop(); }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::uint16_t port() const { return port_; }

  // Sends to everyone who has subscribed, to any channel.
  void Publish(std::string_view channel, std::string_view text) {
    const std::array<std::string_view, 3> message = {"message", channel, text};
    std::string bytes;
    redis::AppendCommand(bytes, message);
    boost::asio::post(context_, [this, bytes = std::move(bytes)] {
      for (const auto& weak : subscribers_) {
        boost::system::error_code ignored;
        if (const auto peer = weak.lock()) {
          boost::asio::write(peer->socket, boost::asio::buffer(bytes), ignored);
        }
      }
    });
  }

  // The number of commands with an argument that contains this text.
  std::ptrdiff_t Received(std::string_view text) const {
    const std::scoped_lock lock(mutex_);
    return std::ranges::count_if(received_,
                                 [&](const auto& command) { return Mentions(command, text); });
  }

  static bool Mentions(const Arguments& command, std::string_view text) {
    return std::ranges::any_of(
        command, [&](const auto& argument) { return argument.find(text) != std::string::npos; });
  }

 private:
  using Tcp = boost::asio::ip::tcp;

  struct Peer {
    explicit Peer(Tcp::socket connected) : socket(std::move(connected)) {}

    Tcp::socket socket;
    std::array<char, 4096> chunk;
    std::string unread;
    redis::RespParser parser;
  };

  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, Tcp::socket socket) {
      if (error) return;
      Read(std::make_shared<Peer>(std::move(socket)));
      Accept();
    });
  }

  void Read(const std::shared_ptr<Peer>& peer) {
    peer->socket.async_read_some(boost::asio::buffer(peer->chunk),
                                 [this, peer](auto error, std::size_t bytes) {
                                   if (error) return;
                                   peer->unread.append(peer->chunk.data(), bytes);
                                   if (AnswerAll(peer)) Read(peer);
                                 });
  }

  // Returns whether the peer is still there.
  bool AnswerAll(const std::shared_ptr<Peer>& peer) {
    while (peer->parser.Parse(peer->unread) == redis::RespParser::Status::kMessage) {
      Arguments command;
      for (const redis::RespNode& node : peer->parser.nodes().subspan(1)) {
        command.emplace_back(node.text);
      }
      peer->unread.erase(0, peer->parser.consumed());
      if (command[0] == "SUBSCRIBE") subscribers_.push_back(peer);
      {
        const std::scoped_lock lock(mutex_);
        received_.push_back(command);
      }
      const auto reply = script_(command);
      if (!reply) return false;
      boost::system::error_code error;
      boost::asio::write(peer->socket, boost::asio::buffer(*reply), error);
      if (error) return false;
    }
    return true;
  }

  const Script script_;
  mutable std::mutex mutex_;
  std::vector<Arguments> received_;  // Guarded by mutex_.
  std::vector<std::weak_ptr<Peer>> subscribers_;
  boost::asio::io_context context_{1};
  Tcp::acceptor acceptor_{context_, {boost::asio::ip::address_v4::loopback(), 0}};
  const std::uint16_t port_ = acceptor_.local_endpoint().port();
  std::jthread thread_;
};

}  // namespace sluice::testing_support
