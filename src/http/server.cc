// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "http/connection.h"

namespace sluice::http {

// Which of the shards have closed their last connection.
struct Server::Drained {
  void Add() {
    const std::lock_guard lock(mutex);
    ++shards;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t shards = 0;
};

Expected<std::unique_ptr<Server>> Server::Start(net::Loops& loops, Handler& handler,
                                                Options options) {
  std::vector<std::shared_ptr<Shard>> shards;
  shards.reserve(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    shards.push_back(std::make_shared<Shard>(loops.context(i), handler, options));
  }
  auto listener = net::Listener::Start(
      loops,
      {.address = std::move(options.address),
       .tls = std::move(options.tls),
       .alpn = {"http/1.1"},
       .connections_max = options.limits.connections_max,
       .handshake_timeout = options.limits.handshake_timeout},
      [shards](std::size_t loop, net::Stream stream) { shards[loop]->Add(std::move(stream)); });
  if (!listener) return std::unexpected(std::move(listener.error()));
  return std::unique_ptr<Server>(new Server(loops, std::move(shards), std::move(*listener)));
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

void Server::StartDrain() {
  if (std::exchange(draining_, true)) return;
  listener_->StopAccepting();
  loops_.RunOnAll([this](std::size_t loop) {
    shards_[loop]->StartDrain([drained = drained_] { drained->Add(); });
  });
}

std::size_t Server::Drain(std::chrono::steady_clock::time_point deadline) {
  StartDrain();
  {
    std::unique_lock lock(drained_->mutex);
    const auto all = [this] { return drained_->shards == shards_.size(); };
    if (drained_->changed.wait_until(lock, deadline, all)) return 0;
  }
  std::atomic<std::size_t> closed = 0;
  loops_.RunOnAll([&](std::size_t loop) { closed += shards_[loop]->Close(); });
  return closed;
}

const net::ListenAddress& Server::address() const { return listener_->address(); }

Server::Counts Server::counts() const {
  Counts counts{.connections = listener_->counts()};
  for (const auto& shard : shards_) {
    counts.requests += shard->requests.value();
    counts.bad_requests += shard->bad_requests.value();
    counts.timeouts += shard->timeouts.value();
  }
  return counts;
}

}  // namespace sluice::http
