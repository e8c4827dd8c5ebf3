// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redis/error_reply.h"
#include "redis/resp.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

// One connection to one Redis server. Commands are pipelined; replies come in order. Lives on one
// event loop: every method is called there, and every handler runs there. Nothing blocks.
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

  // The reply points into the connection's buffer and is invalid once the handler returns. An error
  // reply is a reply. Errors: kUnavailable if the command was provably not sent, kOutcomeUnknown if
  // it was and the connection broke.
  using Handler = std::move_only_function<void(Expected<std::span<const RespNode>>)>;

  Connection(boost::asio::any_io_executor executor, Options options);
  ~Connection();

  // Resolves, connects, does the TLS handshake, authenticates and selects the database, within the
  // connect timeout. Errors: kUnavailable, kAccessDenied.
  boost::asio::awaitable<Expected<void>> Open();

  // Sends an encoded command. Commands sent in one turn of the event loop leave in one write.
  void Send(std::string_view command, Handler handler);

  // The same for a command that `append` writes to the end of the send buffer. It leaves with the
  // next Flush.
  template <typename Append>
  void Write(Append append, Handler handler) {
    if (!closed_) append(unsent_);
    Expect(std::move(handler));
  }
  void Flush();

  // Like Send, awaited: returns the texts and numbers of the reply, without its structure. An error
  // reply is an error; see ErrorOf. The command must stay alive meanwhile. Fails with
  // kOutcomeUnknown after the connect timeout.
  boost::asio::awaitable<Expected<std::vector<std::string>>> Ask(const std::string& command);

  // The same for a reply whose structure matters: `read` converts it to the answer.
  template <typename T>
  using Reader = std::function<Expected<T>(std::span<const RespNode>)>;
  template <typename T>
  boost::asio::awaitable<Expected<T>> AskFor(const std::string& command, const Reader<T>& read);

  // Fails everything that is outstanding. Idempotent.
  void Close(const Error& reason);

  bool open() const { return open_; }

  // A hint about the current step of Open, in case it takes too long; may be empty.
  std::string_view taking_long() const { return taking_long_; }

  const Address& address() const { return options_.address; }

  // Commands without a reply.
  std::size_t outstanding() const { return handlers_.size(); }

  // Receives what is published to this connection's channels: an array of "message", the channel
  // and the text.
  void set_on_message(std::move_only_function<void(std::span<const RespNode>)> on_message) {
    on_message_ = std::move(on_message);
  }

  // Called after the handlers of all replies that came together.
  void set_on_replied(std::move_only_function<void()> on_replied) {
    on_replied_ = std::move(on_replied);
  }

  // Called once when an open connection breaks or is closed, before the handlers.
  void set_on_close(std::move_only_function<void(const Error&)> on_close) {
    on_close_ = std::move(on_close);
  }

 private:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using TlsStream = boost::asio::ssl::stream<Socket>;

  using IpAddresses = std::vector<boost::asio::ip::address>;

  boost::asio::awaitable<Expected<void>> Connect();
  boost::asio::awaitable<Expected<IpAddresses>> FindAddresses();
  boost::asio::awaitable<Expected<void>> ConnectSocket();
  boost::asio::awaitable<Expected<void>> StartTls();
  boost::asio::awaitable<Expected<void>> Introduce();
  void Expect(Handler handler);
  void Read();
  void OnRead();
  Socket& socket();
  Error Unreachable(std::string_view what) const;
  Error UnexpectedReply(const RespNode& reply) const;
  Error HangUpError(const boost::system::error_code& error) const;
  Error TooLate() const;
  Error WithoutEcho(const Error& error) const;

  const boost::asio::any_io_executor executor_;
  const Options options_;
  std::optional<boost::asio::ssl::context> tls_context_;
  std::optional<Socket> plain_;
  std::optional<TlsStream> tls_;

  std::string taking_long_;
  bool heard_ = false;  // Whether any byte came.
  bool open_ = false;
  bool closed_ = false;
  Error close_reason_;
  bool writing_ = false;
  bool flush_posted_ = false;
  std::string unsent_;             // Commands that are not yet in a write.
  std::string in_write_;           // Commands that are being written.
  std::unique_ptr<char[]> chunk_;  // The read in progress.
  std::string received_;
  std::size_t parsed_ = 0;  // Bytes of received_ that are parsed.
  RespParser parser_;
  std::deque<Handler> handlers_;  // Of commands without a reply, oldest first.
  std::size_t unsent_commands_ = 0;
  std::move_only_function<void(const Error&)> on_close_;
  std::move_only_function<void()> on_replied_;
  std::move_only_function<void(std::span<const RespNode>)> on_message_;
};

template <typename T>
boost::asio::awaitable<Expected<T>> Connection::AskFor(const std::string& command,
                                                       const Reader<T>& read) {
  namespace asio = boost::asio;
  const auto self = shared_from_this();
  if (closed_) co_return std::unexpected(close_reason_);
  const auto initiate = [self, read](auto completion, const std::string& bytes) {
    // Whichever comes first, the reply or the timer, completes.
    struct State {
      std::optional<decltype(completion)> pending;
      asio::steady_timer timer;
    };
    const auto state = std::make_shared<State>(
        std::move(completion), asio::steady_timer(self->executor_, self->options_.connect_timeout));
    const auto complete = [state](Expected<T> answer) {
      if (!state->pending) return;
      state->timer.cancel();
      auto once = std::move(*state->pending);
      state->pending.reset();
      std::move(once)(std::move(answer));
    };
    state->timer.async_wait([self, complete](boost::system::error_code error) {
      if (!error) complete(std::unexpected(self->TooLate()));
    });
    self->Send(bytes, [state, complete, read](Expected<std::span<const RespNode>> reply) {
      if (!state->pending) return;  // Too late.
      if (!reply) {
        complete(std::unexpected(reply.error()));
      } else if (reply->front().type == RespType::kError) {
        complete(std::unexpected(ErrorOf(reply->front().text)));
      } else {
        complete(read(*reply));
      }
    });
  };
  co_return co_await asio::async_initiate<decltype(asio::use_awaitable), void(Expected<T>)>(
      initiate, asio::use_awaitable, command);
}

}  // namespace sluice::redis
