// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace sluice::cli {

// `sluice purge`: removes states from a Redis.
class PurgeCommand {
 public:
  explicit PurgeCommand(CLI::App& app);

  const CLI::App* app() const { return app_; }

  // The exit status.
  int Run() const;

 private:
  CLI::App* app_;
  std::string store_;
  std::string match_;
  bool dry_run_ = false;
};

}  // namespace sluice::cli
