// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "conformance/model_holds.h"

namespace sluice::simulate {

// One group of a script call: what it asks for, read from the command as sent.
struct ScriptGroup {
  std::string action = {};  // As named in sluice.lua.
  std::vector<std::string> keys = {};
  std::vector<std::int64_t> costs = {};    // One per key.
  std::vector<std::int64_t> whens = {};    // For a refund, one per key.
  std::vector<std::string> messages = {};  // One per key: published if anything was given back.
  std::int64_t times = 1;

  // Of an action about a hold.
  std::string id = {};
  std::int64_t ttl_us = 0;  // For every key.
  model::OnExpiry on_expiry = model::OnExpiry::kCharge;
};

inline bool IsScriptCall(std::span<const std::string> words) {
  return words[0] == "EVALSHA" || words[0] == "FCALL";
}

std::vector<ScriptGroup> ReadScriptCall(std::span<const std::string> words);

}  // namespace sluice::simulate
