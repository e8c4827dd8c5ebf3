// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "simulate/bug.h"

namespace sluice::simulate {
namespace {

// Replaces a part of the script that occurs exactly once.
LuaRedis::Edit Replace(std::string from, std::string to) {
  return [from = std::move(from), to = std::move(to)](std::string_view script) {
    std::string text(script);
    const std::size_t at = text.find(from);
    if (at == std::string::npos || text.find(from, at + 1) != std::string::npos) {
      std::fprintf(stderr, "simulate: the script does not have this once: %s\n", from.c_str());
      std::abort();
    }
    return text.replace(at, from.size(), to);
  };
}

std::vector<Bug> MakeBugs() {
  return {
      {.name = "script: a denial writes",
       .script = Replace("if units > 0 or state.log.moved then", "if true then")},
      {.name = "script: the time to live is too short",
       .script = Replace("local ms = floor((micros - server_now) / 1000) + 1 + slack_ms",
                         "local ms = floor((micros - server_now) / 1200)")},
      {.name = "script: time runs backwards",
       .script = Replace("return (newest and newest > ticks) and newest or ticks", "return ticks")},
      {.name = "script: a refund is dropped",
       .script =
           Replace("write(key, under, false, a, b, c, journal)\n    return true", "return true")},
      {.name = "script: a refund gives twice as much",
       .script = Replace(
           "local done, gave = pcall(give_back, KEYS[key_at + i], under[i], costs[i], when)",
           "local done, gave = pcall(give_back, KEYS[key_at + i], under[i], costs[i], when)\n"
           "      if done and gave then pcall(give_back, KEYS[key_at + i], under[i], costs[i], "
           "when) end")},
      {.name = "script: fractions of tokens are lost",
       .script = Replace("level = refill(limit, level, ticks - time)\n",
                         "level = refill(limit, level, ticks - time)\n"
                         "    if level > 0 then level = level - level % limit.unit end\n")},
      {.name = "script: a window grants one more",
       .script = Replace("return limit.amount - count, current, count, nil, journal",
                         "return limit.amount + 1 - count, current, count, nil, journal")},
      {.name = "script: the window before does not count",
       .script = Replace("limit.whole - (previous * (unit - ticks % unit) + current * unit)",
                         "limit.whole - (current * unit)")},
      {.name = "script: nor in the common call",
       .script = Replace("check.whole - (previous * (unit - ticks % unit) + current * unit)",
                         "check.whole - (current * unit)")},
      {.name = "script: the common call loses fractions of tokens",
       .script = Replace(
           "if refilled < whole - a then level = a + refilled end",
           "if refilled < whole - a then level = a + refilled - refilled % check.unit end")},
      {.name = "script: a window of the common call grants one more",
       .script =
           Replace("local free = check.amount - count", "local free = check.amount + 1 - count")},
      {.name = "script: the common call lets state expire too soon",
       .script = Replace("floor((ends * tick - now) / 1000) + 2",
                         "floor((ends * tick - now) / 1200) + 1")},
      {.name = "script: and the first state as well",
       .script = Replace("floor(-floor(-check.takes / rate) / 1000) + 2",
                         "floor(-floor(-check.takes / rate) / 1200) + 1")},
      {.name = "script: checks of several keys are folded, but not counted",
       .script = Replace("state, admitted, next_value, ms = text, own(check, now, times, a, b, c)",
                         "state, admitted, next_value, ms = text, own(check, now, 1, a, b, c)\n"
                         "          if admitted then admitted = times * admitted end")},
      {.name = "script: the common call lets time run backwards",
       .script = Replace(" or b > ticks then return end", " then return end")},
      {.name = "script: not all or nothing",
       .script = Replace("if fits < admitted then admitted = fits end",
                         "if fits < admitted and i == charges then admitted = fits end")},
      {.name = "script: a reset is not announced",
       .script = Replace("if channel ~= '' then ask('PUBLISH', channel, message) end", "")},
      {.name = "script: a debit takes more than there is",
       .script =
           Replace("if action == 'debit' then units = smaller(units, state.available) end", "")},
      {.name = "script: more is given back than was taken",
       .script = Replace("local given = smaller(units, count)", "local given = units")},
      {.name = "script: an old entry stays in the window",
       .script = Replace("local EXPIRED_MAX = 32", "local EXPIRED_MAX = 0")},
      {.name = "a command is sent again after an unknown outcome", .sends_again = true},
      {.name = "a late answer is counted twice", .misjudges_late = true},
      {.name = "deadlines are not kept", .never_wakes = true},
      {.name = "announcements are not heard", .ignores_news = true},
      {.name = "every rule fails open", .ignores_policies = true},
      {.name = "what was granted locally is not reported", .drops_debts = true},
      {.name = "the breaker never closes",
       .guard = [](GuardedStore::Options& options) { options.breaker.probes_to_close = 1 << 30; }},
      {.name = "every instance grants the whole limit",
       .guard = [](GuardedStore::Options& options) { options.instances = 1; }},
  };
}

}  // namespace

std::span<const Bug> Bugs() {
  static const std::vector<Bug> kBugs = MakeBugs();
  return kBugs;
}

}  // namespace sluice::simulate
