// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redis/router.h"
#include "sluice/store.h"
#include "store/redis/batch.h"
#include "store/redis/span.h"

namespace sluice::redis {

// Brings requests to Redis: gathers what waits for each master into calls of the script, splits
// requests over the slots of a Cluster, loads the script where it is missing, and enforces the
// deadlines of what waits.
//
// A state machine without I/O, thread or clock, on top of a Router. Its driver calls Advance after
// each event and at NextWake, runs what TakeAnswered returns, and reports what TakeCallTimes
// returns.
class Dispatcher {
 public:
  using Done = std::move_only_function<void()>;

  explicit Dispatcher(Router& router);
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Takes the requests; the next Advance sends them. They must stay alive until TakeAnswered
  // returns `done`, which is never run here.
  void Apply(std::span<Request> requests, Done&& done, Moment now);

  // Refuses requests, because `waiting` are already waiting. From any thread.
  void RefuseAll(std::span<Request> requests, std::size_t waiting);

  // Answers everything that waits, and everything that comes later, with kUnavailable. Stops the
  // router, too.
  void Stop();

  // Does what is due.
  void Advance(Moment now);

  // Whether a master has become free since, and would wait long for its next calls if everything
  // else that came with its reply were handled first.
  bool may_send() const { return may_send_; }
  Moment NextWake() const;

  // The callbacks whose requests are all answered. `out` must be empty; its memory is reused.
  void TakeAnswered(std::vector<Done>& out) { answered_.swap(out); }

  // See RedisStore::Options::on_call.
  std::vector<std::chrono::nanoseconds> TakeCallTimes() { return std::exchange(call_times_, {}); }

  // Read from any thread.
  struct Counters {
    std::atomic<std::int64_t> requests = 0;
    std::atomic<std::int64_t> calls = 0;
    std::atomic<std::int64_t> script_loads = 0;
    std::atomic<std::int64_t> unavailable = 0;
    std::atomic<std::int64_t> unanswered = 0;
    std::atomic<std::int64_t> refunds = 0;
    std::atomic<std::int64_t> refunds_lost = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  class ScriptCall;
  class ScriptLoad;

  // One Apply.
  struct Caller {
    std::size_t open;  // Requests without an answer.
    Done done;
    Moment deadline;
    std::list<Caller>::iterator place;
  };

  struct SpanRun;

  // Who learns that a request is answered: the caller of Apply, or the span that it is a part of.
  struct Asker {
    Caller* caller = nullptr;
    SpanRun* span = nullptr;
    bool ordered = false;  // See PumpOrdered.
  };

  // A request over several slots, in the middle of one of its steps.
  struct SpanRun {
    SpanRun(Request& whole, std::span<const std::uint16_t> slots, Asker who)
        : span(whole, slots), request(whole), asker(who) {}

    Span span;
    Request& request;
    Asker asker;
    Task::Kind step = Task::Kind::kLook;
    std::size_t open = 0;  // Parts without an answer.
    Moment deadline = {};
    std::list<SpanRun>::iterator place = {};
  };

  struct Waiting {
    Task task;
    Asker asker;
    std::uint16_t slot;
    bool alone = false;  // Must not be sent with others, whose keys may be on another node.
  };

  // What waits for one master, and how much is in flight. A round is everything that was sent at
  // once: one call of the script for each slot.
  struct Lane {
    std::deque<Waiting> waiting;
    std::size_t rounds = 0;
    std::size_t sent = 0;  // Requests in these rounds.
    bool ready = false;    // Whether it is in ready_.
  };

  struct Round {
    Lane& lane;
    std::size_t open = 0;  // Calls without an answer.
  };

  // A request with its own time, in a Cluster; see PumpOrdered.
  struct Ordered {
    Request* request;
    Caller* caller;
    std::vector<std::uint16_t> slots;
  };

  static Moment DeadlineOf(const Asker& asker) {
    return asker.span ? asker.span->deadline : asker.caller->deadline;
  }

  std::vector<std::uint16_t> SlotsOf(const Request& request) const;
  void Route(Request& request, Caller& caller);
  bool PumpOrdered();
  void Enqueue(const Task& task, std::uint16_t slot, Asker asker);
  void Refuse(Request& request, Asker asker, const Error& error, Moment now);
  void Finish(Asker asker, Moment now);

  void StartSpan(Request& request, std::span<const std::uint16_t> slots, Asker asker);
  void RunParts(SpanRun& run, Task::Kind step, Moment deadline);
  void EndStep(SpanRun& run, Moment now);
  bool HoldNext(SpanRun& run, Moment now);

  void ExpireWaiting(Moment now);
  void MakeReady(Lane& lane);
  bool PumpReady(Moment now);
  std::vector<std::shared_ptr<ScriptCall>> Gather(Lane& lane, Moment now);
  void OnReply(ScriptCall& call, const Reply& reply, Moment now);
  bool TryAgain(ScriptCall& call, std::string_view error, Moment now);
  ProgramForm FormFor(NodeId node) const;
  TimePoint BelievedNow() const;
  void Load(ProgramForm form, NodeId node, Moment now);
  void Release(ScriptCall& call);
  void LeaveRound(ScriptCall& call);
  void CountCall(const ScriptCall& call, bool answered, Moment now);
  void CountFailure(const Error& error);

  Router& router_;
  const Endpoint& endpoint_;
  const std::string_view announce_prefix_;  // Empty: nothing is announced.
  bool stopped_ = false;
  bool may_send_ = false;

  std::list<Caller> callers_;
  std::list<SpanRun> spans_;
  std::map<NodeId, Lane> lanes_;
  std::vector<Lane*> ready_;  // May have something to send.
  std::size_t waiting_ = 0;   // In all lanes, and those that pause.
  std::size_t maps_seen_ = 0;
  std::set<std::pair<NodeId, ProgramForm>> loading_;
  Moment now_;  // Of the last Advance.
  // What the servers' clocks show is that much more; as one of them said last.
  std::optional<Micros> server_ahead_;
  // Servers that have no functions, or do not let us use them, and when to try again.
  std::map<NodeId, Moment> without_functions_;

  std::deque<Ordered> ordered_;
  std::size_t ordered_open_ = 0;
  bool ordered_span_ = false;  // A span is open, which all others wait for.

  std::vector<Done> answered_;
  std::vector<std::chrono::nanoseconds> call_times_;
  Counters counters_;
};

}  // namespace sluice::redis
