// SPDX-License-Identifier: Apache-2.0
// The replies to INFO and CLUSTER INFO: lines of `name:value`, among others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace sluice::redis {

// Calls `visit` for each such line.
void ForEachInfoField(
    std::string_view text,
    const std::function<void(std::string_view name, std::string_view value)>& visit);

// What a server reports about itself, over all of its clients; 0 where it reports nothing.
struct ServerFigures {
  std::int64_t keys = 0;  // Of one database.
  std::int64_t memory_bytes = 0;
  std::int64_t memory_max_bytes = 0;  // 0: unlimited.
  // Since it started.
  std::int64_t expired_keys = 0;
  std::int64_t evicted_keys = 0;
  std::int64_t received_bytes = 0;
  std::int64_t sent_bytes = 0;

  friend bool operator==(const ServerFigures&, const ServerFigures&) = default;
};

// Nothing if it is not a reply to INFO.
std::optional<ServerFigures> ParseInfo(std::string_view text, int database);

}  // namespace sluice::redis
