// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/error.h"

namespace sluice::client {
struct HoldShellOptions;
}

namespace sluice::cli {

// What `sluice hold` runs: the arguments after the first "--". Empty for other commands.
std::vector<std::string> CommandIn(std::span<char* const> arguments);

// `sluice hold`: runs a command while a slot is held.
class HoldCommand {
 public:
  explicit HoldCommand(CLI::App& app);

  const CLI::App* app() const { return app_; }

  // The exit status if the arguments are wrong; otherwise the process ends.
  int Run(const std::vector<std::string>& command) const;

 private:
  Expected<client::HoldShellOptions> Read(const std::vector<std::string>& command) const;

  CLI::App* app_;
  std::string server_ = "http://127.0.0.1:8080";
  std::string token_file_;
  std::string limit_;
  std::string key_;
  std::string rule_set_;
  std::vector<std::string> context_;
  std::int64_t permits_ = 1;
  std::string ttl_ = "30s";
  std::string wait_;
  std::string on_lost_ = "term";
};

}  // namespace sluice::cli
