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

// A reply points into a buffer and is invalid once the function that receives it returns. An error
// reply is a reply. Errors: kUnavailable if the command was provably not executed, kOutcomeUnknown
// if it may have been.
using Reply = Expected<std::span<const RespNode>>;

// A slot, which stands for its master; or one server.
using Target = std::variant<std::uint16_t, Address>;

// A server that commands are sent to. Numbers are not reused.
using NodeId = std::size_t;
inline constexpr NodeId kNoNode = static_cast<NodeId>(-1);

// A command on its way to its server, and its reply on the way back.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  virtual ~Exchange() = default;

  // Appends the encoded command to the bytes to be sent.
  virtual void AppendTo(std::string& out) const = 0;

  // Runs once for each Router::Send. It may be sent again from here.
  virtual void OnReply(Reply reply, Moment now) = 0;

  // Runs once if it had expired in OnReply: it has now left the connection, answered or not.
  virtual void OnLateReply() {}

  const Target& target() const { return target_; }
  Moment deadline() const { return deadline_; }
  Moment sent_at() const { return sent_at_; }
  NodeId node() const { return node_; }  // It was last sent to this one.

  // Whether it may have been executed.
  bool sent() const { return state_ == State::kSent || state_ == State::kExpired || sent_; }

  // Whether its deadline passed while it was in flight.
  bool expired() const { return state_ == State::kExpired; }

 private:
  friend class Router;

  enum class State : std::uint8_t {
    kIdle,     // Not sent yet, or done.
    kWaiting,  // For a connection, or for the map of the Cluster.
    kPaused,
    kSent,
    kExpired,  // Sent, and no longer waited for. It is not sent again.
  };

  State state_ = State::kIdle;
  bool sent_ = false;  // When it ended.
  Target target_;
  Moment deadline_;
  Moment sent_at_;
  NodeId node_ = kNoNode;
  int redirects_ = 0;
  std::optional<Address> ask_;  // A node that is taking the slot over, and needs an ASKING.
  std::multimap<Moment, std::shared_ptr<Exchange>>::iterator place_;
};

// Decides which server gets a command, whatever the URI points to: one server, the master that
// Sentinels name, or the masters of a Cluster. Follows MOVED and ASK, which mean that a command was
// not executed, resends what was provably not sent, and enforces deadlines. Nothing that may have
// been executed is sent twice.
//
// A state machine without I/O, thread or clock. Its driver reports what happens, calls Advance
// after each event and at NextWake, and carries out TakeActions; see Network.
class Router {
 public:
  // Sends on the connection to `node`, after an ASKING if `asking`. The reply goes to OnReply.
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
    std::uint32_t seed = 1;  // For the jitter.

    // What prevents connections, for messages; may be empty.
    std::function<std::string()> obstacle = {};
  };

  // Without a Cluster there is one node, kOnlyNode.
  static constexpr NodeId kOnlyNode = 0;
  static constexpr int kTimeoutsMax = 3;  // After which the connection is dropped.

  explicit Router(Options options);

  // Sends as soon as there is a connection, if there is one or one is being made, but not before
  // `start`. The exchange ends at the deadline: with kUnavailable if it was not sent by then, and
  // with kOutcomeUnknown if it was. Never runs its functions before it returns.
  void Send(std::shared_ptr<Exchange> exchange, Target target, Moment deadline, Moment now,
            Moment start = {});

  // The result of a Transmit. When a connection breaks, OnLost comes before its errors.
  void OnReply(Exchange& exchange, Reply reply, Moment now);

  // The state of the connection to a node.
  void OnUp(NodeId node, const Address& address, Moment now);
  void OnLost(NodeId node, Moment now);                // Another one is being made.
  void OnDown(NodeId node, Error reason, Moment now);  // None is being made for a while.
  void OnConnecting(NodeId node);                      // After OnDown: one is being made.
  void OnSlots(const Expected<SlotMap>& map, Moment now);

  // Ends everything that is outstanding, with kUnavailable or kOutcomeUnknown, and everything that
  // comes later.
  void Stop();

  // Does what is due. Returns whether anything was.
  bool Advance(Moment now);
  Moment NextWake() const;
  std::vector<Action> TakeActions() { return std::exchange(actions_, {}); }

  // The node that serves a slot now; kNoNode if unknown.
  NodeId OwnerOf(std::uint16_t slot) const;
  const Address& AddressOf(NodeId node) const { return nodes_.at(node).address; }
  std::vector<Address> Masters() const;  // Of a Cluster. Empty if not known yet.
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

  // Everything that is outstanding, by when it needs attention.
  std::multimap<Moment, std::shared_ptr<Exchange>> exchanges_;
  std::deque<std::pair<std::shared_ptr<Exchange>, Error>> failed_;  // To be reported.

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
