// SPDX-License-Identifier: Apache-2.0
#include "net/loops.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cassert>
#include <latch>
#include <string>

namespace sluice::net {

namespace asio = boost::asio;

Loops::Loops(std::size_t count) {
  assert(count >= 1 && count <= kCountMax);
  for (std::size_t i = 0; i < count; ++i) loops_.push_back(std::make_unique<Loop>());
}

Loops::~Loops() {
  Stop();
  for (const auto& loop : loops_) loop->context.shutdown();
}

void Loops::Start() {
  assert(!running_);
  running_ = true;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    asio::io_context& context = loops_[i]->context;
    context.restart();
    loops_[i]->thread = std::thread([&context, i] {
      const std::string name = "sluice-loop-" + std::to_string(i);
      ::pthread_setname_np(::pthread_self(), name.c_str());
      const auto work = asio::make_work_guard(context);
      context.run();
    });
  }
}

void Loops::Stop() {
  if (!running_) return;
  for (const auto& loop : loops_) loop->context.stop();
  for (const auto& loop : loops_) loop->thread.join();
  running_ = false;
}

void Loops::RunOnAll(const std::function<void(std::size_t loop)>& work) {
  if (!running_) {
    for (std::size_t i = 0; i < loops_.size(); ++i) work(i);
    return;
  }
  std::latch done(static_cast<std::ptrdiff_t>(loops_.size()));
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    asio::post(loops_[i]->context, [&work, &done, i] {
      work(i);
      done.count_down();
    });
  }
  done.wait();
}

}  // namespace sluice::net
