// SPDX-License-Identifier: Apache-2.0
#include "cli/config_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/exit_code.h"
#include "cli/spool.h"

namespace sluice::cli {

ConfigCommand::ConfigCommand(CLI::App& app)
    : app_(app.add_subcommand("config", "Prints the configuration that is in effect")),
      options_(*app_) {
  app_->footer(
      "From the file, the environment and the flags, with secrets redacted. What it prints is a\n"
      "configuration file in which every setting is explained.\n");
}

int ConfigCommand::Run() const {
  const auto settings = options_.Load();
  if (!settings) {
    Print(settings.error());
    return kExitError;
  }
  if (const auto written = WriteAll(stdout, config::ToYaml(*settings)); !written) {
    std::fprintf(stderr, "sluice config: %s\n", written.error().message.c_str());
    return kExitError;
  }
  return kExitOk;
}

}  // namespace sluice::cli
