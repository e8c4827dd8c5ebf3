// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "redis/listener.h"
#include "redis/network.h"
#include "sluice/redis_store.h"
#include "store/redis/dispatcher.h"

namespace sluice::redis {

// The Redis store on one event loop, which runs on one thread. Every method is called there unless
// noted.
class RedisLoop {
 public:
  // See RedisStore::Options::on_call.
  using OnCall = std::function<void(std::chrono::nanoseconds)>;

  RedisLoop(boost::asio::any_io_executor executor, Endpoint endpoint, OnCall on_call);

  // Starts to connect.
  void Start() { network_->Start(); }

  // Fails everything outstanding, with kUnavailable or kOutcomeUnknown, and stays closed.
  void Stop();

  // See Store::Apply. Requests of one turn of the loop are sent together.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);

  // Refuses requests, because `waiting` others wait already. From any thread.
  void RefuseAll(std::span<Request> requests, std::size_t waiting) {
    dispatcher_.RefuseAll(requests, waiting);
  }

  // Calls `on_raised` for each announcement from now on; see Store::Watch.
  void Watch(const Store::OnRaised& on_raised);

  Network& network() { return *network_; }

  // Any thread may read these.
  const Endpoint& endpoint() const { return endpoint_; }
  bool listening() const { return listener_.listening(); }
  const Dispatcher::Counters& counters() const { return dispatcher_.counters(); }
  std::int64_t connects() const { return connects_.load(std::memory_order_relaxed); }

 private:
  boost::asio::awaitable<Expected<void>> LoadScriptOn(Connection& connection);
  Moment Advance(Moment now);
  void Answer();

  const Endpoint endpoint_;
  const OnCall on_call_;
  std::atomic<std::int64_t> connects_ = 0;
  const std::shared_ptr<Network> network_;
  Dispatcher dispatcher_;
  Listener listener_;
  std::vector<Dispatcher::Done> answered_;
};

}  // namespace sluice::redis
