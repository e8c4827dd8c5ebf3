// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <string>
#include <string_view>
#include <utility>

#include "redis/client.h"

namespace sluice::testing_support {

// Sends a command about `key`, and waits for the text of the answer.
inline Expected<std::string> Ask(redis::Client& client, std::string command, std::string_view key) {
  std::promise<Expected<std::string>> answer;
  client.Send(std::move(command), key, [&](Expected<std::span<const redis::RespNode>> reply) {
    if (!reply) return answer.set_value(std::unexpected(reply.error()));
    answer.set_value(std::string(reply->front().text));
  });
  return answer.get_future().get();
}

}  // namespace sluice::testing_support
