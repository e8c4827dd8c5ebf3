// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/memory_store.h"

namespace sluice::testing_support {

// Decides like a memory store, when and how the test says.
class ScriptedStore final : public Store {
 public:
  explicit ScriptedStore(const Clock* clock) : state(MemoryStore::Options{.clock = clock}) {}
  ~ScriptedStore() override { AnswerHeld(ErrorCode::kUnavailable); }

  // The next calls: answered before Apply returns (with an error, if given), or held.
  void AnswerAtOnce() { Become(false, std::nullopt); }
  void Fail(ErrorCode code) { Become(false, code); }
  void Hold() { Become(true, std::nullopt); }

  // Holds debits from now on, whatever happens to the rest, until the next of the above.
  void HoldDebits() {
    const std::lock_guard lock(mutex_);
    hold_debits_ = true;
  }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    std::optional<ErrorCode> error;
    {
      const std::lock_guard lock(mutex_);
      ++calls_;
      for (const Request& request : requests) {
        debits_ += request.action == Action::kDebit ? 1 : 0;
      }
      if (hold_ || (hold_debits_ && requests.front().action == Action::kDebit)) {
        held_.push_back({requests, std::move(done)});
        return;
      }
      error = error_;
    }
    Answer(requests, error);
    done();
  }

  void Watch(OnRaised on_raised) override { raised = std::move(on_raised); }

  // Answers what is held: by the state, or with an error.
  void AnswerHeld(std::optional<ErrorCode> error = {}) {
    std::vector<Held> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (Held& one : held) {
      Answer(one.requests, error);
      one.done();
    }
  }

  std::size_t held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  int debits() const {
    const std::lock_guard lock(mutex_);
    return debits_;
  }

  std::int64_t Remaining(const Limit& limit, std::string_view key = "k") {
    return state.Check({.key = key, .limit = &limit, .cost = 0})->remaining;
  }

  MemoryStore state;
  OnRaised raised;  // Notifies the guard.
  bool tells_state = true;

 private:
  struct Held {
    std::span<Request> requests;
    std::move_only_function<void()> done;
  };

  void Become(bool hold, std::optional<ErrorCode> error) {
    const std::lock_guard lock(mutex_);
    hold_ = hold;
    hold_debits_ = false;
    error_ = error;
  }

  void Answer(std::span<Request> requests, std::optional<ErrorCode> error) {
    if (!error) state.Apply(requests, [] {});
    for (Request& request : requests) {
      if (error) request.outcome = std::unexpected(Error{*error, "scripted"});
      if (!tells_state) std::ranges::fill(request.seen, SeenState{});
    }
  }

  mutable std::mutex mutex_;
  bool hold_ = false;
  bool hold_debits_ = false;
  std::optional<ErrorCode> error_;
  std::vector<Held> held_;
  int calls_ = 0;
  int debits_ = 0;
};

}  // namespace sluice::testing_support
