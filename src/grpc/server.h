// SPDX-License-Identifier: Apache-2.0
// The gRPC door: services.h on the loops of src/net. h2c with prior knowledge, or TLS with ALPN h2.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "grpc/services.h"
#include "net/byte_budget.h"
#include "net/door.h"
#include "net/listen_address.h"
#include "net/listener.h"
#include "net/loops.h"
#include "net/shards.h"
#include "net/tls.h"
#include "service/engine.h"
#include "sluice/error.h"

namespace sluice::grpc {

class Shard;

class Server final : public net::Door {
 public:
  struct Options {
    net::ListenAddress address;
    std::optional<net::TlsFiles> tls = {};
    std::size_t connections_max = 10'000;
    Services::Options services = {};

    std::chrono::milliseconds preface_timeout{10'000};  // From connecting to the first SETTINGS.
    // Without a byte from the client. A connection without calls then ends; with calls the client
    // gets a PING, and has ping_timeout to answer.
    std::chrono::milliseconds idle_timeout{300'000};
    std::chrono::milliseconds ping_timeout{20'000};
    std::chrono::milliseconds write_timeout{30'000};  // To read any of what was sent.

    // Shared by all connections, also of other servers; one that finds no room is closed.
    std::shared_ptr<net::ByteBudget> buffered = std::make_shared<net::ByteBudget>();
  };

  struct Counts {
    net::Listener::Counts connections;
    std::uint64_t calls = 0;
    std::uint64_t refused = 0;
    std::uint64_t deadlines_exceeded = 0;
    std::uint64_t resets = 0;
    std::uint64_t floods = 0;
    std::uint64_t timeouts = 0;
  };

  // Listens at once, and serves as soon as the loops run. Errors are those of net::Listener.
  // `loops` and `engine` outlive the server, and `loops` all that the engine has not answered.
  static Expected<std::unique_ptr<Server>> Start(net::Loops& loops, service::Engine& engine,
                                                 Options options);
  // Closes every connection, whatever its state.
  ~Server() override;

  // What grpc.health reports; kYes at first. Must not be called on a loop.
  void SetServing(Serving serving);

  // Accepts no more connections, sends NOT_SERVING and GOAWAY, and answers the calls that clients
  // have started. Must not be called on a loop.
  void StartDrain() override;
  std::size_t Drain(SteadyTime deadline) override;

  Expected<bool> ReloadCertificate() override;

  const net::ListenAddress& address() const override;
  std::uint16_t port() const { return address().port; }
  net::Listener::Counts connections() const override { return counts().connections; }
  Counts counts() const;

 private:
  explicit Server(std::unique_ptr<net::Shards<Shard>> shards);

  const std::unique_ptr<net::Shards<Shard>> shards_;
};

}  // namespace sluice::grpc
