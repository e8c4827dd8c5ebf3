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

// The values of --store: "memory", or the URI of a Redis.
inline constexpr std::string_view kMemory = "memory";

// Opens a Redis; the error tells what --store accepts.
Expected<std::unique_ptr<RedisStore>> OpenRedis(const RedisStore::Options& options);

// Parses the values of --limit; the error names the wrong one.
Expected<std::vector<Limit>> ParseLimits(const std::vector<std::string>& texts);

// Applies one request and waits for the outcome.
Expected<Decision> Decide(Store& store, Request& request);

}  // namespace sluice::cli
