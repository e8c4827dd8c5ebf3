// SPDX-License-Identifier: Apache-2.0
// Listens on one address on every loop. Hands over each connection on the loop that accepted it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/listen_address.h"
#include "net/loops.h"
#include "net/stream.h"
#include "net/tls.h"
#include "sluice/error.h"

namespace sluice::net {

class Listener {
 public:
  struct Options {
    ListenAddress address;
    std::optional<TlsFiles> tls = {};
    std::vector<std::string> alpn = {};    // With TLS; see TlsContext.
    std::size_t connections_max = 10'000;  // Over all loops; further ones are closed at once.
    std::chrono::milliseconds handshake_timeout{10'000};  // With TLS.
  };

  // Runs on the loop; on a TLS stream, the handshake is done.
  using OnStream = std::function<void(std::size_t loop, Stream stream)>;

  struct Counts {
    std::size_t open = 0;  // Including those in the handshake.
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;             // Over the maximum.
    std::uint64_t accept_errors = 0;       // System errors, such as too many open files.
    std::uint64_t handshakes_failed = 0;   // Or too slow.
    std::int64_t certificate_expires = 0;  // As Unix time; 0 without TLS.
  };

  // Binds immediately; an address in use is an error (kIo), even if its owner would share it.
  // Accepts as soon as the loops run. `loops` outlives the listener.
  static Expected<std::unique_ptr<Listener>> Start(Loops& loops, Options options,
                                                   OnStream on_stream);
  // Stops accepting.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Hands over the clients that have connected so far, then closes the address. Afterwards OnStream
  // is called only for handshakes in progress. Must not be called on a loop.
  void StopAccepting();

  // Reads the certificate and its key again, for new connections; open ones keep what they have.
  // Returns whether there is a certificate. Errors are those of TlsContext::Make; the old one
  // stays. Reads files: must not be called on a loop.
  Expected<bool> ReloadCertificate();

  // The address with the actual port.
  const ListenAddress& address() const { return address_; }
  std::uint16_t port() const { return address_.port; }
  Counts counts() const;

 private:
  struct Shared;
  class Acceptor;

  Listener(Loops& loops, std::shared_ptr<Shared> shared, ListenAddress address,
           std::vector<std::shared_ptr<Acceptor>> acceptors);

  Loops& loops_;
  const std::shared_ptr<Shared> shared_;
  const ListenAddress address_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
};

}  // namespace sluice::net
