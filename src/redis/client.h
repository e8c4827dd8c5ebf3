// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "redis/connection.h"
#include "redis/resp.h"
#include "redis/uri.h"
#include "sluice/error.h"

namespace sluice::redis {

// Commands and subscriptions from any thread, whatever the URI points to: one server, Sentinels or
// a Cluster. Has a thread of its own, on which all handlers run; nothing blocks.
class Client {
 public:
  using MasterHandler =
      std::function<void(const Address& master, Expected<std::span<const RespNode>> reply)>;

  // Does not wait for the server. Error: kInvalidInput, if the URI is wrong.
  static Expected<std::unique_ptr<Client>> Create(std::string_view uri);

  // Fails everything that is outstanding. Must not run in a handler.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends an encoded command (see Command) to the master that holds `key`, within the command
  // timeout. The reply is invalid once the handler returns. An error reply is a reply; see ErrorOf.
  // Errors: kUnavailable if it was not executed, kOutcomeUnknown if it may have been.
  void Send(std::string command, std::string_view key, Connection::Handler handler);

  // Sends to every master: `handler` runs once for each, with its address, and not at all if none
  // is known.
  void SendToMasters(std::string command, MasterHandler handler);

  // Subscribes to a channel from now on, and again after every lost connection. Messages published
  // while there is none are lost: `on_subscribed` runs each time that listening begins, and is the
  // moment to look for what was missed.
  void Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                 std::function<void()> on_subscribed = {});

  // The prefix in the URI.
  const std::string& prefix() const;

  // The URI without passwords.
  std::string Description() const;

 private:
  class Impl;

  explicit Client(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::redis
