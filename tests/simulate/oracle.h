// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conformance/model.h"
#include "simulate/script_call.h"
#include "sluice/decision.h"
#include "sluice/error.h"
#include "sluice/store.h"

namespace sluice::simulate {

// The correct answer to one request of a script call.
struct Verdict {
  std::string action = {};
  std::vector<std::string> keys = {};
  std::vector<std::int64_t> costs = {};
  std::vector<std::int64_t> moments = {};  // When each state was decided on.
  Decision overall;
  std::vector<Decision> each = {};

  // Of an action about a hold.
  std::string id = {};
  std::optional<ErrorCode> error = {};  // Then there are no decisions.
  bool is_new = false;                  // The hold was made now.
  std::int64_t expires_us = 0;
  bool late = false;
  bool overdrawn = false;

  bool charges() const {
    const bool takes = action == "check" || action == "hold" || action == "debit" || is_new;
    return overall.allowed && takes &&
           std::ranges::any_of(costs, [](std::int64_t cost) { return cost > 0; });
  }
};

// Knows the effect of the writes that survived on one server: the reference model, given every call
// of the script that ran. Its states never expire by themselves, have no journals, and do not
// depend on how the script works.
class Oracle {
 public:
  // `charge_of` returns the charge behind a Redis key, and outlives this.
  using ChargeOf = std::function<model::Model::Charge(const std::string& key)>;
  explicit Oracle(ChargeOf charge_of) : charge_of_(std::move(charge_of)) {}

  // Before a call, for each of its keys. Throws std::runtime_error if a state that still counts is
  // gone from Redis.
  void BeforeCall(const std::string& key, bool exists, std::int64_t now_us);

  // A call of these groups ran at this time of the server's clock. Returns the correct answers to
  // its requests, in order.
  std::vector<Verdict> OnCall(std::span<const ScriptGroup> groups, std::int64_t now_us);

  // How many calls so far took or gave something; RollBack forgets all later ones.
  std::size_t position() const { return position_; }
  void RollBack(std::size_t position);

  // Whether the state has holds, or remembers ids, since it was last reset.
  bool HasHolds(const std::string& key) const;

  // Whether a request would be allowed now.
  bool WouldAllow(const std::string& key, std::int64_t cost, std::int64_t now_us);

  // Moves what is known about a key to another server's oracle. RollBack cannot undo this.
  void Move(const std::string& key, Oracle& to);

 private:
  struct Step {
    enum class Kind : std::uint8_t { kTake, kGive, kUntake, kReset, kHold, kSettle, kExtend };
    Kind kind;
    std::int64_t at_us;
    std::int64_t units;
    bool may_refund = false;
    // Of the last three.
    std::string id = {};
    std::int64_t ttl_us = 0;
    model::OnExpiry on_expiry = model::OnExpiry::kCharge;
  };
  // All operations that led to the state of a key.
  using Steps = std::vector<Step>;

  static bool IsVoid(const model::Model::Charge& charge, std::int64_t newest_us,
                     std::int64_t now_us);
  void Replay(const std::string& key);
  Steps& Change(const std::string& key);
  std::vector<Verdict> Decide(const ScriptGroup& group, std::int64_t now_us);
  Verdict DecideOnHold(const ScriptGroup& group, std::int64_t now_us);
  void Refund(const ScriptGroup& group);

  const ChargeOf charge_of_;
  model::Model model_;
  std::map<std::string, Steps> steps_;
  struct Before {
    std::size_t position;
    std::string key;
    Steps steps;
  };
  std::vector<Before> undo_;  // What each change replaced.
  std::size_t position_ = 0;
};

}  // namespace sluice::simulate
