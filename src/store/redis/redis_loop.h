// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "redis/listener.h"
#include "redis/router.h"
#include "sluice/redis_store.h"
#include "store/redis/batch.h"
#include "store/redis/span.h"

namespace sluice::redis {

// The Redis store on one event loop, which runs on one thread: every method is called there.
class RedisLoop : public std::enable_shared_from_this<RedisLoop> {
 public:
  // See RedisStore::Options::on_call.
  using OnCall = std::function<void(std::chrono::nanoseconds)>;

  RedisLoop(boost::asio::any_io_executor executor, Endpoint endpoint, OnCall on_call);

  // Begins to connect.
  void Start();

  // Fails all that is outstanding, with kUnavailable or kOutcomeUnknown, and stays closed.
  void Stop();

  // See Store::Apply.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);

  // Refuses requests, because `waiting` wait already. From any thread.
  void RefuseAll(std::span<Request> requests, std::size_t waiting);

  Router& router() { return *router_; }
  const Endpoint& endpoint() const { return endpoint_; }

  // Calls `on_raised` for each announcement from now on, see Store::Watch.
  void Watch(const Store::OnRaised& on_raised);

  bool listening() const { return listener_.listening(); }

  // Read from any thread.
  struct Counters {
    std::atomic<std::int64_t> requests = 0;
    std::atomic<std::int64_t> calls = 0;
    std::atomic<std::int64_t> script_loads = 0;
    std::atomic<std::int64_t> connects = 0;
    std::atomic<std::int64_t> unavailable = 0;
    std::atomic<std::int64_t> unanswered = 0;
    std::atomic<std::int64_t> refunds = 0;
    std::atomic<std::int64_t> refunds_lost = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;

  // One Apply, or one phase of a Span: how many of its requests are open, and what to do when none
  // is.
  struct Call {
    std::size_t open;
    std::move_only_function<void()> done;
    Clock::time_point deadline;
    bool counts = true;  // Whether its failures are those of requests.
  };

  struct Waiting {
    Task task;
    std::shared_ptr<Call> call;
    std::uint16_t slot;
    bool alone = false;  // Not to be sent with others, whose keys may be on another node.
  };

  // What waits for one master, and how much of it is on its way. A round is all that was sent at
  // once: one call of the script for each slot.
  struct Lane {
    std::deque<Waiting> waiting;
    std::size_t rounds = 0;
    std::size_t sent = 0;  // Requests in these rounds.
    bool pumping = false;
    bool pump_posted = false;
  };

  struct Round {
    std::shared_ptr<Lane> lane;
    std::size_t open = 0;
  };

  // A call of the script.
  struct Flight {
    Batch batch;
    std::vector<std::shared_ptr<Call>> calls;  // Of the batch's requests, in order.
    std::uint16_t slot;
    std::shared_ptr<Round> round;
    std::shared_ptr<Router::Errand> errand;
    std::multimap<Clock::time_point, std::shared_ptr<Flight>>::iterator place;  // In flights_.
    bool alone = false;  // As Waiting has it.
    bool launched = false;
    bool answered = false;
    int loads = 0;
    int pauses = 0;
  };

  // A request with a moment of its own, in a Cluster: see PumpOrdered.
  struct Ordered {
    Request* request;
    std::shared_ptr<Call> call;
    std::vector<std::uint16_t> slots;
  };

  boost::asio::awaitable<Expected<void>> LoadOn(Connection& connection);

  std::vector<std::uint16_t> SlotsOf(const Request& request) const;
  void Route(Request& request, const std::shared_ptr<Call>& call);
  void PumpOrdered();
  void Enqueue(const Task& task, std::uint16_t slot, const std::shared_ptr<Call>& call);
  void Refuse(Request& request, const std::shared_ptr<Call>& call, const Error& error);

  void StartSpan(Request& request, std::span<const std::uint16_t> slots,
                 const std::shared_ptr<Call>& call);
  void RunParts(const std::shared_ptr<Span>& span, Task::Kind kind, Clock::time_point deadline,
                std::move_only_function<void()> next);
  void FinishSpan(const std::shared_ptr<Span>& span, Request& request,
                  const std::shared_ptr<Call>& call);
  void AnnounceRefund(const Span::Part& part);
  void AnnounceGiven(const Flight& flight);

  std::shared_ptr<Lane> LaneOf(std::uint16_t slot);
  void PumpSoon(const std::shared_ptr<Lane>& lane);
  void Pump(const std::shared_ptr<Lane>& lane);
  std::vector<std::shared_ptr<Flight>> Gather(const std::shared_ptr<Lane>& lane);
  void Launch(const std::shared_ptr<Flight>& flight);
  void OnReply(const std::shared_ptr<Flight>& flight, Expected<std::span<const RespNode>> reply);
  enum class Ended { kAnswered, kGivenUp, kBroken };
  void CountCall(const Router::Errand& errand, Ended ended);
  bool TryAgain(const std::shared_ptr<Flight>& flight, std::string_view error);
  void Pause(const std::shared_ptr<Flight>& flight);
  void LoadScript(const std::shared_ptr<Link>& link);
  void Fail(Flight& flight, const Error& error);
  void Land(Flight& flight);
  void Release(const std::shared_ptr<Flight>& flight);
  void LeaveRound(const Flight& flight);
  void Finish(const std::shared_ptr<Call>& call);
  void CountFailures(const Flight& flight);
  void CountFailure(const Error& error);
  void DropIdleLanes();

  void ArmTimer(Clock::time_point at);
  void OnTimer();

  const boost::asio::any_io_executor executor_;
  const Endpoint endpoint_;
  const OnCall on_call_;
  const bool cluster_;
  const std::string sha_;
  std::shared_ptr<Router> router_;
  Listener listener_;
  bool stopped_ = false;

  std::unordered_map<const Link*, std::shared_ptr<Lane>> lanes_;  // By the master's link.
  std::size_t waiting_ = 0;  // In all lanes, and those that pause.
  std::multimap<Clock::time_point, std::shared_ptr<Flight>> flights_;  // By deadline.
  std::set<std::shared_ptr<Link>> loading_;                            // The script.

  std::deque<Ordered> ordered_;
  std::size_t ordered_open_ = 0;
  bool ordered_span_ = false;  // One is open, which all others wait for.
  bool pumping_ordered_ = false;

  boost::asio::steady_timer timer_;  // For the earliest deadline, or one before it.
  Clock::time_point timer_at_ = Clock::time_point::max();
  Counters counters_;
};

}  // namespace sluice::redis
