// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string_view>

#include "redis/connection.h"
#include "sluice/error.h"

namespace sluice::redis {

// Keeps a connection: makes it, and makes it again when it breaks, with growing, jittered pauses
// between failed attempts. Lives on one event loop.
class Link : public std::enable_shared_from_this<Link> {
 public:
  enum class Event {
    kUp,          // There is a connection.
    kLost,        // It broke, and another one is being made.
    kPaused,      // There is none, and none will be made for a while.
    kConnecting,  // The pause is over.
  };

  struct Options {
    // Where to connect this time.
    std::function<boost::asio::awaitable<Expected<Connection::Options>>()> find;

    // Runs on each new connection before it is used.
    std::function<boost::asio::awaitable<Expected<void>>(Connection&)> prepare = {};

    std::function<void(Link&, Event)> on_event = {};

    // If not zero: the connection is dropped if a PING is not answered for this long.
    std::chrono::milliseconds heartbeat{0};
  };

  Link(boost::asio::any_io_executor executor, Options options);

  void Start();

  // Fails everything that is outstanding and stays closed. No event comes afterwards.
  void Stop(const Error& reason);

  // Null while there is none.
  Connection* connection() const { return connection_.get(); }

  // The server it is connected or connecting to; null if neither.
  const Address* server() const;

  // Why there is no connection.
  const Error& down_reason() const { return down_reason_; }

  // About the connection being made; see Connection.
  std::string_view taking_long() const { return opening_ ? opening_->taking_long() : ""; }

  // Closes the connection, or gives up making one, and makes another.
  void Drop(const Error& reason);
  // The same for a connection that turned out to be useless: treated as if it had never been made.
  void DropUseless(const Error& reason);

  // Ends the pause, or skips the next one. If it is looking for the server to connect to, it starts
  // over.
  void RetryNow();

 private:
  using Clock = std::chrono::steady_clock;

  boost::asio::awaitable<void> KeepConnected();
  boost::asio::awaitable<Expected<void>> Connect();
  void Notify(Event event);
  void Beat(const std::shared_ptr<Connection>& connection);

  const boost::asio::any_io_executor executor_;
  Options options_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Connection> opening_;
  Error down_reason_{ErrorCode::kUnavailable, "not connected yet"};
  bool stopped_ = false;
  bool retry_now_ = false;
  bool useless_ = false;
  boost::asio::steady_timer retry_timer_;
  boost::asio::steady_timer heartbeat_timer_;
  std::minstd_rand random_;
};

}  // namespace sluice::redis
