// SPDX-License-Identifier: Apache-2.0
#include "cli/config_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/text.h"
#include "cli/catalog_yaml.h"
#include "cli/exit_code.h"
#include "cli/settings_options.h"
#include "cli/spool.h"
#include "config/load.h"
#include "reload/sources.h"

namespace sluice::cli {
namespace {

// Explains what readers would otherwise look for in vain.
std::string Notes(const config::Settings& settings) {
  std::string notes;
  if (!settings.rules.path.empty()) {
    notes += text::Cat("# Includes the rule sets of ", text::Escape(settings.rules.path),
                       ", so rules.path is empty here.\n");
  }
  if (!settings.rules.redis.empty()) {
    notes += "# Rule sets kept in Redis are not included; the admin API lists them.\n";
  }
  return notes;
}

}  // namespace

ConfigCommand::ConfigCommand(CLI::App& app)
    : app_(app.add_subcommand("config", "Prints the configuration that is in effect")),
      options_(*app_) {
  app_->footer(
      "Prints the result of files, environment and flags as one configuration file. It explains\n"
      "every setting, includes all limits and rule sets, and redacts secrets.\n");
}

int ConfigCommand::Run() const {
  auto settings = options_.Load();
  if (!settings) {
    Print(settings.error());
    return kExitError;
  }
  const auto sources = reload::Read({.config = options_.config_path(),
                                     .rules = settings->rules.path,
                                     .rls = settings->rules.rls_path,
                                     .rls_merge_domains = settings->rules.rls_merge_domains});
  if (!sources) {
    Print({{.file = "sluice config", .message = sources.error().message}});
    return kExitError;
  }
  const auto built = reload::Build(*sources, 1);
  if (!built) {
    Print(built.error());
    return kExitError;
  }
  PrintWarnings(UnknownVariables());
  std::string text = Notes(*settings);
  settings->rules.path.clear();
  text += config::ToYaml(*settings) + ToYaml(*built->catalog);
  const auto written = WriteAll(stdout, text);
  return written ? kExitOk : Fail("config", written.error());
}

}  // namespace sluice::cli
