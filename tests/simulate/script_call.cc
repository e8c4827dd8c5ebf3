// SPDX-License-Identifier: Apache-2.0
#include "simulate/script_call.h"

#include <cstdlib>
#include <sstream>

namespace sluice::simulate {

namespace {

// See slots.lua.
std::vector<ScriptGroup> ReadSlots(std::span<const std::string> words, std::size_t keys) {
  const std::string& operations = words[3 + keys + 1];
  std::vector<ScriptGroup> all;
  for (std::size_t at = 0; at < operations.size();) {
    const auto number = static_cast<unsigned char>(operations[at]) % 64U;
    std::istringstream shape(words[3 + keys + 2 + number]);
    std::string action;
    std::string signature;
    std::size_t size = 0;
    ScriptGroup group{.keys = {words[3 + all.size()]}, .costs = {0}};
    shape >> action >> signature >> group.costs[0];
    group.action = action == "take" ? "reserve" : "settle";
    if (action == "take") shape >> group.ttl_us;
    shape >> size;
    group.on_expiry = model::OnExpiry::kRelease;
    group.id = operations.substr(at + 2, size - 2);
    at += 1 + size;
    all.push_back(std::move(group));
  }
  return all;
}

}  // namespace

// EVALSHA digest keys key… now limits signature… (action groups charges times (…){charges} [id])…
// EVALSHA digest keys key… ("signature cost" keys times)…
// EVALSHA digest keys key… slots operations shape…
// or the same with FCALL and the name of the function. The second form may end after a cost.
std::vector<ScriptGroup> ReadScriptCall(std::span<const std::string> words) {
  const auto number = [&](std::size_t at) { return std::strtoll(words[at].c_str(), nullptr, 10); };
  const auto keys = static_cast<std::size_t>(number(2));
  if (words[3 + keys].contains(' ')) {
    std::vector<ScriptGroup> checks;
    for (std::size_t at = 3 + keys; at < words.size(); at += 3) {
      const bool is_whole = at + 2 < words.size();
      const std::size_t end =
          is_whole ? checks.size() + static_cast<std::size_t>(number(at + 1)) : keys;
      const auto cost = std::strtoll(words[at].c_str() + words[at].find(' '), nullptr, 10);
      while (checks.size() < end) {
        checks.push_back({.action = "check",
                          .keys = {words[3 + checks.size()]},
                          .costs = {cost},
                          .times = is_whole ? number(at + 2) : 1});
      }
    }
    return checks;
  }
  if (words[3 + keys] == "slots") return ReadSlots(words, keys);
  const auto limits = static_cast<std::size_t>(number(3 + keys + 1));
  std::vector<ScriptGroup> all;
  std::size_t key = 3;
  std::size_t at = 3 + keys + 2 + limits;
  while (at < words.size()) {
    ScriptGroup group{.action = words[at], .times = number(at + 3)};
    const auto groups = number(at + 1);
    const auto charges = static_cast<std::size_t>(number(at + 2));
    const bool resets = group.action == "reset";
    const bool refunds = group.action == "refund";
    const bool holds = group.action == "reserve" || group.action == "foresee";
    const bool settles = group.action == "settle";
    const bool extends = group.action == "extend";
    const bool has_id = holds || settles || extends;
    if (holds) group.on_expiry = model::OnExpiry::kRelease;
    const bool is_wide = holds || settles || group.action == "give";
    const std::size_t width = resets ? 3 : refunds ? 5 : is_wide ? 4 : 2;
    for (std::size_t i = 0; i < charges; ++i) {
      const std::size_t own = at + 4 + i * width;
      group.costs.push_back(resets || extends ? 0 : number(own + 1));
      if (holds || extends) group.ttl_us = number(own + (holds ? 2 : 1));
      // Concurrency limits are always sent with 'r'.
      if (holds && words[own + 3] == "c") group.on_expiry = model::OnExpiry::kCharge;
      if (refunds) group.whens.push_back(number(own + 2));
      if (resets || refunds || settles || group.action == "give") {
        group.messages.push_back(words[own + width - 1]);
      }
    }
    if (has_id) group.id = words[at + 4 + charges * width];
    for (std::int64_t i = 0; i < groups; ++i) {
      group.keys.assign(words.begin() + static_cast<std::ptrdiff_t>(key),
                        words.begin() + static_cast<std::ptrdiff_t>(key + charges));
      key += charges;
      all.push_back(group);
    }
    at += 4 + charges * width + (has_id ? 1 : 0);
  }
  return all;
}

}  // namespace sluice::simulate
