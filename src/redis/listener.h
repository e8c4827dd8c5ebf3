// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "redis/link.h"
#include "redis/network.h"

namespace sluice::redis {

// Listens to channels, and again after every lost connection, whatever the network is. Lives on the
// network's event loop.
class Listener {
 public:
  explicit Listener(Network& network) : network_(network) {}

  // Messages published while there is no connection are lost: `on_subscribed` runs each time that
  // listening begins, and is the moment to look for what was missed. Handlers may subscribe to
  // more.
  void Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                 std::function<void()> on_subscribed);

  // Call this when the masters may have changed. A master that was replaced may live on and keep
  // its connections, or just hang, but it gets no more messages.
  void LeaveFormerMaster();

  // Call this before the network is stopped.
  void Stop();

  // Whether everything that is published is received now. From any thread.
  bool listening() const { return listening_.load(std::memory_order_relaxed); }

 private:
  struct Subscription {
    std::string channel;
    std::function<void(std::string_view)> on_message;
    std::function<void()> on_subscribed;
  };

  void Listen();
  void OnUp(Link& link);
  void Begin(Connection& connection, std::size_t number);

  Network& network_;
  std::shared_ptr<Link> link_;  // Null until there is something to listen to.
  std::vector<Subscription> subscriptions_;
  bool stopped_ = false;
  std::atomic<bool> listening_ = false;
};

}  // namespace sluice::redis
