// SPDX-License-Identifier: Apache-2.0
#include "sluice/guarded_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "store/guard/breaker.h"
#include "store/guard/deny_cache.h"
#include "store/guard/fallback.h"
#include "store/guard/flight.h"
#include "store/guard/known_keys.h"
#include "store/guard/last_seen.h"
#include "store/guard/ledger.h"
#include "store/guard/overload.h"
#include "store/guard/places.h"

namespace sluice {
namespace {

using guard::Breaker;
using guard::Cause;
using guard::Flight;
using guard::Places;
using Steady = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Room beyond in_flight_max, so that a store that left very many requests unanswered can still be
// tried.
constexpr std::size_t kProbeReserve = 1'024;
constexpr std::size_t kReportMax = 128;      // States in one report.
constexpr std::size_t kKnownKeys = 1 << 18;  // Of a generation; 1 MiB for both.
constexpr std::size_t kLastSeen = 1 << 15;   // 2 MiB.
// Between reports that do not get through, and between looks at whether to probe. Reports that do
// get through follow one another.
constexpr auto kErrandEvery = 100ms;

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override {
    return TimePoint{std::chrono::duration_cast<Micros>(Steady::now().time_since_epoch())};
  }
};

bool Failed(const Request& request) { return !request.outcome && request.outcome.error().outage(); }

bool IsFull(const Error& error) { return error.code == ErrorCode::kStoreFull; }

bool FoundItFull(const Request& request) {
  return !request.outcome && IsFull(request.outcome.error());
}

// Whether the store is to be asked less for it. Not for what others wrote under one state's name:
// it serves all other requests. Nor if it is full: it still decides whatever takes no room.
bool FailedStore(const Request& request) {
  return Failed(request) && !FoundItFull(request) &&
         request.outcome.error().code != ErrorCode::kForeignState;
}

// Of an error that the store answered with. What fills it up may be a flood of keys, which must not
// turn limits off.
Cause CauseOf(const Error& error) { return IsFull(error) ? Cause::kOverload : Cause::kOutage; }

bool ProvablyNotCharged(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kStoreFull ||
         error.code == ErrorCode::kAccessDenied || !error.outage();
}

bool Charges(const Request& request) {
  return request.outcome && request.outcome->allowed && request.action != Action::kGive &&
         request.action != Action::kReset &&
         std::ranges::any_of(request.charges, [](const Charge& c) { return c.cost > 0; });
}

Error NotAnswered(Micros deadline) {
  return {ErrorCode::kOutcomeUnknown,
          text::Cat("the store has not answered within ", deadline.count(), " us")};
}

GuardedStore::Options Sane(GuardedStore::Options options) {
  options.deadline = std::clamp<Micros>(options.deadline, 1ms, 1h);
  options.in_flight_max = std::clamp<std::size_t>(options.in_flight_max, 1, 1 << 20);
  options.breaker.probe_deadline =
      std::clamp<Micros>(options.breaker.probe_deadline, 1ms, options.deadline);
  options.deny_cache_trust = std::clamp<Micros>(options.deny_cache_trust, 0s, kSpanMax);
  return options;
}

void Count(std::atomic<std::int64_t>& counter, std::int64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

class GuardedStore::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(Store& inner, const Options& options)
      : inner_(inner),
        answers_inline_(inner.AnswersInline()),
        options_(Sane(options)),
        clock_(options.clock ? options.clock : &steady_),
        cache_(answers_inline_ ? 0 : options_.deny_cache_entries, options_.deny_cache_trust),
        fallback_(options_.local, options_.instances, options_.on_overload),
        ledger_(options_.unreported_max),
        places_(options_.in_flight_max),
        known_(answers_inline_ ? 0 : kKnownKeys),
        last_seen_(cache_.enabled() ? kLastSeen : 0),
        breaker_(options_.breaker),
        overload_(guard::Overload::For(options_.deadline)),
        timer_thread_([this] { RunTimer(); }) {}

  bool answers_inline() const { return answers_inline_; }
  bool remembers() const { return cache_.enabled(); }

  void Stop();
  void ApplyInline(std::span<Request> requests);
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);
  void SetInstances(std::int64_t instances) { fallback_.SetInstances(instances); }
  void Forget(const Charge* charge);
  void Forget(const Hash128& state);
  void ForgetReset(const Request& request);
  void ForgetCharges(std::span<const Charge> charges);
  Status GetStatus() const;
  Stats GetStats() const;

 private:
  struct Counters {
    std::atomic<std::int64_t> by_store = 0;
    std::atomic<std::int64_t> deadline_misses = 0;
    std::atomic<std::int64_t> store_failures = 0;
    std::atomic<std::int64_t> breaker_rejections = 0;
    std::atomic<std::int64_t> in_flight_rejections = 0;
    std::atomic<std::int64_t> overload_deadline = 0;
    std::atomic<std::int64_t> overload_breaker = 0;
    std::atomic<std::int64_t> overload_in_flight = 0;
    std::atomic<std::int64_t> overload_full = 0;
    std::atomic<std::int64_t> deny_cache_hits = 0;
    std::atomic<std::int64_t> known_denied = 0;
    std::atomic<std::int64_t> late_charged = 0;
    std::atomic<std::int64_t> late_not_charged = 0;
    std::atomic<std::int64_t> late_unknown = 0;
    std::atomic<std::int64_t> reported_units = 0;
    std::atomic<std::int64_t> charged_units = 0;
    std::atomic<std::int64_t> recovered_units = 0;
    std::atomic<std::int64_t> dropped_units = 0;
  };

  // Runs `change` under the lock and tells the observers, without it, if the breaker changed state
  // or an overload began or ended.
  template <typename Change>
  void Locked(Change change);

  enum class Rejection { kBreaker, kInFlight };
  enum class For { kCaller, kErrand };
  Flight* Admit(For whom, TimePoint now);
  bool Reserve(Flight& flight, std::span<const Charge> charges);
  Places::Asker AskerOf(std::span<const Charge> charges) const;
  void Unreserve(Flight& flight, std::size_t grips);
  void Reject(Request& request, Rejection why, TimePoint now);
  void Launch(Flight* flight, TimePoint now);
  void OnAnswer(Flight* flight);
  void Land(Flight* flight, bool answered);
  void Hear(bool answered, TimePoint now);
  void HandBack(Flight& flight);
  void Know(const Flight& flight, std::size_t i);
  void Release(Flight* flight);
  void Cancel(Flight* flight);

  void RunTimer();
  std::vector<Flight*> TakeExpired(Steady::time_point now);
  void Expire(Flight* flight);
  void Settle(Flight* flight);

  std::int64_t DecideByPolicy(Request& request, const Error& error, Cause cause);
  void StartFromLastSeen(const Request& request, Cause cause);
  void DecideWithout(Request& request, const Error& error, Cause cause);
  void DecideFailed(Request& request, const Error& error);
  void Owe(std::span<const Charge> charges, Cause cause = Cause::kOutage);
  void RunErrand();
  std::optional<Rejection> Report(const std::vector<guard::Ledger::Debt>& debts);
  void ProbeIfIdle();
  std::size_t Send(Flight* flight, std::span<const Charge> charges, Action action, TimePoint now);
  bool AccountErrand(const Flight& flight);
  void EndErrand(bool delivered);

  guard::FlightList& ListOf(const Flight& flight) {
    return flight.pass.probe ? waiting_probes_ : waiting_;
  }
  Micros DeadlineOf(const Flight& flight) const {
    return flight.pass.probe ? options_.breaker.probe_deadline : options_.deadline;
  }
  Steady::time_point NextWake() const;

  // Constant after construction.
  Store& inner_;
  const bool answers_inline_;
  const Options options_;
  const SteadyClock steady_;
  const Clock* const clock_;

  guard::DenyCache cache_;
  guard::Fallback fallback_;
  guard::Ledger ledger_;
  Counters counters_;
  Places places_;
  guard::KnownKeys known_;
  guard::LastSeen last_seen_;
  std::atomic<std::int64_t> abandoned_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable timer_;
  // Guarded by mutex_.
  Breaker breaker_;
  guard::Overload overload_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<Flight*> free_;
  guard::FlightList waiting_;  // For their deadline, the earliest first.
  guard::FlightList waiting_probes_;
  Steady::time_point wake_at_ = Steady::time_point::min();
  Steady::time_point next_errand_ = Steady::time_point::min();
  bool on_errand_ = false;  // One is out that is within its deadline.
  TimePoint last_asked_;
  bool stopping_ = false;

  std::jthread timer_thread_;
};

template <typename Change>
void GuardedStore::Impl::Locked(Change change) {
  std::optional<Transition> transition;
  std::optional<OverloadChange> overload;
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t transitions = breaker_.transitions();
    const std::int64_t changes = overload_.changes();
    change();
    if (breaker_.transitions() != transitions) transition = breaker_.last_transition();
    if (overload_.changes() != changes) overload = overload_.last_change();
    if (!transition && !overload) return;
  }
  timer_.notify_one();
  if (transition && options_.on_transition) options_.on_transition(*transition);
  if (overload && options_.on_overload_change) options_.on_overload_change(*overload);
}

// A flight, if the store may be asked.
Flight* GuardedStore::Impl::Admit(For whom, TimePoint now) {
  Flight* flight = nullptr;
  Locked([&] {
    if (whom == For::kCaller) last_asked_ = now;
    const auto pass = breaker_.Admit(now);
    if (!pass) return;
    if (free_.empty()) {
      flights_.push_back(std::make_unique<Flight>());
      free_.push_back(flights_.back().get());
    }
    flight = free_.back();
    free_.pop_back();
    flight->pass = *pass;
  });
  return flight;
}

// Takes a place for a request of these charges.
bool GuardedStore::Impl::Reserve(Flight& flight, std::span<const Charge> charges) {
  if (flight.pass.probe) return places_.TakeBeyond(kProbeReserve);
  Places::Grip grip;
  const auto taken = places_.Take([&] { return AskerOf(charges); }, grip);
  if (taken == Places::Taken::kWithGrip) flight.grips.push_back(grip);
  return taken != Places::Taken::kNo;
}

// Several charges are a client of their own, and what limits them a limit: a limit that everybody
// has in common does not make all of them one.
Places::Asker GuardedStore::Impl::AskerOf(std::span<const Charge> charges) const {
  Places::Asker asker{.limit = 0, .client = 0, .known = true};
  for (const Charge& charge : charges) {
    const Hash128 state = cache_.HashOf(charge);
    asker.limit += charge.name.empty() ? charge.limit->fingerprint()
                                       : std::hash<std::string_view>{}(charge.name);
    asker.client += state.low;
    asker.known = asker.known && known_.Contains(state);
  }
  return asker;
}

// Gives the last place back; the flight had so many grips before it was taken.
void GuardedStore::Impl::Unreserve(Flight& flight, std::size_t grips) {
  places_.Release(1, std::span(flight.grips).subspan(grips));
  flight.grips.resize(grips);
}

void GuardedStore::Impl::Release(Flight* flight) {
  places_.Release(flight->requests.size(), flight->grips);
  flight->Clear();
  const std::lock_guard lock(mutex_);
  free_.push_back(flight);
}

// For a flight that has nothing to ask.
void GuardedStore::Impl::Cancel(Flight* flight) {
  Locked([&] { breaker_.GiveBack(flight->pass); });
  Release(flight);
}

void GuardedStore::Impl::ApplyInline(std::span<Request> requests) {
  inner_.Apply(requests, [] {});
  for (Request& request : requests) {
    request.source = Source::kStore;
    if (request.action == Action::kReset) ForgetReset(request);
    if (!Failed(request)) [[likely]] {
      continue;
    }
    const Error error = std::move(request.outcome.error());
    DecideFailed(request, error);
  }
}

void GuardedStore::Impl::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  const TimePoint now = clock_->Now();
  Flight* flight = nullptr;
  bool rejected = false;
  for (Request& request : requests) {
    request.source = Source::kStore;
    if (auto fault = guard::Fault(request)) {
      request.outcome = std::unexpected(*std::move(fault));
      continue;
    }
    if (request.action == Action::kReset) ForgetReset(request);
    if (cache_.Answer(request, now)) {
      Count(counters_.deny_cache_hits);
      request.source = Source::kDenyCache;
      continue;
    }
    if (!flight && !rejected) {
      flight = Admit(For::kCaller, now);
      rejected = !flight;
    }
    const std::size_t grips = flight ? flight->grips.size() : 0;
    if (rejected) {
      Reject(request, Rejection::kBreaker, now);
    } else if (!Reserve(*flight, request.charges)) {
      Reject(request, Rejection::kInFlight, now);
    } else if (const auto why = Report(ledger_.TakeOf(request.charges))) {
      // What was granted without the store goes first: it would grant that again.
      Unreserve(*flight, grips);
      Reject(request, *why, now);
    } else {
      flight->asked.push_back(&request);
    }
  }
  if (flight && flight->asked.empty()) {
    Cancel(flight);
    flight = nullptr;
  }
  if (!flight) return done();
  flight->done = std::move(done);
  flight->Copy(cache_);
  Launch(flight, now);
}

// The store is not asked.
void GuardedStore::Impl::Reject(Request& request, Rejection why, TimePoint now) {
  const bool breaker = why == Rejection::kBreaker;
  Count(breaker ? counters_.breaker_rejections : counters_.in_flight_rejections);
  Cause cause{};
  Locked([&] { cause = overload_.Judge(breaker_.failing(), 1, now); });
  if (cause == Cause::kOverload) {
    Count(breaker ? counters_.overload_breaker : counters_.overload_in_flight);
  }
  DecideWithout(request,
                {ErrorCode::kUnavailable,
                 breaker ? "the store is not asked, because its circuit breaker is open"
                         : text::Cat("no place is free for it among the ", options_.in_flight_max,
                                     " requests that may be in flight")},
                cause);
}

// From here on the flight, and the caller's requests, belong to whoever ends it.
void GuardedStore::Impl::Launch(Flight* flight, TimePoint now) {
  flight->owner = shared_from_this();
  flight->sent = now;
  flight->deadline = Steady::now() + DeadlineOf(*flight);
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    ListOf(*flight).PushBack(flight);
    overload_.Asked(now);
    wake = flight->deadline < wake_at_;
  }
  if (wake) timer_.notify_one();
  inner_.Apply(flight->requests, [flight] { flight->owner->OnAnswer(flight); });
}

void GuardedStore::Impl::OnAnswer(Flight* flight) {
  const auto self = flight->owner;  // What follows may give up the last other hold on it.
  const bool answered = !std::ranges::all_of(flight->requests, FailedStore);
  const unsigned before = flight->state.fetch_or(Flight::kAnswered, std::memory_order_acq_rel);
  if (before == 0) return Land(flight, answered);
  {
    const std::lock_guard lock(mutex_);
    Hear(answered, clock_->Now());
  }
  if ((before & Flight::kDecided) != 0) Settle(flight);
}

// A call is over.
void GuardedStore::Impl::Hear(bool answered, TimePoint now) {
  if (answered) {
    overload_.Answered(now);
  } else {
    overload_.Failed(now);
  }
}

// Answered in time.
void GuardedStore::Impl::Land(Flight* flight, bool answered) {
  const TimePoint now = clock_->Now();
  const auto failure = std::ranges::find_if(flight->requests, FailedStore);
  const bool failed = failure != flight->requests.end();
  const auto full = std::ranges::find_if(flight->requests, FoundItFull);
  const auto found_full = std::count_if(full, flight->requests.end(), FoundItFull);
  Locked([&] {
    if (flight->listed) ListOf(*flight).Remove(flight);
    if (found_full > 0) breaker_.set_last_failure(full->outcome.error());
    if (failed) breaker_.set_last_failure(failure->outcome.error());
    breaker_.Record(flight->pass, {.failed = failed, .took = now - flight->sent}, now);
    Hear(answered, now);
    if (found_full > 0 && !flight->errand) overload_.Judge(false, found_full, now);
  });
  if (flight->errand) {
    EndErrand(AccountErrand(*flight));
  } else {
    HandBack(*flight);
  }
  auto done = std::move(flight->done);
  flight->owner.reset();
  Release(flight);
  if (done) done();
}

void GuardedStore::Impl::HandBack(Flight& flight) {
  for (std::size_t i = 0; i < flight.requests.size(); ++i) {
    Request& answered = flight.requests[i];
    Request& request = *flight.asked[i];
    if (Failed(answered)) {
      DecideFailed(request, answered.outcome.error());
      continue;
    }
    Count(counters_.by_store);
    Know(flight, i);
    request.existed = answered.existed;
    // Again: what was asked before the store has reset it may have been answered since.
    if (request.action == Action::kReset) ForgetCharges(answered.charges);
    if (answered.outcome) {
      const auto each = flight.EachOf(i);
      if (cache_.enabled()) cache_.Learn(answered, each, flight.PlacesOf(i), flight.sent);
      std::ranges::copy(each.first(request.each.size()), request.each.begin());
      std::ranges::copy(answered.seen.first(request.seen.size()), request.seen.begin());
    }
    request.outcome = std::move(answered.outcome);
  }
}

// The store has answered this request: it knows its keys, and of those that came before it is worth
// knowing what is left. Whoever comes once, as in a flood, is not to push them out.
void GuardedStore::Impl::Know(const Flight& flight, std::size_t i) {
  const Request& answered = flight.requests[i];
  const auto places = flight.PlacesOf(i);
  const bool tells = answered.outcome && !answered.seen.empty() && !answered.now;
  for (std::size_t charge = 0; charge < places.size(); ++charge) {
    if (!known_.Add(places[charge].hash) || !tells) continue;
    last_seen_.Note(places[charge].hash, *answered.charges[charge].limit,
                    flight.EachOf(i)[charge].remaining, answered.seen[charge], flight.sent);
  }
}

void GuardedStore::Impl::StartFromLastSeen(const Request& request, Cause cause) {
  if (request.now || request.action != Action::kCheck) return;
  const TimePoint now = clock_->Now();
  for (const Charge& charge : request.charges) {
    if (fallback_.PolicyOf(charge, cause) != OnStoreFailure::kLocal) continue;
    const auto left = last_seen_.Find(cache_.HashOf(charge), *charge.limit, now);
    if (left) fallback_.StartFrom(charge, *left);
  }
}

// Answers a request that the store has not; `error` says why. Says how many units were taken
// locally.
std::int64_t GuardedStore::Impl::DecideByPolicy(Request& request, const Error& error, Cause cause) {
  // What was denied when the store could still be asked is denied until its time is over.
  if (cache_.Answer(request, clock_->Now(), guard::DenyCache::Age::kAny)) {
    Count(counters_.known_denied);
    request.source = Source::kDenyCache;
    return 0;
  }
  if (cause == Cause::kOverload) StartFromLastSeen(request, cause);
  return fallback_.Decide(request, error, cause);
}

// The same for a request that the store will not answer any more.
void GuardedStore::Impl::DecideWithout(Request& request, const Error& error, Cause cause) {
  const std::int64_t units = DecideByPolicy(request, error, cause);
  if (units == 0) return;
  if (ProvablyNotCharged(error)) {
    Owe(request.charges, cause);
  } else {
    Count(counters_.dropped_units, units);
  }
}

// The same for one that the store has answered with an error.
void GuardedStore::Impl::DecideFailed(Request& request, const Error& error) {
  Count(counters_.store_failures);
  if (IsFull(error)) Count(counters_.overload_full);
  DecideWithout(request, error, CauseOf(error));
}

// Notes what was taken locally, to be reported.
void GuardedStore::Impl::Owe(std::span<const Charge> charges, Cause cause) {
  bool first = false;
  for (const Charge& charge : charges) {
    if (fallback_.PolicyOf(charge, cause) != OnStoreFailure::kLocal || charge.cost == 0) continue;
    const auto added = ledger_.Add(charge);
    if (added == guard::Ledger::Added::kFull) Count(counters_.dropped_units, charge.cost);
    first = first || added == guard::Ledger::Added::kFirst;
  }
  if (!first) return;
  {
    const std::lock_guard lock(mutex_);
    next_errand_ = Steady::now() + kErrandEvery;
  }
  timer_.notify_one();
}

Steady::time_point GuardedStore::Impl::NextWake() const {
  auto next = Steady::time_point::max();
  if (!waiting_.empty()) next = waiting_.front()->deadline;
  if (!waiting_probes_.empty()) next = std::min(next, waiting_probes_.front()->deadline);
  const bool errands =
      ledger_.size() > 0 || breaker_.state() != BreakerState::kClosed || overload_.active();
  if (errands && !on_errand_) next = std::min(next, next_errand_);
  return next;
}

// One thread for all deadlines and for the reports.
void GuardedStore::Impl::RunTimer() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto next = NextWake();
    const auto now = Steady::now();
    if (next > now) {
      wake_at_ = next;
      if (next == Steady::time_point::max()) {
        timer_.wait(lock);
      } else {
        timer_.wait_until(lock, next);
      }
      wake_at_ = Steady::time_point::min();  // Awake: nobody needs to notify.
      continue;
    }
    const bool errand = !on_errand_ && next_errand_ <= now;
    lock.unlock();
    for (Flight* flight : TakeExpired(now)) Expire(flight);
    if (errand) RunErrand();
    lock.lock();
  }
}

// The flights whose deadline has passed and that are now ours to answer.
std::vector<Flight*> GuardedStore::Impl::TakeExpired(Steady::time_point now) {
  std::vector<Flight*> expired;
  const TimePoint clock_now = clock_->Now();
  Locked([&] {
    for (guard::FlightList* list : {&waiting_, &waiting_probes_}) {
      for (Flight* flight = list->front(); flight && flight->deadline <= now;) {
        Flight* const next = flight->next;
        unsigned unanswered = 0;
        list->Remove(flight);
        // Unless its answer is just coming in.
        if (flight->state.compare_exchange_strong(unanswered, Flight::kExpired,
                                                  std::memory_order_acq_rel)) {
          const Micros deadline = DeadlineOf(*flight);
          const Micros waited = std::max(clock_now - flight->sent, deadline);
          breaker_.set_last_failure(NotAnswered(deadline));
          breaker_.Record(flight->pass, {.failed = true, .took = waited, .missed = true},
                          clock_now);
          const auto asked = static_cast<std::int64_t>(flight->asked.size());
          if (asked > 0) flight->cause = overload_.Judge(breaker_.failing(), asked, clock_now);
          expired.push_back(flight);
        }
        flight = next;
      }
    }
  });
  return expired;
}

void GuardedStore::Impl::Expire(Flight* flight) {
  const auto self = flight->owner;
  const auto size = static_cast<std::int64_t>(flight->requests.size());
  Count(abandoned_, size);
  if (flight->errand) {
    EndErrand(false);
  } else {
    Count(counters_.deadline_misses, size);
    if (flight->cause == Cause::kOverload) Count(counters_.overload_deadline, size);
    const Error error = NotAnswered(DeadlineOf(*flight));
    for (std::size_t i = 0; i < flight->asked.size(); ++i) {
      // Whether the store charged it as well is known when it answers.
      flight->local_units[i] = DecideByPolicy(*flight->asked[i], error, flight->cause);
    }
  }
  auto done = std::move(flight->done);
  const unsigned before = flight->state.fetch_or(Flight::kDecided, std::memory_order_acq_rel);
  if ((before & Flight::kAnswered) != 0) Settle(flight);
  if (done) done();
}

// The store has answered what the policy decided at the deadline.
void GuardedStore::Impl::Settle(Flight* flight) {
  if (flight->errand) AccountErrand(*flight);
  for (std::size_t i = 0; i < flight->asked.size(); ++i) {
    const Request& answered = flight->requests[i];
    const std::int64_t units = flight->local_units[i];
    if (answered.outcome) Know(*flight, i);
    if (Charges(answered)) {
      Count(counters_.late_charged);
      Count(counters_.charged_units, units);
    } else if (answered.outcome || ProvablyNotCharged(answered.outcome.error())) {
      Count(counters_.late_not_charged);
      if (units > 0) Owe(answered.charges, flight->cause);
    } else {
      Count(counters_.late_unknown);
      Count(counters_.dropped_units, units);
    }
  }
  Count(abandoned_, -static_cast<std::int64_t>(flight->requests.size()));
  flight->owner.reset();
  Release(flight);
}

void GuardedStore::Impl::RunErrand() {
  Locked([&] {
    next_errand_ = Steady::now() + kErrandEvery;
    overload_.EndIfCalm(clock_->Now());
  });
  if (ledger_.size() > 0) {
    Report(ledger_.Take(kReportMax));
  } else {
    ProbeIfIdle();
  }
}

// Debits what was taken locally from the store. Units that the local share no longer counts as used
// have come back in the meantime, here as there. Says why not all of it is on its way, if it is
// not.
std::optional<GuardedStore::Impl::Rejection> GuardedStore::Impl::Report(
    const std::vector<guard::Ledger::Debt>& debts) {
  std::vector<Charge> charges;
  for (const auto& debt : debts) {
    Charge charge{.key = debt.key,
                  .limit = &debt.limit,
                  .name = debt.name,
                  .on_store_failure = OnStoreFailure::kLocal};
    charge.cost = std::min(debt.units, fallback_.Used(charge));
    Count(counters_.recovered_units, debt.units - charge.cost);
    if (charge.cost > 0) charges.push_back(charge);
  }
  if (charges.empty()) return std::nullopt;
  const TimePoint now = clock_->Now();
  Flight* const flight = Admit(For::kErrand, now);
  if (!flight) {
    Owe(charges);
    return Rejection::kBreaker;
  }
  // A probe that is not answered takes one state's units with it, not those of many.
  const std::size_t most = flight->pass.probe ? 1 : charges.size();
  const std::size_t sent = Send(flight, std::span(charges).first(most), Action::kDebit, now);
  if (sent == charges.size()) return std::nullopt;
  Owe(std::span(charges).subspan(sent));
  return sent == most ? Rejection::kBreaker : Rejection::kInFlight;
}

void GuardedStore::Impl::ProbeIfIdle() {
  const TimePoint now = clock_->Now();
  {
    const std::lock_guard lock(mutex_);
    if (breaker_.state() == BreakerState::kClosed) return;
    if (now - last_asked_ < options_.breaker.idle_probe_after) return;
  }
  const auto limit = Limit::FixedWindow({.limit = 1, .window = 1s});
  const Charge peek{.key = "sluice.probe", .limit = &*limit, .cost = 0};
  Flight* const flight = Admit(For::kErrand, now);
  if (flight) Send(flight, {&peek, 1}, Action::kCheck, now);
}

// A request of our own for each charge, as far as there is room for more in flight. Says for how
// many there was.
std::size_t GuardedStore::Impl::Send(Flight* flight, std::span<const Charge> charges, Action action,
                                     TimePoint now) {
  std::vector<Request> requests(charges.size());
  std::size_t sent = 0;
  for (; sent < charges.size() && Reserve(*flight, charges.subspan(sent, 1)); ++sent) {
    requests[sent] = {.charges = charges.subspan(sent, 1), .action = action};
    flight->asked.push_back(&requests[sent]);
  }
  if (sent == 0) {
    Cancel(flight);
    return 0;
  }
  flight->Copy(cache_);
  flight->asked.clear();
  flight->errand = true;
  {
    const std::lock_guard lock(mutex_);
    on_errand_ = true;
  }
  Launch(flight, now);
  return sent;
}

// What became of the units that were reported, whenever that is known. Says whether all of it got
// through.
bool GuardedStore::Impl::AccountErrand(const Flight& flight) {
  bool delivered = true;
  for (std::size_t i = 0; i < flight.requests.size(); ++i) {
    const Request& request = flight.requests[i];
    const std::int64_t units = request.charges.front().cost;
    if (request.outcome) {
      Count(counters_.reported_units, units);
      if (cache_.enabled()) {
        cache_.Learn(request, flight.EachOf(i), flight.PlacesOf(i), flight.sent);
      }
      continue;
    }
    delivered = false;
    if (Failed(request) && ProvablyNotCharged(request.outcome.error())) {
      Owe(request.charges);
    } else {
      Count(counters_.dropped_units, units);
    }
  }
  return delivered;
}

// The next one may go: at once if this one got through. One that is not answered within its
// deadline does not keep others from being tried.
void GuardedStore::Impl::EndErrand(bool delivered) {
  {
    const std::lock_guard lock(mutex_);
    on_errand_ = false;
    next_errand_ = Steady::now() + (delivered ? 0ms : kErrandEvery);
  }
  timer_.notify_one();
}

// What is used and owed of these budgets here is void, and so is what is known of them.
void GuardedStore::Impl::ForgetReset(const Request& request) {
  for (const Charge& charge : request.charges) fallback_.Reset(charge);
  for (const guard::Ledger::Debt& debt : ledger_.TakeOf(request.charges)) {
    Count(counters_.recovered_units, debt.units);
  }
  ForgetCharges(request.charges);
}

void GuardedStore::Impl::ForgetCharges(std::span<const Charge> charges) {
  if (!cache_.enabled()) return;
  for (const Charge& charge : charges) Forget(cache_.HashOf(charge));
}

// A budget was made larger by others, or any may have been.
void GuardedStore::Impl::Forget(const Charge* charge) {
  if (charge) return Forget(cache_.HashOf(*charge));
  cache_.Clear();
  last_seen_.Clear();
}

void GuardedStore::Impl::Forget(const Hash128& state) {
  cache_.Invalidate(state);
  last_seen_.Forget(state);
}

void GuardedStore::Impl::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  timer_.notify_one();
  timer_thread_.join();
  for (Flight* flight : TakeExpired(Steady::time_point::max())) Expire(flight);
}

GuardedStore::Status GuardedStore::Impl::GetStatus() const {
  const std::lock_guard lock(mutex_);
  return {.breaker = breaker_.state(),
          .last_transition = breaker_.last_transition(),
          .last_failure = breaker_.last_failure(),
          .instances = fallback_.instances(),
          .overloaded = overload_.active()};
}

GuardedStore::Stats GuardedStore::Impl::GetStats() const {
  const auto get = [](const std::atomic<std::int64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  const auto& policy = fallback_.counters();
  const auto cache = cache_.GetStats();
  Stats stats{
      .in_flight = static_cast<std::int64_t>(places_.taken()),
      .abandoned = get(abandoned_),
      .by_store = get(counters_.by_store),
      .deadline_misses = get(counters_.deadline_misses),
      .store_failures = get(counters_.store_failures),
      .breaker_rejections = get(counters_.breaker_rejections),
      .in_flight_rejections = get(counters_.in_flight_rejections),
      .overload_deadline = get(counters_.overload_deadline),
      .overload_breaker = get(counters_.overload_breaker),
      .overload_in_flight = get(counters_.overload_in_flight),
      .overload_full = get(counters_.overload_full),
      .failed_closed = get(policy.failed_closed),
      .failed_open = get(policy.failed_open),
      .local_allowed = get(policy.local_allowed),
      .local_denied = get(policy.local_denied),
      .overload_allowed = get(policy.overload_allowed),
      .overload_denied = get(policy.overload_denied),
      .known_denied = get(counters_.known_denied),
      .late_charged = get(counters_.late_charged),
      .late_not_charged = get(counters_.late_not_charged),
      .late_unknown = get(counters_.late_unknown),
      .local_units = get(policy.local_units),
      .reported_units = get(counters_.reported_units),
      .charged_units = get(counters_.charged_units),
      .recovered_units = get(counters_.recovered_units),
      .dropped_units = get(counters_.dropped_units),
      .states_to_report = static_cast<std::int64_t>(ledger_.size()),
      .deny_cache_hits = get(counters_.deny_cache_hits),
      .deny_cache_entries = cache.entries,
      .deny_cache_bytes = cache.bytes,
      .local_keys = fallback_.keys(),
  };
  const std::lock_guard lock(mutex_);
  stats.overloads = overload_.overloads();
  stats.transitions = breaker_.transitions();
  stats.transitions_by_reason = breaker_.transitions_by_reason();
  return stats;
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

bool GuardedStore::AnswersInline() const { return impl_->answers_inline(); }

void GuardedStore::SetInstances(std::int64_t instances) { impl_->SetInstances(instances); }

void GuardedStore::ForgetDenials() { impl_->Forget(nullptr); }

GuardedStore::Status GuardedStore::GetStatus() const { return impl_->GetStatus(); }

GuardedStore::Stats GuardedStore::GetStats() const { return impl_->GetStats(); }

}  // namespace sluice
