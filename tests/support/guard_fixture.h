// SPDX-License-Identifier: Apache-2.0
// A guard around a scripted store, in one thread and in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "store/guard/guard.h"
#include "support/scripted_store.h"

namespace sluice::guard {

using namespace std::chrono_literals;
using testing_support::ScriptedStore;

inline constexpr auto kLocal = OnStoreFailure::kLocal;
inline constexpr auto kOpen = OnStoreFailure::kFailOpen;
inline constexpr auto kClosed = OnStoreFailure::kFailClosed;

inline const Limit kTen = *Limit::Parse("algorithm=fixed_window,limit=10,window=1d");
inline const Limit kFour = *Limit::Parse("algorithm=fixed_window,limit=4,window=1d");
inline const Limit kMany =
    *Limit::Parse("algorithm=token_bucket,capacity=1000000,refill=1,period=1h");

struct Answer {
  Expected<Decision> outcome;
  Source source;
  std::vector<Decision> each;
};

// Drives a guard as GuardedStore does, in one thread and on a manual clock.
class DrivenGuard final : public Store {
 public:
  DrivenGuard(Store& inner, const GuardedStore::Options& options, ManualClock& time)
      : inner_(inner), options_(options), time_(time), guard_(options, false, Seed{1, 2}) {
    inner.Watch([this](const Charge* charge) { Forget(charge); });
  }
  ~DrivenGuard() override {
    inner_.Watch([](const Charge*) {});
  }

  void Stop() {
    Actions actions;
    guard_.Stop(time_.Now(), actions);
    Do(actions);
  }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override {
    RunTimer();
    if (guard_.AnswerKnown(requests, time_.Now())) return done();
    Actions actions;
    StoreCall* const call = guard_.Apply(requests, done, time_.Now(), actions);
    Do(actions);
    if (!call) return done();
    Send(call);
  }

  void RunTimer() {
    while (guard_.NextWake() <= time_.Now()) {
      Actions actions;
      guard_.OnTimer(time_.Now(), actions);
      Do(actions);
    }
  }

  // Advances to when the timer is due next.
  void Wait() {
    if (guard_.NextWake() == Guard::kNever) return;
    time_.Set(std::max(time_.Now(), guard_.NextWake()));
    RunTimer();
  }

  void Forget(const Charge* charge) {
    guard_.ForgetDenials(charge);
    guard_.ForgetLastSeen(charge);
  }

  Guard& guard() { return guard_; }

 private:
  void Send(StoreCall* call) {
    inner_.Apply(call->requests, [this, call] {
      Actions actions;
      Guard::Done done = guard_.OnAnswer(call, time_.Now(), actions);
      Do(actions);
      if (done) done();
    });
  }

  void Do(Actions& actions) {
    for (const auto& transition : actions.transitions) {
      if (options_.on_transition) options_.on_transition(transition);
    }
    for (const auto& change : actions.overload_changes) {
      if (options_.on_overload_change) options_.on_overload_change(change);
    }
    for (StoreCall* call : actions.send) Send(call);
    for (auto& done : actions.done) done();
  }

  Store& inner_;
  const GuardedStore::Options options_;
  ManualClock& time_;
  Guard guard_;
};

// A request that was asked, and its answer.
struct Asked {
  std::vector<Charge> charges = {};
  std::vector<Decision> each = {};
  Request request = {};
  bool done = false;
};

class GuardTest : public testing::Test {
 protected:
  DrivenGuard& guard() {
    if (!guard_) guard_.emplace(store, options, time);
    return *guard_;
  }

  std::unique_ptr<Asked> Start(std::vector<Charge> charges, Action action = Action::kCheck) {
    auto asked = std::make_unique<Asked>();
    asked->charges = std::move(charges);
    asked->each.resize(asked->charges.size());
    asked->request = {.charges = asked->charges, .each = asked->each, .action = action};
    guard().Apply({&asked->request, 1}, [&done = asked->done] { done = true; });
    return asked;
  }

  // Asks and waits for the answer.
  Answer Ask(std::vector<Charge> charges) {
    const auto asked = Start(std::move(charges));
    while (!asked->done) guard().Wait();
    return {std::move(asked->request.outcome), asked->request.source, std::move(asked->each)};
  }
  Answer Ask(const Limit& limit, OnStoreFailure policy, std::int64_t cost = 1,
             std::string_view key = "k") {
    return Ask({{.key = key, .limit = &limit, .cost = cost, .on_store_failure = policy}});
  }

  Expected<bool> Reset(const Charge& charge) {
    const auto asked = Start({charge}, Action::kReset);
    while (!asked->done) guard().Wait();
    if (!asked->request.outcome) return std::unexpected(asked->request.outcome.error());
    return asked->request.existed;
  }

  GuardedStore::Stats stats() { return guard().guard().GetStats(); }
  GuardedStore::Status status() { return guard().guard().GetStatus(); }
  GuardedStore::BreakerState breaker() { return status().breaker; }

  // Lets time pass until the condition holds.
  template <typename Condition>
  bool Eventually(const Condition& condition) {
    for (int i = 0; i < 1'000 && !condition(); ++i) guard().Wait();
    return condition();
  }

  // Until everything granted locally is reported, and places are free again.
  bool Settles() {
    return Eventually([this] {
      const auto now = stats();
      return now.in_flight == 0 && now.local_units == now.reported_units;
    });
  }

  void TearDown() override { DestroyGuard(); }
  void DestroyGuard() {
    if (!guard_) return;
    guard_->Stop();
    store.AnswerHeld(ErrorCode::kUnavailable);
    guard_.reset();
  }

  ManualClock wall{TimePoint{480'000h}};
  ManualClock time{TimePoint{1h}};
  ScriptedStore store{&wall};
  GuardedStore::Options options{.deadline = 1min,
                                .breaker = {.minimum_calls = 1'000'000,
                                            .jitter_percent = 0,
                                            .jitter_seed = 1,
                                            .probe_deadline = 1min,
                                            .idle_probe_after = 10'000h},
                                .local = {.clock = &wall},
                                .deny_cache_trust = 10s};

 private:
  std::optional<DrivenGuard> guard_;
};

}  // namespace sluice::guard
