// SPDX-License-Identifier: Apache-2.0
#include "redis/network.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <iterator>
#include <ranges>
#include <utility>
#include <variant>

#include "base/text.h"
#include "redis/await.h"

namespace sluice::redis {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr int kPassesMax = 8;  // Before the event loop gets a turn.
constexpr auto kSentinelHeartbeat = 5s;
constexpr auto kTryAgainPause = 10ms;  // While the keys of a command are on two nodes.

// In the form that Sentinels use.
Address AddressOf(std::string_view host, std::string_view port) {
  return {.host = std::string(host), .port = text::ParseNumber<std::uint16_t>(port).value_or(0)};
}

}  // namespace

Network::Network(asio::any_io_executor executor, Options options)
    : executor_(std::move(executor)),
      options_(std::move(options)),
      random_(std::random_device{}()),
      router_({.endpoint = options_.endpoint,
               .seed = static_cast<std::uint32_t>(random_()),
               .obstacle = [this] { return Obstacle(); }}),
      timer_(executor_) {}

void Network::Start() {
  if (endpoint().mode != Mode::kCluster) {
    MakeLink(Router::kOnlyNode, std::bind_front(&Network::FindAny, this));
  }
  if (endpoint().mode == Mode::kSentinel) WatchSentinels();
  Run();
}

void Network::Stop() {
  if (std::exchange(stopped_, true)) return;
  router_.Stop();
  if (sentinel_) sentinel_->Stop(Router::Closed());
  for (const auto& visit : visits_) {
    if (const auto connection = visit.lock()) connection->Close(Router::Closed());
  }
  Run();
  timer_.cancel();
}

// Actions may call back into this. A caller that asks again after every error must not starve the
// rest of the loop.
void Network::Run() {
  run_again_ = true;
  if (std::exchange(running_, true)) return;
  const auto self = shared_from_this();
  for (int pass = 0; pass < kPassesMax && std::exchange(run_again_, false); ++pass) {
    const auto now = std::chrono::steady_clock::now();
    Moment wake;
    if (options_.advance) {
      wake = options_.advance(now);
    } else {
      router_.Advance(now);
      wake = router_.NextWake();
    }
    for (Router::Action& action : router_.TakeActions()) {
      std::visit([this](auto& what) { Do(what); }, action);
    }
    for (const auto& [_, link] : links_) {
      if (link->connection()) link->connection()->Flush();
    }
    if (options_.on_advanced) options_.on_advanced();
    ArmTimer(wake);
  }
  running_ = false;
  if (run_again_) RunSoon();
}

void Network::RunSoon() {
  if (running_) run_again_ = true;
  if (running_ || std::exchange(run_posted_, true)) return;
  asio::post(executor_, [this, self = shared_from_this()] {
    run_posted_ = false;
    Run();
  });
}

// Wakes mostly get later: a timer that is already set fires first, and is then set again.
void Network::ArmTimer(Moment at) {
  if (at >= timer_at_ || stopped_) return;
  timer_at_ = at;
  timer_.expires_at(at);
  timer_.async_wait([this, self = shared_from_this()](auto error) {
    if (error) return;
    timer_at_ = Moment::max();
    Run();
  });
}

void Network::Do(Router::Transmit& action) {
  Exchange* const exchange = action.exchange;
  const auto link = links_.find(action.node);
  Connection* const connection = link == links_.end() ? nullptr : link->second->connection();
  if (!connection || exchange->expired()) {
    run_again_ = true;
    if (!connection) router_.OnLost(action.node, std::chrono::steady_clock::now());
    const Error unsent{ErrorCode::kUnavailable, "the connection is closed"};
    return router_.OnReply(*exchange, std::unexpected(unsent), std::chrono::steady_clock::now());
  }
  if (action.asking) {
    connection->Write([](std::string& out) { out += Command("ASKING"); }, [](auto) {});
  }
  connection->Write([exchange](std::string& out) { exchange->AppendTo(out); },
                    [this, exchange](Reply reply) {
                      const bool broken = !reply;
                      router_.OnReply(*exchange, std::move(reply),
                                      std::chrono::steady_clock::now());
                      // Others run once for all that came together; see OnEvent.
                      if (broken || (options_.is_urgent && options_.is_urgent())) Run();
                    });
}

void Network::Do(Router::Connect& action) {
  MakeLink(action.node,
           [this, to = action.address]() -> asio::awaitable<Expected<Connection::Options>> {
             co_return ConnectionTo(to);
           });
}

void Network::Do(Router::Reconnect& action) {
  const auto link = links_.find(action.node);
  if (link != links_.end()) link->second->Drop(action.reason);
}

void Network::Do(Router::Leave& action) {
  const auto link = links_.extract(action.node);
  if (!link.empty()) link.mapped()->Stop(action.reason);
}

void Network::Do(Router::AskSlots&) {
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->RefreshSlots(); }, asio::detached);
}

// A command of a caller that has no deadline of its own.
class Network::PlainExchange : public Exchange {
 public:
  PlainExchange(Network& network, std::string command, Connection::Handler handler)
      : network_(network), command_(std::move(command)), handler_(std::move(handler)) {
    ++network_.outstanding_;
  }

  void AppendTo(std::string& out) const override { out += command_; }

  void OnReply(Reply reply, Moment now) override {
    const bool try_again = reply && reply->front().type == RespType::kError &&
                           reply->front().text.starts_with("TRYAGAIN");
    if (try_again) {
      return network_.router_.Send(shared_from_this(), target(), deadline(), now,
                                   now + kTryAgainPause);
    }
    --network_.outstanding_;
    std::exchange(handler_, nullptr)(std::move(reply));
  }

 private:
  Network& network_;
  const std::string command_;
  Connection::Handler handler_;
};

void Network::Send(std::string command, Target target, Connection::Handler handler) {
  if (outstanding_ == kOutstandingMax) {
    return handler(std::unexpected(Error{
        ErrorCode::kUnavailable, text::Cat(outstanding_, " commands wait for Redis already")}));
  }
  const auto now = std::chrono::steady_clock::now();
  router_.Send(std::make_shared<PlainExchange>(*this, std::move(command), std::move(handler)),
               std::move(target), now + endpoint().command_timeout, now);
  Run();
}

// What prevents a connection, as far as any link can tell.
std::string Network::Obstacle() const {
  for (const auto& [_, link] : links_) {
    if (const auto step = link->taking_long(); !step.empty()) return std::string(step);
  }
  for (const auto& visit : visits_) {
    const auto connection = visit.lock();
    if (connection && !connection->taking_long().empty()) {
      return std::string(connection->taking_long());
    }
  }
  return "";
}

Connection::Options Network::ConnectionTo(const Address& address) const {
  return {.address = address,
          .credentials = endpoint().credentials,
          .tls = endpoint().tls,
          .database = endpoint().database,
          .client_name = endpoint().client_name,
          .connect_timeout = endpoint().connect_timeout};
}

Connection::Options Network::SentinelAt(const Address& address) const {
  Connection::Options to = ConnectionTo(address);
  to.credentials = endpoint().sentinel_credentials;
  to.database = 0;
  return to;
}

std::shared_ptr<Connection> Network::Visit(Connection::Options to) {
  std::erase_if(visits_, [](const auto& visit) { return visit.expired(); });
  auto connection = std::make_shared<Connection>(executor_, std::move(to));
  visits_.push_back(connection);
  return connection;
}

void Network::MakeLink(NodeId node,
                       std::function<asio::awaitable<Expected<Connection::Options>>()> find) {
  const auto link = std::make_shared<Link>(
      executor_, Link::Options{.find = std::move(find),
                               .prepare = std::bind_front(&Network::Prepare, this),
                               .on_event = std::bind_front(&Network::OnEvent, this, node)});
  links_[node] = link;
  link->Start();
}

void Network::OnEvent(NodeId node, const Link& link, Link::Event event) {
  const auto now = std::chrono::steady_clock::now();
  switch (event) {
    case Link::Event::kConnecting:
      return router_.OnConnecting(node);
    case Link::Event::kUp:
      if (options_.on_connect) options_.on_connect();
      link.connection()->set_on_replied([this] { Run(); });
      router_.OnUp(node, link.connection()->address(), now);
      break;
    case Link::Event::kLost:
      router_.OnLost(node, now);
      break;
    case Link::Event::kPaused:
      router_.OnDown(node, link.down_reason(), now);
      break;
  }
  Run();
}

std::vector<Address> Network::Masters() const {
  if (endpoint().mode == Mode::kCluster) return router_.Masters();
  if (endpoint().mode == Mode::kStandalone) return {endpoint().addresses.front()};
  return master_.host.empty() ? std::vector<Address>{} : std::vector{master_};
}

asio::awaitable<Expected<void>> Network::Prepare(Connection& connection) {
  const auto self = shared_from_this();
  if (endpoint().mode == Mode::kSentinel) {
    // A Sentinel may not know yet; the server that takes writes does.
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

asio::awaitable<Expected<Connection::Options>> Network::FindAny() {
  const auto self = shared_from_this();
  if (endpoint().mode == Mode::kSentinel) {
    const auto master = co_await AskSentinels();
    if (!master) co_return std::unexpected(master.error());
    master_ = *master;
    co_return ConnectionTo(*master);
  }
  std::vector<Address> known = endpoint().addresses;
  if (const auto masters = Masters(); endpoint().mode == Mode::kCluster && !masters.empty())
    known = masters;
  co_return ConnectionTo(known[next_any_++ % known.size()]);
}

asio::awaitable<Expected<Address>> Network::AskSentinels() {
  Error last{ErrorCode::kUnavailable, "no Sentinel was asked"};
  std::vector<Address> sentinels = endpoint().addresses;
  // First the one that we are subscribed to: others may not know yet what it has announced.
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
        Command("SENTINEL", "get-master-addr-by-name", endpoint().master_name);
    const auto master = co_await connection->Ask(question);
    connection->Close({ErrorCode::kUnavailable, "done"});
    if (!master) {
      last = master.error();
      continue;
    }
    if (master->size() == 2) co_return AddressOf(master->front(), master->back());
    last = {ErrorCode::kUnavailable,
            text::Cat("Sentinel ", sentinel.ToString(), " knows no master ",
                      text::Quote(endpoint().master_name))};
  }
  co_return std::unexpected(last);
}

// Reports a failover sooner than the old master's silence would. Best effort: without it, the
// Sentinels are asked when the connection breaks or turns out to be read-only.
void Network::WatchSentinels() {
  const auto next = std::make_shared<std::size_t>(0);
  sentinel_ = std::make_shared<Link>(
      executor_,
      Link::Options{.find = [this, next]() -> asio::awaitable<Expected<Connection::Options>> {
                      const auto& sentinels = endpoint().addresses;
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
void Network::OnSwitch(std::string_view message) {
  const std::string& name = endpoint().master_name;
  if (!message.starts_with(text::Cat(name, " ")) || stopped_) return;
  const std::size_t port = message.rfind(' ');
  const std::size_t host = message.rfind(' ', port - 1);
  master_ = AddressOf(message.substr(host + 1, port - host - 1), message.substr(port + 1));
  // Do not compare with what the Sentinels last said: somebody else may have asked them.
  Link& only = *links_.at(Router::kOnlyNode);
  if (const Address* const server = only.server(); !server || *server != master_) {
    only.RetryNow();
    only.Drop({ErrorCode::kUnavailable, text::Cat("the master ", text::Quote(name), " has moved")});
  }
  if (options_.on_routes) options_.on_routes();
}

asio::awaitable<void> Network::RefreshSlots() {
  const auto self = shared_from_this();
  const auto map = co_await AskForSlots();
  if (stopped_) co_return;
  router_.OnSlots(map, std::chrono::steady_clock::now());
  Run();
  if (map && options_.on_routes) options_.on_routes();
}

// Any node can answer, but one that was cut off may be outdated, so a different node is asked first
// each time.
asio::awaitable<Expected<SlotMap>> Network::AskForSlots() {
  const std::string question = Command("CLUSTER", "SLOTS");
  Error last{ErrorCode::kUnavailable, "no node was asked"};
  std::vector<std::shared_ptr<Link>> links;
  std::ranges::copy(links_ | std::views::values, std::back_inserter(links));
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
  std::vector<Address> ask = endpoint().addresses;
  std::ranges::copy(router_.Nodes(), std::back_inserter(ask));
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

}  // namespace sluice::redis
