// SPDX-License-Identifier: Apache-2.0
#include "cli/redis_rule_sets.h"

#include <span>
#include <utility>

#include "cli/redis_ask.h"
#include "core/text.h"

namespace sluice::cli {

using redis::Command;
using redis::RespNode;

RedisRuleSets::RedisRuleSets(redis::Client& client)
    : client_(client),
      key_(text::Cat(client.prefix(), ":rules")),
      channel_(text::Cat(client.prefix(), ":rules:changed")) {
  const auto notify = [watcher = watcher_] {
    const std::scoped_lock lock(watcher->mutex);
    if (watcher->changed) watcher->changed();
  };
  // Also when it begins to listen: what was announced before that was not heard.
  client_.Subscribe(channel_, [notify](std::string_view) { notify(); }, notify);
}

Expected<reload::Documents> RedisRuleSets::Load() {
  return Ask<reload::Documents>(client_, Command("HGETALL", key_), key_,
                                [](std::span<const RespNode> reply) -> Expected<reload::Documents> {
                                  reload::Documents documents;
                                  for (std::size_t i = 1; i + 1 < reply.size(); i += 2) {
                                    documents.emplace(reply[i].text, reply[i + 1].text);
                                  }
                                  return documents;
                                });
}

Expected<void> RedisRuleSets::Change(const std::string& command) {
  const auto nothing = [](std::span<const RespNode>) -> Expected<void> { return {}; };
  if (auto changed = Ask<void>(client_, command, key_, nothing); !changed) return changed;
  // Others learn of it from polling if this is lost.
  static_cast<void>(Ask<void>(client_, Command("PUBLISH", channel_, "changed"), key_, nothing));
  return {};
}

Expected<void> RedisRuleSets::Save(const std::string& id, const std::string& document) {
  return Change(Command("HSET", key_, id, document));
}

Expected<void> RedisRuleSets::Remove(const std::string& id) {
  return Change(Command("HDEL", key_, id));
}

void RedisRuleSets::Watch(std::function<void()> changed) {
  const std::scoped_lock lock(watcher_->mutex);
  watcher_->changed = std::move(changed);
}

}  // namespace sluice::cli
