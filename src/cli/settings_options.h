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

  // The file, then the environment, then the flags. All that is wrong is reported.
  std::expected<config::Settings, Problems> Load() const;

  // How lines are logged, also by a program whose settings are not all right.
  telemetry::LogFormat LogFormat() const;

  const std::string& config_path() const { return config_path_; }

 private:
  // What the file says; problems with it are appended.
  config::File ReadConfig(Problems& problems) const;
  Problems Override(config::File& file) const;

  std::string config_path_;
  std::map<std::string, std::string> values_;  // By path.
  CLI::App& app_;
};

// Variables whose names look like those of settings, and are none.
Problems UnknownVariables();

// Prints them to standard error, a line each.
void Print(const Problems& problems);
// "file:line:column: warning: message"
void PrintWarnings(const Problems& warnings);

}  // namespace sluice::cli
