// SPDX-License-Identifier: Apache-2.0
#include "net/loops.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cassert>
#include <chrono>
#include <latch>
#include <string>

namespace sluice::net {

namespace asio = boost::asio;

namespace {

// Works until the context is stopped. Waking a sleeping thread is work for whoever does it: on one
// machine the client, with every request. So if a loop's recent waits are short, and shorter than
// the work between them, it polls for a while before it sleeps.
void Run(asio::io_context& context) {
  using Steady = std::chrono::steady_clock;
  static constexpr Steady::duration kWatchMax = std::chrono::microseconds(20);
  static constexpr Steady::duration kWaitMax = 8 * kWatchMax;  // A longer one counts as this.
  static constexpr int kMemory = 16;                           // How many the averages cover.
  Steady::duration work{};                                     // Averages.
  Steady::duration wait{};
  Steady::time_point working_since = Steady::now();
  while (!context.stopped()) {
    context.poll();
    const Steady::time_point waiting_since = Steady::now();
    work += (waiting_since - working_since - work) / kMemory;
    working_since = waiting_since;
    bool found = false;
    if (wait < std::min(work, kWatchMax)) {
      while (!found && working_since - waiting_since < kWatchMax) {
        ::sched_yield();  // Others may need the processor for more than polling.
        found = context.poll_one() > 0 || context.stopped();
        working_since = Steady::now();
      }
    }
    if (!found) {
      context.run_one();
      working_since = Steady::now();
    }
    wait += (std::min(working_since - waiting_since, kWaitMax) - wait) / kMemory;
  }
}

}  // namespace

Loops::Loop::Loop() : mailbox([this] { asio::post(context, [this] { mailbox.Run(); }); }) {}

Loops::Loops(std::size_t count) {
  assert(count >= 1 && count <= kCountMax);
  for (std::size_t i = 0; i < count; ++i) loops_.push_back(std::make_unique<Loop>());
}

Loops::~Loops() {
  Stop();
  for (const auto& loop : loops_) loop->mailbox.Drop();
  for (const auto& loop : loops_) loop->context.shutdown();
}

void Loops::Start() {
  assert(!running_);
  running_ = true;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    Loop& loop = *loops_[i];
    loop.context.restart();
    loop.thread = std::thread([&loop, i] {
      const std::string name = "sluice-loop-" + std::to_string(i);
      ::pthread_setname_np(::pthread_self(), name.c_str());
      const Mailbox::Home home(loop.mailbox);
      const auto work = asio::make_work_guard(loop.context);
      Run(loop.context);
    });
  }
}

void Loops::Stop() {
  if (!running_) return;
  for (const auto& loop : loops_) {
    asio::post(loop->context, [&context = loop->context] { context.stop(); });
  }
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
