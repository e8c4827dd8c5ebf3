// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace sluice::testing_support {

// A free port of 127.0.0.1, reserved until the server that is given it takes it.
int FreePort();

// A real redis-server (or redis-sentinel) in a temporary folder, ended with the object.
class RedisServer {
 public:
  struct Options {
    std::vector<std::string> arguments = {};  // Further command-line arguments.
    int port = 0;                             // 0: a free one.
    std::string host = "127.0.0.1";
    std::string scheme = "redis";
    std::string auth = {};  // For the URI and to wait for it: "user:password" or ":password".
    bool wait = true;       // Until it answers.
    std::string sentinel_config = {};  // Run a Sentinel with this file instead.
  };

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(Options options);
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  int port() const { return port_; }
  std::string Uri(const std::string& query = "") const;
  const std::filesystem::path& folder() const { return folder_.path(); }

  // Runs redis-cli and returns what it prints.
  std::string Cli(const std::string& command) const;

  void Start();
  void StartWithoutWaiting();
  void Kill();  // kill -9
  void Signal(int number) const;
  bool WaitUntilReady() const;  // Whether it is ready before it ends.

 private:
  bool HasEnded() const;

  Options options_;
  int port_;
  TemporaryFolder folder_;
  pid_t pid_ = -1;
};

}  // namespace sluice::testing_support
