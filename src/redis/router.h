// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "redis/link.h"
#include "redis/slots.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

// Brings commands to the master that serves them, whatever stands behind the URI: one server, the
// master that Sentinels name, or the masters of a Cluster. Follows MOVED, ASK and TRYAGAIN, which
// say that a command was not executed. Lives on one event loop.
class Router : public std::enable_shared_from_this<Router> {
 public:
  struct Options {
    Endpoint endpoint;

    // Runs on each new connection to a master before it is used.
    std::function<boost::asio::awaitable<Expected<void>>(Connection&)> prepare = {};

    std::function<void()> on_connect = {};
    std::function<void()> on_routes = {};  // The masters may have changed.
  };

  // A slot, which means its master; or one server.
  using Target = std::variant<std::uint16_t, Address>;

  // A command on its way.
  struct Errand {
    std::string command;
    Target target;
    Connection::Handler handler;  // Runs exactly once, unless it is set to null before.

    // Set by whoever does not wait for it any longer: it is not sent again, and the handler is told
    // when it is over.
    bool given_up = false;

    bool sent = false;  // It may have been executed.
    std::chrono::steady_clock::time_point sent_at = {};
    std::shared_ptr<Link> link;  // That it was sent on.
    int detours = 0;
    std::optional<Address> detour = {};  // A node that takes the slot over and must be told.
  };

  Router(boost::asio::any_io_executor executor, Options options);

  void Start();

  // Fails all that is outstanding, with kUnavailable or kOutcomeUnknown, and stays closed.
  void Stop();

  // Sends as soon as there is a connection, if one is there or being made. To cancel, set the
  // handler to null: what was not sent then never is.
  void Send(const std::shared_ptr<Errand>& errand);

  // The same for those who have no deadline of their own: within the command timeout, or
  // kUnavailable if it was not sent until then, and kOutcomeUnknown if it was. More than
  // kOutstandingMax at once are refused with kUnavailable.
  void Send(std::string command, Target target, Connection::Handler handler);
  static constexpr std::size_t kOutstandingMax = 10'000;

  // Before a command is sent again whose keys are on two nodes for the moment.
  static constexpr std::chrono::milliseconds kTryAgainPause{10};

  // For those who have a deadline of their own: leaves a server that does not answer. Asked for
  // when a command has been on its way for kTimeoutsMax command timeouts.
  void GiveUp(Errand& errand);
  static constexpr int kTimeoutsMax = 3;

  Error NotSent() const;
  Error NotAnswered() const;

  // The link that serves a slot now: null if none is known. Only good for comparing.
  const Link* OwnerOf(std::uint16_t slot) const;

  // Empty if they are not known yet.
  std::vector<Address> Masters() const;

  // Where a subscriber may connect to, another server each time if there are several.
  boost::asio::awaitable<Expected<Connection::Options>> FindAny();

  const Endpoint& endpoint() const { return options_.endpoint; }
  const boost::asio::any_io_executor& executor() const { return executor_; }

 private:
  using Clock = std::chrono::steady_clock;

  class TimedErrand;

  struct Node {
    Address address;
    std::shared_ptr<Link> link;
  };

  std::string TakingLong() const;

  bool cluster() const { return options_.endpoint.mode == Mode::kCluster; }
  Connection::Options ConnectionTo(const Address& address) const;
  Connection::Options SentinelAt(const Address& address) const;
  // A connection for a question or two. Stop closes it, whatever it is at.
  std::shared_ptr<Connection> Visit(Connection::Options to);
  std::shared_ptr<Link> MakeLink(
      std::function<boost::asio::awaitable<Expected<Connection::Options>>()> find);
  std::shared_ptr<Link> LinkTo(const Address& address);
  std::shared_ptr<Link> LinkOf(const Target& target);
  boost::asio::awaitable<Expected<void>> Prepare(Connection& connection);
  void OnEvent(Link::Event event);

  boost::asio::awaitable<Expected<Address>> AskSentinels();
  void WatchSentinels();
  void OnSwitch(std::string_view message);

  boost::asio::awaitable<void> KeepMapped();
  boost::asio::awaitable<Expected<SlotMap>> AskForSlots();
  void Adopt(const SlotMap& map);
  void RefreshSoon();

  void Dispatch(const std::shared_ptr<Errand>& errand);
  void DispatchPending();
  void DispatchLater(const std::shared_ptr<Errand>& errand);
  void Transmit(const std::shared_ptr<Errand>& errand, const std::shared_ptr<Link>& link);
  void OnReply(const std::shared_ptr<Errand>& errand, const std::shared_ptr<Link>& link,
               const Address& from, Expected<std::span<const RespNode>> reply);
  bool Follow(const std::shared_ptr<Errand>& errand, std::string_view error, const Address& from);
  void Deliver(const std::shared_ptr<Errand>& errand, Expected<std::span<const RespNode>> reply);

  const boost::asio::any_io_executor executor_;
  const Options options_;
  bool stopped_ = false;
  std::deque<std::shared_ptr<Errand>> pending_;  // Until there is a connection.
  std::vector<std::shared_ptr<Errand>> paused_;  // Until their keys are on one node.
  std::vector<std::weak_ptr<Connection>> visits_;
  std::minstd_rand random_;
  std::size_t next_any_ = 0;
  std::size_t outstanding_ = 0;  // Of those that have no deadline of their own.

  std::shared_ptr<Link> only_;  // Standalone and Sentinel.
  Address master_;              // As a Sentinel last said.
  std::shared_ptr<Link> sentinel_;

  // Cluster.
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<Link>> owner_;  // By slot; empty while unknown.
  bool mapping_ = true;                       // Whether the first map is still being asked for.
  Error unmapped_reason_{ErrorCode::kUnavailable, "not connected yet"};
  Clock::time_point refresh_at_;
  Clock::time_point refreshed_at_;
  boost::asio::steady_timer refresh_timer_;
};

}  // namespace sluice::redis
