// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include "http/connection.h"

namespace sluice::http {

Expected<std::unique_ptr<Server>> Server::Start(net::Loops& loops, Handler& handler,
                                                Options options) {
  net::Listener::Options listen = {.address = options.address,
                                   .tls = options.tls,
                                   .alpn = {"http/1.1"},
                                   .connections_max = options.limits.connections_max,
                                   .handshake_timeout = options.limits.handshake_timeout};
  auto shards =
      net::Shards<Shard>::Start(loops, std::move(listen), [&](boost::asio::io_context& context) {
        return std::make_shared<Shard>(context, handler, options);
      });
  if (!shards) return std::unexpected(std::move(shards.error()));
  return std::unique_ptr<Server>(new Server(*std::move(shards)));
}

Server::Server(std::unique_ptr<net::Shards<Shard>> shards) : shards_(std::move(shards)) {}

Server::~Server() = default;

void Server::StartDrain() { shards_->StartDrain(); }

std::size_t Server::Drain(std::chrono::steady_clock::time_point deadline) {
  return shards_->Drain(deadline);
}

Expected<bool> Server::ReloadCertificate() { return shards_->listener().ReloadCertificate(); }

const net::ListenAddress& Server::address() const { return shards_->listener().address(); }

Server::Counts Server::counts() const {
  Counts counts{.connections = shards_->listener().counts()};
  for (const auto& shard : shards_->all()) {
    counts.requests += shard->requests.value();
    counts.bad_requests += shard->bad_requests.value();
    counts.timeouts += shard->timeouts.value();
  }
  return counts;
}

}  // namespace sluice::http
