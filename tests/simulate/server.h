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

// A Redis server, with an oracle that follows what it is asked.
class Server {
 public:
  Server(Events& events, int number, const LuaRedis::Edit& edit, const Oracle::ChargeOf& charge_of);

  const redis::Address& address() const { return address_; }
  std::int64_t clock_us() const { return events_.now_us() + clock_offset_us; }

  // What a command gets, and what those who asked by it must be told.
  struct Executed {
    std::string reply = {};
    std::vector<ScriptGroup> groups = {};  // Those that did not fail.
    std::vector<Verdict> verdicts = {};    // Of all of them but refunds, one for each time.
    std::vector<std::string> published = {};
    bool ran = false;  // The script, as opposed to a refusal.
  };
  Executed Execute(std::span<const std::string> words, bool asking, std::int64_t connected_us);

  // It crashes, and comes back without what was written in the last `lost_us`; or another server
  // takes over that is so far behind. Scripts are gone.
  void Lose(std::int64_t lost_us);

  LuaRedis& redis() { return redis_; }
  Oracle& oracle() { return oracle_; }

  // Moves all keys of a slot; nothing that was written before can be lost any more.
  void MoveKey(const std::string& key, Server& to);

  // Whatever the moment and the history say.
  bool alive = true;
  bool loading = false;
  std::int64_t clock_offset_us = 0;
  std::int64_t busy_until_us = 0;
  std::int64_t command_us = 20;  // How long one takes.
  std::int64_t promoted_us = 0;  // To those who connected before, it is the former master.

  // Of a Cluster.
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
