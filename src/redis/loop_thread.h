// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <thread>
#include <utility>

#include "base/mailbox.h"

namespace sluice::redis {

// An event loop on a thread of its own, for those who have none.
class LoopThread {
 public:
  LoopThread() : thread_([this] { Run(); }) {}
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  auto executor() { return context_.get_executor(); }

  // All that is posted until the loop comes to it wakes the loop once.
  template <typename Function>
  void Post(Function function) {
    mailbox_.Post(std::move(function));
  }

  // Runs `last` on the loop, then what it posts, without waiting for anything, and ends the loop.
  void Stop(std::move_only_function<void()> last) {
    Post([this, last = std::move(last)]() mutable {
      last();
      context_.stop();
    });
    thread_.join();
  }

 private:
  void Run() {
    context_.run();
    context_.restart();
    context_.poll();
  }

  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_ =
      boost::asio::make_work_guard(context_);
  Mailbox mailbox_{[this] { boost::asio::post(context_, [this] { mailbox_.Run(); }); }};
  std::jthread thread_;
};

}  // namespace sluice::redis
