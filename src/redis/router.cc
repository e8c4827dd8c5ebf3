// SPDX-License-Identifier: Apache-2.0
#include "redis/router.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "redis/await.h"

namespace sluice::redis {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr int kDetoursMax = 16;  // Of one command, by MOVED and ASK.
constexpr auto kRefreshEvery = 10s;
constexpr auto kRefreshWhileDown = 200ms;  // A master that is gone may have been replaced.
constexpr auto kRefreshPauseMin = 100ms;   // However many ask for it.
constexpr auto kRefreshPauseMax = 2s;      // After a vain attempt.
constexpr auto kSentinelHeartbeat = 5s;

// As Sentinels write it.
Address AddressOf(std::string_view host, std::string_view port) {
  return {.host = std::string(host), .port = text::ParseNumber<std::uint16_t>(port).value_or(0)};
}

Error Closed() { return {ErrorCode::kUnavailable, "the store is closed"}; }

}  // namespace

Router::Router(asio::any_io_executor executor, Options options)
    : executor_(std::move(executor)),
      options_(std::move(options)),
      random_(std::random_device{}()),
      refresh_timer_(executor_) {}

void Router::Start() {
  if (cluster()) {
    asio::co_spawn(
        executor_, [self = shared_from_this()] { return self->KeepMapped(); }, asio::detached);
    return;
  }
  const bool sentinel = options_.endpoint.mode == Mode::kSentinel;
  only_ = MakeLink(std::bind_front(&Router::FindAny, this));
  only_->Start();
  if (sentinel) WatchSentinels();
}

void Router::Stop() {
  if (std::exchange(stopped_, true)) return;
  mapping_ = false;
  unmapped_reason_ = Closed();
  if (only_) only_->Stop(Closed());
  if (sentinel_) sentinel_->Stop(Closed());
  for (const Node& node : nodes_) node.link->Stop(Closed());
  for (const auto& visit : visits_) {
    if (const auto connection = visit.lock()) connection->Close(Closed());
  }
  refresh_timer_.cancel();
  for (const auto& errand : std::exchange(paused_, {})) Dispatch(errand);
  DispatchPending();
}

Connection::Options Router::ConnectionTo(const Address& address) const {
  const Endpoint& endpoint = options_.endpoint;
  return {.address = address,
          .credentials = endpoint.credentials,
          .tls = endpoint.tls,
          .database = endpoint.database,
          .client_name = endpoint.client_name,
          .connect_timeout = endpoint.connect_timeout};
}

Connection::Options Router::SentinelAt(const Address& address) const {
  Connection::Options to = ConnectionTo(address);
  to.credentials = options_.endpoint.sentinel_credentials;
  to.database = 0;
  return to;
}

std::shared_ptr<Connection> Router::Visit(Connection::Options to) {
  std::erase_if(visits_, [](const auto& visit) { return visit.expired(); });
  auto connection = std::make_shared<Connection>(executor_, std::move(to));
  visits_.push_back(connection);
  return connection;
}

std::shared_ptr<Link> Router::MakeLink(
    std::function<asio::awaitable<Expected<Connection::Options>>()> find) {
  return std::make_shared<Link>(
      executor_, Link::Options{.find = std::move(find),
                               .prepare = std::bind_front(&Router::Prepare, this),
                               .on_event = [this](Link&, Link::Event event) { OnEvent(event); }});
}

std::shared_ptr<Link> Router::LinkTo(const Address& address) {
  const auto known = std::ranges::find(nodes_, address, &Node::address);
  if (known != nodes_.end()) return known->link;
  auto link = MakeLink([this, address]() -> asio::awaitable<Expected<Connection::Options>> {
    co_return ConnectionTo(address);
  });
  nodes_.push_back({address, link});
  link->Start();
  return link;
}

std::shared_ptr<Link> Router::LinkOf(const Target& target) {
  if (!cluster()) return only_;
  if (const auto* address = std::get_if<Address>(&target)) return LinkTo(*address);
  return owner_.empty() ? nullptr : owner_[std::get<std::uint16_t>(target)];
}

const Link* Router::OwnerOf(std::uint16_t slot) const {
  if (!cluster()) return only_.get();
  return owner_.empty() ? nullptr : owner_[slot].get();
}

std::vector<Address> Router::Masters() const {
  if (options_.endpoint.mode == Mode::kStandalone) return {options_.endpoint.addresses.front()};
  if (options_.endpoint.mode == Mode::kSentinel) {
    return master_.host.empty() ? std::vector<Address>{} : std::vector{master_};
  }
  std::vector<Address> masters;
  for (const Node& node : nodes_) {
    if (std::ranges::find(owner_, node.link) != owner_.end()) masters.push_back(node.address);
  }
  return masters;
}

void Router::OnEvent(Link::Event event) {
  if (event == Link::Event::kUp && options_.on_connect) options_.on_connect();
  if (event != Link::Event::kUp) RefreshSoon();
  if (event != Link::Event::kLost) DispatchPending();
}

asio::awaitable<Expected<void>> Router::Prepare(Connection& connection) {
  const auto self = shared_from_this();
  if (options_.endpoint.mode == Mode::kSentinel) {
    // A Sentinel may not have heard yet; who takes writes knows.
    const std::string question = Command("ROLE");
    const auto role = co_await connection.Ask(question);
    if (!role) co_return std::unexpected(role.error());
    if (role->empty() || role->front() != "master") {
      co_return std::unexpected(
          Error{ErrorCode::kUnavailable,
                text::Cat("Redis at ", connection.address().ToString(), " is not the master")});
    }
  }
  if (options_.prepare) co_return co_await options_.prepare(connection);
  co_return Expected<void>{};
}

asio::awaitable<Expected<Connection::Options>> Router::FindAny() {
  const auto self = shared_from_this();
  if (options_.endpoint.mode == Mode::kSentinel) {
    const auto master = co_await AskSentinels();
    if (!master) co_return std::unexpected(master.error());
    master_ = *master;
    co_return ConnectionTo(*master);
  }
  std::vector<Address> known = options_.endpoint.addresses;
  if (const auto masters = Masters(); cluster() && !masters.empty()) known = masters;
  co_return ConnectionTo(known[next_any_++ % known.size()]);
}

asio::awaitable<Expected<Address>> Router::AskSentinels() {
  Error last{ErrorCode::kUnavailable, "no Sentinel was asked"};
  std::vector<Address> sentinels = options_.endpoint.addresses;
  // First the one that is listened to: others may not have heard yet of what it has announced.
  if (const Address* const listened = sentinel_ ? sentinel_->server() : nullptr) {
    std::ranges::rotate(sentinels, std::ranges::find(sentinels, *listened));
  }
  for (const Address& sentinel : sentinels) {
    if (stopped_) break;
    const auto connection = Visit(SentinelAt(sentinel));
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
    if (master->size() == 2) co_return AddressOf(master->front(), master->back());
    last = {ErrorCode::kUnavailable,
            text::Cat("Sentinel ", sentinel.ToString(), " knows no master ",
                      text::Quote(options_.endpoint.master_name))};
  }
  co_return std::unexpected(last);
}

// Tells of a failover sooner than the old master's silence would. Best effort: without it, the
// Sentinels are asked when the connection breaks or says that it is read-only.
void Router::WatchSentinels() {
  const auto next = std::make_shared<std::size_t>(0);
  sentinel_ = std::make_shared<Link>(
      executor_,
      Link::Options{.find = [this, next]() -> asio::awaitable<Expected<Connection::Options>> {
                      const auto& sentinels = options_.endpoint.addresses;
                      co_return SentinelAt(sentinels[(*next)++ % sentinels.size()]);
                    },
                    .prepare = [this](Connection& connection) -> asio::awaitable<Expected<void>> {
                      connection.set_on_message(
                          [this](std::span<const RespNode> message) { OnSwitch(message[3].text); });
                      const std::string subscribe = Command("SUBSCRIBE", "+switch-master");
                      const auto subscribed = co_await connection.Ask(subscribe);
                      if (!subscribed) co_return std::unexpected(subscribed.error());
                      co_return Expected<void>{};
                    },
                    .heartbeat = kSentinelHeartbeat});
  sentinel_->Start();
}

// "name old-host old-port new-host new-port"
void Router::OnSwitch(std::string_view message) {
  const std::string& name = options_.endpoint.master_name;
  if (!message.starts_with(text::Cat(name, " ")) || stopped_) return;
  const std::size_t port = message.rfind(' ');
  const std::size_t host = message.rfind(' ', port - 1);
  master_ = AddressOf(message.substr(host + 1, port - host - 1), message.substr(port + 1));
  // Not by what the Sentinels last said: somebody else may have asked them.
  if (const Address* const server = only_->server(); !server || *server != master_) {
    only_->RetryNow();
    only_->Drop(
        {ErrorCode::kUnavailable, text::Cat("the master ", text::Quote(name), " has moved")});
  }
  if (options_.on_routes) options_.on_routes();
}

asio::awaitable<void> Router::KeepMapped() {
  const auto self = shared_from_this();
  std::chrono::milliseconds backoff = kRefreshPauseMin;
  while (!stopped_) {
    refresh_at_ = Clock::time_point::max();
    const auto map = co_await AskForSlots();
    if (stopped_) co_return;
    refreshed_at_ = Clock::now();
    if (map) {
      Adopt(*map);
      backoff = kRefreshPauseMin;
    } else {
      unmapped_reason_ = NotSentFor(map.error());
      backoff = std::min<std::chrono::milliseconds>(2 * backoff, kRefreshPauseMax);
    }
    mapping_ = false;
    DispatchPending();
    // All clients at different times.
    const auto jitter = std::uniform_int_distribution<std::int64_t>(75, 125)(random_);
    const bool whole = std::ranges::all_of(
        nodes_, [](const Node& node) -> bool { return node.link->connection() != nullptr; });
    const std::chrono::milliseconds pause = !map    ? backoff
                                            : whole ? kRefreshEvery
                                                    : kRefreshWhileDown;
    refresh_at_ = std::min(refresh_at_, refreshed_at_ + pause * jitter / 100);
    while (!stopped_ && Clock::now() < refresh_at_) {
      refresh_timer_.expires_at(refresh_at_);
      co_await refresh_timer_.async_wait(kAwait);
    }
    // Whoever comes before there is any map waits for the answer.
    mapping_ = owner_.empty() && !stopped_;
  }
}

void Router::RefreshSoon() {
  if (!cluster() || stopped_) return;
  refresh_at_ = std::min(refresh_at_, std::max(Clock::now(), refreshed_at_ + kRefreshPauseMin));
  refresh_timer_.cancel();
}

// Any node knows, but one that was cut off knows old things: each time another one is asked first.
asio::awaitable<Expected<SlotMap>> Router::AskForSlots() {
  const std::string question = Command("CLUSTER", "SLOTS");
  Error last{ErrorCode::kUnavailable, "no node was asked"};
  std::vector<std::shared_ptr<Link>> links;
  std::ranges::transform(nodes_, std::back_inserter(links), &Node::link);
  std::ranges::shuffle(links, random_);
  for (const auto& link : links) {
    if (stopped_ || !link->connection()) continue;
    const auto connection = link->connection()->shared_from_this();
    const Connection::Reader<SlotMap> read =
        [asked = connection->address()](std::span<const RespNode> reply) {
          return ParseSlots(reply, asked);
        };
    const auto map = co_await connection->AskFor<SlotMap>(question, read);
    if (map) co_return map;
    last = map.error();
  }
  std::vector<Address> ask = options_.endpoint.addresses;
  std::ranges::transform(nodes_, std::back_inserter(ask), &Node::address);
  std::ranges::shuffle(ask, random_);
  for (const Address& address : ask) {
    if (stopped_) break;
    const auto connection = Visit(ConnectionTo(address));
    if (const auto opened = co_await connection->Open(); !opened) {
      last = opened.error();
      if (last.code == ErrorCode::kAccessDenied) break;  // The others have the same users.
      continue;
    }
    const Connection::Reader<SlotMap> read = [&](std::span<const RespNode> reply) {
      return ParseSlots(reply, address);
    };
    const auto map = co_await connection->AskFor<SlotMap>(question, read);
    connection->Close({ErrorCode::kUnavailable, "done"});
    if (map) co_return map;
    last = map.error();
  }
  co_return std::unexpected(last);
}

void Router::Adopt(const SlotMap& map) {
  std::vector<std::shared_ptr<Link>> links;
  std::ranges::transform(map.masters, std::back_inserter(links),
                         [this](const Address& master) { return LinkTo(master); });
  owner_.resize(kSlots);
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    owner_[slot] = map.owner[slot] == SlotMap::kNobody ? nullptr : links[map.owner[slot]];
  }
  // Those that serve nothing any more go once all that they were asked is answered.
  const auto retired = std::ranges::partition(nodes_, [&](const Node& node) {
    const bool busy = node.link->connection() && node.link->connection()->outstanding() > 0;
    return busy || std::ranges::find(links, node.link) != links.end();
  });
  std::vector<Node> gone(retired.begin(), retired.end());
  nodes_.erase(retired.begin(), retired.end());
  for (const Node& node : gone) {
    node.link->Stop({ErrorCode::kUnavailable,
                     text::Cat("Redis at ", node.address.ToString(), " left the Cluster")});
  }
  if (options_.on_routes) options_.on_routes();
}

Error Router::NotSent() const {
  return {ErrorCode::kUnavailable,
          text::Cat("the request could not be sent to Redis within ",
                    options_.endpoint.command_timeout.count(), " ms", TakingLong())};
}

// What keeps a connection from being made, as far as any of them can tell.
std::string Router::TakingLong() const {
  std::string_view step = only_ ? only_->taking_long() : "";
  for (const Node& node : nodes_) {
    if (step.empty()) step = node.link->taking_long();
  }
  for (const auto& visit : visits_) {
    const auto connection = visit.lock();
    if (connection && step.empty()) step = connection->taking_long();
  }
  return step.empty() ? "" : text::Cat("; ", step);
}

Error Router::NotAnswered() const {
  return {ErrorCode::kOutcomeUnknown, text::Cat("no answer from Redis within ",
                                                options_.endpoint.command_timeout.count(), " ms")};
}

void Router::GiveUp(Errand& errand) {
  if (!errand.link) return;
  errand.link->Drop({ErrorCode::kUnavailable,
                     text::Cat("Redis has not answered for ",
                               kTimeoutsMax * options_.endpoint.command_timeout.count(), " ms")});
}

void Router::Send(const std::shared_ptr<Errand>& errand) { Dispatch(errand); }

// A command for somebody who has no deadline of his own: the reply or the timer answers, whichever
// comes first.
class Router::TimedErrand : public std::enable_shared_from_this<TimedErrand> {
 public:
  TimedErrand(std::shared_ptr<Router> router, std::string command, Target target,
              Connection::Handler handler)
      : router_(std::move(router)), handler_(std::move(handler)), timer_(router_->executor_) {
    ++router_->outstanding_;
    errand_->command = std::move(command);
    errand_->target = std::move(target);
  }

  void Start() {
    timer_.expires_after(router_->options_.endpoint.command_timeout);
    timer_.async_wait([self = shared_from_this()](auto cancelled) {
      if (!cancelled && self->handler_) self->OnTimeout();
    });
    Listen();
    router_->Dispatch(errand_);
  }

 private:
  void Listen() {
    errand_->handler = [self = shared_from_this()](Expected<std::span<const RespNode>> reply) {
      self->OnReply(std::move(reply));
    };
  }

  void OnReply(Expected<std::span<const RespNode>> reply) {
    if (!handler_) return;
    const bool try_again = reply && reply->front().type == RespType::kError &&
                           reply->front().text.starts_with("TRYAGAIN");
    if (try_again) {  // The keys are on two nodes for the moment.
      Listen();
      return router_->DispatchLater(errand_);
    }
    timer_.cancel();
    Answer(std::move(reply));
  }

  void OnTimeout() {
    const bool sent = errand_->sent;
    if (!sent) errand_->handler = nullptr;
    errand_->given_up = true;
    Answer(std::unexpected(sent ? router_->NotAnswered() : router_->NotSent()));
    if (!sent) return;
    timer_.expires_after((kTimeoutsMax - 1) * router_->options_.endpoint.command_timeout);
    timer_.async_wait([self = shared_from_this()](auto cancelled) {
      if (!cancelled && self->errand_->handler) self->router_->GiveUp(*self->errand_);
    });
  }

  void Answer(Expected<std::span<const RespNode>> reply) {
    --router_->outstanding_;
    std::exchange(handler_, nullptr)(std::move(reply));
  }

  const std::shared_ptr<Router> router_;
  Connection::Handler handler_;  // Null once it has been told.
  asio::steady_timer timer_;
  const std::shared_ptr<Errand> errand_ = std::make_shared<Errand>();
};

void Router::Send(std::string command, Target target, Connection::Handler handler) {
  if (outstanding_ == kOutstandingMax) {
    return handler(std::unexpected(Error{
        ErrorCode::kUnavailable, text::Cat(outstanding_, " commands wait for Redis already")}));
  }
  std::make_shared<TimedErrand>(shared_from_this(), std::move(command), std::move(target),
                                std::move(handler))
      ->Start();
}

void Router::DispatchPending() {
  for (const auto& errand : std::exchange(pending_, {})) Dispatch(errand);
}

void Router::Dispatch(const std::shared_ptr<Errand>& errand) {
  if (!errand->handler) return;
  if (stopped_) return Deliver(errand, std::unexpected(Closed()));
  // Sent now, it would be executed although somebody was told that there was no answer.
  if (errand->given_up) return Deliver(errand, std::unexpected(NotAnswered()));
  const auto link = errand->detour ? LinkTo(*errand->detour) : LinkOf(errand->target);
  if (link && link->connection()) return Transmit(errand, link);
  if (link ? link->reachable() : mapping_) {
    pending_.push_back(errand);
    return;
  }
  errand->detour.reset();
  if (!link && !owner_.empty()) {
    RefreshSoon();
    return Deliver(errand,
                   std::unexpected(Error{ErrorCode::kUnavailable,
                                         text::Cat("no master of the Cluster serves slot ",
                                                   std::get<std::uint16_t>(errand->target))}));
  }
  Deliver(errand, std::unexpected(link ? link->down_reason() : unmapped_reason_));
}

void Router::DispatchLater(const std::shared_ptr<Errand>& errand) {
  errand->sent = false;
  paused_.push_back(errand);
  const auto pause = std::make_shared<asio::steady_timer>(executor_, kTryAgainPause);
  pause->async_wait([self = shared_from_this(), errand, pause](auto) {
    if (std::erase(self->paused_, errand) > 0) self->Dispatch(errand);
  });
}

void Router::Transmit(const std::shared_ptr<Errand>& errand, const std::shared_ptr<Link>& link) {
  Connection& connection = *link->connection();
  if (std::exchange(errand->detour, std::nullopt)) {
    connection.Send(Command("ASKING"), [](auto) {});
  }
  errand->sent = true;
  errand->sent_at = Clock::now();
  errand->link = link;
  connection.Send(errand->command, [this, self = shared_from_this(), errand, link,
                                    from = connection.shared_from_this()](
                                       Expected<std::span<const RespNode>> reply) {
    OnReply(errand, link, from->address(), std::move(reply));
  });
}

void Router::OnReply(const std::shared_ptr<Errand>& errand, const std::shared_ptr<Link>& link,
                     const Address& from, Expected<std::span<const RespNode>> reply) {
  if (!errand->handler) return;
  if (!reply) {
    if (reply.error().code == ErrorCode::kUnavailable && !stopped_) {
      errand->sent = false;  // Provably.
      return Dispatch(errand);
    }
    return Deliver(errand, std::move(reply));
  }
  const RespNode& first = reply->front();
  if (first.type != RespType::kError) return Deliver(errand, std::move(reply));
  if (Follow(errand, first.text, from)) return;
  if (!cluster() && (first.text.starts_with("MOVED ") || first.text.starts_with("CROSSSLOT "))) {
    return Deliver(
        errand, std::unexpected(Error{ErrorCode::kStoreError,
                                      text::Cat("Redis at ", from.ToString(),
                                                " is part of a Cluster; expected mode=cluster")}));
  }
  const bool is_replica = first.text.starts_with("READONLY");
  const Error reason = ErrorOf(first.text);
  if (is_replica || first.text.starts_with("CLUSTERDOWN") || first.text.starts_with("LOADING")) {
    RefreshSoon();
  }
  Deliver(errand, std::move(reply));
  // A master that became a replica: another one takes the writes now.
  if (is_replica && link->connection()) link->Drop(reason);
}

// Whether the command goes somewhere else. It was not executed here.
bool Router::Follow(const std::shared_ptr<Errand>& errand, std::string_view error,
                    const Address& from) {
  if (!cluster() || !std::holds_alternative<std::uint16_t>(errand->target)) return false;
  const auto moved = ParseRedirect(error, "MOVED", from);
  const auto ask = ParseRedirect(error, "ASK", from);
  if ((!moved && !ask) || ++errand->detours > kDetoursMax) return false;
  errand->sent = false;
  if (moved) {
    if (!owner_.empty()) owner_[moved->slot] = LinkTo(moved->to);
    RefreshSoon();
  } else {
    errand->detour = ask->to;
  }
  Dispatch(errand);
  return true;
}

void Router::Deliver(const std::shared_ptr<Errand>& errand,
                     Expected<std::span<const RespNode>> reply) {
  if (errand->handler) std::exchange(errand->handler, nullptr)(std::move(reply));
}

}  // namespace sluice::redis
