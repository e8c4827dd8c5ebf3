// SPDX-License-Identifier: Apache-2.0
#include "redis/listener.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;

constexpr auto kHeartbeat = 5s;

}  // namespace

void Listener::Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                         std::function<void()> on_subscribed) {
  if (stopped_) return;
  subscriptions_.push_back({std::move(channel), std::move(on_message), std::move(on_subscribed)});
  if (!link_) return Listen();
  // Without a connection, the next one subscribes to all of them.
  if (Connection* const connection = link_->connection()) {
    Begin(*connection, subscriptions_.size() - 1);
  }
}

void Listener::Stop() {
  stopped_ = true;
  listening_ = false;
  if (link_) link_->Stop({ErrorCode::kUnavailable, "the client is closed"});
}

void Listener::LeaveFormerMaster() {
  const Address* const server = link_ ? link_->server() : nullptr;
  const auto masters = network_.Masters();
  if (!server || std::ranges::find(masters, *server) != masters.end()) return;
  link_->RetryNow();
  link_->Drop({ErrorCode::kUnavailable,
               text::Cat("Redis at ", server->ToString(), " is no longer a master")});
}

void Listener::Listen() {
  const auto on_event = [this](Link& link, Link::Event event) {
    listening_ = false;
    if (event == Link::Event::kUp) OnUp(link);
  };
  link_ = std::make_shared<Link>(network_.executor(),
                                 Link::Options{.find = [this] { return network_.FindAny(); },
                                               .on_event = on_event,
                                               .heartbeat = kHeartbeat});
  link_->Start();
}

void Listener::OnUp(Link& link) {
  link.connection()->set_on_message([this](std::span<const RespNode> message) {
    // By index: a handler may subscribe to more.
    for (std::size_t i = 0; i < subscriptions_.size(); ++i) {
      if (subscriptions_[i].channel != message[2].text) continue;
      const auto on_message = subscriptions_[i].on_message;
      if (on_message) on_message(message[3].text);
    }
  });
  for (std::size_t i = 0; i < subscriptions_.size(); ++i) {
    if (!link.connection()) return;
    Begin(*link.connection(), i);
  }
}

void Listener::Begin(Connection& connection, std::size_t number) {
  const auto begun = [this, link = link_, number](Expected<std::span<const RespNode>> reply) {
    if (!reply) return;  // The link makes another connection.
    if (reply->front().type == RespType::kError) {
      return link->DropUseless(ErrorOf(reply->front().text));
    }
    listening_ = number + 1 == subscriptions_.size();
    const auto on_subscribed = subscriptions_[number].on_subscribed;
    if (on_subscribed) on_subscribed();
  };
  connection.Send(Command("SUBSCRIBE", subscriptions_[number].channel), begun);
}

}  // namespace sluice::redis
