// SPDX-License-Identifier: Apache-2.0
#include "redis/link.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "base/text.h"
#include "redis/await.h"

namespace sluice::redis {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kBackoffMin = 50ms;
constexpr auto kBackoffMax = 1'000ms;
// A connection that lasted this long was good: the next is tried at once.
constexpr auto kGoodFor = 1s;

}  // namespace

Link::Link(asio::any_io_executor executor, Options options)
    : executor_(std::move(executor)),
      options_(std::move(options)),
      retry_timer_(executor_),
      heartbeat_timer_(executor_),
      random_(std::random_device{}()) {}

void Link::Start() {
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->KeepConnected(); }, asio::detached);
}

void Link::Stop(const Error& reason) {
  stopped_ = true;
  down_reason_ = reason;
  options_.on_event = nullptr;
  const auto self = shared_from_this();
  Drop(reason);
  retry_timer_.cancel();
  heartbeat_timer_.cancel();
}

const Address* Link::server() const {
  const auto& connection = connection_ ? connection_ : opening_;
  return connection ? &connection->address() : nullptr;
}

void Link::Drop(const Error& reason) {
  if (const auto opening = opening_) opening->Close(reason);
  // Closing resets connection_.
  if (const auto connection = connection_) connection->Close(reason);
}

void Link::DropUseless(const Error& reason) {
  useless_ = true;
  Drop(reason);
}

void Link::RetryNow() {
  retry_now_ = true;
  if (!connection_) retry_timer_.cancel();
}

void Link::Notify(Event event) {
  if (options_.on_event) options_.on_event(*this, event);
}

asio::awaitable<Expected<void>> Link::Connect() {
  auto to = co_await options_.find();
  if (!to) co_return std::unexpected(to.error());
  if (stopped_ || retry_now_) co_return std::unexpected(down_reason_);
  const auto connection = std::make_shared<Connection>(executor_, *std::move(to));
  opening_ = connection;
  Expected<void> done = co_await connection->Open();
  if (done && options_.prepare) done = co_await options_.prepare(*connection);
  opening_ = nullptr;
  if (stopped_) done = std::unexpected(down_reason_);
  if (done && !connection->open()) {
    done = std::unexpected(Error{ErrorCode::kUnavailable, "the connection was closed"});
  }
  if (!done) {
    connection->Close(done.error());
    co_return done;
  }
  connection_ = connection;
  co_return Expected<void>{};
}

asio::awaitable<void> Link::KeepConnected() {
  const auto self = shared_from_this();
  std::chrono::milliseconds backoff = kBackoffMin;
  while (!stopped_) {
    retry_now_ = useless_ = false;
    const auto connected = co_await Connect();
    const auto since = Clock::now();
    if (connected) {
      connection_->set_on_close([this, self](const Error& reason) {
        connection_ = nullptr;
        if (!stopped_) down_reason_ = reason;
        retry_timer_.cancel();
        Notify(Event::kLost);
      });
      retry_timer_.expires_at(Clock::time_point::max());
      if (options_.heartbeat > 0ms) Beat(connection_);
      Notify(Event::kUp);
      while (connection_) co_await retry_timer_.async_wait(kAwait);
    } else if (!stopped_) {
      down_reason_ = NotSentFor(connected.error());
    }
    if (stopped_) co_return;
    if (retry_now_ || (connected && !useless_)) backoff = kBackoffMin;
    if (retry_now_ || (connected && Clock::now() - since >= kGoodFor)) continue;
    Notify(Event::kPaused);
    const auto jitter = std::uniform_int_distribution<std::int64_t>(50, 100)(random_);
    retry_timer_.expires_after(backoff * jitter / 100);
    if (!retry_now_) co_await retry_timer_.async_wait(kAwait);
    Notify(Event::kConnecting);
    backoff = std::min<std::chrono::milliseconds>(backoff * 2, kBackoffMax);
  }
}

void Link::Beat(const std::shared_ptr<Connection>& connection) {
  const auto answered = std::make_shared<bool>(false);
  connection->Send(Command("PING"), [answered](auto) { *answered = true; });
  heartbeat_timer_.expires_after(options_.heartbeat);
  heartbeat_timer_.async_wait([this, self = shared_from_this(), answered, connection](auto error) {
    if (error || connection_ != connection) return;
    if (*answered) return Beat(connection);
    Drop({ErrorCode::kUnavailable,
          text::Cat("Redis at ", connection->address().ToString(), " has not answered for ",
                    options_.heartbeat.count(), " ms")});
  });
}

}  // namespace sluice::redis
