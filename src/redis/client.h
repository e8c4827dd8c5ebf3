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

// Commands and subscriptions for any thread, whatever stands behind the URI: one server, Sentinels
// or a Cluster. Has a thread of its own, on which all handlers run; nothing waits.
class Client {
 public:
  using MasterHandler =
      std::function<void(const Address& master, Expected<std::span<const RespNode>> reply)>;

  // Starts without the server. Error: kInvalidInput, if the URI is wrong.
  static Expected<std::unique_ptr<Client>> Create(std::string_view uri);

  // Fails all that is outstanding. Not from a handler.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends an encoded command (see Command) to the master that holds `key`, within the command
  // timeout. The reply is gone when the handler returns; an error reply is a reply, see ErrorOf.
  // Errors: kUnavailable if it was not executed, kOutcomeUnknown if it may have been.
  void Send(std::string command, std::string_view key, Connection::Handler handler);

  // The same to every master: `handler` runs once for each, with its address, and not at all if
  // none is known.
  void SendToMasters(std::string command, MasterHandler handler);

  // Listens to a channel from now on, again after every lost connection. What is published while
  // there is none is lost: `on_subscribed` runs each time that it begins to listen, and is the time
  // to look for what was missed.
  void Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                 std::function<void()> on_subscribed = {});

  // The prefix that the URI says.
  const std::string& prefix() const;

  // The URI without passwords.
  std::string Description() const;

 private:
  class Impl;

  explicit Client(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::redis
