// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::redis {

// single.lua, slots.lua, sluice.lua and holds.lua, embedded at build time.
extern const std::string_view kSingleSource;
extern const std::string_view kSlotsSource;
extern const std::string_view kSluiceSource;
extern const std::string_view kHoldsSource;

// The store's program for Redis, in the two forms in which Redis runs it. A function is built once,
// by its first call; a script is built by every call. Functions exist since Redis 7.0.
enum class ProgramForm : std::uint8_t { kFunction, kScript };

struct Program {
  std::string_view command;  // FCALL or EVALSHA.
  std::string name;          // The function, whose name depends on the source; or the digest.
  std::string source;        // As it is loaded.
  std::string load;          // The command that loads it.
};

const Program& ProgramAs(ProgramForm form);

// Whether this reply to `load` says that the library was loaded before.
bool IsLoadedAlready(std::string_view error);

}  // namespace sluice::redis
