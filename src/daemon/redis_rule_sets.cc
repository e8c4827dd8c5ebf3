// SPDX-License-Identifier: Apache-2.0
#include "daemon/redis_rule_sets.h"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "daemon/redis_ask.h"

namespace sluice::daemon {
namespace {

using redis::Command;
using redis::RespNode;
using redis::RespType;
using reload::Changed;

constexpr std::string_view kMarker = ":revision";

// Mirrors ProcessRuleSetStore::Apply. KEYS: the hash. ARGV: the rule set's id; its condition,
// `any`, `absent` or `same`, and the document for `same`; the lineage and number that the store
// must not be behind, or two empty texts; a lineage for a store that has none; and the document,
// unless the rule set is to be removed. Returns {0} if the store is behind, {1} if the condition
// does not hold, and otherwise {2, 1 if there was such a rule set, the marker}. A full memory
// refuses the first write: nothing is ever done in part.
constexpr std::string_view kApply =
    "local id, condition, same, lineage, number, fresh, document = unpack(ARGV)\n"
    "local marker = redis.call('HGET', KEYS[1], ':revision') or ''\n"
    "local known, seen = string.match(marker, '^(%x+):(%d+)$')\n"
    "if known and (#known ~= 32 or #seen > 15) then known, seen = nil, nil end\n"
    "if lineage ~= '' and (known ~= lineage or tonumber(seen) < tonumber(number)) then\n"
    "  return {0}\n"
    "end\n"
    "local stored = redis.call('HGET', KEYS[1], id)\n"
    "if condition == 'absent' and stored then return {1} end\n"
    "if condition == 'same' and stored ~= same then return {1} end\n"
    "if not document and not stored then return {2, 0, marker} end\n"
    "marker = string.format('%s:%d', known or fresh, (tonumber(seen) or 0) + 1)\n"
    "redis.call('HSET', KEYS[1], ':revision', marker)\n"
    "if document then\n"
    "  redis.call('HSET', KEYS[1], id, document)\n"
    "else\n"
    "  redis.call('HDEL', KEYS[1], id)\n"
    "end\n"
    "return {2, stored and 1 or 0, marker}\n";

// Mirrors ProcessRuleSetStore::Restore. KEYS: the hash. ARGV: the marker that must be there, or an
// empty text; the new one; `fill` or `replace`; then ids and documents in turn. Returns whether it
// was done.
constexpr std::string_view kRestore =
    "if (redis.call('HGET', KEYS[1], ':revision') or '') ~= ARGV[1] then return 0 end\n"
    "redis.call('HSET', KEYS[1], ':revision', ARGV[2])\n"
    "local wanted = {[':revision'] = true}\n"
    "for i = 4, #ARGV, 2 do\n"
    "  redis.call(ARGV[3] == 'fill' and 'HSETNX' or 'HSET', KEYS[1], ARGV[i], ARGV[i + 1])\n"
    "  wanted[ARGV[i]] = true\n"
    "end\n"
    "if ARGV[3] == 'replace' then\n"
    "  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do\n"
    "    if not wanted[id] then redis.call('HDEL', KEYS[1], id) end\n"
    "  end\n"
    "end\n"
    "return 1\n";

std::string_view NameOf(reload::Change::If condition) {
  switch (condition) {
    case reload::Change::If::kAny:
      return "any";
    case reload::Change::If::kAbsent:
      return "absent";
    case reload::Change::If::kSame:
      return "same";
  }
  return "any";
}

std::unexpected<Error> NotAsExpected() {
  return std::unexpected(
      Error{ErrorCode::kOutcomeUnknown, "Redis answered the script with something else"});
}

std::string Encode(const std::vector<std::string_view>& arguments) {
  std::string command;
  redis::AppendCommand(command, arguments);
  return command;
}

}  // namespace

RedisRuleSets::RedisRuleSets(redis::Client& client)
    : client_(client),
      key_(text::Cat(client.prefix(), ":rules")),
      channel_(text::Cat(client.prefix(), ":rules:changed")) {
  const auto notify = [watcher = watcher_] {
    const std::scoped_lock lock(watcher->mutex);
    if (watcher->changed) watcher->changed();
  };
  // Also when it begins to listen: earlier announcements were missed.
  client_.Subscribe(channel_, [notify](std::string_view) { notify(); }, notify);
}

Expected<reload::Stored> RedisRuleSets::Load() {
  const auto read = [](std::span<const RespNode> reply) -> Expected<reload::Stored> {
    reload::Stored stored;
    for (std::size_t i = 1; i + 1 < reply.size(); i += 2) {
      if (reply[i].text == kMarker) {
        stored.marker = reply[i + 1].text;
      } else {
        stored.documents.emplace(reply[i].text, reply[i + 1].text);
      }
    }
    return stored;
  };
  return Ask<reload::Stored>(client_, Command("HGETALL", key_), key_, read);
}

Expected<Changed> RedisRuleSets::Apply(const reload::Change& change) {
  const reload::Revision& least = change.at_least;
  const std::string number = least.lineage.empty() ? "" : std::to_string(least.number);
  const std::string fresh = reload::NewLineage();
  std::vector<std::string_view> arguments = {
      "EVAL",      kApply,        "1",    key_, change.id, NameOf(change.condition),
      change.same, least.lineage, number, fresh};
  if (change.document) arguments.push_back(*change.document);
  const auto read = [](std::span<const RespNode> reply) -> Expected<Changed> {
    if (reply.size() < 2 || reply[1].type != RespType::kInteger) return NotAsExpected();
    if (reply[1].number == 0) return Changed{.result = Changed::Result::kBehind};
    if (reply[1].number == 1) return Changed{.result = Changed::Result::kOther};
    if (reply.size() != 4 || reply[2].type != RespType::kInteger) return NotAsExpected();
    return Changed{.existed = reply[2].number == 1,
                   .revision = reload::Revision::Parse(reply[3].text).value_or(reload::Revision{})};
  };
  auto changed = Ask<Changed>(client_, Encode(arguments), key_, read);
  if (changed && changed->result == Changed::Result::kDone) Announce();
  return changed;
}

Expected<bool> RedisRuleSets::Restore(const reload::Restoration& restoration) {
  const std::string marker = restoration.revision.ToString();
  const bool fill = restoration.mode == reload::Restoration::Mode::kFill;
  std::vector<std::string_view> arguments = {
      "EVAL", kRestore, "1", key_, restoration.marker, marker, fill ? "fill" : "replace"};
  for (const auto& [id, document] : restoration.documents) {
    arguments.insert(arguments.end(), {id, document});
  }
  const auto read = [](std::span<const RespNode> reply) -> Expected<bool> {
    if (reply.front().type != RespType::kInteger) return NotAsExpected();
    return reply.front().number == 1;
  };
  auto restored = Ask<bool>(client_, Encode(arguments), key_, read);
  if (restored && *restored) Announce();
  return restored;
}

// If this is lost, others find the change by polling.
void RedisRuleSets::Announce() {
  const auto nothing = [](std::span<const RespNode>) -> Expected<void> { return {}; };
  static_cast<void>(Ask<void>(client_, Command("PUBLISH", channel_, "changed"), key_, nothing));
}

void RedisRuleSets::Watch(std::function<void()> changed) {
  const std::scoped_lock lock(watcher_->mutex);
  watcher_->changed = std::move(changed);
}

}  // namespace sluice::daemon
