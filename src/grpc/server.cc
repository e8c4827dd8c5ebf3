// SPDX-License-Identifier: Apache-2.0
#include "grpc/server.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "grpc/shard.h"

namespace sluice::grpc {

struct Server::Drained {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t shards = 0;  // That have no connection left.
};

Expected<std::unique_ptr<Server>> Server::Start(net::Loops& loops, service::Engine& engine,
                                                Options options) {
  std::vector<std::shared_ptr<Shard>> shards;
  shards.reserve(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    shards.push_back(std::make_shared<Shard>(loops.context(i), engine, options));
  }
  net::Listener::Options listen = {
      .address = std::move(options.address),
      .tls = std::move(options.tls),
      .alpn = {"h2"},
      .connections_max = options.connections_max,
  };
  auto listener = net::Listener::Start(
      loops, std::move(listen),
      [shards](std::size_t loop, net::Stream stream) { shards[loop]->Add(std::move(stream)); });
  if (!listener) return std::unexpected(std::move(listener.error()));
  return std::unique_ptr<Server>(new Server(loops, std::move(shards), *std::move(listener)));
}

Server::Server(net::Loops& loops, std::vector<std::shared_ptr<Shard>> shards,
               std::unique_ptr<net::Listener> listener)
    : loops_(loops),
      shards_(std::move(shards)),
      listener_(std::move(listener)),
      drained_(std::make_shared<Drained>()) {}

Server::~Server() {
  listener_->StopAccepting();
  loops_.RunOnAll([this](std::size_t loop) { shards_[loop]->Close(); });
}

void Server::SetServing(Serving serving) {
  loops_.RunOnAll([&](std::size_t loop) { shards_[loop]->SetServing(serving); });
}

void Server::StartDrain() {
  if (std::exchange(draining_, true)) return;
  listener_->StopAccepting();
  loops_.RunOnAll([this](std::size_t loop) {
    shards_[loop]->StartDrain([drained = drained_] {
      {
        const std::scoped_lock lock(drained->mutex);
        ++drained->shards;
      }
      drained->changed.notify_all();
    });
  });
}

std::size_t Server::Drain(SteadyTime deadline) {
  StartDrain();
  {
    std::unique_lock lock(drained_->mutex);
    if (drained_->changed.wait_until(lock, deadline,
                                     [this] { return drained_->shards == shards_.size(); })) {
      return 0;
    }
  }
  std::atomic<std::size_t> closed = 0;
  loops_.RunOnAll([&](std::size_t loop) { closed += shards_[loop]->Close(); });
  return closed;
}

Server::Counts Server::counts() const {
  Counts counts = {.connections = listener_->counts()};
  for (const auto& shard : shards_) {
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
