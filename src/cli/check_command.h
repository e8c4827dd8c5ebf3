// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::cli {

// `sluice check`: one real check from the shell.
class CheckCommand {
 public:
  explicit CheckCommand(CLI::App& app);

  const CLI::App* app() const { return app_; }

  // The exit status: 0 allowed, 1 denied, 2 error.
  int Run() const;

 private:
  CLI::App* app_;
  std::string store_;
  std::vector<std::string> limits_;
  std::string key_;
  std::int64_t cost_ = 1;
  bool json_ = false;
};

}  // namespace sluice::cli
