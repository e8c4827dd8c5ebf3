// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "redis/link.h"
#include "redis/router.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

// Runs a Router: owns the connections and the timer, asks the Sentinels for the master, and the
// nodes of a Cluster for its slots. Lives on one event loop.
class Network : public std::enable_shared_from_this<Network> {
 public:
  struct Options {
    Endpoint endpoint;

    // Runs on each new connection to a master before it is used.
    std::function<boost::asio::awaitable<Expected<void>>(Connection&)> prepare = {};

    std::function<void()> on_connect = {};
    std::function<void()> on_routes = {};  // The masters may have changed.

    // For a user of the router: does what is due in its place, and returns the next wake.
    std::function<Moment(Moment now)> advance = {};

    // After a reply: whether to do so before the other replies that came with it are handled.
    std::function<bool()> is_urgent = {};

    // Runs after that, and after what it sent.
    std::function<void()> on_advanced = {};
  };

  Network(boost::asio::any_io_executor executor, Options options);

  void Start();

  // Fails everything that is outstanding, with kUnavailable or kOutcomeUnknown, and stays closed.
  void Stop();

  // Does what is due now, or at the end of this turn. Required after each call of the router.
  void Run();
  void RunSoon();

  // Sends within the command timeout. Refuses more than kOutstandingMax at once with kUnavailable.
  void Send(std::string command, Target target, Connection::Handler handler);
  static constexpr std::size_t kOutstandingMax = 10'000;

  // Empty if they are not known yet.
  std::vector<Address> Masters() const;

  // Where a subscriber may connect; a different server each time if there are several.
  boost::asio::awaitable<Expected<Connection::Options>> FindAny();

  Router& router() { return router_; }
  const boost::asio::any_io_executor& executor() const { return executor_; }

 private:
  class PlainExchange;

  const Endpoint& endpoint() const { return options_.endpoint; }
  std::string Obstacle() const;

  Connection::Options ConnectionTo(const Address& address) const;
  Connection::Options SentinelAt(const Address& address) const;
  // A connection for a question or two. Stop closes it at any point.
  std::shared_ptr<Connection> Visit(Connection::Options to);
  void MakeLink(NodeId node,
                std::function<boost::asio::awaitable<Expected<Connection::Options>>()> find);
  boost::asio::awaitable<Expected<void>> Prepare(Connection& connection);
  void OnEvent(NodeId node, const Link& link, Link::Event event);

  boost::asio::awaitable<Expected<Address>> AskSentinels();
  void WatchSentinels();
  void OnSwitch(std::string_view message);

  boost::asio::awaitable<void> RefreshSlots();
  boost::asio::awaitable<Expected<SlotMap>> AskForSlots();

  void Do(Router::Transmit& action);
  void Do(Router::Connect& action);
  void Do(Router::Reconnect& action);
  void Do(Router::Leave& action);
  void Do(Router::AskSlots& action);
  void ArmTimer(Moment at);

  const boost::asio::any_io_executor executor_;
  const Options options_;
  std::minstd_rand random_;
  Router router_;
  bool stopped_ = false;
  bool running_ = false;
  bool run_again_ = false;
  bool run_posted_ = false;
  std::map<NodeId, std::shared_ptr<Link>> links_;
  std::vector<std::weak_ptr<Connection>> visits_;
  std::size_t next_any_ = 0;
  std::size_t outstanding_ = 0;  // Sent by Send.

  Address master_;  // As a Sentinel last said.
  std::shared_ptr<Link> sentinel_;

  boost::asio::steady_timer timer_;  // Fires at the next wake, or before it.
  Moment timer_at_ = Moment::max();
};

}  // namespace sluice::redis
