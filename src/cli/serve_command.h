// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>

#include "cli/settings_options.h"

namespace sluice::cli {

// sluice serve: the daemon.
class ServeCommand {
 public:
  explicit ServeCommand(CLI::App& app);
  const CLI::App* app() const { return app_; }
  int Run() const;

 private:
  // In the format of the log, for log collectors.
  int CannotStart(const Problems& problems) const;

  CLI::App* app_;
  SettingsOptions options_;
};

}  // namespace sluice::cli
