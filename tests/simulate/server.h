// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "redis/slots.h"
#include "redis/uri.h"
#include "simulate/events.h"
#include "simulate/lua_redis.h"
#include "simulate/oracle.h"

namespace sluice::simulate {

// A Redis server, with an oracle that follows its commands.
class Server {
 public:
  Server(Events& events, int number, const LuaRedis::Edit& edit, const Oracle::ChargeOf& charge_of);

  const redis::Address& address() const { return address_; }
  std::int64_t clock_us() const { return events_.now_us() + clock_offset_us; }

  // The reply to a command, and the correct answers to its requests.
  struct Executed {
    std::string reply = {};
    std::vector<ScriptGroup> groups = {};  // Those that did not fail.
    std::vector<Verdict> verdicts = {};    // Of all groups except refunds, one for each time.
    std::vector<std::string> published = {};
    bool ran = false;  // The script ran and was not refused.
  };
  Executed Execute(std::span<const std::string> words, bool asking, std::int64_t connected_us);

  // The server crashes, and returns without the writes of the last `lost_us`; or a replica that far
  // behind takes over. Scripts are gone.
  void Lose(std::int64_t lost_us);

  LuaRedis& redis() { return redis_; }
  Oracle& oracle() { return oracle_; }

  // Moves a key; earlier writes can no longer be lost.
  void MoveKey(const std::string& key, Server& to);

  // Set from outside, as the history goes.
  bool alive = true;
  bool loading = false;
  std::int64_t clock_offset_us = 0;
  std::int64_t busy_until_us = 0;
  std::int64_t command_us = 20;  // The duration of one.
  std::int64_t promoted_us = 0;  // For older connections, it is the former master.

  // For a Cluster.
  struct Moving {
    Server* from;
    Server* to;
  };
  std::function<Server*(std::uint16_t slot)> owner_of;  // Null: not in a Cluster.
  std::function<std::optional<Moving>(std::uint16_t slot)> moving;

 private:
  struct Position {
    std::int64_t time_us;
    std::size_t redis;
    std::size_t oracle;
  };

  std::optional<std::string> Redirect(std::span<const std::string> keys, bool asking);
  static std::vector<ScriptGroup> WithoutWhatFailed(std::span<const ScriptGroup> groups,
                                                    const std::vector<bool>& failed,
                                                    std::span<const std::string> published);
  std::vector<bool> FailedGroups(std::span<const ScriptGroup> groups, const std::string& reply);

  Events& events_;
  const redis::Address address_;
  const Oracle::ChargeOf charge_of_;
  LuaRedis redis_;
  Oracle oracle_;
  std::vector<Position> positions_;  // Before each call that ran.
};

}  // namespace sluice::simulate
