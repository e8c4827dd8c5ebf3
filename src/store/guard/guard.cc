// SPDX-License-Identifier: Apache-2.0
#include "store/guard/guard.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <ranges>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "core/algorithms.h"
#include "store/group.h"

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

// Places beyond in_flight_max: for resets, and so that a store that left very many requests
// unanswered can still be probed.
constexpr std::size_t kReserve = 1'024;
constexpr std::size_t kReportMax = 128;          // States in one report.
constexpr std::size_t kExpireMax = 256;          // Calls in one event, so that none takes long.
constexpr std::size_t kKnownKeys = 1 << 18;      // Per generation; 1 MiB for both.
constexpr std::size_t kLastSeen = 1 << 15;       // 2 MiB.
constexpr std::size_t kHoldBytesMax = 16 << 20;  // Of local holds, and of kept settles.
// Between reports that fail, and between checks whether to probe. Successful reports follow each
// other at once.
constexpr auto kOwnCallEvery = 100ms;
// How long after its expiry a store remembers a hold by any clock.
constexpr Micros kHoldSurelyRemembered = kHoldRemembered / 2;

bool IsFull(const Error& error) { return error.code == ErrorCode::kStoreFull; }

bool FoundStoreFull(const Request& request) {
  return !request.outcome && IsFull(request.outcome.error());
}

// Whether it counts against the store. A foreign value under one state's name does not: the store
// serves all other requests. Nor does a full store: it still decides whatever takes no room.
bool FailedStore(const Request& request) {
  return Guard::IsFailure(request) && !FoundStoreFull(request) &&
         request.outcome.error().code != ErrorCode::kForeignState;
}

// The cause of an error that the store returned. A flood of keys may fill the store, and must not
// turn limits off.
Cause CauseOf(const Error& error) { return IsFull(error) ? Cause::kOverload : Cause::kOutage; }

bool ProvablyNotCharged(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kStoreFull ||
         error.code == ErrorCode::kAccessDenied || !error.outage();
}

bool HasCharged(const Request& request) {
  const bool takes = request.action == Action::kCheck || request.action == Action::kDebit ||
                     request.action == Action::kHold;
  return takes && request.outcome && request.outcome->allowed &&
         std::ranges::any_of(request.charges, [](const Charge& c) { return c.cost > 0; });
}

// Whether a settle that failed for this reason can be sent later.
bool MayBeSentLater(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown ||
         error.code == ErrorCode::kStoreFull;
}

// Whether a budget may have more left than is known.
bool GivesBack(Action action) {
  return action == Action::kReset || action == Action::kGive || action == Action::kSettle;
}

// What AnswerKnown leaves to Apply.
bool IsOpen(const Request& request) {
  return request.outcome && request.source != Source::kDenyCache;
}

Error NotAnswered(Micros deadline) {
  return {ErrorCode::kOutcomeUnknown,
          text::Cat("the store has not answered within ", deadline.count(), " us")};
}

GuardedStore::Options Clamped(GuardedStore::Options options, const Seed& seed) {
  options.deadline = std::clamp<Micros>(options.deadline, 1ms, 1h);
  options.in_flight_max = std::clamp<std::size_t>(options.in_flight_max, 1, 1 << 20);
  options.breaker.probe_deadline =
      std::clamp<Micros>(options.breaker.probe_deadline, 1ms, options.deadline);
  if (!options.breaker.jitter_seed) options.breaker.jitter_seed = seed[0] ^ seed[1];
  options.deny_cache_trust = std::clamp<Micros>(options.deny_cache_trust, 0s, kSpanMax);
  return options;
}

}  // namespace

Guard::Guard(const GuardedStore::Options& options, bool inner_answers_inline, const Seed& seed)
    : options_(Clamped(options, seed)),
      inner_answers_inline_(inner_answers_inline),
      cache_(inner_answers_inline ? 0 : options_.deny_cache_entries, options_.deny_cache_trust,
             seed),
      fallback_(options_, stats_,
                inner_answers_inline ? Fallback::Holds::kNo : Fallback::Holds::kYes),
      ledger_(options_.unreported_max, seed),
      local_holds_(options_.unreported_max, kHoldBytesMax, seed),
      kept_settles_(options_.unreported_max, kHoldBytesMax),
      places_(options_.in_flight_max),
      known_(inner_answers_inline ? 0 : kKnownKeys),
      last_seen_(cache_.enabled() ? kLastSeen : 0),
      breaker_(options_.breaker),
      overload_(Overload::For(options_.deadline)) {}

bool Guard::AnswerKnown(std::span<Request> requests, TimePoint now) {
  bool all = true;
  for (Request& request : requests) {
    request.source = Source::kStore;
    if (auto invalid = FirstInvalidInGroup(request)) {
      request.outcome = std::unexpected(*std::move(invalid));
      continue;
    }
    // What comes after it in the same call must not be denied by what was known before it.
    if (GivesBack(request.action)) {
      for (const Charge& charge : request.charges) ForgetDenials(&charge);
    }
    if (cache_.Answer(request, now)) {
      cache_hits_.fetch_add(1, std::memory_order_relaxed);
      request.source = Source::kDenyCache;
      continue;
    }
    request.outcome = Decision{};
    all = false;
  }
  return all;
}

StoreCall* Guard::Apply(std::span<Request> requests, Done& done, TimePoint now, Actions& actions) {
  last_asked_ = now;
  StoreCall* const call = Admit(now, actions);
  for (Request& request : requests) {
    if (!IsOpen(request)) continue;
    if (DecideOnLocalHold(request, now)) continue;
    if (request.action == Action::kReset) ForgetReset(request);
    const std::size_t scarce_before = call ? call->scarce_places.size() : 0;
    if (!call) {
      Reject(request, Rejection::kBreaker, now, actions);
    } else if (!Reserve(*call, request.charges, request.action)) {
      Reject(request, Rejection::kInFlight, now, actions);
    } else if (const auto why = Report(ledger_.TakeOf(request.charges), now, actions)) {
      // What was granted without the store goes first: the store would grant it again.
      Unreserve(*call, scarce_before);
      Reject(request, *why, now, actions);
    } else {
      call->asked.push_back(&request);
    }
  }
  if (!call) return nullptr;
  if (call->asked.empty()) {
    Cancel(call);
    return nullptr;
  }
  call->Copy(cache_);
  call->done = std::move(done);
  Launch(call, now);
  return call;
}

// A call, if the store may be asked.
StoreCall* Guard::Admit(TimePoint now, Actions& actions) {
  const auto pass = breaker_.Admit(now);
  AddChanges(actions);
  if (!pass) return nullptr;
  if (free_.empty()) free_.push_back(calls_.emplace_back(std::make_unique<StoreCall>()).get());
  StoreCall* const call = free_.back();
  free_.pop_back();
  call->pass = *pass;
  return call;
}

// Takes a place for a request with these charges. A reset does not compete with floods of keys for
// shares: operators reset many keys at once.
bool Guard::Reserve(StoreCall& call, std::span<const Charge> charges, Action action) {
  if (call.pass.probe || action == Action::kReset) return places_.TakeBeyond(kReserve);
  Places::ScarcePlace place;
  const auto taken = places_.Take([&] { return RequesterOf(charges); }, place);
  if (taken == Places::Taken::kScarce) call.scarce_places.push_back(place);
  return taken != Places::Taken::kNo;
}

// Gives the last place back; the call had `scarce_before` scarce places before it was taken.
void Guard::Unreserve(StoreCall& call, std::size_t scarce_before) {
  places_.Release(1, std::span(call.scarce_places).subspan(scarce_before));
  call.scarce_places.resize(scarce_before);
}

// A combination of several charges counts as one client and as one limit: a limit that everybody
// shares does not make everybody one client.
Places::Requester Guard::RequesterOf(std::span<const Charge> charges) const {
  Places::Requester requester{.limit = 0, .client = 0, .known = true};
  for (const Charge& charge : charges) {
    const Hash128 state = cache_.HashOf(charge);
    requester.limit += charge.name.empty() ? charge.limit->fingerprint()
                                           : std::hash<std::string_view>{}(charge.name);
    requester.client += state.low;
    requester.known = requester.known && known_.Contains(state);
  }
  return requester;
}

void Guard::Launch(StoreCall* call, TimePoint now) {
  call->sent = now;
  call->deadline = now + DeadlineOf(*call);
  QueueOf(*call).PushBack(call);
  overload_.Asked(now);
}

// For a call that has nothing to ask.
void Guard::Cancel(StoreCall* call) {
  breaker_.GiveBack(call->pass);
  Release(call);
}

void Guard::Release(StoreCall* call) {
  places_.Release(call->requests.size(), call->scarce_places);
  call->Clear();
  free_.push_back(call);
}

StoreCall::Done Guard::OnAnswer(StoreCall* call, TimePoint now, Actions& actions) {
  if (std::ranges::all_of(call->requests, FailedStore)) {
    overload_.Failed(now);
  } else {
    overload_.Answered(now);
  }
  if (call->decided) {
    AccountLateAnswer(*call, now);
    Release(call);
    return {};
  }
  QueueOf(*call).Remove(call);
  RecordAnswer(*call, now, actions);
  if (call->own) {
    EndOwn(AccountOwn(*call, now), now);
  } else {
    HandBack(*call, now);
  }
  Done done = std::move(call->done);
  Release(call);
  return done;
}

void Guard::RecordAnswer(const StoreCall& call, TimePoint now, Actions& actions) {
  const auto failure = std::ranges::find_if(call.requests, FailedStore);
  const bool failed = failure != call.requests.end();
  const auto full = std::ranges::find_if(call.requests, FoundStoreFull);
  const auto found_full = std::count_if(full, call.requests.end(), FoundStoreFull);
  if (found_full > 0) breaker_.set_last_failure(full->outcome.error());
  if (failed) breaker_.set_last_failure(failure->outcome.error());
  breaker_.Record(call.pass, {.failed = failed, .took = now - call.sent}, now);
  if (found_full > 0 && !call.own) overload_.Judge(false, found_full, now);
  AddChanges(actions);
}

void Guard::HandBack(StoreCall& call, TimePoint now) {
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    Request& answered = call.requests[i];
    Request& request = *call.asked[i];
    ForgetIfReset(answered);
    if (IsFailure(answered)) {
      DecideFailed(request, answered.outcome.error(), now);
      continue;
    }
    ++stats_.by_store;
    Remember(call, i);
    request.existed = answered.existed;
    if (request.hold) request.hold->CopyAnswer(*answered.hold);
    if (answered.outcome) {
      if (request.listed) {
        request.listed->holds = std::move(answered.listed->holds);
        request.listed->live = answered.listed->live;
      }
      const auto each = call.EachOf(i);
      if (cache_.enabled()) cache_.Learn(answered, each, call.PlacesOf(i), call.sent);
      std::ranges::copy(each.first(request.each.size()), request.each.begin());
      std::ranges::copy(answered.seen.first(request.seen.size()), request.seen.begin());
    }
    request.outcome = std::move(answered.outcome);
  }
}

// The store has answered this request. It knows these keys, and for keys that came before it is
// worth remembering what is left. Keys that come once, as in a flood, must not push them out.
void Guard::Remember(const StoreCall& call, std::size_t i) {
  const Request& answered = call.requests[i];
  const auto places = call.PlacesOf(i);
  const bool tells = answered.outcome && !answered.seen.empty() && !answered.now;
  for (std::size_t charge = 0; charge < places.size(); ++charge) {
    const bool known = known_.Add(places[charge].hash);
    if (!known || !tells || call.EachOf(i)[charge].held > 0) continue;
    last_seen_.Note(places[charge].hash, *answered.charges[charge].limit,
                    call.EachOf(i)[charge].remaining, answered.seen[charge], call.sent);
  }
}

// The deadline has passed.
void Guard::Expire(StoreCall* call, TimePoint now, Actions& actions) {
  QueueOf(*call).Remove(call);
  call->decided = true;
  const Micros deadline = DeadlineOf(*call);
  const Error error = NotAnswered(deadline);
  breaker_.set_last_failure(error);
  breaker_.Record(call->pass,
                  {.failed = true, .took = std::max(now - call->sent, deadline), .missed = true},
                  now);
  const auto size = static_cast<std::int64_t>(call->requests.size());
  stats_.abandoned += size;
  if (call->own) {
    EndOwn(false, now);
  } else {
    call->cause = overload_.Judge(breaker_.failing(), size, now);
    stats_.deadline_misses += size;
    if (call->cause == Cause::kOverload) stats_.overload_deadline += size;
    for (std::size_t i = 0; i < call->asked.size(); ++i) {
      // Whether the store charged it as well is known when it answers.
      call->local_units[i] = DecideByPolicy(*call->asked[i], error, call->cause, now);
      call->refused[i] = !call->asked[i]->outcome.has_value();
    }
    actions.done.push_back(std::move(call->done));
  }
  AddChanges(actions);
}

// The store has answered a request that the policy decided at the deadline.
void Guard::AccountLateAnswer(StoreCall& call, TimePoint now) {
  stats_.abandoned -= static_cast<std::int64_t>(call.requests.size());
  if (call.own) {
    AccountOwn(call, now);
    return;
  }
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    const Request& answered = call.requests[i];
    const std::int64_t units = call.local_units[i];
    ForgetIfReset(answered);
    if (answered.outcome) {
      Remember(call, i);
      if (answered.action == Action::kSettle) {
        stats_.settles_sent +=
            kept_settles_.Forget(answered.hold->id, answered.charges.front()) ? 1 : 0;
      }
    }
    // A client that was told of an error may hold again under the same id.
    const bool gives_up = answered.action == Action::kHold && !call.refused[i];
    if (HasCharged(answered)) {
      if (gives_up) GiveUpTwin(answered, now);
      ++stats_.late_charged;
      stats_.charged_units += units;
    } else if (answered.outcome || ProvablyNotCharged(answered.outcome.error())) {
      ++stats_.late_not_charged;
      if (units > 0) AddUnreported(answered.charges, call.cause, now);
    } else {
      if (gives_up) {
        answered.hold->expires = fallback_.ExpiryOf(answered);  // The store did not say.
        KeepRelease(answered, now);
      }
      ++stats_.late_unknown;
      stats_.dropped_units += units;
    }
  }
}

void Guard::OnInlineAnswers(std::span<Request> requests, TimePoint now) {
  for (Request& request : requests) {
    if (request.action == Action::kReset) ForgetReset(request);
    if (!IsFailure(request)) continue;
    const Error error = std::move(request.outcome.error());
    DecideFailed(request, error, now);
  }
}

// The store is not asked.
void Guard::Reject(Request& request, Rejection why, TimePoint now, Actions& actions) {
  const bool breaker = why == Rejection::kBreaker;
  ++(breaker ? stats_.breaker_rejections : stats_.in_flight_rejections);
  // Only limited requests can be a flood.
  const bool limited = request.action == Action::kCheck || request.action == Action::kHold;
  const Cause cause = limited ? overload_.Judge(breaker_.failing(), 1, now) : Cause::kOutage;
  AddChanges(actions);
  if (cause == Cause::kOverload) {
    ++(breaker ? stats_.overload_breaker : stats_.overload_in_flight);
  }
  DecideFinally(request,
                {ErrorCode::kUnavailable,
                 breaker ? "the store is not asked, because its circuit breaker is open"
                         : text::Cat("no place is free for it among the ", options_.in_flight_max,
                                     " requests that may be in flight")},
                cause, now);
}

// The store has answered with an error.
void Guard::DecideFailed(Request& request, const Error& error, TimePoint now) {
  ++stats_.store_failures;
  if (IsFull(error)) ++stats_.overload_full;
  DecideFinally(request, error, CauseOf(error), now);
}

// Answers a request that the store will never answer.
void Guard::DecideFinally(Request& request, const Error& error, Cause cause, TimePoint now) {
  const std::int64_t units = DecideByPolicy(request, error, cause, now);
  // The store may have made the hold, and nobody would end it there.
  const bool may_hold = request.action == Action::kHold && request.outcome;
  if (may_hold && !ProvablyNotCharged(error)) KeepRelease(request, now);
  if (units == 0) return;
  if (ProvablyNotCharged(error)) {
    AddUnreported(request.charges, cause, now);
  } else {
    stats_.dropped_units += units;
  }
}

// Answers a request that the store has not answered; `error` is the reason. Returns how many units
// were taken locally.
std::int64_t Guard::DecideByPolicy(Request& request, const Error& error, Cause cause,
                                   TimePoint now) {
  // What was denied while the store could be asked stays denied until the denial ends.
  if (cache_.Answer(request, now, DenyCache::Age::kAny)) {
    ++stats_.known_denied;
    request.source = Source::kDenyCache;
    return 0;
  }
  if (request.action == Action::kSettle && KeepSettle(request, error, now)) return 0;
  const bool holds = request.action == Action::kHold;
  if (holds && !local_holds_.HasRoom()) {
    fallback_.FailClosed(request, error, cause);
    return 0;
  }
  if (cause == Cause::kOverload) StartFromLastSeen(request, cause, now);
  const std::int64_t units = fallback_.Decide(request, error, cause);
  if (holds && request.outcome && request.outcome->allowed) AddLocalHold(request, cause, now);
  return units;
}

void Guard::StartFromLastSeen(const Request& request, Cause cause, TimePoint now) {
  if (request.now || (request.action != Action::kCheck && request.action != Action::kHold)) return;
  for (const Charge& charge : request.charges) {
    if (fallback_.PolicyOf(charge, cause) != OnStoreFailure::kLocal) continue;
    const auto left = last_seen_.Find(cache_.HashOf(charge), *charge.limit, now);
    if (left) fallback_.StartFrom(charge, *left);
  }
}

// The time of this object at which a hold expires, which was told by the clock of decisions.
TimePoint Guard::ExpiryOf(const HoldTerms& terms, TimePoint now) const {
  return now + std::max(Micros{0}, terms.expires - options_.local.clock->Now());
}

// Remembers what is on hold on shares, so that it is ended here.
void Guard::AddLocalHold(const Request& request, Cause cause, TimePoint now) {
  for (const Charge& charge : request.charges) {
    if (fallback_.PolicyOf(charge, cause) != OnStoreFailure::kLocal) continue;
    local_holds_.Add(request.hold->id, {.units = Ledger::DebtOf(charge),
                                        .on_expiry = request.hold->on_expiry,
                                        .expires = ExpiryOf(*request.hold, now)});
  }
}

// Answers what is asked about a hold that was made here. Returns false if it is about another.
bool Guard::DecideOnLocalHold(Request& request, TimePoint now) {
  if (!request.hold || local_holds_.empty()) return false;
  const std::string_view id = request.hold->id;
  std::vector<Ledger::Debt> parts;
  for (const Charge& charge : request.charges) {
    if (local_holds_.Find(id, charge)) parts.push_back(Ledger::DebtOf(charge));
  }
  if (parts.empty()) return false;
  fallback_.DecideOnHold(request, parts);
  if (!request.outcome) return true;
  for (const Ledger::Debt& part : parts) {
    if (request.action == Action::kExtend) {
      local_holds_.Extend(id, part.ToCharge(), ExpiryOf(*request.hold, now));
    } else if (request.action == Action::kSettle) {
      SettleLocalHold(id, part, now);
    }
  }
  return true;
}

// Reports what a hold has cost, as far as its expiry has not done so.
void Guard::SettleLocalHold(std::string_view id, Ledger::Debt cost, TimePoint now) {
  using Status = LocalHolds::Status;
  const Charge charge = cost.ToCharge();
  const LocalHolds::Hold& hold = *local_holds_.Find(id, charge);
  if (hold.status == Status::kSettled) return;
  if (hold.status == Status::kExpired && hold.on_expiry == OnExpiry::kCharge) {
    cost.units = std::max<std::int64_t>(0, cost.units - hold.units.units);
  }
  local_holds_.SetStatus(id, charge, Status::kSettled);
  TakeForGood({&cost, 1}, now);
}

// What was on hold on shares has been used.
void Guard::TakeForGood(std::span<const Ledger::Debt> parts, TimePoint now) {
  for (const Ledger::Debt& part : parts) {
    if (part.units == 0 || core::NeedsHold(part.limit)) continue;
    stats_.local_units += part.units;
    const Charge charge = part.ToCharge();
    AddUnreported({&charge, 1}, Cause::kOutage, now);
  }
}

// The store has made a hold that the policy had decided on. What is live here lives there from now
// on; otherwise nobody would end it there.
void Guard::GiveUpTwin(const Request& answered, TimePoint now) {
  const std::string_view id = answered.hold->id;
  bool lives = false;
  for (Charge charge : answered.charges) {
    const LocalHolds::Hold* const hold = local_holds_.Find(id, charge);
    if (!hold || hold->status != LocalHolds::Status::kLive) continue;
    lives = true;
    local_holds_.Forget(id, charge);
    charge.cost = 0;
    const Ledger::Debt nothing = Ledger::DebtOf(charge);
    HoldTerms terms{.id = id};
    Request release{.charges = {&charge, 1}, .action = Action::kSettle, .hold = &terms};
    fallback_.DecideOnHold(release, {&nothing, 1});
  }
  if (!lives) KeepRelease(answered, now);
}

// Keeps a settle, and answers it. Returns false if it cannot be kept.
bool Guard::KeepSettle(Request& request, const Error& error, TimePoint now) {
  if (inner_answers_inline_ || request.now || !MayBeSentLater(error)) return false;
  const TimePoint until = ExpiryOf(*request.hold, now) + kHoldSurelyRemembered;
  if (!AddKept(request, until, now)) return false;
  Fallback::AnswerKept(request);
  return true;
}

// Releases a hold that the store may have made.
void Guard::KeepRelease(const Request& hold, TimePoint now) {
  std::vector<Charge> charges(hold.charges.begin(), hold.charges.end());
  for (Charge& charge : charges) charge.cost = 0;
  Request release{.charges = charges, .action = Action::kSettle, .hold = hold.hold};
  const TimePoint until = ExpiryOf(*hold.hold, now) + kHoldSurelyRemembered;
  if (AddKept(release, until, now)) return;
  ++stats_.settles_kept;
  ++stats_.settles_dropped;
}

bool Guard::AddKept(const Request& settle, TimePoint until, TimePoint now) {
  KeptSettles::Settle kept{.id = std::string(settle.hold->id), .parts = {}, .until = until};
  std::ranges::transform(settle.charges, std::back_inserter(kept.parts), Ledger::DebtOf);
  const std::size_t before = kept_settles_.size();
  if (!kept_settles_.Add(std::move(kept))) return false;
  stats_.settles_kept += static_cast<std::int64_t>(kept_settles_.size() - before);
  if (before == 0) next_own_call_ = std::max(next_own_call_, now + kOwnCallEvery);
  return true;
}

// Records what was taken locally, to be reported.
void Guard::AddUnreported(std::span<const Charge> charges, Cause cause, TimePoint now) {
  for (const Charge& charge : charges) {
    if (fallback_.PolicyOf(charge, cause) != OnStoreFailure::kLocal || charge.cost == 0) continue;
    switch (ledger_.Add(charge)) {
      case Ledger::Added::kFirst:
        next_own_call_ = now + kOwnCallEvery;
        break;
      case Ledger::Added::kAdded:
        break;
      case Ledger::Added::kFull:
        stats_.dropped_units += charge.cost;
    }
  }
}

TimePoint Guard::NextWake() const {
  TimePoint next = kNever;
  if (!waiting_.empty()) next = waiting_.front()->deadline;
  if (!probes_.empty()) next = std::min(next, probes_.front()->deadline);
  const bool due = ledger_.size() > 0 || kept_settles_.size() > 0 ||
                   breaker_.state() != Breaker::State::kClosed || overload_.active();
  if (due && !own_call_out_) next = std::min(next, next_own_call_);
  return std::min(next, local_holds_.next_due());
}

void Guard::OnTimer(TimePoint now, Actions& actions) {
  std::size_t expired = 0;
  for (CallQueue* queue : {&waiting_, &probes_}) {
    for (; !queue->empty() && queue->front()->deadline <= now && expired < kExpireMax; ++expired) {
      Expire(queue->front(), now, actions);
    }
  }
  TakeForGood(local_holds_.Expire(now, kExpireMax), now);
  if (!own_call_out_ && next_own_call_ <= now) CallIfDue(now, actions);
}

void Guard::Stop(TimePoint now, Actions& actions) {
  for (CallQueue* queue : {&waiting_, &probes_}) {
    while (!queue->empty()) Expire(queue->front(), now, actions);
  }
}

void Guard::CallIfDue(TimePoint now, Actions& actions) {
  next_own_call_ = now + kOwnCallEvery;
  overload_.EndIfCalm(now);
  AddChanges(actions);
  const bool settles = kept_settles_.size() > 0 && (settles_next_ || ledger_.size() == 0);
  settles_next_ = !settles;
  if (settles) {
    SendSettles(now, actions);
  } else if (ledger_.size() > 0) {
    Report(ledger_.Take(kReportMax), now, actions);
  } else {
    ProbeIfIdle(now, actions);
  }
}

// Tells the store of settles that it has not heard of.
void Guard::SendSettles(TimePoint now, Actions& actions) {
  StoreCall* const call = Admit(now, actions);
  if (!call) return;
  const std::size_t most = call->pass.probe ? 1 : kReportMax;
  std::vector<KeptSettles::Settle> settles = kept_settles_.Take(most, now);
  std::vector<std::vector<Charge>> charges(settles.size());
  std::vector<HoldTerms> terms(settles.size());
  std::vector<Request> requests(settles.size());
  for (std::size_t i = 0; i < settles.size(); ++i) {
    std::ranges::transform(settles[i].parts, std::back_inserter(charges[i]),
                           &Ledger::Debt::ToCharge);
    terms[i] = {.id = settles[i].id};
    requests[i] = {.charges = charges[i], .action = Action::kSettle, .hold = &terms[i]};
  }
  const std::size_t sent = SendOwn(call, requests, now, actions);
  for (auto& settle : settles | std::views::drop(sent)) kept_settles_.Add(std::move(settle));
  settles.resize(sent);
  if (sent > 0) call->settles = std::move(settles);
}

// Debits from the store what was taken locally. Units that the local share no longer counts as used
// have recovered, here as in the store. Returns why not everything was sent, if so.
std::optional<Guard::Rejection> Guard::Report(const std::vector<Ledger::Debt>& debts, TimePoint now,
                                              Actions& actions) {
  std::vector<Charge> charges;
  for (const Ledger::Debt& debt : debts) {
    Charge charge = debt.ToCharge();
    charge.cost = std::min(debt.units, fallback_.Used(charge));
    stats_.recovered_units += debt.units - charge.cost;
    if (charge.cost > 0) charges.push_back(charge);
  }
  if (charges.empty()) return std::nullopt;
  StoreCall* const call = Admit(now, actions);
  // A probe that is not answered loses the units of one state, not of many.
  const std::size_t most = !call ? 0 : call->pass.probe ? 1 : charges.size();
  std::vector<Request> debits(most);
  for (std::size_t i = 0; i < most; ++i) {
    debits[i] = {.charges = {&charges[i], 1}, .action = Action::kDebit};
  }
  const std::size_t sent = call ? SendOwn(call, debits, now, actions) : 0;
  if (sent == charges.size()) return std::nullopt;
  AddUnreported(std::span(charges).subspan(sent), Cause::kOutage, now);
  return sent == most ? Rejection::kBreaker : Rejection::kInFlight;
}

// Peeks at a state of its own if the store is not asked otherwise.
void Guard::ProbeIfIdle(TimePoint now, Actions& actions) {
  if (breaker_.state() == Breaker::State::kClosed) return;
  if (now - last_asked_ < options_.breaker.idle_probe_after) return;
  const auto limit = Limit::FixedWindow({.limit = 1, .window = 1s});
  const Charge peek{.key = "sluice.probe", .limit = &*limit, .cost = 0};
  if (StoreCall* const call = Admit(now, actions)) {
    Request look{.charges = {&peek, 1}};
    SendOwn(call, {&look, 1}, now, actions);
  }
}

// Sends these requests, as long as there is room in flight. Returns how many were sent.
std::size_t Guard::SendOwn(StoreCall* call, std::span<Request> requests, TimePoint now,
                           Actions& actions) {
  std::size_t sent = 0;
  for (; sent < requests.size(); ++sent) {
    Request& request = requests[sent];
    if (!Reserve(*call, request.charges, request.action)) break;
    call->asked.push_back(&request);
  }
  if (sent == 0) {
    Cancel(call);
    return 0;
  }
  call->Copy(cache_);
  call->asked.clear();
  call->own = true;
  own_call_out_ = true;
  Launch(call, now);
  actions.send.push_back(call);
  return sent;
}

// Accounts for the units that were reported, once their fate is known. Returns whether all of them
// got through.
bool Guard::AccountOwn(StoreCall& call, TimePoint now) {
  if (!call.settles.empty()) return AccountSettles(call, now);
  bool delivered = true;
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    const Request& request = call.requests[i];
    const std::int64_t units = request.charges.front().cost;
    if (request.outcome) {
      stats_.reported_units += units;
      if (cache_.enabled()) cache_.Learn(request, call.EachOf(i), call.PlacesOf(i), call.sent);
      continue;
    }
    delivered = false;
    if (IsFailure(request) && ProvablyNotCharged(request.outcome.error())) {
      AddUnreported(request.charges, Cause::kOutage, now);
    } else {
      stats_.dropped_units += units;
    }
  }
  return delivered;
}

// Keeps settles on if the store could not be told. Returns whether it was told of all.
bool Guard::AccountSettles(StoreCall& call, TimePoint now) {
  bool delivered = true;
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    const Request& request = call.requests[i];
    if (request.outcome) {
      ++stats_.settles_sent;
      if (cache_.enabled()) cache_.Learn(request, call.EachOf(i), call.PlacesOf(i), call.sent);
      continue;
    }
    delivered = false;
    const Error& error = request.outcome.error();
    KeptSettles::Settle& settle = call.settles[i];
    // If the store did not know the id, and has heard this, it remembers it from then on.
    if (!ProvablyNotCharged(error)) {
      settle.until = std::min(settle.until, call.sent + kHoldSurelyRemembered);
    }
    const bool kept =
        MayBeSentLater(error) && settle.until > now && kept_settles_.Add(std::move(settle));
    if (!kept) ++stats_.settles_dropped;
  }
  return delivered;
}

// Allows the next one: at once if this one got through. One that misses its deadline does not keep
// others from being tried.
void Guard::EndOwn(bool delivered, TimePoint now) {
  own_call_out_ = false;
  next_own_call_ = delivered ? now : now + kOwnCallEvery;
}

// Drops what was used locally and not reported of these budgets, and what is known of them.
void Guard::ForgetReset(const Request& request) {
  for (const Charge& charge : request.charges) {
    fallback_.Reset(charge);
    ForgetLastSeen(&charge);
  }
  for (const Ledger::Debt& debt : ledger_.TakeOf(request.charges)) {
    stats_.recovered_units += debt.units;
  }
}

// Does it again when a reset is over, however it ended: requests sent before the store reset may
// have been answered since.
void Guard::ForgetIfReset(const Request& answered) {
  if (answered.action != Action::kReset) return;
  for (const Charge& charge : answered.charges) {
    ForgetDenials(&charge);
    ForgetLastSeen(&charge);
  }
}

void Guard::ForgetDenials(const Charge* charge) {
  if (charge) return cache_.Invalidate(cache_.HashOf(*charge));
  cache_.Clear();
}

void Guard::ForgetLastSeen(const Charge* charge) {
  if (charge) return last_seen_.Forget(cache_.HashOf(*charge));
  last_seen_.Clear();
}

// Adds what has changed since the last call.
void Guard::AddChanges(Actions& actions) {
  if (breaker_.transitions() != transitions_added_) {
    actions.transitions.push_back(*breaker_.last_transition());
    transitions_added_ = breaker_.transitions();
  }
  if (overload_.changes() != overload_changes_added_) {
    actions.overload_changes.push_back(*overload_.last_change());
    overload_changes_added_ = overload_.changes();
  }
}

GuardedStore::Status Guard::GetStatus() const {
  return {.breaker = breaker_.state(),
          .last_transition = breaker_.last_transition(),
          .last_failure = breaker_.last_failure(),
          .instances = fallback_.instances(),
          .overloaded = overload_.active()};
}

GuardedStore::Stats Guard::GetStats() const {
  GuardedStore::Stats stats = stats_;
  const auto cache = cache_.GetStats();
  stats.in_flight = static_cast<std::int64_t>(places_.taken());
  stats.states_to_report = static_cast<std::int64_t>(ledger_.size());
  stats.settles_dropped += kept_settles_.too_late();
  stats.settles_waiting = static_cast<std::int64_t>(kept_settles_.size());
  stats.local_holds = static_cast<std::int64_t>(local_holds_.live());
  stats.overloads = overload_.overloads();
  stats.transitions = breaker_.transitions();
  stats.transitions_by_reason = breaker_.transitions_by_reason();
  stats.deny_cache_hits = cache_hits_.load(std::memory_order_relaxed);
  stats.deny_cache_entries = cache.entries;
  stats.deny_cache_bytes = cache.bytes;
  stats.local_keys = fallback_.keys();
  return stats;
}

}  // namespace sluice::guard
