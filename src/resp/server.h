// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "net/byte_budget.h"
#include "net/door.h"
#include "net/listen_address.h"
#include "net/listener.h"
#include "net/loops.h"
#include "net/tls.h"
#include "resp/options.h"
#include "resp/worker.h"
#include "service/engine.h"
#include "sluice/error.h"

namespace sluice::resp {

// The door for Redis clients: CL.THROTTLE, compatible with redis-cell, and our own commands. See
// docs/reference/resp.md.
class Server final : public net::Door {
 public:
  // Connections beyond the maximum that get an error reply; further ones are closed silently.
  static constexpr std::size_t kRefusalsMax = 64;

  struct Options {
    net::ListenAddress address = {};
    std::optional<net::TlsFiles> tls = {};
    SessionOptions session = {};
    std::size_t connections_max = 10'000;    // Over all loops; further ones get an error.
    std::chrono::seconds idle_timeout{300};  // Without a byte in either direction; 0: never.
    std::chrono::milliseconds request_timeout{30'000};  // From a command's first byte to its last.
    std::chrono::milliseconds write_timeout{30'000};    // To read all replies of a round.

    // Shared by all connections, also of other servers; one that finds no room is closed.
    std::shared_ptr<net::ByteBudget> buffered = std::make_shared<net::ByteBudget>();
  };

  struct Counts {
    net::Listener::Counts connections;
    std::uint64_t commands = 0;
    std::uint64_t protocol_errors = 0;  // Connections closed because of what they sent.
    std::uint64_t timeouts = 0;         // Connections closed because they were idle or too slow.
  };

  // Listens at once; errors are those of net::Listener, and kInvalidInput for a bound of 0. `loops`
  // and `engine` outlive the server; until they have stopped, `loops` also outlive whatever the
  // store still has to answer.
  static Expected<std::unique_ptr<Server>> Start(net::Loops& loops, service::Engine& engine,
                                                 Options options);
  // Closes every connection, whatever its state.
  ~Server() override;

  // Accepts no more, answers what has been received, and closes. Must not be called on a loop.
  void StartDrain() override;
  std::size_t Drain(std::chrono::steady_clock::time_point deadline) override;

  Expected<bool> ReloadCertificate() override { return listener_->ReloadCertificate(); }

  const net::ListenAddress& address() const override;
  std::uint16_t port() const { return address().port; }
  net::Listener::Counts connections() const override { return counts().connections; }
  Counts counts() const;

 private:
  struct Shared;
  class Shard;
  class Connection;

  Server(net::Loops& loops, std::shared_ptr<Shared> shared);

  ServerInfo Info() const;  // For INFO.

  net::Loops& loops_;
  const std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<Shard>> shards_;  // One per loop.
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace sluice::resp
