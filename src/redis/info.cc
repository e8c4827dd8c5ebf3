// SPDX-License-Identifier: Apache-2.0
#include "redis/info.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/text.h"

namespace sluice::redis {
namespace {

// Never negative, since these are counts.
std::int64_t NumberOf(std::string_view value) {
  return std::max<std::int64_t>(text::ParseInteger(value).value_or(0), 0);
}

// "keys=12,expires=12,avg_ttl=3421"
std::int64_t KeysOf(std::string_view database) {
  constexpr std::string_view kKeys = "keys=";
  if (!database.starts_with(kKeys)) return 0;
  database.remove_prefix(kKeys.size());
  return NumberOf(database.substr(0, database.find(',')));
}

}  // namespace

void ForEachInfoField(std::string_view text,
                      const std::function<void(std::string_view, std::string_view)>& visit) {
  while (!text.empty()) {
    const auto end = std::min(text.find("\r\n"), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    const auto colon = line.find(':');
    if (colon != std::string_view::npos) visit(line.substr(0, colon), line.substr(colon + 1));
  }
}

std::optional<ServerFigures> ParseInfo(std::string_view text, int database) {
  ServerFigures figures;
  const std::array<std::pair<std::string_view, std::int64_t*>, 6> numbers = {
      {{"used_memory", &figures.memory_bytes},
       {"maxmemory", &figures.memory_max_bytes},
       {"expired_keys", &figures.expired_keys},
       {"evicted_keys", &figures.evicted_keys},
       {"total_net_input_bytes", &figures.received_bytes},
       {"total_net_output_bytes", &figures.sent_bytes}}};
  const std::string keyspace = text::Cat("db", database);
  bool is_info = false;
  ForEachInfoField(text, [&](std::string_view name, std::string_view value) {
    is_info = is_info || name == "used_memory";
    if (name == keyspace) figures.keys = KeysOf(value);
    const auto number = std::ranges::find(numbers, name, &decltype(numbers)::value_type::first);
    if (number != numbers.end()) *number->second = NumberOf(value);
  });
  if (!is_info) return std::nullopt;
  return figures;
}

}  // namespace sluice::redis
