// SPDX-License-Identifier: Apache-2.0
// The permissions that docs/reference/redis.md documents as sufficient, for tests that run under
// them.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace sluice::testing_support {

// The documented line for this user, with its password, in the form that RedisServer::Cli takes.
inline std::string DocumentedAcl(const std::string& user, const std::string& password) {
  std::ifstream docs(SLUICE_DOCS "/reference/redis.md");
  std::string line;
  while (!line.starts_with("ACL SETUSER " + user + " ")) {
    if (!std::getline(docs, line)) throw std::runtime_error("no ACL is documented for " + user);
  }
  // Every word in quotes: the shell must not interpret it.
  std::string quoted;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    quoted += "'" + (word == ">PASSWORD" ? ">" + password : word) + "' ";
  }
  return quoted;
}

}  // namespace sluice::testing_support
