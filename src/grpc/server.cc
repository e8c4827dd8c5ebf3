// SPDX-License-Identifier: Apache-2.0
#include "grpc/server.h"

#include <utility>

#include "grpc/shard.h"

namespace sluice::grpc {

Expected<std::unique_ptr<Server>> Server::Start(net::Loops& loops, service::Engine& engine,
                                                Options options) {
  net::Listener::Options listen = {.address = options.address,
                                   .tls = options.tls,
                                   .alpn = {"h2"},
                                   .connections_max = options.connections_max};
  auto shards =
      net::Shards<Shard>::Start(loops, std::move(listen), [&](boost::asio::io_context& context) {
        return std::make_shared<Shard>(context, engine, options);
      });
  if (!shards) return std::unexpected(std::move(shards.error()));
  return std::unique_ptr<Server>(new Server(*std::move(shards)));
}

Server::Server(std::unique_ptr<net::Shards<Shard>> shards) : shards_(std::move(shards)) {}

Server::~Server() = default;

void Server::SetServing(Serving serving) {
  shards_->RunOnAll([&](Shard& shard) { shard.SetServing(serving); });
}

void Server::StartDrain() { shards_->StartDrain(); }

std::size_t Server::Drain(SteadyTime deadline) { return shards_->Drain(deadline); }

Expected<bool> Server::ReloadCertificate() { return shards_->listener().ReloadCertificate(); }

const net::ListenAddress& Server::address() const { return shards_->listener().address(); }

Server::Counts Server::counts() const {
  Counts counts = {.connections = shards_->listener().counts()};
  for (const auto& shard : shards_->all()) {
    const Counters& counters = shard->counters;
    counts.calls += counters.calls.value();
    counts.refused += counters.refused.value();
    counts.deadlines_exceeded += counters.deadlines_exceeded.value();
    counts.resets += counters.resets.value();
    counts.floods += counters.floods.value();
    counts.timeouts += counters.timeouts.value();
  }
  return counts;
}

}  // namespace sluice::grpc
