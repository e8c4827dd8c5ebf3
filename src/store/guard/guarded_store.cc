// SPDX-License-Identifier: Apache-2.0
#include "sluice/guarded_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "store/guard/guard.h"

namespace sluice {
namespace {

using guard::Guard;
using guard::StoreCall;

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override {
    return TimePoint{
        std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now().time_since_epoch())};
  }
};

// Whether the guard can ignore an answer of a store that answers inline.
bool IsPlain(const Request& request) {
  return request.action != Action::kReset && !Guard::IsFailure(request);
}

}  // namespace

// Drives a Guard: holds its lock, its clock and a thread for its timer.
class GuardedStore::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Store& inner, const Options& options)
      : inner_(inner),
        answers_inline_(inner.AnswersInline()),
        clock_(options.clock ? options.clock : &steady_),
        on_transition_(options.on_transition),
        on_overload_change_(options.on_overload_change),
        guard_(options, answers_inline_, RandomSeed()) {}

  bool answers_inline() const { return answers_inline_; }
  bool remembers() const { return guard_.remembers(); }

  void ApplyInline(std::span<Request> requests);
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);
  void Forget(const Charge* charge);
  void Stop();

  // Runs `use` with exclusive access to the guard.
  template <typename Use>
  auto WithGuard(const Use& use) {
    const std::lock_guard lock(mutex_);
    return use(guard_);
  }

 private:
  void Send(StoreCall* call);
  void OnAnswer(StoreCall* call);
  void Do(guard::Actions& actions);
  void WakeTimer();
  void RunTimer();

  // Constant after construction.
  Store& inner_;
  const bool answers_inline_;
  const SteadyClock steady_;
  const Clock* const clock_;
  const std::function<void(const Transition&)> on_transition_;
  const std::function<void(const OverloadChange&)> on_overload_change_;

  std::mutex mutex_;
  std::condition_variable timer_;
  // Guarded by mutex_, except for the thread-safe methods of the guard.
  Guard guard_;
  TimePoint wake_at_ = Guard::kNever;  // When the timer wakes by itself; min() while awake.
  bool stopping_ = false;
  std::shared_ptr<Impl> self_;  // After Stop, while answers are outstanding.
  std::jthread timer_thread_;   // Started when there is something to wait for.
};

void GuardedStore::Impl::ApplyInline(std::span<Request> requests) {
  inner_.ApplyInline(requests);
  bool plain = true;
  for (Request& request : requests) {
    request.source = Source::kStore;
    plain = plain && IsPlain(request);
  }
  if (plain) [[likely]] {
    return;
  }
  const std::lock_guard lock(mutex_);
  guard_.OnInlineAnswers(requests, clock_->Now());
  WakeTimer();
}

void GuardedStore::Impl::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  const TimePoint now = clock_->Now();
  if (guard_.AnswerKnown(requests, now)) return done();
  guard::Actions actions;
  StoreCall* call = nullptr;
  {
    const std::lock_guard lock(mutex_);
    call = guard_.Apply(requests, done, now, actions);
    WakeTimer();
  }
  Do(actions);
  if (!call) return done();
  Send(call);
}

void GuardedStore::Impl::Send(StoreCall* call) {
  inner_.Apply(call->requests, [this, call] { OnAnswer(call); });
}

// While answers are outstanding, this object lives. Once the lock is released it may be gone,
// unless it is held here.
void GuardedStore::Impl::OnAnswer(StoreCall* call) {
  const TimePoint now = clock_->Now();
  guard::Actions actions;
  std::move_only_function<void()> done;
  std::shared_ptr<Impl> self;
  {
    const std::lock_guard lock(mutex_);
    done = guard_.OnAnswer(call, now, actions);
    WakeTimer();
    if (self_ && guard_.calls_out() == 0) {
      self = std::move(self_);
    } else if (!actions.empty()) {
      self = shared_from_this();
    }
  }
  if (self) Do(actions);
  if (done) done();
}

// Without the lock: all of these may call back.
void GuardedStore::Impl::Do(guard::Actions& actions) {
  for (const Transition& transition : actions.transitions) {
    if (on_transition_) on_transition_(transition);
  }
  for (const OverloadChange& change : actions.overload_changes) {
    if (on_overload_change_) on_overload_change_(change);
  }
  for (StoreCall* call : actions.send) Send(call);
  for (auto& done : actions.done) done();
}

// After an event, which may need the timer earlier. Requires the lock.
void GuardedStore::Impl::WakeTimer() {
  if (stopping_ || guard_.NextWake() >= wake_at_) return;
  if (!timer_thread_.joinable()) timer_thread_ = std::jthread([this] { RunTimer(); });
  wake_at_ = TimePoint::min();
  timer_.notify_one();
}

void GuardedStore::Impl::RunTimer() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint next = guard_.NextWake();
    const TimePoint now = clock_->Now();
    if (next > now) {
      wake_at_ = next;
      if (next == Guard::kNever) {
        timer_.wait(lock);
      } else {
        timer_.wait_for(lock, next - now);
      }
      wake_at_ = TimePoint::min();
      continue;
    }
    guard::Actions actions;
    guard_.OnTimer(now, actions);
    lock.unlock();
    Do(actions);
    lock.lock();
  }
}

void GuardedStore::Impl::Forget(const Charge* charge) {
  guard_.ForgetDenials(charge);
  WithGuard([&](Guard& guard) { guard.ForgetLastSeen(charge); });
}

void GuardedStore::Impl::Stop() {
  WithGuard([&](Guard&) { stopping_ = true; });
  timer_.notify_one();
  if (timer_thread_.joinable()) timer_thread_.join();
  guard::Actions actions;
  WithGuard([&](Guard& guard) {
    guard.Stop(clock_->Now(), actions);
    if (guard.calls_out() > 0) self_ = shared_from_this();
  });
  Do(actions);
}

GuardedStore::GuardedStore(Store& inner, const Options& options)
    : impl_(std::make_shared<Impl>(inner, options)) {
  if (!impl_->remembers()) return;
  inner.Watch([impl = std::weak_ptr(impl_)](const Charge* charge) {
    if (const auto self = impl.lock()) self->Forget(charge);
  });
}

GuardedStore::~GuardedStore() { impl_->Stop(); }

void GuardedStore::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  if (!impl_->answers_inline()) return impl_->Apply(requests, std::move(done));
  impl_->ApplyInline(requests);
  done();
}

void GuardedStore::ApplyInline(std::span<Request> requests) { impl_->ApplyInline(requests); }

bool GuardedStore::AnswersInline() const { return impl_->answers_inline(); }

void GuardedStore::SetInstances(std::int64_t instances) {
  impl_->WithGuard([&](Guard& guard) { guard.SetInstances(instances); });
}

void GuardedStore::ForgetDenials() { impl_->Forget(nullptr); }

GuardedStore::Status GuardedStore::GetStatus() const {
  return impl_->WithGuard([](Guard& guard) { return guard.GetStatus(); });
}

GuardedStore::Stats GuardedStore::GetStats() const {
  return impl_->WithGuard([](Guard& guard) { return guard.GetStats(); });
}

}  // namespace sluice
