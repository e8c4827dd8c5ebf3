// SPDX-License-Identifier: Apache-2.0
// The threads that serve: one event loop each. Only its own thread touches what lives on a loop, so
// nothing there needs a lock.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mailbox.h"

namespace sluice::net {

class Loops {
 public:
  static constexpr std::size_t kCountMax = 256;

  // Between 1 and kCountMax loops. No thread runs before Start.
  explicit Loops(std::size_t count);
  // Stops, and drops what waits on any loop before the first is destroyed: it may refer to others.
  ~Loops();
  Loops(const Loops&) = delete;
  Loops& operator=(const Loops&) = delete;

  std::size_t size() const { return loops_.size(); }
  boost::asio::io_context& context(std::size_t loop) { return loops_[loop]->context; }

  void Start();
  // Ends all threads after the work posted to them so far, and waits for them. What still waits on
  // a loop is dropped when the object is destroyed. Must not be called on a loop.
  void Stop();

  // Runs `work(loop)` once on every loop and returns when all have run. Before Start and after Stop
  // it runs on the calling thread. Must not be called on a loop.
  void RunOnAll(const std::function<void(std::size_t loop)>& work);

 private:
  struct Context : boost::asio::io_context {
    // One thread only: Asio then omits most of its synchronization.
    Context() : io_context(1) {}
    using io_context::shutdown;
  };
  // In lines of the cache of its own: nothing that one loop writes is beside what another reads.
  struct alignas(64) Loop {
    Loop();

    Context context;
    Mailbox mailbox;  // Mailbox::Here on the loop's thread.
    std::thread thread;
  };

  std::vector<std::unique_ptr<Loop>> loops_;
  bool running_ = false;
};

}  // namespace sluice::net
