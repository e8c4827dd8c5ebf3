// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace sluice::daemon {

// Runs something repeatedly on its own thread, until it is destroyed.
class Periodic {
 public:
  enum class First { kAtOnce, kAfterInterval };

  Periodic(std::chrono::microseconds interval, First first, std::function<void()> work)
      : thread_([interval, first, work = std::move(work)](const std::stop_token& stop) {
          if (first == First::kAtOnce) work();
          std::mutex mutex;
          std::condition_variable_any wake;
          std::unique_lock lock(mutex);
          while (!wake.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) {
            work();
          }
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace sluice::daemon
