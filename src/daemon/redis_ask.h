// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "redis/client.h"
#include "redis/connection.h"
#include "redis/resp.h"

namespace sluice::daemon {

// Sends a command and waits for what `read` makes of the reply; an error reply is an error. Must
// not be called on the client's own thread.
template <typename T, typename Read>
Expected<T> Ask(redis::Client& client, std::string command, std::string_view key, Read read) {
  auto promise = std::make_shared<std::promise<Expected<T>>>();
  auto answer = promise->get_future();
  client.Send(std::move(command), key,
              [promise, read](Expected<std::span<const redis::RespNode>> reply) {
                if (!reply) {
                  promise->set_value(std::unexpected(reply.error()));
                } else if (reply->front().type == redis::RespType::kError) {
                  promise->set_value(std::unexpected(redis::ErrorOf(reply->front().text)));
                } else {
                  promise->set_value(read(*reply));
                }
              });
  return answer.get();
}

}  // namespace sluice::daemon
