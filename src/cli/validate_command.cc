// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "cli/exit_code.h"
#include "cli/settings_options.h"
#include "config/load.h"
#include "core/text.h"
#include "reload/sources.h"

namespace sluice::cli {
namespace {

// Whether a line of the text starts with this key, at the left edge.
bool HasTopLevelKey(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.starts_with(key) && line.substr(key.size()).starts_with(':')) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

}  // namespace

ValidateCommand::ValidateCommand(CLI::App& app)
    : app_(app.add_subcommand("validate", "Checks configuration and rule files")) {
  app_->footer(
      "Reports every problem as file:line:column: what is wrong. A file with a top-level "
      "`domain:`\n"
      "is taken as one of envoyproxy/ratelimit, any other as a configuration file, with or "
      "without\n"
      "`ruleSets:`. All files of a folder are checked together.\n"
      "\n"
      "Exit status: 0 all are valid, 2 not.\n");
  app_->add_option("FILE", paths_, "A file or a folder")->required()->type_name("");
}

int ValidateCommand::Run() const {
  reload::Sources all;
  Problems problems;
  for (const std::string& path : paths_) {
    auto read = reload::Read({.config = {}, .rules = path, .rls = {}});
    if (!read) {
      problems.push_back({.file = "sluice validate", .message = read.error().message});
      continue;
    }
    for (reload::Text& text : read->rules) {
      (HasTopLevelKey(text.content, "domain") ? all.rls : all.config).push_back(std::move(text));
    }
  }
  auto catalog = reload::Build(all, 1);
  if (!catalog) std::ranges::move(catalog.error(), std::back_inserter(problems));
  for (const reload::Text& text : all.config) {
    const auto file = config::Parse(text.content, text.file);
    if (!file) continue;  // Reported already.
    for (Problem& problem : config::Validate(file->settings)) {
      problem.file = text.file;
      problems.push_back(std::move(problem));
    }
  }
  if (!problems.empty()) {
    Print(problems);
    return kExitError;
  }
  std::printf("valid: %zu rule sets, %zu limits, %zu domains\n",
              (*catalog)->rules->rule_sets().size(), (*catalog)->limits.size(),
              (*catalog)->domains->domains().size());
  return kExitOk;
}

}  // namespace sluice::cli
