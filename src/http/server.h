// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server on the loops of src/net. It knows nothing of what is served.
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
// Belongs to the loop that handled it: it is answered and destroyed there, or once the loops have
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

  // Once, now or later, on the connection's loop. The response is copied. Answers leave in the
  // order of their requests, whatever the order of these calls. Cheapest within Handle: the bytes
  // go straight to what the connection sends next.
  void Respond(const Response& response);

 private:
  friend class Connection;
  Exchange(Connection& connection, std::uint64_t number);
  void RespondWithError();

  Connection* connection_;  // One reference of it is ours; none once answered.
  std::uint64_t number_;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Runs on the loop that has the connection, and therefore on several threads at once. Must not
  // block and must not throw.
  virtual void Handle(const Request& request, Exchange exchange) = 0;

  // The server has refused what is no request, is too large or came too slowly, with this status
  // and code: for those who count answers. On the same threads.
  virtual void OnRefused(int /*status*/, std::string_view /*code*/) {}
};

class Server final : public net::Door {
 public:
  struct Options {
    net::ListenAddress address;
    std::optional<net::TlsFiles> tls = {};
    Limits limits = {};
    // Of all connections, those of other servers included; who finds no room in it is closed.
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
  // and `loops` every Exchange.
  static Expected<std::unique_ptr<Server>> Start(net::Loops& loops, Handler& handler,
                                                 Options options);
  // Closes every connection, whatever it is at.
  ~Server() override;

  // Accepts no more, closes idle connections, and answers "Connection: close" to the last request
  // that a connection has sent. Every request that was received is answered. Not to be called on a
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
