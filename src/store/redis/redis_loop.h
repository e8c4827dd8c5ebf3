// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "redis/connection.h"
#include "redis/uri.h"
#include "sluice/redis_store.h"
#include "store/redis/batch.h"

namespace sluice::redis {

// The Redis store on one event loop, which runs on one thread: every method is called there.
class RedisLoop : public std::enable_shared_from_this<RedisLoop> {
 public:
  struct Options {
    Endpoint endpoint;
    std::size_t batch_max;
    std::size_t in_flight_max;
    std::size_t waiting_max;
  };

  RedisLoop(boost::asio::any_io_executor executor, Options options);

  // Begins to connect.
  void Start();

  // Fails all that is outstanding, with kUnavailable or kOutcomeUnknown, and stays closed.
  void Stop();

  // See Store::Apply.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done);

  // Sends any command, once connected, within the command timeout. The handler runs exactly once.
  void Send(std::string command, Connection::Handler handler);

  const Endpoint& endpoint() const { return options_.endpoint; }

  // Read from any thread.
  struct Counters {
    std::atomic<std::int64_t> requests = 0;
    std::atomic<std::int64_t> calls = 0;
    std::atomic<std::int64_t> script_loads = 0;
    std::atomic<std::int64_t> connects = 0;
    std::atomic<std::int64_t> unavailable = 0;
    std::atomic<std::int64_t> unanswered = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;

  // One Apply: how many of its requests are open, and what to do when none is.
  struct Call {
    std::size_t open;
    std::move_only_function<void()> done;
  };

  struct Waiting {
    Request* request;
    std::shared_ptr<Call> call;
    Clock::time_point deadline;
  };

  // A call of the script.
  struct Flight {
    Batch batch;
    std::vector<std::shared_ptr<Call>> calls;  // Of the batch's requests, in order.
    Clock::time_point deadline;
    bool answered = false;
  };

  struct Errand {
    std::string command;
    Connection::Handler handler;
    Clock::time_point deadline;
  };

  boost::asio::awaitable<void> KeepConnected();
  boost::asio::awaitable<Expected<void>> Connect();
  boost::asio::awaitable<Expected<Address>> AskSentinels();
  Connection::Options ConnectionTo(const Address& address) const;

  void Pump();
  void Launch(std::shared_ptr<Flight> flight);
  void OnReply(const std::shared_ptr<Flight>& flight, Expected<std::span<const RespNode>> reply);
  void ReloadScript();
  void FailWaiting(const Error& error);
  void Land(Flight& flight);
  void Finish(const std::shared_ptr<Call>& call);
  void CountFailure(const Error& error, std::size_t requests);
  void ArmTimer();
  void OnTimer();

  const boost::asio::any_io_executor executor_;
  const Options options_;
  std::string sha_;

  std::shared_ptr<Connection> connection_;  // Null while there is none.
  Error down_reason_;                       // While there is none: why.
  bool attempting_ = true;                  // Whether one is being made, for which requests wait.
  bool stopped_ = false;
  bool loading_script_ = false;
  Clock::time_point loading_since_;

  std::deque<Waiting> waiting_;
  std::deque<std::shared_ptr<Flight>> to_relaunch_;  // The server did not know the script.
  std::deque<std::shared_ptr<Flight>> flights_;
  std::deque<Errand> errands_;

  boost::asio::steady_timer timer_;  // For the earliest deadline.
  Clock::time_point timer_at_ = Clock::time_point::max();
  boost::asio::steady_timer retry_timer_;
  std::minstd_rand random_;
  Counters counters_;
};

}  // namespace sluice::redis
