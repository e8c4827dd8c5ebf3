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

// Listens to channels, again after every lost connection, whatever stands behind the network. Lives
// on the network's event loop.
class Listener {
 public:
  explicit Listener(Network& network) : network_(network) {}

  // What is published while there is no connection is lost: `on_subscribed` runs each time that it
  // begins to listen, and is the time to look for what was missed. Handlers may subscribe to more.
  void Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                 std::function<void()> on_subscribed);

  // To be called when the masters may have changed: one that was replaced may live on and keep its
  // connections, or just hang, but hears nothing any more.
  void LeaveFormerMaster();

  // Before the network is stopped.
  void Stop();

  // Whether all that is published is heard now. From any thread.
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
