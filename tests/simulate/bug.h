// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "simulate/lua_redis.h"
#include "sluice/guarded_store.h"

namespace sluice::simulate {

// A wrong version of something. The simulator must notice each of them.
struct Bug {
  std::string_view name = {};

  LuaRedis::Edit script = {};                              // Changes the script.
  std::function<void(GuardedStore::Options&)> guard = {};  // Changes the guard.

  // Changes the shells that run the state machines.
  bool sends_again = false;       // Repeats commands with an unknown outcome.
  bool misjudges_late = false;    // Takes a late answer that charged for one that did not.
  bool never_wakes = false;       // Does not wake the guard when its time has come.
  bool ignores_news = false;      // Announcements of resets do not reach the guard.
  bool ignores_policies = false;  // Everything fails open.
  bool drops_debts = false;       // Reports are answered, but never sent.
  bool drops_settles = false;     // Nor are the settles that the guard has kept.
};

// At least a dozen, each with its own name.
std::span<const Bug> Bugs();

}  // namespace sluice::simulate
