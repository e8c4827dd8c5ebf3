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

  LuaRedis::Edit script = {};                              // Of the script.
  std::function<void(GuardedStore::Options&)> guard = {};  // Of the guard.

  // Of what runs the state machines.
  bool sends_again = false;       // A command whose outcome is not known.
  bool misjudges_late = false;    // A late answer that charged counts as one that did not.
  bool never_wakes = false;       // The guard is not told when its time has come.
  bool ignores_news = false;      // Announcements of resets do not reach the guard.
  bool ignores_policies = false;  // Everything fails open.
  bool drops_debts = false;       // Reports are answered, but never sent.
};

// At least a dozen, each with a name of its own.
std::span<const Bug> Bugs();

}  // namespace sluice::simulate
