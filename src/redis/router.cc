// SPDX-License-Identifier: Apache-2.0
#include "redis/router.h"

#include <algorithm>

#include "base/text.h"
#include "redis/error_reply.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;

constexpr int kRedirectsMax = 16;  // Per command, by MOVED and ASK.
constexpr auto kRefreshEvery = 10s;
constexpr auto kRefreshWhileDown = 200ms;  // A master that is down may have been replaced.
constexpr auto kRefreshPauseMin = 100ms;   // However many ask for it.
constexpr auto kRefreshPauseMax = 2s;      // After a failed attempt.

}  // namespace

Router::Router(Options options)
    : options_(std::move(options)), random_(options_.seed), backoff_(kRefreshPauseMin) {
  if (!cluster()) nodes_[next_node_++] = {.address = options_.endpoint.addresses.front()};
}

NodeId Router::NodeAt(const Address& address) {
  const auto known = std::ranges::find_if(
      nodes_, [&](const auto& entry) { return entry.second.address == address; });
  if (known != nodes_.end()) return known->first;
  nodes_[next_node_] = {.address = address};
  actions_.push_back(Connect{next_node_, address});
  return next_node_++;
}

NodeId Router::NodeOf(const Target& target) {
  if (!cluster()) return kOnlyNode;
  if (const auto* address = std::get_if<Address>(&target)) return NodeAt(*address);
  return OwnerOf(std::get<std::uint16_t>(target));
}

NodeId Router::OwnerOf(std::uint16_t slot) const {
  if (!cluster()) return kOnlyNode;
  return owner_.empty() ? kNoNode : owner_[slot];
}

std::vector<Address> Router::Masters() const {
  std::vector<Address> masters;
  for (const auto& [id, node] : nodes_) {
    if (std::ranges::find(owner_, id) != owner_.end()) masters.push_back(node.address);
  }
  return masters;
}

std::vector<Address> Router::Nodes() const {
  std::vector<Address> addresses;
  addresses.reserve(nodes_.size());
  for (const auto& [_, node] : nodes_) addresses.push_back(node.address);
  return addresses;
}

Error Router::NotSent() const {
  const std::string obstacle = options_.obstacle ? options_.obstacle() : "";
  return {ErrorCode::kUnavailable, text::Cat("the request could not be sent to Redis within ",
                                             options_.endpoint.command_timeout.count(), " ms",
                                             obstacle.empty() ? "" : "; ", obstacle)};
}

Error Router::NotAnswered() const {
  return {ErrorCode::kOutcomeUnknown, text::Cat("no answer from Redis within ",
                                                options_.endpoint.command_timeout.count(), " ms")};
}

void Router::Send(std::shared_ptr<Exchange> exchange, Target target, Moment deadline, Moment now,
                  Moment start) {
  Exchange& sent = *exchange;
  sent.target_ = std::move(target);
  sent.deadline_ = deadline;
  sent.sent_ = false;
  sent.redirects_ = 0;
  sent.ask_.reset();
  const bool pauses = start > now && !stopped_;
  sent.state_ = pauses ? Exchange::State::kPaused : Exchange::State::kWaiting;
  sent.place_ =
      exchanges_.emplace(pauses ? std::min(start, deadline) : deadline, std::move(exchange));
  if (!pauses) Dispatch(sent, now);
}

void Router::Dispatch(Exchange& exchange, Moment now) {
  exchange.state_ = Exchange::State::kWaiting;
  if (stopped_) return FailSoon(exchange, Closed());
  if (exchange.deadline_ <= now) return FailSoon(exchange, NotSent());
  const NodeId id = exchange.ask_ ? NodeAt(*exchange.ask_) : NodeOf(exchange.target_);
  if (id == kNoNode) {
    if (!owner_.empty()) {
      RefreshSoon(now);
      return FailSoon(exchange, {ErrorCode::kUnavailable,
                                 text::Cat("no master of the Cluster serves slot ",
                                           std::get<std::uint16_t>(exchange.target_))});
    }
    if (!mapping_) FailSoon(exchange, unmapped_reason_);
    return;
  }
  Node& node = nodes_.at(id);
  if (node.state == Node::State::kConnecting) return;
  if (node.state == Node::State::kDown) return FailSoon(exchange, node.reason);
  exchange.state_ = Exchange::State::kSent;
  exchange.sent_at_ = now;
  exchange.node_ = id;
  ++node.outstanding;
  actions_.push_back(
      Transmit{id, std::exchange(exchange.ask_, std::nullopt).has_value(), &exchange});
}

// In the order of their deadlines, which is that of arrival.
void Router::DispatchWaiting(Moment now) {
  std::vector<Exchange*> waiting;
  for (const auto& [_, exchange] : exchanges_) {
    if (exchange->state_ == Exchange::State::kWaiting) waiting.push_back(exchange.get());
  }
  for (Exchange* exchange : waiting) Dispatch(*exchange, now);
}

void Router::OnReply(Exchange& exchange, Reply reply, Moment now) {
  --nodes_.at(exchange.node_).outstanding;
  if (!reply) {
    const bool again = reply.error().code == ErrorCode::kUnavailable && !exchange.expired();
    if (!again) return End(exchange, std::move(reply), now);
    if (!stopped_) return Dispatch(exchange, now);
    exchange.state_ = Exchange::State::kWaiting;  // Provably not sent.
    return End(exchange, std::move(reply), now);
  }
  const RespNode& first = reply->front();
  if (first.type != RespType::kError) return End(exchange, std::move(reply), now);
  if (Follow(exchange, first.text, now)) return;
  const auto says = [&](std::string_view word) { return first.text.starts_with(word); };
  if (!cluster() && (says("MOVED ") || says("CROSSSLOT "))) {
    const Error error{ErrorCode::kStoreError,
                      text::Cat("Redis at ", AddressOf(exchange.node_).ToString(),
                                " is part of a Cluster; expected mode=cluster")};
    return End(exchange, std::unexpected(error), now);
  }
  if (says("READONLY") || says("CLUSTERDOWN") || says("LOADING")) RefreshSoon(now);
  // The master became a replica: another one takes the writes now.
  if (says("READONLY")) Drop(exchange.node_, ErrorOf(first.text));
  End(exchange, std::move(reply), now);
}

// Whether the command goes somewhere else. It was not executed here.
bool Router::Follow(Exchange& exchange, std::string_view error, Moment now) {
  if (!cluster() || !std::holds_alternative<std::uint16_t>(exchange.target_)) return false;
  const Address& from = AddressOf(exchange.node_);
  const auto moved = ParseRedirect(error, "MOVED", from);
  const auto ask = ParseRedirect(error, "ASK", from);
  if ((!moved && !ask) || ++exchange.redirects_ > kRedirectsMax) return false;
  if (moved) {
    const NodeId to = NodeAt(moved->to);
    if (!owner_.empty()) owner_[moved->slot] = to;
    RefreshSoon(now);
  }
  // If sent now, it would be executed although the caller was told that there was no answer.
  if (exchange.expired()) {
    End(exchange, std::unexpected(NotAnswered()), now);
    return true;
  }
  if (ask) exchange.ask_ = ask->to;
  Dispatch(exchange, now);
  return true;
}

std::shared_ptr<Exchange> Router::Remove(Exchange& exchange) {
  auto kept = std::move(exchange.place_->second);
  exchanges_.erase(exchange.place_);
  return kept;
}

void Router::End(Exchange& exchange, Reply reply, Moment now) {
  const auto kept = Remove(exchange);
  const bool expired = exchange.expired();
  exchange.sent_ = exchange.sent();
  exchange.state_ = Exchange::State::kIdle;
  expired ? exchange.OnLateReply() : exchange.OnReply(std::move(reply), now);
}

// In the next Advance: the sender does not expect an answer at once.
void Router::FailSoon(Exchange& exchange, Error error) {
  exchange.state_ = Exchange::State::kIdle;
  failed_.emplace_back(Remove(exchange), std::move(error));
}

bool Router::Advance(Moment now) {
  bool busy = false;
  while (!exchanges_.empty() && exchanges_.begin()->first <= now) {
    Wake(*exchanges_.begin()->second, now);
    busy = true;
  }
  while (!failed_.empty()) {
    const auto [exchange, error] = std::move(failed_.front());
    failed_.pop_front();
    exchange->OnReply(std::unexpected(error), now);
    busy = true;
  }
  if (cluster() && !stopped_ && !asking_slots_ && refresh_at_ <= now) {
    asking_slots_ = true;
    mapping_ = owner_.empty();  // Commands wait for the first map.
    refresh_at_ = Moment::max();
    actions_.push_back(AskSlots{});
  }
  return busy;
}

Moment Router::NextWake() const {
  if (!failed_.empty()) return {};
  Moment next = cluster() && !stopped_ && !asking_slots_ ? refresh_at_ : Moment::max();
  if (!exchanges_.empty()) next = std::min(next, exchanges_.begin()->first);
  return next;
}

void Router::Wake(Exchange& exchange, Moment now) {
  const auto timeout = options_.endpoint.command_timeout;
  switch (exchange.state_) {
    case Exchange::State::kPaused:
      if (now < exchange.deadline_) {
        WakeAt(exchange, exchange.deadline_);
        return Dispatch(exchange, now);
      }
      [[fallthrough]];
    case Exchange::State::kIdle:
    case Exchange::State::kWaiting:
      return FailSoon(exchange, NotSent());
    case Exchange::State::kSent: {
      // It stays outstanding until its reply comes, so that nothing more is sent to a server that
      // does not answer.
      exchange.state_ = Exchange::State::kExpired;
      WakeAt(exchange, now + (kTimeoutsMax - 1) * timeout);
      return exchange.OnReply(std::unexpected(NotAnswered()), now);
    }
    case Exchange::State::kExpired:
      WakeAt(exchange, now + kTimeoutsMax * timeout);
      return Drop(exchange.node_,
                  {ErrorCode::kUnavailable, text::Cat("Redis has not answered for ",
                                                      kTimeoutsMax * timeout.count(), " ms")});
  }
}

void Router::WakeAt(Exchange& exchange, Moment at) {
  exchange.place_ = exchanges_.emplace(at, Remove(exchange));
}

// Nothing more is sent there until there is a new connection.
void Router::Drop(NodeId node, Error reason) {
  Node& dropped = nodes_.at(node);
  if (stopped_ || dropped.state != Node::State::kUp) return;
  dropped.state = Node::State::kConnecting;
  actions_.push_back(Reconnect{node, std::move(reason)});
}

void Router::OnUp(NodeId node, const Address& address, Moment now) {
  nodes_.at(node).state = Node::State::kUp;
  nodes_.at(node).address = address;
  DispatchWaiting(now);
}

void Router::OnLost(NodeId node, Moment now) {
  nodes_.at(node).state = Node::State::kConnecting;
  RefreshSoon(now);
}

void Router::OnDown(NodeId node, Error reason, Moment now) {
  nodes_.at(node).state = Node::State::kDown;
  nodes_.at(node).reason = std::move(reason);
  RefreshSoon(now);
  DispatchWaiting(now);
}

void Router::OnConnecting(NodeId node) { nodes_.at(node).state = Node::State::kConnecting; }

void Router::OnSlots(const Expected<SlotMap>& map, Moment now) {
  if (stopped_) return;
  asking_slots_ = mapping_ = false;
  refreshed_at_ = now;
  if (map) {
    Adopt(*map);
    backoff_ = kRefreshPauseMin;
  } else {
    unmapped_reason_ = NotSentFor(map.error());
    backoff_ = std::min<std::chrono::milliseconds>(2 * backoff_, kRefreshPauseMax);
  }
  DispatchWaiting(now);
  // Spread over time, so that clients do not ask all at once.
  const auto jitter = std::uniform_int_distribution<std::int64_t>(75, 125)(random_);
  const bool whole = std::ranges::all_of(
      nodes_, [](const auto& entry) { return entry.second.state == Node::State::kUp; });
  const std::chrono::milliseconds pause = !map    ? backoff_
                                          : whole ? kRefreshEvery
                                                  : kRefreshWhileDown;
  refresh_at_ = std::min(refresh_at_, now + pause * jitter / 100);
}

void Router::RefreshSoon(Moment now) {
  if (!cluster() || stopped_) return;
  refresh_at_ = std::min(refresh_at_, std::max(now, refreshed_at_ + kRefreshPauseMin));
}

void Router::Adopt(const SlotMap& map) {
  ++maps_;
  std::vector<NodeId> masters;
  masters.reserve(map.masters.size());
  for (const Address& master : map.masters) masters.push_back(NodeAt(master));
  owner_.resize(kSlots);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    owner_[slot] = map.owner[slot] == SlotMap::kNobody ? kNoNode : masters[map.owner[slot]];
  }
  // Nodes that serve nothing any more are removed once everything sent to them is answered.
  std::erase_if(nodes_, [&](const auto& entry) {
    const auto& [id, node] = entry;
    if (node.outstanding > 0 || std::ranges::find(masters, id) != masters.end()) return false;
    actions_.push_back(
        Leave{id,
              {ErrorCode::kUnavailable,
               text::Cat("Redis at ", node.address.ToString(), " left the Cluster")}});
    return true;
  });
}

void Router::Stop() {
  if (std::exchange(stopped_, true)) return;
  for (const auto& [id, _] : nodes_) actions_.push_back(Leave{id, Closed()});
  std::vector<Exchange*> unsent;
  for (const auto& [_, exchange] : exchanges_) {
    const auto state = exchange->state_;
    if (state == Exchange::State::kWaiting || state == Exchange::State::kPaused) {
      unsent.push_back(exchange.get());
    }
  }
  for (Exchange* exchange : unsent) FailSoon(*exchange, Closed());
}

}  // namespace sluice::redis
