// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/guarded_store.h"
#include "store/guard/breaker.h"
#include "store/guard/deny_cache.h"
#include "store/guard/fallback.h"
#include "store/guard/kept_settles.h"
#include "store/guard/known_keys.h"
#include "store/guard/last_seen.h"
#include "store/guard/ledger.h"
#include "store/guard/local_holds.h"
#include "store/guard/overload.h"
#include "store/guard/places.h"
#include "store/guard/store_call.h"

namespace sluice::guard {

// What to do after an event, in this order, besides what the event returns.
struct Actions {
  std::vector<GuardedStore::Transition> transitions;           // Tell the observer.
  std::vector<GuardedStore::OverloadChange> overload_changes;  // Likewise.
  std::vector<StoreCall*> send;                                // Ask the store.
  std::vector<StoreCall::Done> done;                           // Call: their requests are answered.

  bool empty() const {
    return transitions.empty() && overload_changes.empty() && send.empty() && done.empty();
  }
};

// Everything that GuardedStore decides, as a state machine: no I/O, no thread, no lock, no clock.
// The driver reports what happened and when (times hardly ever go back), and does what it returns.
// The same events give the same actions: randomness comes from `seed`, and the time of local
// decisions from the clock in Options::local.
//
// A call to be sent belongs to the guard. The driver passes `requests` to the store, and the call
// to OnAnswer, once, when the store has answered. Until then it touches nothing else.
//
// Not thread-safe, except where noted.
class Guard {
 public:
  using Done = StoreCall::Done;
  static constexpr TimePoint kNever = TimePoint::max();

  Guard(const GuardedStore::Options& options, bool inner_answers_inline, const Seed& seed);

  // Requests arrive. First AnswerKnown, and then, if it returns false, Apply.
  //
  // AnswerKnown answers what needs no store: invalid requests, and repeats of denials. Returns
  // whether that was all. Thread-safe.
  bool AnswerKnown(std::span<Request> requests, TimePoint now);

  // Answers the others by policy, or returns a call for them, to be sent after those in `actions`.
  // Null: all are answered. Otherwise it takes `done`, and returns it when they are.
  StoreCall* Apply(std::span<Request> requests, Done& done, TimePoint now, Actions& actions);

  // The store has answered. Returns the callback to run now; empty if nobody waits any more.
  Done OnAnswer(StoreCall* call, TimePoint now, Actions& actions);

  // Requests that an inner store has answered inline, including resets and failures.
  void OnInlineAnswers(std::span<Request> requests, TimePoint now);

  // The time of NextWake has come.
  void OnTimer(TimePoint now, Actions& actions);

  // When OnTimer has something to do. Changes with every event.
  TimePoint NextWake() const;

  // Decides by policy what is still waiting. Only answers of the store may follow.
  void Stop(TimePoint now, Actions& actions);

  // Calls that the store has not answered.
  std::size_t calls_out() const { return calls_.size() - free_.size(); }

  // Others made a budget larger. Null: any budget. Call both; the first one is thread-safe.
  void ForgetDenials(const Charge* charge);
  void ForgetLastSeen(const Charge* charge);

  void SetInstances(std::int64_t instances) { fallback_.SetInstances(instances); }

  // Whether it needs to know of budgets that others made larger. Thread-safe.
  bool remembers() const { return cache_.enabled(); }

  GuardedStore::Status GetStatus() const;
  GuardedStore::Stats GetStats() const;

  // Whether the store, not the request, is at fault. Thread-safe.
  static bool IsFailure(const Request& request) {
    return !request.outcome && request.outcome.error().outage();
  }

 private:
  enum class Rejection { kBreaker, kInFlight };

  // Asking the store.
  StoreCall* Admit(TimePoint now, Actions& actions);
  bool Reserve(StoreCall& call, std::span<const Charge> charges, Action action);
  void Unreserve(StoreCall& call, std::size_t scarce_before);
  Places::Requester RequesterOf(std::span<const Charge> charges) const;
  void Launch(StoreCall* call, TimePoint now);
  void Cancel(StoreCall* call);
  void Release(StoreCall* call);

  // The end of a call.
  void RecordAnswer(const StoreCall& call, TimePoint now, Actions& actions);
  void HandBack(StoreCall& call, TimePoint now);
  void Remember(const StoreCall& call, std::size_t i);
  void Expire(StoreCall* call, TimePoint now, Actions& actions);
  void AccountLateAnswer(StoreCall& call, TimePoint now);

  // Deciding without the store.
  void Reject(Request& request, Rejection why, TimePoint now, Actions& actions);
  void DecideFailed(Request& request, const Error& error, TimePoint now);
  void DecideFinally(Request& request, const Error& error, Cause cause, TimePoint now);
  std::int64_t DecideByPolicy(Request& request, const Error& error, Cause cause, TimePoint now);
  void StartFromLastSeen(const Request& request, Cause cause, TimePoint now);

  // Holds that the store does not know, and settles that it has not been told.
  TimePoint ExpiryOf(const HoldTerms& terms, TimePoint now) const;
  void AddLocalHold(const Request& request, Cause cause, TimePoint now);
  bool DecideOnLocalHold(Request& request, TimePoint now);
  void SettleLocalHold(std::string_view id, Ledger::Debt cost, TimePoint now);
  void TakeForGood(std::span<const Ledger::Debt> parts, TimePoint now);
  void GiveUpTwin(const Request& answered, TimePoint now);
  bool KeepSettle(Request& request, const Error& error, TimePoint now);
  void KeepRelease(const Request& hold, TimePoint now);
  bool AddKept(const Request& settle, TimePoint until, TimePoint now);

  // Calls of its own: settles, reports of what was taken locally, and probes.
  void AddUnreported(std::span<const Charge> charges, Cause cause, TimePoint now);
  void CallIfDue(TimePoint now, Actions& actions);
  std::optional<Rejection> Report(const std::vector<Ledger::Debt>& debts, TimePoint now,
                                  Actions& actions);
  void SendSettles(TimePoint now, Actions& actions);
  void ProbeIfIdle(TimePoint now, Actions& actions);
  std::size_t SendOwn(StoreCall* call, std::span<Request> requests, TimePoint now,
                      Actions& actions);
  bool AccountOwn(StoreCall& call, TimePoint now);
  bool AccountSettles(StoreCall& call, TimePoint now);
  void EndOwn(bool delivered, TimePoint now);

  void ForgetReset(const Request& request);
  void ForgetIfReset(const Request& answered);
  void AddChanges(Actions& actions);

  CallQueue& QueueOf(const StoreCall& call) { return call.pass.probe ? probes_ : waiting_; }
  Micros DeadlineOf(const StoreCall& call) const {
    return call.pass.probe ? options_.breaker.probe_deadline : options_.deadline;
  }

  const GuardedStore::Options options_;
  const bool inner_answers_inline_;

  // Has locks of its own, so that repeating a denial takes no other lock.
  DenyCache cache_;
  std::atomic<std::int64_t> cache_hits_ = 0;

  GuardedStore::Stats stats_;  // Except what GetStats adds.
  Fallback fallback_;
  Ledger ledger_;
  LocalHolds local_holds_;
  KeptSettles kept_settles_;
  Places places_;
  KnownKeys known_;
  LastSeen last_seen_;
  Breaker breaker_;
  Overload overload_;
  std::int64_t transitions_added_ = 0;
  std::int64_t overload_changes_added_ = 0;

  std::vector<std::unique_ptr<StoreCall>> calls_;
  std::vector<StoreCall*> free_;
  CallQueue waiting_;  // For their deadline, the earliest first.
  CallQueue probes_;   // Likewise.

  bool own_call_out_ = false;  // One that has not missed its deadline.
  TimePoint next_own_call_;    // Not before.
  bool settles_next_ = false;  // Settles and reports take turns.
  TimePoint last_asked_;       // By a caller.
};

}  // namespace sluice::guard
