// SPDX-License-Identifier: Apache-2.0
// A store that answers from another thread, like one behind a network.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/store.h"

namespace sluice::testing_support {

// Answers one call at a time while it is not held back, and all that are left when it ends: it must
// end before those to whom it answers.
class ThreadStore final : public Store {
 public:
  explicit ThreadStore(Store& store) : store_(store), thread_([this] { Run(); }) {}
  ~ThreadStore() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      held_ = false;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    {
      const std::lock_guard lock(mutex_);
      batches_.push_back(requests.size());
    }
    Push([this, requests, done = std::move(done)]() mutable {
      store_.Apply(requests, std::move(done));
    });
  }

  void Hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void WaitForACall() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !calls_.empty(); });
  }
  // How many requests came with each call.
  std::vector<std::size_t> batches() {
    const std::lock_guard lock(mutex_);
    return batches_;
  }

 private:
  void Push(std::move_only_function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    changed_.notify_all();
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || (!held_ && !calls_.empty()); });
      if (calls_.empty()) return;
      auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
  }

  Store& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::move_only_function<void()>> calls_;
  std::vector<std::size_t> batches_;
  bool held_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice::testing_support
