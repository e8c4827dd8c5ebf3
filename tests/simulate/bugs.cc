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
      {.name = "script: a window of a calendar grants one more",
       .script = Replace("return limit.amount - count, start, length, count, journal",
                         "return limit.amount + 1 - count, start, length, count, journal")},
      {.name = "script: a window of a calendar does not end",
       .script =
           Replace("if start and (start > now or start + length > first) then", "if start then")},
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
      {.name = "script: a settle counts twice",
       .script = Replace("if is_settled then\n",
                         "if is_settled then hold, is_settled = nil, false end\n"
                         "      if is_settled then\n")},
      {.name = "script: a hold is still live at its expiry",
       .script = Replace("if not few or few.expires > held.moment then",
                         "if not few or few.expires >= held.moment then")},
      {.name = "script: the common call takes one slot more than there are",
       .script =
           Replace("units > shape.amount or at > now", "units > shape.amount + 1 or at > now")},
      {.name = "script: slots of the common call never expire",
       .script = Replace("(due <= now and live > 0)", "false")},
      {.name = "script: a slot is released without its units",
       .script = Replace("    units = units - own\n", "")},
      {.name = "script: the state of a slot expires too soon",
       .script = Replace("local needed = shape.ttl + HOLD_REMEMBERED",
                         "local needed = shape.ttl - HOLD_REMEMBERED")},
      {.name = "script: a hold lasts a microsecond longer",
       .script = Replace("smaller(TIME_MAX, moment_of(limit, state) + micros[i])",
                         "smaller(TIME_MAX, moment_of(limit, state) + micros[i] + 1)")},
      {.name = "script: what expiry gave back is given back again",
       .script = Replace("if was_live or not hold.releases then charged = hold.units end",
                         "charged = hold.units")},
      {.name = "script: what expires is given back, although it should be charged",
       .script = Replace("if hold.releases and hold.units > 0 then", "if hold.units > 0 then")},
      {.name = "script: a lost hold can be extended",
       .script = Replace("if not known[i] or known[i].status ~= 'live' then",
                         "if not known[i] or known[i].status == 'settled' then")},
      {.name = "script: the same hold takes its units again",
       .script = Replace("if known_count > 0 then return refuse",
                         "if known_count > 0 and not same then return refuse")},
      {.name = "script: a hold with other costs is taken for the same",
       .script =
           Replace("hold.status == 'live' and hold.units == costs[i]", "hold.status == 'live'")},
      {.name = "script: a bucket fills up beside what is on hold",
       .script = Replace(
           "local cap = larger(level, limit.whole - smaller(held, limit.amount) * limit.unit)",
           "local cap = limit.whole")},
      {.name = "script: a release gives back to the window of now",
       .script =
           Replace("if ticks - ticks % limit.unit == start then count =", "if true then count =")},
      {.name = "script: ids are forgotten when they expire",
       .script = Replace("local REMEMBERED = 60000000", "local REMEMBERED = 0")},
      {.name = "script: a settle for more takes nothing more",
       .script = Replace("elseif limit.kind ~= 'n' and more > 0 then",
                         "elseif limit.kind ~= 'n' and more > 1e15 then")},
      {.name = "script: one slot more than there are",
       .script = Replace("available = held and limit.amount - held.units or limit.amount",
                         "available = limit.amount + 1 - (held and held.units or 0)")},
      {.name = "a command is sent again after an unknown outcome", .sends_again = true},
      {.name = "a late answer is counted twice", .misjudges_late = true},
      {.name = "deadlines are not kept", .never_wakes = true},
      {.name = "announcements are not heard", .ignores_news = true},
      {.name = "every rule fails open", .ignores_policies = true},
      {.name = "what was granted locally is not reported", .drops_debts = true},
      {.name = "what was settled without the store is not sent", .drops_settles = true},
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
