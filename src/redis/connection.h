// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redis/resp.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

// What an error reply means to us, by its first word.
Error ErrorOf(std::string_view reply);

// One connection to one Redis server. Commands are pipelined; replies come in their order. Lives on
// one event loop: every method is called there, and every handler runs there. Nothing blocks.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Options {
    Address address;
    Credentials credentials = {};
    Tls tls = {};
    int database = 0;
    std::string client_name = {};
    std::chrono::milliseconds connect_timeout{1000};
  };

  // The reply, which points into the connection's buffer and is gone when the handler returns. An
  // error reply is a reply. Errors: kUnavailable if the command was provably not sent,
  // kOutcomeUnknown if it was and the connection broke.
  using Handler = std::move_only_function<void(Expected<std::span<const RespNode>>)>;

  Connection(boost::asio::any_io_executor executor, Options options);
  ~Connection();

  // Resolves, connects, shakes hands, authenticates and selects the database, within the connect
  // timeout. Errors: kUnavailable, kAccessDenied.
  boost::asio::awaitable<Expected<void>> Open();

  // Sends an encoded command. Commands sent in one turn of the event loop leave in one write.
  void Send(std::string_view command, Handler handler);

  // Like Send, awaited: the texts and numbers of the reply, without its structure. An error reply
  // is an error; see ErrorOf. The command stays alive meanwhile.
  boost::asio::awaitable<Expected<std::vector<std::string>>> Ask(const std::string& command);

  // Fails all that is outstanding. Idempotent.
  void Close(const Error& reason);

  bool open() const { return open_; }

  // Called once when an open connection breaks or is closed, before the handlers.
  void set_on_close(std::move_only_function<void(const Error&)> on_close) {
    on_close_ = std::move(on_close);
  }

 private:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using TlsStream = boost::asio::ssl::stream<Socket>;

  boost::asio::awaitable<Expected<void>> Connect();
  boost::asio::awaitable<Expected<void>> ConnectSocket();
  boost::asio::awaitable<Expected<void>> StartTls();
  boost::asio::awaitable<Expected<void>> Introduce();
  void Read();
  void OnRead();
  void Flush();
  Socket& socket();
  Error Unreachable(std::string_view what) const;

  const boost::asio::any_io_executor executor_;
  const Options options_;
  std::optional<boost::asio::ssl::context> tls_context_;
  std::optional<Socket> plain_;
  std::optional<TlsStream> tls_;

  bool open_ = false;
  bool closed_ = false;
  bool writing_ = false;
  bool flush_posted_ = false;
  std::string unsent_;    // Commands that no write has begun on.
  std::string in_write_;  // Commands that are being written.
  std::string received_;
  std::size_t parsed_ = 0;  // Bytes of received_ that are done with.
  RespParser parser_;
  std::deque<Handler> handlers_;  // Of commands without a reply, oldest first.
  std::size_t unsent_commands_ = 0;
  std::move_only_function<void(const Error&)> on_close_;
};

// A command from its arguments.
template <typename... Arguments>
std::string Command(const Arguments&... arguments) {
  const std::string_view all[] = {arguments...};
  std::string command;
  AppendCommand(command, all);
  return command;
}

}  // namespace sluice::redis
