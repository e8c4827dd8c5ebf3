// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <memory>

#include "cli/settings_options.h"

namespace sluice::cli {

// sluice config: prints the configuration that is in effect.
class ConfigCommand {
 public:
  explicit ConfigCommand(CLI::App& app);
  const CLI::App* app() const { return app_; }
  int Run() const;

 private:
  CLI::App* app_;
  SettingsOptions options_;
};

}  // namespace sluice::cli
