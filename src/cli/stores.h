// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/limit.h"
#include "sluice/redis_store.h"
#include "sluice/store.h"

namespace sluice::cli {

// What --store takes: "memory", or the URI of a Redis.
inline constexpr std::string_view kMemory = "memory";

// Opens a Redis; the error says what --store takes.
Expected<std::unique_ptr<RedisStore>> OpenRedis(const RedisStore::Options& options);

// Reads what --limit was given; the error names the one that is wrong.
Expected<std::vector<Limit>> ParseLimits(const std::vector<std::string>& texts);

// Applies one request and waits for the outcome.
Expected<Decision> Decide(Store& store, Request& request);

}  // namespace sluice::cli
