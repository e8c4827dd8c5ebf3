// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server on the loops of src/net. It knows nothing about what is served.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "http/limits.h"
#include "http/message.h"
#include "net/byte_budget.h"
#include "net/door.h"
#include "net/listen_address.h"
#include "net/listener.h"
#include "net/loops.h"
#include "net/shards.h"
#include "net/tls.h"
#include "sluice/error.h"
#include "sluice/time.h"

namespace sluice::http {

class Connection;
class Shard;

// One request that waits for its answer. If it is destroyed without one, the server answers 500.
// Belongs to the loop that handled it: it is answered and destroyed there, or after the loops have
// stopped.
class Exchange {
 public:
  Exchange(Exchange&& other) noexcept
      : connection_(std::exchange(other.connection_, nullptr)), number_(other.number_) {}
  Exchange& operator=(Exchange&& other) noexcept {
    std::swap(connection_, other.connection_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~Exchange() {
    if (connection_ != nullptr) RespondWithError();
  }

  // Called once, now or later, on the connection's loop. The response is copied. Answers are sent
  // in the order of their requests, whatever the order of these calls. Cheapest within Handle: the
  // bytes go straight to the connection's output.
  void Respond(const Response& response);

 private:
  friend class Connection;
  Exchange(Connection& connection, std::uint64_t number);
  void RespondWithError();

  Connection* connection_;  // We own one reference; null once answered.
  std::uint64_t number_;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Runs on the connection's loop, and therefore on several threads at once. Must not block or
  // throw.
  virtual void Handle(const Request& request, Exchange exchange) = 0;

  // The server has refused bytes that were not a request, too large or too slow, with this status
  // and code: for counting answers. On the same threads.
  virtual void OnRefused(int /*status*/, std::string_view /*code*/) {}
};

class Server final : public net::Door {
 public:
  struct Options {
    net::ListenAddress address;
    std::optional<net::TlsFiles> tls = {};
    Limits limits = {};
    // Shared by all connections, also of other servers; one that finds no room is closed.
    std::shared_ptr<net::ByteBudget> buffered = std::make_shared<net::ByteBudget>();
    std::string server_name = {};        // For the Server header; empty: none.
    const Clock& clock = SystemClock();  // For the Date header.
  };

  struct Counts {
    net::Listener::Counts connections;
    std::uint64_t requests = 0;      // Handed to the handler.
    std::uint64_t bad_requests = 0;  // Answered by the server with an error.
    std::uint64_t timeouts = 0;      // Connections closed because the client was too slow or idle.
  };

  // Listens at once; errors are those of net::Listener. `loops` and `handler` outlive the server,
  // and `loops` outlives every Exchange.
  static Expected<std::unique_ptr<Server>> Start(net::Loops& loops, Handler& handler,
                                                 Options options);
  // Closes every connection, whatever its state.
  ~Server() override;

  // Accepts no more connections, closes idle ones, and answers "Connection: close" to the last
  // request that a connection has sent. Every received request is answered. Must not be called on a
  // loop.
  void StartDrain() override;
  std::size_t Drain(std::chrono::steady_clock::time_point deadline) override;

  Expected<bool> ReloadCertificate() override;

  const net::ListenAddress& address() const override;
  std::uint16_t port() const { return address().port; }
  net::Listener::Counts connections() const override { return counts().connections; }
  Counts counts() const;

 private:
  explicit Server(std::unique_ptr<net::Shards<Shard>> shards);

  const std::unique_ptr<net::Shards<Shard>> shards_;
};

}  // namespace sluice::http
