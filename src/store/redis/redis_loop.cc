// SPDX-License-Identifier: Apache-2.0
#include "store/redis/redis_loop.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <functional>
#include <utility>

#include "base/text.h"
#include "store/redis/announcement.h"
#include "store/redis/script.h"
#include "store/redis/state_key.h"
#include "store/validate.h"

namespace sluice::redis {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr int kLoadsMax = 8;  // How often a call is made again because the script was not there.
constexpr int kPauseDoublingsMax = 3;

Error TooMany(std::size_t waiting) {
  return {ErrorCode::kUnavailable, text::Cat(waiting, " requests wait for Redis already")};
}

}  // namespace

RedisLoop::RedisLoop(asio::any_io_executor executor, Endpoint endpoint, OnCall on_call)
    : executor_(std::move(executor)),
      endpoint_(std::move(endpoint)),
      on_call_(std::move(on_call)),
      cluster_(endpoint_.mode == Mode::kCluster),
      sha_(ScriptSha()),
      router_(std::make_shared<Router>(
          executor_,
          Router::Options{
              .endpoint = endpoint_,
              .prepare = std::bind_front(&RedisLoop::LoadOn, this),
              .on_connect = [this] { counters_.connects.fetch_add(1, std::memory_order_relaxed); },
              .on_routes =
                  [this] {
                    DropIdleLanes();
                    listener_.LeaveFormerMaster();
                  }})),
      listener_(*router_),
      timer_(executor_) {}

void RedisLoop::Start() { router_->Start(); }

void RedisLoop::Stop() {
  const auto self = shared_from_this();
  stopped_ = true;
  timer_.cancel();
  listener_.Stop();
  router_->Stop();
  for (const auto& [_, flight] : std::multimap(flights_)) {
    if (flight->answered) continue;
    flight->errand->handler = nullptr;
    Fail(*flight, {ErrorCode::kUnavailable, "the store is closed"});
    Release(flight);
  }
  // Sending fails at once now.
  for (const auto& [_, lane] : std::unordered_map(lanes_)) Pump(lane);
  PumpOrdered();
}

asio::awaitable<Expected<void>> RedisLoop::LoadOn(Connection& connection) {
  const std::string load = Command("SCRIPT", "LOAD", kScript);
  const auto sha = co_await connection.Ask(load);
  if (!sha) co_return std::unexpected(sha.error());
  if (sha->size() != 1 || sha->front() != sha_) {
    co_return std::unexpected(Error{ErrorCode::kStoreError, "SCRIPT LOAD answered something else"});
  }
  co_return Expected<void>{};
}

void RedisLoop::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  counters_.requests.fetch_add(static_cast<std::int64_t>(requests.size()),
                               std::memory_order_relaxed);
  if (requests.empty()) return done();
  const auto deadline = Clock::now() + endpoint_.command_timeout;
  const auto call = std::make_shared<Call>(requests.size(), std::move(done), deadline);
  ArmTimer(deadline);
  if (cluster_) {
    for (Request& request : requests) Route(request, call);
    return;
  }
  const auto lane = LaneOf(0);
  for (Request& request : requests) {
    if (waiting_ < endpoint_.waiting_max) {
      lane->waiting.push_back({.task = {.request = &request}, .call = call, .slot = 0});
      ++waiting_;
    } else {
      Refuse(request, call, TooMany(waiting_));
    }
  }
  PumpSoon(lane);
}

void RedisLoop::RefuseAll(std::span<Request> requests, std::size_t waiting) {
  counters_.requests.fetch_add(static_cast<std::int64_t>(requests.size()),
                               std::memory_order_relaxed);
  for (Request& request : requests) {
    request.outcome = std::unexpected(TooMany(waiting));
    CountFailure(request.outcome.error());
  }
}

// One for each charge, or none if the request has a shape that is refused anyway.
std::vector<std::uint16_t> RedisLoop::SlotsOf(const Request& request) const {
  std::vector<std::uint16_t> slots;
  if (request.charges.size() > kChargesMax) return slots;
  for (const Charge& charge : request.charges) {
    const bool valid = !charge.key.empty() && charge.key.size() <= kKeyBytesMax;
    slots.push_back(valid ? SlotOf(KeyPrefix(endpoint_.prefix, charge.key)) : 0);
  }
  return slots;
}

void RedisLoop::Route(Request& request, const std::shared_ptr<Call>& call) {
  if (waiting_ + ordered_.size() >= endpoint_.waiting_max) {
    return Refuse(request, call, TooMany(waiting_ + ordered_.size()));
  }
  std::vector<std::uint16_t> slots = SlotsOf(request);
  if (request.now) {
    ordered_.push_back({&request, call, std::move(slots)});
    return PumpOrdered();
  }
  const std::uint16_t slot = slots.empty() ? 0 : slots.front();
  if (std::ranges::all_of(slots, [&](std::uint16_t other) { return other == slot; })) {
    return Enqueue({.request = &request}, slot, call);
  }
  StartSpan(request, slots, call);
}

// Those who set the time, tests and replays, rely on the order of their requests even over several
// slots: a request that spans some waits for all before it, and all after it wait for it.
void RedisLoop::PumpOrdered() {
  if (std::exchange(pumping_ordered_, true)) return;
  const auto self = shared_from_this();
  while (!ordered_.empty() && !ordered_span_) {
    const Ordered& next = ordered_.front();
    const std::uint16_t slot = next.slots.empty() ? 0 : next.slots.front();
    const bool spans = std::ranges::any_of(next.slots, [&](auto other) { return other != slot; });
    if (spans && ordered_open_ > 0) break;
    const Ordered taken = std::move(ordered_.front());
    ordered_.pop_front();
    ++ordered_open_;
    ordered_span_ = spans;
    const auto call = std::make_shared<Call>(
        1,
        [this, self, outer = taken.call] {
          --ordered_open_;
          ordered_span_ = false;
          Finish(outer);
          PumpOrdered();
        },
        taken.call->deadline);
    if (spans) {
      StartSpan(*taken.request, taken.slots, call);
    } else {
      Enqueue({.request = taken.request}, slot, call);
    }
  }
  pumping_ordered_ = false;
}

void RedisLoop::Enqueue(const Task& task, std::uint16_t slot, const std::shared_ptr<Call>& call) {
  const auto lane = LaneOf(slot);
  // By deadline, which is the order of arrival: later phases of a request come before others that
  // came after it.
  const auto place = std::ranges::upper_bound(
      lane->waiting, call->deadline, {}, [](const Waiting& other) { return other.call->deadline; });
  lane->waiting.insert(place, {.task = task, .call = call, .slot = slot});
  ++waiting_;
  ArmTimer(call->deadline);
  PumpSoon(lane);
}

void RedisLoop::Refuse(Request& request, const std::shared_ptr<Call>& call, const Error& error) {
  request.outcome = std::unexpected(error);
  if (call->counts) CountFailure(error);
  Finish(call);
}

void RedisLoop::StartSpan(Request& request, std::span<const std::uint16_t> slots,
                          const std::shared_ptr<Call>& call) {
  if (auto invalid = FirstInvalid(request)) {
    request.outcome = std::unexpected(*std::move(invalid));
    return Finish(call);
  }
  const auto span = std::make_shared<Span>(request, slots);
  const auto take = [this, self = shared_from_this(), span, &request, call] {
    RunParts(span, Task::Kind::kApply, call->deadline, [this, self, span, &request, call] {
      span->Answer();
      FinishSpan(span, request, call);
    });
  };
  if (span->is_simple()) return take();
  RunParts(span, Task::Kind::kLook, call->deadline,
           [this, self = shared_from_this(), span, &request, call, take] {
             if (span->MayTake()) return take();
             if (!request.outcome) CountFailure(request.outcome.error());
             Finish(call);
           });
}

void RedisLoop::RunParts(const std::shared_ptr<Span>& span, Task::Kind kind,
                         Clock::time_point deadline, std::move_only_function<void()> next) {
  const auto takes_part = [&](const Span::Part& part) {
    return kind != Task::Kind::kRefund || !part.receipts.empty();
  };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(span->parts(), takes_part));
  const auto phase = std::make_shared<Call>(count, std::move(next), deadline, false);
  for (Span::Part& part : span->parts()) {
    if (!takes_part(part)) continue;
    Enqueue({.request = &part.request, .kind = kind, .receipts = &part.receipts}, part.slot, phase);
  }
}

void RedisLoop::FinishSpan(const std::shared_ptr<Span>& span, Request& request,
                           const std::shared_ptr<Call>& call) {
  const auto refunds = std::ranges::count_if(
      span->parts(), [](const Span::Part& part) { return !part.receipts.empty(); });
  const auto finish = [this, self = shared_from_this(), &request, call] {
    if (!request.outcome) CountFailure(request.outcome.error());
    Finish(call);
  };
  if (refunds == 0) return finish();
  counters_.refunds.fetch_add(refunds, std::memory_order_relaxed);
  // What was taken has to go back however long the request has taken already.
  RunParts(span, Task::Kind::kRefund, Clock::now() + endpoint_.command_timeout,
           [this, span, finish] {
             if (!span->Refunded()) counters_.refunds_lost.fetch_add(1, std::memory_order_relaxed);
             for (const Span::Part& part : span->parts()) AnnounceRefund(part);
             finish();
           });
}

// Whoever was denied between taking and giving back would take that for the truth. Announced also
// if it is not known whether it was given back.
void RedisLoop::AnnounceRefund(const Span::Part& part) {
  const auto& outcome = part.request.outcome;
  if (!endpoint_.announces || part.receipts.empty()) return;
  if (!outcome && outcome.error().code != ErrorCode::kOutcomeUnknown) return;
  for (const Charge& charge : part.charges) {
    router_->Send(AnnounceCommand(endpoint_.prefix, &charge), part.slot, [](auto) {});
  }
}

// Likewise for what was given back on request.
void RedisLoop::AnnounceGiven(const Flight& flight) {
  if (!endpoint_.announces) return;
  for (std::size_t i = 0; i < flight.batch.requests(); ++i) {
    const Task& task = flight.batch.task(i);
    if (task.kind != Task::Kind::kApply || task.request->action != Action::kGive) continue;
    for (const Charge& charge : task.request->charges) {
      if (charge.cost == 0) continue;
      router_->Send(AnnounceCommand(endpoint_.prefix, &charge), flight.slot, [](auto) {});
    }
  }
}

void RedisLoop::Watch(const Store::OnRaised& on_raised) {
  listener_.Subscribe(
      AnnouncementChannel(endpoint_.prefix),
      [on_raised](std::string_view message) { ReadAnnouncement(message, on_raised); },
      [on_raised] { on_raised(nullptr); });
}

std::shared_ptr<RedisLoop::Lane> RedisLoop::LaneOf(std::uint16_t slot) {
  auto& lane = lanes_[router_->OwnerOf(slot)];
  if (!lane) lane = std::make_shared<Lane>();
  return lane;
}

void RedisLoop::DropIdleLanes() {
  std::erase_if(lanes_, [](const auto& entry) {
    return entry.second->waiting.empty() && entry.second->rounds == 0;
  });
}

// At the end of this turn, so that all requests go together that have come by then.
void RedisLoop::PumpSoon(const std::shared_ptr<Lane>& lane) {
  if (std::exchange(lane->pump_posted, true)) return;
  asio::post(executor_, [this, self = shared_from_this(), lane] {
    lane->pump_posted = false;
    Pump(lane);
  });
}

// Answering may bring new requests, and with them the way back here.
void RedisLoop::Pump(const std::shared_ptr<Lane>& lane) {
  if (std::exchange(lane->pumping, true)) return;
  const auto self = shared_from_this();
  while (!lane->waiting.empty() && (lane->rounds < endpoint_.in_flight_max || stopped_)) {
    const auto flights = Gather(lane);
    if (flights.empty()) continue;
    ++lane->rounds;
    flights.front()->round->open = flights.size();
    for (const auto& flight : flights) lane->sent += flight->batch.requests();
    for (const auto& flight : flights) Launch(flight);
  }
  lane->pumping = false;
}

// What goes in the next round: no more than its share of all that is open, so that there is as much
// in every round, and one can be answered while the others are decided.
std::vector<std::shared_ptr<RedisLoop::Flight>> RedisLoop::Gather(
    const std::shared_ptr<Lane>& lane) {
  const auto round = std::make_shared<Round>(lane);
  std::vector<std::shared_ptr<Flight>> flights;
  std::vector<std::shared_ptr<Call>> refused;
  std::size_t operations = 0;
  const std::size_t open = lane->waiting.size() + lane->sent;
  for (std::size_t room = 1 + (open - 1) / endpoint_.in_flight_max;
       room > 0 && !lane->waiting.empty(); --room) {
    const Waiting& next = lane->waiting.front();
    std::shared_ptr<Flight> flight;
    if (!next.alone) {
      const auto takes_it = [&](const auto& other) {
        return !other->alone && other->slot == next.slot;
      };
      const auto found = std::ranges::find_if(flights, takes_it);
      if (found != flights.end()) flight = *found;
    }
    const bool is_new = !flight;
    if (is_new) {
      flight = std::make_shared<Flight>();
      flight->slot = next.slot;
      flight->alone = next.alone;
      flight->round = round;
    }
    const std::size_t before = flight->batch.operations();
    const Batch::Added added =
        flight->batch.Add(next.task, endpoint_.prefix, before + endpoint_.batch_max - operations);
    if (added == Batch::Added::kFull) break;
    operations += flight->batch.operations() - before;
    const Waiting taken = std::move(lane->waiting.front());
    lane->waiting.pop_front();
    --waiting_;
    if (added == Batch::Added::kAnswered) {
      refused.push_back(taken.call);
      continue;
    }
    flight->calls.push_back(taken.call);
    if (is_new) flights.push_back(std::move(flight));
  }
  for (const auto& call : refused) Finish(call);
  return flights;
}

void RedisLoop::Launch(const std::shared_ptr<Flight>& flight) {
  if (!std::exchange(flight->launched, true)) {
    // Nobody waits longer than the one who has waited longest.
    const auto earliest = std::ranges::min_element(flight->calls, {},
                                                   [](const auto& call) { return call->deadline; });
    flight->place = flights_.emplace((*earliest)->deadline, flight);
    ArmTimer((*earliest)->deadline);
  }
  flight->errand = std::make_shared<Router::Errand>();
  flight->batch.AppendCommand(flight->errand->command, sha_,
                              endpoint_.announces ? std::string_view(endpoint_.prefix) : "");
  flight->errand->target = flight->slot;
  flight->errand->handler = [this, self = shared_from_this(),
                             flight](Expected<std::span<const RespNode>> reply) {
    OnReply(flight, std::move(reply));
  };
  router_->Send(flight->errand);
}

void RedisLoop::OnReply(const std::shared_ptr<Flight>& flight,
                        Expected<std::span<const RespNode>> reply) {
  if (flight->answered) return Release(flight);  // Too late; it was given up.
  CountCall(*flight->errand, reply ? Ended::kAnswered : Ended::kBroken);
  std::optional<Error> error;
  if (!reply) {
    error = reply.error();
  } else if (const RespNode& first = reply->front(); first.type == RespType::kError) {
    if (TryAgain(flight, first.text)) return;
    error = ErrorOf(first.text);
  } else if (const auto decoded = flight->batch.Decode(*reply); !decoded) {
    error = decoded.error();
  }
  if (!error || error->code == ErrorCode::kOutcomeUnknown) AnnounceGiven(*flight);
  if (error) {
    Fail(*flight, *error);
  } else {
    CountFailures(*flight);
    Land(*flight);
  }
  Release(flight);
}

// One that never left says nothing of Redis, and one whose connection broke nothing of its speed.
void RedisLoop::CountCall(const Router::Errand& errand, Ended ended) {
  if (!errand.sent) return;
  counters_.calls.fetch_add(1, std::memory_order_relaxed);
  if (on_call_ && ended != Ended::kBroken) on_call_(Clock::now() - errand.sent_at);
}

// Whether the call is made again. It was not executed.
bool RedisLoop::TryAgain(const std::shared_ptr<Flight>& flight, std::string_view error) {
  const bool no_script = error.starts_with("NOSCRIPT");
  if (!no_script && !error.starts_with("TRYAGAIN")) return false;
  if (no_script) {
    if (flight->loads++ == kLoadsMax) return false;
    LoadScript(flight->errand->link);
    Launch(flight);
    return true;
  }
  // The slot is moving and some of its keys have moved already: no node has all of them. What can
  // go on its own does; a group has to wait.
  if (flight->batch.operations() == 1) {
    Pause(flight);
    return true;
  }
  const auto lane = flight->round->lane;
  for (std::size_t i = flight->batch.requests(); i > 0; --i) {
    lane->waiting.push_front({.task = flight->batch.task(i - 1),
                              .call = flight->calls[i - 1],
                              .slot = flight->slot,
                              .alone = true});
    ++waiting_;
  }
  flight->answered = true;
  flight->calls.clear();
  Release(flight);
  return true;
}

// Launches it again after a while. As long as the slot moves, which may be long, others are not to
// wait for its place in a round; and many that pause are not to keep the master busy.
void RedisLoop::Pause(const std::shared_ptr<Flight>& flight) {
  const auto wait = Router::kTryAgainPause * (1 << std::min(flight->pauses++, kPauseDoublingsMax));
  const auto pause = std::make_shared<asio::steady_timer>(executor_, wait);
  pause->async_wait([this, self = shared_from_this(), flight, pause](auto) {
    if (!flight->answered) Launch(flight);
  });
  flight->errand->sent = false;  // Nothing of it is on its way now.
  if (!flight->round) return;
  waiting_ += flight->batch.requests();
  const auto lane = flight->round->lane;
  LeaveRound(*flight);
  flight->round = nullptr;
  Pump(lane);
}

// Once, however many calls found the script missing. They follow it on the same connection.
void RedisLoop::LoadScript(const std::shared_ptr<Link>& link) {
  if (!link->connection() || !loading_.insert(link).second) return;
  counters_.script_loads.fetch_add(1, std::memory_order_relaxed);
  link->connection()->Send(Command("SCRIPT", "LOAD", kScript),
                           [this, self = shared_from_this(), link](auto) { loading_.erase(link); });
}

void RedisLoop::Fail(Flight& flight, const Error& error) {
  flight.batch.Fail(error);
  for (const auto& call : flight.calls) {
    if (call->counts) CountFailure(error);
  }
  Land(flight);
}

void RedisLoop::Land(Flight& flight) {
  flight.answered = true;
  for (const auto& call : std::exchange(flight.calls, {})) Finish(call);
}

void RedisLoop::Release(const std::shared_ptr<Flight>& flight) {
  flights_.erase(flight->place);
  if (!flight->round) {
    waiting_ -= flight->batch.requests();
    return;
  }
  LeaveRound(*flight);
  Pump(flight->round->lane);
}

void RedisLoop::LeaveRound(const Flight& flight) {
  flight.round->lane->sent -= flight.batch.requests();
  if (--flight.round->open == 0) --flight.round->lane->rounds;
}

void RedisLoop::Finish(const std::shared_ptr<Call>& call) {
  if (--call->open == 0) std::exchange(call->done, nullptr)();
}

// Of requests that were answered apart from the others of their call.
void RedisLoop::CountFailures(const Flight& flight) {
  for (std::size_t i = 0; i < flight.calls.size(); ++i) {
    const auto& outcome = flight.batch.task(i).request->outcome;
    if (!outcome && flight.calls[i]->counts) CountFailure(outcome.error());
  }
}

void RedisLoop::CountFailure(const Error& error) {
  if (error.code == ErrorCode::kForeignState) return;  // Redis does what it should.
  auto& counter =
      error.code == ErrorCode::kOutcomeUnknown ? counters_.unanswered : counters_.unavailable;
  counter.fetch_add(1, std::memory_order_relaxed);
}

// Deadlines mostly get later: a timer that is set already comes first, and is set again then.
void RedisLoop::ArmTimer(Clock::time_point at) {
  if (at >= timer_at_ || stopped_) return;
  timer_at_ = at;
  timer_.expires_at(at);
  timer_.async_wait([this, self = shared_from_this()](auto error) {
    if (error) return;
    timer_at_ = Clock::time_point::max();
    OnTimer();
  });
}

void RedisLoop::OnTimer() {
  const auto now = Clock::now();
  const auto timeout = endpoint_.command_timeout;
  while (!flights_.empty() && flights_.begin()->first <= now) {
    const auto flight = flights_.begin()->second;
    Router::Errand& errand = *flight->errand;
    if (flight->answered) {
      // Still no reply. All that is on this connection fails and is released.
      flights_.erase(flight->place);
      flight->place = flights_.emplace(now + Router::kTimeoutsMax * timeout, flight);
      router_->GiveUp(errand);
      continue;
    }
    const bool sent = errand.sent;
    CountCall(errand, Ended::kGivenUp);
    if (!sent) errand.handler = nullptr;
    errand.given_up = true;
    // It still counts as on its way, so that no more is sent to a server that does not answer.
    flights_.erase(flight->place);
    flight->place = flights_.emplace(now + (Router::kTimeoutsMax - 1) * timeout, flight);
    Fail(*flight, sent ? router_->NotAnswered() : router_->NotSent());
    if (!sent) Release(flight);
  }
  for (const auto& [_, lane] : std::unordered_map(lanes_)) {
    while (!lane->waiting.empty() && lane->waiting.front().call->deadline <= now) {
      const Waiting late = std::move(lane->waiting.front());
      lane->waiting.pop_front();
      --waiting_;
      Refuse(*late.task.request, late.call, router_->NotSent());
    }
    if (!lane->waiting.empty()) ArmTimer(lane->waiting.front().call->deadline);
  }
  while (!ordered_.empty() && ordered_.front().call->deadline <= now) {
    const Ordered late = std::move(ordered_.front());
    ordered_.pop_front();
    Refuse(*late.request, late.call, router_->NotSent());
  }
  if (!ordered_.empty()) ArmTimer(ordered_.front().call->deadline);
  if (!flights_.empty()) ArmTimer(flights_.begin()->first);
}

}  // namespace sluice::redis
