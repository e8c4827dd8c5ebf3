// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conformance/traffic.h"
#include "redis/router.h"
#include "simulate/bug.h"
#include "simulate/events.h"
#include "simulate/server.h"
#include "sluice/guarded_store.h"
#include "store/guard/guard.h"
#include "store/redis/dispatcher.h"

namespace sluice::simulate {

// The servers, the network between them and the instances, and their condition.
struct Site {
  std::vector<std::unique_ptr<Server>> servers;

  // Who serves a slot; without a Cluster, one server has all of them.
  std::function<Server*(std::uint16_t slot)> owner_of;
  redis::SlotMap Map() const;

  std::int64_t latency_min_us = 50;
  std::int64_t latency_max_us = 500;
  bool unwritten = false;  // Connections turn out to be broken on writing.

  Server* At(const redis::Address& address);
};

// The virtual clock as the library reads it.
class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(const Events& events) : events_(events) {}
  TimePoint Now() const override { return TimePoint{Micros{events_.now_us()}}; }

 private:
  const Events& events_;
};

// The part of a service instance that decides: the real guard, dispatcher and router. Their shells
// (GuardedStore, RedisLoop, Network, Link, Connection) are simulated here, in virtual time.
class Instance {
 public:
  // Is notified of what happens.
  struct Observer {
    // A call of the script ran; returns the indices of its verdicts. Their reply arrived in time.
    std::function<std::vector<std::size_t>(int instance, const Server::Executed&)> on_call;
    std::function<void(const std::vector<std::size_t>& places)> on_delivered;
    // The Redis store has answered the guard.
    std::function<void(int instance, const guard::StoreCall&)> on_store_answer;
    std::function<void(const std::string& message)> on_published;
    // An announcement is on its way, or has arrived. Null: any state may be affected.
    std::function<void(int instance, const Charge* charge)> on_told;
    std::function<void(int instance, const Charge* charge)> on_heard;
    std::function<void(int instance)> on_deaf;  // It no longer listens.
  };

  Instance(Events& events, Site& site, Random& random, int number, const redis::Endpoint& endpoint,
           const GuardedStore::Options& options, const Observer& observer, const Bug& bug);
  ~Instance();

  // See Store::Apply.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);

  // Breaks one connection, or all connections to this server.
  void CutOne();
  void Cut(const Server& server);

  // Somebody has published a message.
  void Publish(const std::string& message);

  // Whether the store would be asked now.
  bool asks_store() const;
  bool connected() const;

  int number() const { return number_; }
  const guard::Guard& guard() const { return guard_; }
  const redis::Dispatcher::Counters& counters() const { return dispatcher_.counters(); }
  bool idle() const { return guard_.calls_out() == 0; }

 private:
  using Moment = redis::Moment;
  using NodeId = redis::NodeId;

  // A command in flight.
  struct Sent {
    redis::Exchange* exchange;
    std::vector<std::string> words;
    bool asking = false;
    std::int64_t connected_us = 0;  // When its connection was made.
    bool lost = false;              // It never arrives.
    bool ran = false;
  };

  struct Link {
    NodeId node;
    redis::Address address;
    bool up = false;
    std::uint64_t generation = 0;  // Of its connection.
    std::int64_t since_us = 0;
    std::int64_t backoff_us = 50'000;
    std::int64_t last_arrival_us = 0;
    std::int64_t last_reply_us = 0;
    std::deque<std::shared_ptr<Sent>> outstanding = {};
  };

  Moment Now() const { return Moment{std::chrono::microseconds{events_.now_us()}}; }
  TimePoint Time() const { return TimePoint{Micros{events_.now_us()}}; }
  std::int64_t Latency();

  // The shells around the guard.
  void Send(guard::StoreCall* call);
  void Do(guard::Actions& actions);
  void RunTimer();
  void PlanTimer();

  // The shells around the dispatcher.
  void Run();
  void Do(redis::Router::Transmit& action);
  void Do(redis::Router::Connect& action);
  void Do(redis::Router::Reconnect& action);
  void Do(redis::Router::Leave& action);
  void Do(redis::Router::AskSlots& action);

  // Links and connections.
  void Connect(NodeId node);
  void Pause(NodeId node);
  void Break(NodeId node, bool again);
  void Arrive(NodeId node, std::uint64_t generation, const std::shared_ptr<Sent>& sent);
  void Execute(NodeId node, std::uint64_t generation, const std::shared_ptr<Sent>& sent,
               Server& server);
  void Deliver(NodeId node, std::uint64_t generation, const std::shared_ptr<Sent>& sent,
               const std::string& reply, const std::vector<std::size_t>& verdicts);
  void Listen();
  void Hear(const Charge* charge);

  // Plans an event that is dropped if this object is gone by then.
  void After(std::int64_t micros, std::function<void()> what);
  void At(std::int64_t time_us, std::function<void()> what) {
    After(time_us - events_.now_us(), std::move(what));
  }

  Events& events_;
  Site& site_;
  Random& random_;
  const int number_;
  const redis::Endpoint endpoint_;
  const Observer& observer_;
  const Bug& bug_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  VirtualClock clock_;

  guard::Guard guard_;
  std::int64_t timer_at_us_ = INT64_MAX;
  redis::Router router_;
  redis::Dispatcher dispatcher_;
  bool running_ = false;
  bool run_again_ = false;
  bool run_planned_ = false;
  std::int64_t wake_at_us_ = INT64_MAX;
  std::map<NodeId, Link> links_;
  bool listening_ = false;
};

}  // namespace sluice::simulate
