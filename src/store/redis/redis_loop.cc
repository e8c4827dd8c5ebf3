// SPDX-License-Identifier: Apache-2.0
#include "store/redis/redis_loop.h"

#include <string>
#include <utility>

#include "store/redis/announcement.h"
#include "store/redis/script.h"

namespace sluice::redis {

namespace asio = boost::asio;

RedisLoop::RedisLoop(asio::any_io_executor executor, Endpoint endpoint, OnCall on_call)
    : endpoint_(std::move(endpoint)),
      on_call_(std::move(on_call)),
      network_(std::make_shared<Network>(
          std::move(executor),
          Network::Options{
              .endpoint = endpoint_,
              .prepare = std::bind_front(&RedisLoop::LoadScriptOn, this),
              .on_connect = [this] { connects_.fetch_add(1, std::memory_order_relaxed); },
              .on_routes = [this] { listener_.LeaveFormerMaster(); },
              .advance = std::bind_front(&RedisLoop::Advance, this),
              .is_urgent = [this] { return dispatcher_.may_send(); },
              .on_advanced = std::bind_front(&RedisLoop::Answer, this)})),
      dispatcher_(network_->router()),
      listener_(*network_) {}

void RedisLoop::Stop() {
  listener_.Stop();
  dispatcher_.Stop();
  network_->Stop();
}

asio::awaitable<Expected<void>> RedisLoop::LoadScriptOn(Connection& connection) {
  const Program& script = ProgramAs(ProgramForm::kScript);
  const auto sha = co_await connection.Ask(script.load);
  if (!sha) co_return std::unexpected(sha.error());
  if (sha->size() != 1 || sha->front() != script.name) {
    co_return std::unexpected(Error{ErrorCode::kStoreError, "SCRIPT LOAD answered something else"});
  }
  co_return Expected<void>{};
}

void RedisLoop::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  dispatcher_.Apply(requests, std::move(done), std::chrono::steady_clock::now());
  network_->RunSoon();
}

Moment RedisLoop::Advance(Moment now) {
  dispatcher_.Advance(now);
  return dispatcher_.NextWake();
}

// After the next call was sent: Redis works while the answers are processed.
void RedisLoop::Answer() {
  for (const auto time : dispatcher_.TakeCallTimes()) {
    if (on_call_) on_call_(time);
  }
  dispatcher_.TakeAnswered(answered_);
  for (Dispatcher::Done& done : answered_) done();
  answered_.clear();
}

void RedisLoop::Watch(const Store::OnRaised& on_raised) {
  listener_.Subscribe(
      AnnouncementChannel(endpoint_.prefix),
      [on_raised](std::string_view message) { ReadAnnouncement(message, on_raised); },
      [on_raised] { on_raised(nullptr); });
}

}  // namespace sluice::redis
