// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <expected>
#include <map>
#include <string>

#include "base/problem.h"
#include "config/load.h"
#include "telemetry/log.h"

namespace sluice::cli {

// --config and a flag for every setting, for the commands that start the service or show what it
// would do.
class SettingsOptions {
 public:
  explicit SettingsOptions(CLI::App& app);

  // The file, then the environment, then the flags. Reports every problem.
  std::expected<config::Settings, Problems> Load() const;

  // The log format, even if other settings are invalid.
  telemetry::LogFormat LogFormat() const;

  const std::string& config_path() const { return config_path_; }

 private:
  // Reads the file; appends its problems.
  config::File ReadConfig(Problems& problems) const;
  Problems Override(config::File& file) const;

  std::string config_path_;
  std::map<std::string, std::string> values_;  // By path.
  CLI::App& app_;
};

// Variables that are named like settings, but are not.
Problems UnknownVariables();

// Prints them to standard error, one per line.
void Print(const Problems& problems);
// "file:line:column: warning: message"
void PrintWarnings(const Problems& warnings);

}  // namespace sluice::cli
