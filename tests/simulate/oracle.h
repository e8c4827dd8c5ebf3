// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "conformance/model.h"
#include "simulate/script_call.h"
#include "sluice/decision.h"
#include "sluice/store.h"

namespace sluice::simulate {

// What one request of a call of the script must have been told.
struct Verdict {
  std::string action = {};
  std::vector<std::string> keys = {};
  std::vector<std::int64_t> costs = {};
  std::vector<std::int64_t> moments = {};  // At which each state was decided on.
  Decision overall;
  std::vector<Decision> each = {};

  bool charges() const {
    return overall.allowed && (action == "check" || action == "hold" || action == "debit") &&
           std::ranges::any_of(costs, [](std::int64_t cost) { return cost > 0; });
  }
};

// Knows what the writes that survived on one server come to: the reference model, told of every
// call of the script that ran. Its states never expire by themselves, have no journals, and know
// nothing of how the script works.
class Oracle {
 public:
  // `charge_of` says what lies under a key of Redis, and outlives this.
  using ChargeOf = std::function<model::Model::Charge(const std::string& key)>;
  explicit Oracle(ChargeOf charge_of) : charge_of_(std::move(charge_of)) {}

  // Before a call, for each of its keys. Throws std::runtime_error if a state is gone from Redis
  // that still counts.
  void BeforeCall(const std::string& key, bool exists, std::int64_t now_us);

  // A call ran at this moment of the server's clock, of these groups. Returns what its requests
  // must be told, in order.
  std::vector<Verdict> OnCall(std::span<const ScriptGroup> groups, std::int64_t now_us);

  // How many of the calls so far took or gave something; RollBack forgets all after so many.
  std::size_t position() const { return position_; }
  void RollBack(std::size_t position);

  // What a request would be told now.
  bool WouldAllow(const std::string& key, std::int64_t cost, std::int64_t now_us);

  // Moves what is known of a key to another server's. There is no way back from here.
  void Move(const std::string& key, Oracle& to);

 private:
  struct Step {
    enum class Kind : std::uint8_t { kTake, kGive, kUntake, kReset };
    Kind kind;
    std::int64_t at_us;
    std::int64_t units;
    bool held = false;  // May be given back.
  };
  // Of a key: all that made its state what it is.
  using Steps = std::vector<Step>;

  static bool IsVoid(const model::Model::Charge& charge, std::int64_t newest_us,
                     std::int64_t now_us);
  void Replay(const std::string& key);
  Steps& Change(const std::string& key);
  std::vector<Verdict> Decide(const ScriptGroup& group, std::int64_t now_us);
  void Refund(const ScriptGroup& group);

  const ChargeOf charge_of_;
  model::Model model_;
  std::map<std::string, Steps> steps_;
  struct Before {
    std::size_t position;
    std::string key;
    Steps steps;
  };
  std::vector<Before> undo_;  // What every change found.
  std::size_t position_ = 0;
};

}  // namespace sluice::simulate
