// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice::simulate {

// One group of a call of the script: what it asks for, read from the command as it was sent.
struct ScriptGroup {
  std::string action = {};  // As sluice.lua names it.
  std::vector<std::string> keys = {};
  std::vector<std::int64_t> costs = {};    // One for each key.
  std::vector<std::int64_t> whens = {};    // Of a refund, likewise.
  std::vector<std::string> messages = {};  // Likewise: what is published if it succeeds.
  std::int64_t times = 1;
};

std::vector<ScriptGroup> ReadScriptCall(std::span<const std::string> words);

}  // namespace sluice::simulate
