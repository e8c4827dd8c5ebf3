// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "redis/resp.h"
#include "redis/slots.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

using Moment = std::chrono::steady_clock::time_point;

// A reply points into a buffer and is gone when the function returns that it is given to. An error
// reply is a reply. Errors: kUnavailable if the command was provably not executed, kOutcomeUnknown
// if it may have been.
using Reply = Expected<std::span<const RespNode>>;

// A slot, which means its master; or one server.
using Target = std::variant<std::uint16_t, Address>;

// A server that commands are sent to. Numbers are not used again.
using NodeId = std::size_t;
inline constexpr NodeId kNoNode = static_cast<NodeId>(-1);

// A command on its way to the server that serves it, and its reply on the way back.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  virtual ~Exchange() = default;

  // Appends the encoded command to the bytes that are sent.
  virtual void AppendTo(std::string& out) const = 0;

  // Runs once for each Router::Send. It may be sent again from here.
  virtual void OnReply(Reply reply, Moment now) = 0;

  // Runs once if it had expired in OnReply: it has left the connection by now, answered or not.
  virtual void OnLateReply() {}

  const Target& target() const { return target_; }
  Moment deadline() const { return deadline_; }
  Moment sent_at() const { return sent_at_; }
  NodeId node() const { return node_; }  // That it was last sent to.

  // Whether it may have been executed.
  bool sent() const { return state_ == State::kSent || state_ == State::kExpired || sent_; }

  // Whether its deadline passed while it was on its way.
  bool expired() const { return state_ == State::kExpired; }

 private:
  friend class Router;

  enum class State : std::uint8_t {
    kIdle,     // Not sent yet, or done.
    kWaiting,  // For a connection, or for the map of the Cluster.
    kPaused,
    kSent,
    kExpired,  // Sent, and not waited for any longer. It is not sent again.
  };

  State state_ = State::kIdle;
  bool sent_ = false;  // When it was done.
  Target target_;
  Moment deadline_;
  Moment sent_at_;
  NodeId node_ = kNoNode;
  int redirects_ = 0;
  std::optional<Address> ask_;  // A node that takes the slot over, and must be told.
  std::multimap<Moment, std::shared_ptr<Exchange>>::iterator place_;
};

// Decides which server gets a command, whatever stands behind the URI: one server, the master that
// Sentinels name, or the masters of a Cluster. Follows MOVED and ASK, which say that a command was
// not executed, sends again what was provably not sent, and keeps the deadlines. Nothing that may
// have been executed is sent twice.
//
// A state machine without I/O, thread or clock. Whoever runs it tells it what happens, calls
// Advance after each event and when NextWake has come, and does what TakeActions says; see Network.
class Router {
 public:
  // Sends on the connection to `node`, after an ASKING if `asking`. What comes back goes to
  // OnReply.
  struct Transmit {
    NodeId node;
    bool asking;
    Exchange* exchange;  // Alive until OnReply.
  };
  // Keeps a connection to the address from now on.
  struct Connect {
    NodeId node;
    Address address;
  };
  // Closes the connection, and makes another one.
  struct Reconnect {
    NodeId node;
    Error reason;
  };
  // Closes the connection for good.
  struct Leave {
    NodeId node;
    Error reason;
  };
  // Asks for the map of the Cluster; OnSlots gets it.
  struct AskSlots {};
  using Action = std::variant<Transmit, Connect, Reconnect, Leave, AskSlots>;

  struct Options {
    Endpoint endpoint;
    std::uint32_t seed = 1;  // Of the jitter.

    // What keeps connections from being made, for messages; or nothing.
    std::function<std::string()> obstacle = {};
  };

  // What is not in Cluster mode has one node, which is kOnlyNode.
  static constexpr NodeId kOnlyNode = 0;
  static constexpr int kTimeoutsMax = 3;  // After which a server that does not answer is left.

  explicit Router(Options options);

  // Sends as soon as there is a connection, if one is there or being made, but not before `start`.
  // The exchange ends at the deadline: with kUnavailable if it was not sent until then, and with
  // kOutcomeUnknown if it was. Runs none of its functions at once.
  void Send(std::shared_ptr<Exchange> exchange, Target target, Moment deadline, Moment now,
            Moment start = {});

  // What became of a Transmit. Before errors of a broken connection comes its OnLost.
  void OnReply(Exchange& exchange, Reply reply, Moment now);

  // What becomes of the connection to a node.
  void OnUp(NodeId node, const Address& address, Moment now);
  void OnLost(NodeId node, Moment now);                // Another one is being made.
  void OnDown(NodeId node, Error reason, Moment now);  // None is being made for a while.
  void OnConnecting(NodeId node);                      // After OnDown: one is being made.
  void OnSlots(const Expected<SlotMap>& map, Moment now);

  // Ends all that is outstanding, with kUnavailable or kOutcomeUnknown, and all that comes later.
  void Stop();

  // Does what is due. Returns whether anything was.
  bool Advance(Moment now);
  Moment NextWake() const;
  std::vector<Action> TakeActions() { return std::exchange(actions_, {}); }

  // Who serves a slot now: kNoNode if that is not known.
  NodeId OwnerOf(std::uint16_t slot) const;
  const Address& AddressOf(NodeId node) const { return nodes_.at(node).address; }
  std::vector<Address> Masters() const;  // Of a Cluster. Empty if they are not known yet.
  std::vector<Address> Nodes() const;
  std::size_t maps() const { return maps_; }  // How many were adopted.

  const Endpoint& endpoint() const { return options_.endpoint; }
  bool cluster() const { return options_.endpoint.mode == Mode::kCluster; }
  bool stopped() const { return stopped_; }
  Error NotSent() const;
  static Error Closed() { return {ErrorCode::kUnavailable, "the store is closed"}; }

 private:
  struct Node {
    enum class State : std::uint8_t { kConnecting, kUp, kDown };
    Address address;
    State state = State::kConnecting;
    Error reason = {};  // Why it is down.
    std::size_t outstanding = 0;
  };

  NodeId NodeAt(const Address& address);
  NodeId NodeOf(const Target& target);
  void Dispatch(Exchange& exchange, Moment now);
  void DispatchWaiting(Moment now);
  bool Follow(Exchange& exchange, std::string_view error, Moment now);
  void Wake(Exchange& exchange, Moment now);
  void WakeAt(Exchange& exchange, Moment at);
  std::shared_ptr<Exchange> Remove(Exchange& exchange);
  void End(Exchange& exchange, Reply reply, Moment now);
  void FailSoon(Exchange& exchange, Error error);
  void Drop(NodeId node, Error reason);
  void Adopt(const SlotMap& map);
  void RefreshSoon(Moment now);
  Error NotAnswered() const;

  const Options options_;
  std::minstd_rand random_;
  bool stopped_ = false;
  std::vector<Action> actions_;
  std::map<NodeId, Node> nodes_;
  NodeId next_node_ = 0;

  // All that is outstanding, by when something has to be done about it.
  std::multimap<Moment, std::shared_ptr<Exchange>> exchanges_;
  std::deque<std::pair<std::shared_ptr<Exchange>, Error>> failed_;  // To be told.

  // Cluster.
  std::vector<NodeId> owner_;  // By slot; empty while unknown.
  std::size_t maps_ = 0;
  bool mapping_ = true;  // Whether the first map is still being asked for.
  bool asking_slots_ = false;
  Error unmapped_reason_{ErrorCode::kUnavailable, "not connected yet"};
  Moment refresh_at_;
  Moment refreshed_at_;
  std::chrono::milliseconds backoff_;
};

}  // namespace sluice::redis
