// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <expected>
#include <map>
#include <string>

#include "config/load.h"
#include "core/problem.h"

namespace sluice::cli {

// --config and a flag for every setting, for the commands that start the service or show what it
// would do.
class SettingsOptions {
 public:
  explicit SettingsOptions(CLI::App& app);

  // The file, then the environment, then the flags. All that is wrong is reported.
  std::expected<config::Settings, Problems> Load() const;

  const std::string& config_path() const { return config_path_; }

 private:
  std::string config_path_;
  std::map<std::string, std::string> values_;  // By path.
  CLI::App& app_;
};

// Prints them to standard error, a line each.
void Print(const Problems& problems);

}  // namespace sluice::cli
