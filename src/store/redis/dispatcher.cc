// SPDX-License-Identifier: Apache-2.0
#include "store/redis/dispatcher.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include "base/text.h"
#include "redis/error_reply.h"
#include "redis/slots.h"
#include "store/group.h"
#include "store/redis/script.h"
#include "store/redis/state_key.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;

// How often a call is repeated because the program was missing, or windows were not the server's.
constexpr int kLoadsMax = 8;
constexpr auto kWithoutFunctions = 5min;
// To handle so many replies, which may have come together with one, takes longer than to write.
constexpr std::size_t kWorthAWrite = 16;
constexpr auto kTryAgainPause = 10ms;  // The first; each later one is twice as long.
constexpr int kPauseDoublingsMax = 3;

// The server's time, in microseconds, follows: it is in none of the windows of a calendar that were
// sent. See sluice.lua.
constexpr std::string_view kOtherWindow = "CALENDAR ";

Micros Since(Moment now) { return std::chrono::duration_cast<Micros>(now.time_since_epoch()); }

Error TooMany(std::size_t waiting) {
  return {ErrorCode::kUnavailable, text::Cat(waiting, " requests wait for Redis already")};
}

bool IsMissingFunction(std::string_view error) {
  return error.starts_with("ERR Function not found");
}

// A server before 7.0, or a user without the permission.
bool RefusesFunctions(std::string_view error) {
  return error.starts_with("ERR unknown command") || error.starts_with("NOPERM");
}

// A server that takes no writes refuses functions before they run. It runs scripts, and refuses
// their writes: what needs none, such as a denial, is still decided.
bool RefusesWrites(std::string_view error) {
  return error.starts_with("OOM") || error.starts_with("NOREPLICAS") ||
         error.starts_with("MISCONF");
}

void Add(std::atomic<std::int64_t>& counter, std::size_t count = 1) {
  counter.fetch_add(static_cast<std::int64_t>(count), std::memory_order_relaxed);
}

}  // namespace

// A batch in flight.
class Dispatcher::ScriptCall : public Exchange {
 public:
  ScriptCall(Dispatcher& dispatcher, const Waiting& first, std::shared_ptr<Round> its_round)
      : slot(first.slot),
        alone(first.alone),
        round(std::move(its_round)),
        dispatcher_(dispatcher) {}

  void AppendTo(std::string& out) const override {
    form = as_script ? ProgramForm::kScript : dispatcher_.FormFor(node());
    batch.AppendCommand(out, form, dispatcher_.announce_prefix_, dispatcher_.BelievedNow());
  }
  void OnReply(Reply reply, Moment now) override { dispatcher_.OnReply(*this, reply, now); }
  void OnLateReply() override { dispatcher_.Release(*this); }

  const std::uint16_t slot;
  const bool alone;  // As in Waiting.
  Batch batch;
  std::vector<Asker> askers;     // Of the batch's requests, in order.
  std::shared_ptr<Round> round;  // Null once it has paused.
  int loads = 0;
  int pauses = 0;
  bool as_script = false;                             // Even if there are functions.
  mutable ProgramForm form = ProgramForm::kFunction;  // As it was last written.

 private:
  Dispatcher& dispatcher_;
};

// Sent once, however many calls found the program missing.
class Dispatcher::ScriptLoad : public Exchange {
 public:
  ScriptLoad(Dispatcher& dispatcher, NodeId where, ProgramForm form)
      : dispatcher_(dispatcher), where_(where), form_(form) {}

  void AppendTo(std::string& out) const override { out += ProgramAs(form_).load; }
  void OnReply(Reply reply, Moment now) override {
    dispatcher_.loading_.erase({where_, form_});
    if (form_ == ProgramForm::kScript || !reply) return;
    const RespNode& first = reply->front();
    if (first.type != RespType::kError || IsLoadedAlready(first.text) ||
        first.text.starts_with("READONLY")) {
      return;
    }
    dispatcher_.without_functions_[where_] = now + kWithoutFunctions;
  }

 private:
  Dispatcher& dispatcher_;
  const NodeId where_;
  const ProgramForm form_;
};

Dispatcher::Dispatcher(Router& router)
    : router_(router),
      endpoint_(router.endpoint()),
      announce_prefix_(endpoint_.announces ? std::string_view(endpoint_.prefix) : "") {}

void Dispatcher::Apply(std::span<Request> requests, Done&& done, Moment now) {
  Add(counters_.requests, requests.size());
  if (requests.empty()) return answered_.push_back(std::move(done));
  Caller& caller =
      callers_.emplace_back(requests.size(), std::move(done), now + endpoint_.command_timeout);
  caller.place = std::prev(callers_.end());
  for (Request& request : requests) {
    if (const std::size_t waiting = waiting_ + ordered_.size(); stopped_) {
      Refuse(request, {.caller = &caller}, Router::Closed(), now);
    } else if (waiting >= endpoint_.waiting_max) {
      Refuse(request, {.caller = &caller}, TooMany(waiting), now);
    } else if (router_.cluster()) {
      Route(request, caller);
    } else {
      Enqueue({.request = &request}, 0, {.caller = &caller});
    }
  }
}

void Dispatcher::RefuseAll(std::span<Request> requests, std::size_t waiting) {
  Add(counters_.requests, requests.size());
  for (Request& request : requests) {
    request.outcome = std::unexpected(TooMany(waiting));
    CountFailure(request.outcome.error());
  }
}

void Dispatcher::Stop() {
  stopped_ = true;
  router_.Stop();
  for (auto& [_, lane] : lanes_) MakeReady(lane);
}

void Dispatcher::Advance(Moment now) {
  now_ = now;
  may_send_ = false;
  ExpireWaiting(now);
  std::erase_if(without_functions_, [&](const auto& entry) { return entry.second <= now; });
  bool busy = true;
  while (busy) {
    busy = router_.Advance(now);
    busy |= PumpOrdered();
    busy |= PumpReady(now);
  }
  if (std::exchange(maps_seen_, router_.maps()) < router_.maps()) {
    std::erase_if(lanes_, [](const auto& entry) {
      return entry.second.waiting.empty() && entry.second.rounds == 0;
    });
  }
}

Moment Dispatcher::NextWake() const {
  Moment next = router_.NextWake();
  for (const auto& [_, lane] : lanes_) {
    if (!lane.waiting.empty()) next = std::min(next, DeadlineOf(lane.waiting.front().asker));
  }
  if (!ordered_.empty()) next = std::min(next, ordered_.front().caller->deadline);
  return next;
}

void Dispatcher::ExpireWaiting(Moment now) {
  for (auto& [_, lane] : lanes_) {
    while (!lane.waiting.empty() && DeadlineOf(lane.waiting.front().asker) <= now) {
      const Waiting late = lane.waiting.front();
      lane.waiting.pop_front();
      --waiting_;
      Refuse(*late.task.request, late.asker, router_.NotSent(), now);
    }
  }
  while (!ordered_.empty() && ordered_.front().caller->deadline <= now) {
    const Ordered late = std::move(ordered_.front());
    ordered_.pop_front();
    Refuse(*late.request, {.caller = late.caller}, router_.NotSent(), now);
  }
}

// One slot for each charge, or none if the request has an invalid shape, which is refused anyway.
std::vector<std::uint16_t> Dispatcher::SlotsOf(const Request& request) const {
  std::vector<std::uint16_t> slots;
  if (request.charges.size() > kChargesMax) return slots;
  for (const Charge& charge : request.charges) {
    const bool valid = !charge.key.empty() && charge.key.size() <= kKeyBytesMax;
    slots.push_back(valid ? SlotOf(KeyPrefix(endpoint_.prefix, charge.key)) : 0);
  }
  return slots;
}

void Dispatcher::Route(Request& request, Caller& caller) {
  std::vector<std::uint16_t> slots = SlotsOf(request);
  if (request.now) {
    ordered_.push_back({&request, &caller, std::move(slots)});
    return;
  }
  StartSpan(request, slots, {.caller = &caller});
}

// Callers that set the time, tests and replays, rely on the order of their requests even across
// slots. A request over several slots waits for all before it, and all after it wait for it.
bool Dispatcher::PumpOrdered() {
  bool busy = false;
  while (!ordered_.empty() && !ordered_span_) {
    const auto& slots = ordered_.front().slots;
    const bool spans = std::ranges::adjacent_find(slots, std::not_equal_to{}) != slots.end();
    if (spans && ordered_open_ > 0) break;
    const Ordered next = std::move(ordered_.front());
    ordered_.pop_front();
    ++ordered_open_;
    ordered_span_ = spans;
    StartSpan(*next.request, next.slots, {.caller = next.caller, .ordered = true});
    busy = true;
  }
  return busy;
}

void Dispatcher::Enqueue(const Task& task, std::uint16_t slot, Asker asker) {
  Lane& lane = lanes_[router_.OwnerOf(slot)];
  // By deadline, which is the order of arrival: later steps of a request go before requests that
  // arrived after it.
  auto place = lane.waiting.end();
  if (const Moment deadline = DeadlineOf(asker);
      !lane.waiting.empty() && deadline < DeadlineOf(lane.waiting.back().asker)) {
    place = std::ranges::upper_bound(lane.waiting, deadline, {},
                                     [](const Waiting& other) { return DeadlineOf(other.asker); });
  }
  lane.waiting.insert(place, {.task = task, .asker = asker, .slot = slot});
  ++waiting_;
  MakeReady(lane);
}

void Dispatcher::Refuse(Request& request, Asker asker, const Error& error, Moment now) {
  request.outcome = std::unexpected(error);
  if (!asker.span) CountFailure(error);
  Finish(asker, now);
}

void Dispatcher::Finish(Asker asker, Moment now) {
  if (asker.span) {
    if (--asker.span->open == 0) EndStep(*asker.span, now);
    return;
  }
  if (asker.ordered) {
    --ordered_open_;
    ordered_span_ = false;
  }
  if (--asker.caller->open > 0) return;
  answered_.push_back(std::move(asker.caller->done));
  callers_.erase(asker.caller->place);
}

void Dispatcher::StartSpan(Request& request, std::span<const std::uint16_t> slots, Asker asker) {
  const std::uint16_t slot = slots.empty() ? 0 : slots.front();
  // A single slot, or a request that the batch refuses, needs only one call.
  if (std::ranges::adjacent_find(slots, std::not_equal_to{}) == slots.end() ||
      FirstInvalidInGroup(request)) {
    return Enqueue({.request = &request}, slot, asker);
  }
  SpanRun& run = spans_.emplace_back(request, slots, asker);
  run.place = std::prev(spans_.end());
  RunParts(run, run.span.is_simple() ? Task::Kind::kApply : Task::Kind::kLook,
           asker.caller->deadline);
}

void Dispatcher::RunParts(SpanRun& run, Task::Kind step, Moment deadline) {
  const auto takes_part = [&](const Span::Part& part) {
    return step != Task::Kind::kRefund || !part.receipts.empty();
  };
  run.step = step;
  run.deadline = deadline;
  for (Span::Part& part : run.span.parts()) {
    if (!takes_part(part)) continue;
    ++run.open;
    Enqueue({.request = &part.request,
             .kind = step,
             .receipts = &part.receipts,
             .existed = &part.existed},
            part.slot, {.span = &run});
  }
}

// The last part was answered.
void Dispatcher::EndStep(SpanRun& run, Moment now) {
  switch (run.step) {
    case Task::Kind::kLook:
      if (!run.span.MayTake()) break;
      if (!run.span.is_hold()) return RunParts(run, Task::Kind::kApply, run.deadline);
      run.step = Task::Kind::kApply;
      HoldNext(run, now);
      return;
    case Task::Kind::kApply: {
      if (run.span.is_hold()) {
        if (HoldNext(run, now)) return;
        break;
      }
      run.span.Answer();
      const auto refunds = std::ranges::count_if(
          run.span.parts(), [](const Span::Part& part) { return !part.receipts.empty(); });
      if (refunds == 0) break;
      Add(counters_.refunds, static_cast<std::size_t>(refunds));
      // What was taken must be given back, however long the request has taken already.
      return RunParts(run, Task::Kind::kRefund, now + endpoint_.command_timeout);
    }
    case Task::Kind::kRefund:
      if (!(run.span.is_hold() ? run.span.Released() : run.span.Refunded())) {
        Add(counters_.refunds_lost);
      }
      break;
  }
  if (!run.request.outcome) CountFailure(run.request.outcome.error());
  const Asker asker = run.asker;
  spans_.erase(run.place);
  Finish(asker, now);
}

// Whether there is more to ask.
bool Dispatcher::HoldNext(SpanRun& run, Moment now) {
  if (Span::Part* const part = run.span.NextToHold()) {
    run.open = 1;
    Enqueue({.request = &part->request, .existed = &part->existed}, part->slot, {.span = &run});
    return true;
  }
  const auto parts = run.span.ToRelease();
  if (parts.empty()) return false;
  Add(counters_.refunds, parts.size());
  run.step = Task::Kind::kRefund;
  // What was taken must be given back, however long the request has taken already.
  run.deadline = now + endpoint_.command_timeout;
  run.open = parts.size();
  for (Span::Part* const part : parts) {
    Enqueue({.request = &part->release}, part->slot, {.span = &run});
  }
  return true;
}

void Dispatcher::MakeReady(Lane& lane) {
  if (!std::exchange(lane.ready, true)) ready_.push_back(&lane);
}

bool Dispatcher::PumpReady(Moment now) {
  const auto ready = std::exchange(ready_, {});
  for (Lane* lane : ready) {
    lane->ready = false;
    while (stopped_ && !lane->waiting.empty()) {
      const Waiting next = lane->waiting.front();
      lane->waiting.pop_front();
      --waiting_;
      Refuse(*next.task.request, next.asker, Router::Closed(), now);
    }
    while (!lane->waiting.empty() && lane->rounds < endpoint_.in_flight_max) {
      const auto calls = Gather(*lane, now);
      if (calls.empty()) continue;
      ++lane->rounds;
      calls.front()->round->open = calls.size();
      for (const auto& call : calls) {
        lane->sent += call->batch.requests();
        // The oldest request sets the deadline for all.
        router_.Send(call, call->slot, DeadlineOf(call->askers.front()), now);
      }
    }
  }
  return !ready.empty();
}

// Collects the next round: no more than its share of all open requests, so that rounds are equally
// large, and one can be answered while the others are decided.
std::vector<std::shared_ptr<Dispatcher::ScriptCall>> Dispatcher::Gather(Lane& lane, Moment now) {
  const auto round = std::make_shared<Round>(lane);
  std::vector<std::shared_ptr<ScriptCall>> calls;
  std::size_t operations = 0;
  const std::size_t open = lane.waiting.size() + lane.sent;
  for (std::size_t room = 1 + (open - 1) / endpoint_.in_flight_max;
       room > 0 && !lane.waiting.empty(); --room) {
    const Waiting next = lane.waiting.front();
    const auto found = std::ranges::find_if(calls, [&](const auto& other) {
      return !next.alone && !other->alone && other->slot == next.slot;
    });
    const auto call =
        found != calls.end() ? *found : std::make_shared<ScriptCall>(*this, next, round);
    const std::size_t before = call->batch.operations();
    const Batch::Added added =
        call->batch.Add(next.task, endpoint_.prefix, before + endpoint_.batch_max - operations);
    if (added == Batch::Added::kFull) break;
    operations += call->batch.operations() - before;
    lane.waiting.pop_front();
    --waiting_;
    if (added == Batch::Added::kAnswered) {
      Finish(next.asker, now);
      continue;
    }
    call->askers.push_back(next.asker);
    if (found == calls.end()) calls.push_back(call);
  }
  return calls;
}

void Dispatcher::OnReply(ScriptCall& call, const Reply& reply, Moment now) {
  CountCall(call, reply.has_value(), now);
  std::optional<Error> error;
  if (!reply) {
    error = reply.error();
  } else if (const RespNode& first = reply->front(); first.type == RespType::kError) {
    if (TryAgain(call, first.text, now)) return;
    error = ErrorOf(first.text);
  } else if (const auto decoded = call.batch.Decode(*reply); !decoded) {
    error = decoded.error();
  }
  if (error) call.batch.Fail(*error);
  const auto askers = std::exchange(call.askers, {});
  for (std::size_t i = 0; i < askers.size(); ++i) {
    const auto& outcome = call.batch.task(i).request->outcome;
    if (!outcome && !askers[i].span) CountFailure(outcome.error());
    Finish(askers[i], now);
  }
  if (!call.expired()) Release(call);
}

// A call that was never sent proves nothing about Redis, and one whose connection broke proves
// nothing about its speed.
void Dispatcher::CountCall(const ScriptCall& call, bool answered, Moment now) {
  if (!call.sent()) return;
  Add(counters_.calls);
  if (answered || call.expired()) call_times_.push_back(now - call.sent_at());
}

// Whether the call is repeated. It was not executed.
bool Dispatcher::TryAgain(ScriptCall& call, std::string_view error, Moment now) {
  const bool was_function = call.form == ProgramForm::kFunction;
  const auto repeat = [&] {
    if (call.loads++ == kLoadsMax) return false;
    router_.Send(call.shared_from_this(), call.slot, call.deadline(), now);
    return true;
  };
  if (error.starts_with("NOSCRIPT")) {
    if (call.loads < kLoadsMax) Load(ProgramForm::kScript, call.node(), now);
    return repeat();
  }
  if (was_function && IsMissingFunction(error)) {
    // Later calls find it. This one does not wait: to load a library is a write, which a replica
    // refuses and a paused server delays.
    call.as_script = true;
    const bool repeats = repeat();
    if (!without_functions_.contains(call.node())) Load(ProgramForm::kFunction, call.node(), now);
    return repeats;
  }
  if (was_function && RefusesFunctions(error)) {
    without_functions_[call.node()] = now + kWithoutFunctions;
    return repeat();
  }
  if (was_function && RefusesWrites(error)) {
    call.as_script = true;
    return repeat();
  }
  if (error.starts_with(kOtherWindow)) {
    const auto server_us = text::ParseInteger(error.substr(kOtherWindow.size()));
    if (!server_us) return false;
    server_ahead_ = Micros{*server_us} - Since(now);
    return repeat();
  }
  if (!error.starts_with("TRYAGAIN")) return false;
  // The slot is moving, and some of its keys have moved already: no node has all of them. Requests
  // that can go on their own do.
  if (call.batch.operations() > 1) {
    Lane& lane = call.round->lane;
    for (std::size_t i = call.batch.requests(); i > 0; --i) {
      lane.waiting.push_front({.task = call.batch.task(i - 1),
                               .asker = call.askers[i - 1],
                               .slot = call.slot,
                               .alone = true});
      ++waiting_;
    }
    Release(call);
    return true;
  }
  // A group has to wait. The slot may keep moving for long. Others must not wait for this call's
  // place in a round, and many paused calls must not keep the master busy.
  const auto pause = kTryAgainPause * (1 << std::min(call.pauses++, kPauseDoublingsMax));
  if (call.round) {
    waiting_ += call.batch.requests();
    LeaveRound(call);
  }
  router_.Send(call.shared_from_this(), call.slot, call.deadline(), now, now + pause);
  return true;
}

// A little less: the next window is sent, too.
TimePoint Dispatcher::BelievedNow() const {
  constexpr Micros kMargin = 1s;
  if (!server_ahead_) return {};
  return TimePoint{
      std::clamp(*server_ahead_ + Since(now_) - kMargin, Micros{0}, kTimeMax.time_since_epoch())};
}

ProgramForm Dispatcher::FormFor(NodeId node) const {
  return without_functions_.contains(node) ? ProgramForm::kScript : ProgramForm::kFunction;
}

void Dispatcher::Load(ProgramForm form, NodeId node, Moment now) {
  if (!loading_.insert({node, form}).second) return;
  Add(counters_.script_loads);
  router_.Send(std::make_shared<ScriptLoad>(*this, node, form), router_.AddressOf(node),
               now + endpoint_.command_timeout, now);
}

// Nothing of the call is in flight any more.
void Dispatcher::Release(ScriptCall& call) {
  if (call.round) return LeaveRound(call);
  waiting_ -= call.batch.requests();
}

void Dispatcher::LeaveRound(ScriptCall& call) {
  const auto round = std::exchange(call.round, nullptr);
  round->lane.sent -= call.batch.requests();
  if (--round->open == 0) {
    --round->lane.rounds;
    may_send_ = may_send_ || round->lane.sent >= kWorthAWrite;
  }
  MakeReady(round->lane);
}

void Dispatcher::CountFailure(const Error& error) {
  if (error.code == ErrorCode::kForeignState) return;  // Redis works as it should.
  Add(error.code == ErrorCode::kOutcomeUnknown ? counters_.unanswered : counters_.unavailable);
}

}  // namespace sluice::redis
