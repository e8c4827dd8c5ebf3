// SPDX-License-Identifier: Apache-2.0
#include "daemon/heartbeat.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"
#include "redis/connection.h"
#include "redis/resp.h"

namespace sluice::daemon {
namespace {

// Uses the server's time, so that instances need not agree on theirs. Times far ahead are from
// before its clock was set back.
constexpr std::string_view kScript =
    "local now = redis.call('TIME')\n"
    "local ms = now[1] * 1000 + math.floor(now[2] / 1000)\n"
    "redis.call('ZADD', KEYS[1], ms, ARGV[1])\n"
    "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', ms - ARGV[2]))\n"
    "redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%d', ms + ARGV[2]), '+inf')\n"
    "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
    "return redis.call('ZCARD', KEYS[1])\n";

}  // namespace

Heartbeat::Heartbeat(redis::Client& client, std::string name)
    : client_(client), name_(std::move(name)), key_(text::Cat(client.prefix(), ":instances")) {}

void Heartbeat::Beat(std::function<void(std::int64_t)> count) {
  client_.Send(redis::Command("EVAL", kScript, "1", key_, name_, std::to_string(kGoneAfterMs)),
               key_,
               [recent = recent_,
                count = std::move(count)](Expected<std::span<const redis::RespNode>> reply) {
                 if (!reply || reply->front().type != redis::RespType::kInteger) return;
                 recent->counts[recent->next++ % kBeatsKept] = reply->front().number;
                 count(std::ranges::max(recent->counts));
               });
}

}  // namespace sluice::daemon
