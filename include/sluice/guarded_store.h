// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "sluice/memory_store.h"
#include "sluice/store.h"

namespace sluice {

// Keeps deciding when the store that it wraps does not. Every request is answered within its
// deadline, by the store or else as each charge's `on_store_failure` says. docs/guide/failure.md
// explains what that means for each failure.
//
// A request whose deadline passes, that finds too many others in flight or the circuit breaker
// open, or that the store answers with a failure (kStoreFull, kUnavailable, kOutcomeUnknown,
// kAccessDenied, kStoreError, kForeignState), is decided by policy:
// - if any of its charges is kFailClosed, the outcome is the error. An outage is never a denial;
// - otherwise its kLocal charges are decided, all or none, by a memory store in this process on
//   this instance's share of each limit (see Options::instances), and its kFailOpen charges allow.
//   The outcome is the error after all if a cost exceeds that share.
// Request::source says who decided. Errors of the request itself (kInvalidKey, kInvalidCost,
// kCostExceedsLimit and so on) are returned as they are, and are not failures.
//
// A store that answers, even if late, but cannot keep up is overloaded rather than out of reach:
// whoever floods it must not turn limits off for everybody. A request that finds no place in
// flight, misses its deadline or meets a breaker that is open for slowness while answers still
// come, or finds the store full, is decided by each charge's `on_overload` instead.
// Options::on_overload, kLocal, replaces kFailOpen there, and Source::kOverload marks what was
// decided locally. Other errors of the store, and silence for longer than max(1 s, 10 deadlines),
// are failures.
//
// While places in flight are scarce they are shared. Keys that the store has not answered for
// lately get at most half of them, and no limit and no client gets so many that none are left for
// others.
//
// Nothing that takes units is ever sent to the store a second time. What was taken from local
// shares is reported to it with Action::kDebit once it answers again, as far as it still counts by
// then and provably was not charged there already.
//
// Holds follow the policies, too. One that no charge could keep (kFailOpen) has HoldTerms::held
// false: there is nothing to settle. One on local shares (kLocal) is settled, extended and released
// by this object, and what it cost is reported like everything else that was taken locally. A
// settle that the store cannot be told is answered and kept, for as long as the store would
// remember the hold; telling it twice does no harm. To extend a hold of the store needs the store.
//
// A denial is remembered until it ends, and repeats of it are answered without the store
// (Source::kDenyCache). It ends with time, a cost that may fit, a changed limit, a reset through
// this object, or when the store reports that the budget has grown (Store::Watch), for example
// after a reset by another instance. In case the budget grew and nobody reported it, the store is
// asked again after Options::deny_cache_trust. If another instance takes from the budget, waits
// reported here stay as short as the client was first told.
//
// A reset (Action::kReset) forgets what is known and used locally, whether or not the store can be
// reached. No policy replaces the store: if the store fails, so does the reset.
//
// States (Request::seen) are those that the store reports. There are none for what it was not asked
// about.
//
// Around a store that answers inline (Store::AnswersInline), only the policy applies: there is
// nothing to wait for and nothing to save.
//
// Every method may be called from any thread at any time.
class GuardedStore final : public Store {
 public:
  enum class BreakerState : std::uint8_t {
    kClosed,    // The store is asked.
    kOpen,      // The store is not asked.
    kHalfOpen,  // A few requests try the store.
  };

  enum class Reason : std::uint8_t {
    kFailures,         // To kOpen: too many calls failed.
    kSlowCalls,        // To kOpen: too many calls were slow.
    kOpenTimeOver,     // To kHalfOpen.
    kProbeFailed,      // To kOpen: a probe failed, was slow or missed its deadline.
    kProbesSucceeded,  // To kClosed.
  };

  using TransitionCounts = std::array<std::int64_t, 5>;  // By Reason.

  // A change of the breaker's state.
  struct Transition {
    BreakerState from;
    BreakerState to;
    Reason reason;
    std::int64_t number = 0;  // Of this transition: 1, 2, 3 and so on.
    // In the window that opened it.
    std::int64_t calls = 0;
    std::int64_t failures = 0;
    std::int64_t slow = 0;
    Micros open_for{0};                      // To kOpen: until probes are tried.
    std::optional<Error> last_failure = {};  // To kOpen: the latest that was seen.
  };

  // The store cannot keep up, or has kept up again for a while.
  struct OverloadChange {
    bool begins;
    std::int64_t number = 0;  // Of this overload: 1, 2, 3 and so on.
    // If it ends.
    std::int64_t decisions = 0;  // Made without the store because of it.
    Micros lasted{0};
  };

  struct BreakerOptions {
    Micros window{1'000'000};  // The calls that count.
    std::int64_t minimum_calls = 20;
    std::int64_t failure_percent = 50;  // Opens from here on; above 100: never.
    std::int64_t slow_percent = 80;     // Likewise; failed calls count as slow.
    Micros slow_after{15'000};

    // How long it stays open at first. This doubles each time that probes fail, or that it opens
    // again within `settled_after` of closing. Up to `jitter_percent` is added at random, so that
    // instances do not probe in step.
    Micros open_min{200'000};
    Micros open_max{500'000};
    Micros settled_after{10'000'000};
    std::int64_t jitter_percent = 20;
    std::optional<std::uint64_t> jitter_seed = {};  // None: from the operating system.

    std::int64_t probes_max = 3;       // In flight at a time.
    std::int64_t probes_to_close = 5;  // All of them must succeed, and none be slow.
    Micros probe_deadline{20'000};

    // Requests serve as probes. After this long without any, the guard itself looks at a state of
    // its own, which takes and writes nothing, so that an idle instance recovers, too.
    Micros idle_probe_after{1'000'000};
  };

  // Out-of-range numbers are moved to the nearest valid ones.
  struct Options {
    Micros deadline{20'000};  // From Apply to `done`.

    // Requests that the store has not answered, including those past their deadline. These places
    // are shared between limits and clients when they are scarce. A request that gets none is
    // decided by policy at once.
    std::size_t in_flight_max = 4'096;

    BreakerOptions breaker = {};

    // Applies under overload to a kFailOpen charge without an `on_overload` of its own.
    OnStoreFailure on_overload = OnStoreFailure::kLocal;

    // The number of instances that a limit is divided among while the store fails: each grants
    // amount / instances, at least 1, and refills at exactly rate / instances.
    std::int64_t instances = 1;

    MemoryStore::Options local = {};  // For what is decided locally.

    // How many states may wait to have their local consumption reported; that of others is not
    // reported.
    std::size_t unreported_max = 65'536;

    std::size_t deny_cache_entries = 65'536;  // 96 bytes each; 0: no cache.

    // How long a remembered denial is trusted without asking the store again. While the store
    // cannot be asked, it is trusted until it ends.
    Micros deny_cache_trust{10'000'000};

    // Used for deadlines and all other timing here; must never be set back. Not owned; null: the
    // steady clock. The guard's thread sleeps by the steady clock, and then reads this one.
    const Clock* clock = nullptr;

    // Called outside of all locks, on whichever thread changed the state; calls may overtake each
    // other, see Transition::number. Must be quick, and must not destroy the guard.
    std::function<void(const Transition&)> on_transition = {};

    // Likewise.
    std::function<void(const OverloadChange&)> on_overload_change = {};
  };

  struct Status {
    BreakerState breaker = BreakerState::kClosed;
    std::optional<Transition> last_transition;
    std::optional<Error> last_failure;
    std::int64_t instances = 1;
    bool overloaded = false;  // Ten decisions because of it, the last of them in the last 5 s.
  };

  // Counts of requests since the start, unless noted otherwise.
  struct Stats {
    std::int64_t in_flight = 0;  // Now.
    std::int64_t abandoned = 0;  // Of these, past their deadline.

    std::int64_t by_store = 0;  // Answered by the store, in time and without failure.

    // Why the policy decided.
    std::int64_t deadline_misses = 0;
    std::int64_t store_failures = 0;
    std::int64_t breaker_rejections = 0;
    std::int64_t in_flight_rejections = 0;

    // Of these, because the store answered but could not keep up.
    std::int64_t overload_deadline = 0;
    std::int64_t overload_breaker = 0;  // It was open for slowness.
    std::int64_t overload_in_flight = 0;
    std::int64_t overload_full = 0;  // It had no room: kStoreFull.
    std::int64_t overloads = 0;      // How often that began.

    // What the policy decided.
    std::int64_t failed_closed = 0;
    std::int64_t failed_open = 0;
    std::int64_t local_allowed = 0;
    std::int64_t local_denied = 0;
    std::int64_t overload_allowed = 0;  // Locally, too.
    std::int64_t overload_denied = 0;
    std::int64_t known_denied = 0;  // Denied by the store before it failed.

    // Answers of the store to requests that the policy had already decided.
    std::int64_t late_charged = 0;      // Local consumption of these is not reported.
    std::int64_t late_not_charged = 0;  // Denied, peeked or provably failed.
    std::int64_t late_unknown = 0;      // Nobody knows; local consumption is not reported.

    // Units taken locally, and what became of them.
    std::int64_t local_units = 0;
    std::int64_t reported_units = 0;    // Debited from the store.
    std::int64_t charged_units = 0;     // Charged by the store after all, as a late answer showed.
    std::int64_t recovered_units = 0;   // No longer counted when it was their turn.
    std::int64_t dropped_units = 0;     // Perhaps charged already, or `unreported_max` was reached.
    std::int64_t states_to_report = 0;  // Now.

    // Settles that the store could not be told: kept, and then sent or dropped, because the store
    // might not have remembered the hold any more, refused, or there was no room.
    std::int64_t settles_kept = 0;
    std::int64_t settles_sent = 0;
    std::int64_t settles_dropped = 0;
    std::int64_t settles_waiting = 0;  // Now.
    std::int64_t local_holds = 0;      // Live ones on local shares, now.

    std::int64_t transitions = 0;  // Of the breaker.
    TransitionCounts transitions_by_reason{};

    std::int64_t deny_cache_hits = 0;
    std::int64_t deny_cache_entries = 0;  // Now.
    std::int64_t deny_cache_bytes = 0;

    std::int64_t local_keys = 0;  // States held by the local store now.
  };

  // `inner` is not owned. It must outlive this object and every answer that is still outstanding.
  GuardedStore(Store& inner, const Options& options);

  // Decides by policy what is still waiting.
  ~GuardedStore() override;
  GuardedStore(const GuardedStore&) = delete;
  GuardedStore& operator=(const GuardedStore&) = delete;

  // Does not wait. `done` runs before this returns, on a thread of the inner store, or on the
  // guard's own, which it must not hold up. It must not destroy the guard.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override;
  void ApplyInline(std::span<Request> requests) override;

  bool AnswersInline() const override;

  // Sets how many instances there are. What was taken locally stays taken.
  void SetInstances(std::int64_t instances);

  // Drops all remembered denials. Call it when limits may have changed in a way that is not visible
  // here, such as to other numbers and back.
  void ForgetDenials();

  Status GetStatus() const;
  Stats GetStats() const;

  class Impl;

 private:
  const std::shared_ptr<Impl> impl_;
};

// "closed", "failures" and so on, for logs and metrics.
std::string_view ToString(GuardedStore::BreakerState state);
std::string_view ToString(GuardedStore::Reason reason);

}  // namespace sluice
