// SPDX-License-Identifier: Apache-2.0
#include "store/redis/redis_loop.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <utility>

#include "core/text.h"
#include "store/redis/script.h"

namespace sluice::redis {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr auto kBackoffMin = 50ms;
constexpr auto kBackoffMax = 5'000ms;
// A connection that lasted this long was a good one: the next is tried at once.
constexpr auto kGoodFor = 1s;
// After this many command timeouts without an answer, the connection is given up.
constexpr int kTimeoutsMax = 3;

Error NotSent(std::chrono::milliseconds timeout) {
  return {ErrorCode::kUnavailable,
          text::Cat("Redis had no room for the request within ", timeout.count(), " ms")};
}

Error NotAnswered(std::chrono::milliseconds timeout) {
  return {ErrorCode::kOutcomeUnknown,
          text::Cat("no answer from Redis within ", timeout.count(), " ms")};
}

}  // namespace

RedisLoop::RedisLoop(asio::any_io_executor executor, Options options)
    : executor_(std::move(executor)),
      options_(std::move(options)),
      down_reason_{ErrorCode::kUnavailable, "not connected yet"},
      timer_(executor_),
      retry_timer_(executor_),
      random_(std::random_device{}()) {}

void RedisLoop::Start() {
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->KeepConnected(); }, asio::detached);
}

void RedisLoop::Stop() {
  stopped_ = true;
  attempting_ = false;
  down_reason_ = {ErrorCode::kUnavailable, "the store is closed"};
  if (connection_) std::exchange(connection_, nullptr)->Close(down_reason_);
  FailWaiting(down_reason_);
  timer_.cancel();
  retry_timer_.cancel();
}

Connection::Options RedisLoop::ConnectionTo(const Address& address) const {
  const Endpoint& endpoint = options_.endpoint;
  return {.address = address,
          .credentials = endpoint.credentials,
          .tls = endpoint.tls,
          .database = endpoint.database,
          .client_name = endpoint.client_name,
          .connect_timeout = endpoint.connect_timeout};
}

asio::awaitable<Expected<Address>> RedisLoop::AskSentinels() {
  Error last{ErrorCode::kUnavailable, "no Sentinel was asked"};
  for (const Address& sentinel : options_.endpoint.addresses) {
    Connection::Options to = ConnectionTo(sentinel);
    to.credentials = options_.endpoint.sentinel_credentials;
    to.database = 0;
    const auto connection = std::make_shared<Connection>(executor_, std::move(to));
    if (const auto opened = co_await connection->Open(); !opened) {
      last = opened.error();
      continue;
    }
    const std::string question =
        Command("SENTINEL", "get-master-addr-by-name", options_.endpoint.master_name);
    const auto master = co_await connection->Ask(question);
    connection->Close({ErrorCode::kUnavailable, "done"});
    if (!master) {
      last = master.error();
      continue;
    }
    Address address;
    if (master->size() == 2) {
      address.host = master->front();
      const std::string& port = master->back();
      std::from_chars(port.data(), port.data() + port.size(), address.port);
      co_return address;
    }
    last = {ErrorCode::kUnavailable,
            text::Cat("Sentinel ", sentinel.ToString(), " knows no master ",
                      text::Quote(options_.endpoint.master_name))};
  }
  co_return std::unexpected(last);
}

asio::awaitable<Expected<void>> RedisLoop::Connect() {
  Address address = options_.endpoint.addresses.front();
  const bool sentinel = options_.endpoint.mode == Mode::kSentinel;
  if (sentinel) {
    const auto master = co_await AskSentinels();
    if (!master) co_return std::unexpected(master.error());
    address = *master;
  }
  const auto connection = std::make_shared<Connection>(executor_, ConnectionTo(address));
  if (const auto opened = co_await connection->Open(); !opened) co_return opened;
  if (sentinel) {
    // A Sentinel may not have heard yet; who takes writes knows.
    const std::string question = Command("ROLE");
    const auto role = co_await connection->Ask(question);
    if (!role || role->empty() || role->front() != "master") {
      const Error error{ErrorCode::kUnavailable,
                        text::Cat("Redis at ", address.ToString(), " is not the master")};
      connection->Close(error);
      co_return std::unexpected(role ? error : role.error());
    }
  }
  const std::string load = Command("SCRIPT", "LOAD", kScript);
  const auto sha = co_await connection->Ask(load);
  if (!sha || sha->size() != 1) {
    const Error error =
        sha ? Error{ErrorCode::kStoreError, "SCRIPT LOAD answered something else"} : sha.error();
    connection->Close(error);
    co_return std::unexpected(error);
  }
  if (stopped_ || !connection->open()) {
    connection->Close(down_reason_);
    co_return std::unexpected(down_reason_);
  }
  sha_ = sha->front();
  connection_ = connection;
  co_return Expected<void>{};
}

asio::awaitable<void> RedisLoop::KeepConnected() {
  const auto self = shared_from_this();
  std::chrono::milliseconds backoff = kBackoffMin;
  while (!stopped_) {
    attempting_ = true;
    const auto connected = co_await Connect();
    const auto since = Clock::now();
    if (connected) {
      counters_.connects.fetch_add(1, std::memory_order_relaxed);
      attempting_ = false;
      connection_->set_on_close([this, self](const Error& reason) {
        connection_ = nullptr;
        loading_script_ = false;
        down_reason_ = reason;
        attempting_ = !stopped_;
        retry_timer_.cancel();
      });
      retry_timer_.expires_at(Clock::time_point::max());
      Pump();
      if (connection_) co_await retry_timer_.async_wait(kAwait);
    } else if (!stopped_) {
      down_reason_ = connected.error();
    }
    if (stopped_) co_return;
    if (connected && Clock::now() - since >= kGoodFor) {
      backoff = kBackoffMin;
      continue;
    }
    // Those who wait are told; those who come during the pause are told at once.
    attempting_ = false;
    FailWaiting(down_reason_);
    const auto jitter = std::uniform_int_distribution<std::int64_t>(50, 100)(random_);
    retry_timer_.expires_after(backoff * jitter / 100);
    co_await retry_timer_.async_wait(kAwait);
    backoff = std::min<std::chrono::milliseconds>(backoff * 2, kBackoffMax);
  }
}

void RedisLoop::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  counters_.requests.fetch_add(static_cast<std::int64_t>(requests.size()),
                               std::memory_order_relaxed);
  if (requests.empty()) return done();
  const auto call = std::make_shared<Call>(requests.size(), std::move(done));
  const auto deadline = Clock::now() + options_.endpoint.command_timeout;
  const bool reachable = connection_ || attempting_;
  for (Request& request : requests) {
    if (reachable && waiting_.size() < options_.waiting_max) {
      waiting_.push_back({&request, call, deadline});
      continue;
    }
    request.outcome = std::unexpected(
        reachable ? Error{ErrorCode::kUnavailable,
                          text::Cat(waiting_.size(), " requests wait for Redis already")}
                  : down_reason_);
    CountFailure(request.outcome.error(), 1);
    Finish(call);
  }
  ArmTimer();
  Pump();
}

void RedisLoop::Send(std::string command, Connection::Handler handler) {
  if (stopped_ || (!connection_ && !attempting_)) return handler(std::unexpected(down_reason_));
  if (!connection_) {
    errands_.push_back(
        {std::move(command), std::move(handler), Clock::now() + options_.endpoint.command_timeout});
    return ArmTimer();
  }
  // Whoever comes first, the answer or the timer, takes the handler.
  const auto pending = std::make_shared<Connection::Handler>(std::move(handler));
  const auto timer = std::make_shared<asio::steady_timer>(executor_);
  timer->expires_after(options_.endpoint.command_timeout);
  timer->async_wait([pending, timeout = options_.endpoint.command_timeout](auto error) {
    if (!error && *pending) std::exchange(*pending, nullptr)(std::unexpected(NotAnswered(timeout)));
  });
  connection_->Send(command, [pending, timer](Expected<std::span<const RespNode>> reply) {
    timer->cancel();
    if (*pending) std::exchange(*pending, nullptr)(std::move(reply));
  });
}

void RedisLoop::Pump() {
  if (!connection_ || loading_script_) return;
  while (!errands_.empty()) {
    Errand errand = std::move(errands_.front());
    errands_.pop_front();
    Send(std::move(errand.command), std::move(errand.handler));
  }
  while (connection_ && !loading_script_ && flights_.size() < options_.in_flight_max) {
    if (!to_relaunch_.empty()) {
      const auto flight = std::move(to_relaunch_.front());
      to_relaunch_.pop_front();
      Launch(flight);
      continue;
    }
    if (waiting_.empty()) return;
    const auto flight = std::make_shared<Flight>();
    flight->deadline = waiting_.front().deadline;
    while (!waiting_.empty()) {
      const Batch::Added added = flight->batch.Add({.request = waiting_.front().request},
                                                   options_.endpoint.prefix, options_.batch_max);
      if (added == Batch::Added::kFull) break;
      const Waiting taken = std::move(waiting_.front());
      waiting_.pop_front();
      if (added == Batch::Added::kTaken) {
        flight->calls.push_back(taken.call);
      } else {
        Finish(taken.call);
      }
    }
    if (!flight->batch.empty()) Launch(flight);
  }
}

void RedisLoop::Launch(std::shared_ptr<Flight> flight) {
  counters_.calls.fetch_add(1, std::memory_order_relaxed);
  flights_.push_back(flight);
  std::string command;
  flight->batch.AppendCommand(command, sha_);
  ArmTimer();
  connection_->Send(command, [this, flight = std::move(flight), self = shared_from_this()](
                                 Expected<std::span<const RespNode>> reply) {
    OnReply(flight, std::move(reply));
  });
}

void RedisLoop::OnReply(const std::shared_ptr<Flight>& flight,
                        Expected<std::span<const RespNode>> reply) {
  std::erase(flights_, flight);
  if (flight->answered) return Pump();  // Too late; it was given up.
  std::optional<Error> error;
  bool is_replica = false;
  if (!reply) {
    if (reply.error().code == ErrorCode::kUnavailable && !stopped_) {
      to_relaunch_.push_back(flight);  // Provably not sent.
      return;
    }
    error = reply.error();
  } else if (const RespNode& first = reply->front(); first.type == RespType::kError) {
    if (first.text.starts_with("NOSCRIPT")) {
      to_relaunch_.push_back(flight);
      return ReloadScript();
    }
    error = ErrorOf(first.text);
    is_replica = first.text.starts_with("READONLY");
  } else if (const auto decoded = flight->batch.Decode(*reply); !decoded) {
    error = decoded.error();
  }
  if (error) {
    flight->batch.Fail(*error);
    CountFailure(*error, flight->batch.requests());
  }
  Land(*flight);
  // A master that became a replica: another one takes the writes now.
  if (is_replica && connection_) connection_->Close({ErrorCode::kUnavailable, error->message});
  Pump();
}

// Once, however many calls found the script missing.
void RedisLoop::ReloadScript() {
  if (loading_script_ || !connection_) return;
  loading_script_ = true;
  loading_since_ = Clock::now();
  counters_.script_loads.fetch_add(1, std::memory_order_relaxed);
  connection_->Send(Command("SCRIPT", "LOAD", kScript),
                    [this, self = shared_from_this()](Expected<std::span<const RespNode>> reply) {
                      loading_script_ = false;
                      if (reply && reply->front().type != RespType::kError) return Pump();
                      const Error error = reply ? ErrorOf(reply->front().text) : reply.error();
                      for (const auto& flight : std::exchange(to_relaunch_, {})) {
                        flight->batch.Fail({ErrorCode::kUnavailable, error.message});
                        CountFailure({ErrorCode::kUnavailable, {}}, flight->batch.requests());
                        Land(*flight);
                      }
                      Pump();
                    });
}

void RedisLoop::FailWaiting(const Error& error) {
  for (const auto& flight : std::exchange(to_relaunch_, {})) {
    flight->batch.Fail(error);
    CountFailure(error, flight->batch.requests());
    Land(*flight);
  }
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.request->outcome = std::unexpected(error);
    CountFailure(error, 1);
    Finish(waiting.call);
  }
  for (Errand& errand : std::exchange(errands_, {})) errand.handler(std::unexpected(error));
}

void RedisLoop::Land(Flight& flight) {
  flight.answered = true;
  for (const auto& call : std::exchange(flight.calls, {})) Finish(call);
}

void RedisLoop::Finish(const std::shared_ptr<Call>& call) {
  if (--call->open == 0) std::exchange(call->done, nullptr)();
}

void RedisLoop::CountFailure(const Error& error, std::size_t requests) {
  auto& counter =
      error.code == ErrorCode::kOutcomeUnknown ? counters_.unanswered : counters_.unavailable;
  counter.fetch_add(static_cast<std::int64_t>(requests), std::memory_order_relaxed);
}

// Deadlines only ever get later, so that the timer is set anew only when it has run out.
void RedisLoop::ArmTimer() {
  if (timer_at_ != Clock::time_point::max() || stopped_) return;
  const auto next = Clock::now() + options_.endpoint.command_timeout / 4;
  timer_at_ = next;
  timer_.expires_at(next);
  timer_.async_wait([this, self = shared_from_this()](auto error) {
    timer_at_ = Clock::time_point::max();
    if (!error) OnTimer();
  });
}

void RedisLoop::OnTimer() {
  const auto now = Clock::now();
  const auto timeout = options_.endpoint.command_timeout;
  bool given_up = loading_script_ && loading_since_ + kTimeoutsMax * timeout <= now;
  for (const auto& flight : std::deque(flights_)) {
    given_up = given_up || flight->deadline + (kTimeoutsMax - 1) * timeout <= now;
    if (flight->answered || flight->deadline > now) continue;
    const Error error = NotAnswered(timeout);
    flight->batch.Fail(error);
    CountFailure(error, flight->batch.requests());
    Land(*flight);
  }
  while (!to_relaunch_.empty() && to_relaunch_.front()->deadline <= now) {
    const auto flight = std::move(to_relaunch_.front());
    to_relaunch_.pop_front();
    flight->batch.Fail(NotSent(timeout));
    CountFailure(NotSent(timeout), flight->batch.requests());
    Land(*flight);
  }
  while (!waiting_.empty() && waiting_.front().deadline <= now) {
    const Waiting late = std::move(waiting_.front());
    waiting_.pop_front();
    late.request->outcome = std::unexpected(NotSent(timeout));
    CountFailure(NotSent(timeout), 1);
    Finish(late.call);
  }
  while (!errands_.empty() && errands_.front().deadline <= now) {
    Errand late = std::move(errands_.front());
    errands_.pop_front();
    late.handler(std::unexpected(NotSent(timeout)));
  }
  if (given_up && connection_) {
    connection_->Close({ErrorCode::kUnavailable, text::Cat("Redis has not answered for ",
                                                           kTimeoutsMax * timeout.count(), " ms")});
  }
  if (loading_script_ || !flights_.empty() || !waiting_.empty() || !to_relaunch_.empty() ||
      !errands_.empty()) {
    ArmTimer();
  }
}

}  // namespace sluice::redis
