// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "net/listener.h"
#include "net/loops.h"
#include "net/stream.h"
#include "sluice/error.h"

namespace sluice::net {

// A server split into shards: one per loop, with the connections that the loop has accepted. A
// Shard is used only on its loop, and has
//   void Add(net::Stream stream);
//   void StartDrain(std::function<void()> on_drained);  // Runs when no connection is left.
//   std::size_t Close();  // All that are open, or come later; returns how many there were.
template <typename Shard>
class Shards {
 public:
  using Make = std::function<std::shared_ptr<Shard>(boost::asio::io_context& context)>;

  // Listens at once; errors are those of Listener. `loops` outlives the shards.
  static Expected<std::unique_ptr<Shards>> Start(Loops& loops, Listener::Options options,
                                                 const Make& make) {
    std::vector<std::shared_ptr<Shard>> shards;
    shards.reserve(loops.size());
    for (std::size_t i = 0; i < loops.size(); ++i) shards.push_back(make(loops.context(i)));
    auto listener = Listener::Start(
        loops, std::move(options),
        [shards](std::size_t loop, Stream stream) { shards[loop]->Add(std::move(stream)); });
    if (!listener) return std::unexpected(std::move(listener.error()));
    return std::unique_ptr<Shards>(new Shards(loops, std::move(shards), *std::move(listener)));
  }

  // Closes every connection, whatever its state.
  ~Shards() {
    listener_->StopAccepting();
    RunOnAll([](Shard& shard) { shard.Close(); });
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  // Accepts no more connections. Like everything below, must not be called on a loop.
  void StartDrain() {
    if (std::exchange(draining_, true)) return;
    listener_->StopAccepting();
    RunOnAll([this](Shard& shard) {
      shard.StartDrain([drained = drained_] {
        const std::scoped_lock lock(drained->mutex);
        ++drained->shards;
        drained->changed.notify_all();
      });
    });
  }

  // Starts to drain if it has not, and waits until all connections are closed. Closes the remaining
  // ones at the deadline, and returns how many there were.
  std::size_t Drain(std::chrono::steady_clock::time_point deadline) {
    StartDrain();
    {
      std::unique_lock lock(drained_->mutex);
      const auto all = [this] { return drained_->shards == shards_.size(); };
      if (drained_->changed.wait_until(lock, deadline, all)) return 0;
    }
    std::atomic<std::size_t> closed = 0;
    RunOnAll([&](Shard& shard) { closed += shard.Close(); });
    return closed;
  }

  // Runs on each shard's loop; returns when all have run.
  void RunOnAll(const std::function<void(Shard&)>& work) {
    loops_.RunOnAll([&](std::size_t loop) { work(*shards_[loop]); });
  }

  Listener& listener() { return *listener_; }
  // For what may be read on any thread.
  const std::vector<std::shared_ptr<Shard>>& all() const { return shards_; }

 private:
  struct Drained {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t shards = 0;  // Without connections.
  };

  Shards(Loops& loops, std::vector<std::shared_ptr<Shard>> shards,
         std::unique_ptr<Listener> listener)
      : loops_(loops), shards_(std::move(shards)), listener_(std::move(listener)) {}

  Loops& loops_;
  const std::vector<std::shared_ptr<Shard>> shards_;  // One per loop.
  const std::unique_ptr<Listener> listener_;
  const std::shared_ptr<Drained> drained_ = std::make_shared<Drained>();
  bool draining_ = false;
};

}  // namespace sluice::net
