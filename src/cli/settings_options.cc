// SPDX-License-Identifier: Apache-2.0
#include "cli/settings_options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "cli/hide_secrets.h"
#include "core/text.h"

namespace sluice::cli {

SettingsOptions::SettingsOptions(CLI::App& app) : app_(app) {
  app.add_option("--config", config_path_, "The configuration file; SLUICE_CONFIG")
      ->type_name("FILE")
      ->envname("SLUICE_CONFIG");
  const config::Settings defaults;
  for (const config::Setting& setting : config::AllSettings()) {
    const std::string value = setting.get(defaults);
    app.add_option(
           std::string(setting.flag), values_[std::string(setting.path)],
           text::Cat(setting.help, value.empty() ? "" : " [", value, value.empty() ? "" : "]"))
        ->type_name(std::string(setting.value))
        ->allow_extra_args(false);
  }
}

std::expected<config::Settings, Problems> SettingsOptions::Load() const {
  config::File file;
  if (!config_path_.empty()) {
    const auto text = config::ReadFile(config_path_);
    if (!text) {
      return std::unexpected(Problems{{.file = "--config", .message = text.error().message}});
    }
    auto parsed = config::Parse(*text, config_path_);
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    file = *std::move(parsed);
  }
  std::vector<std::pair<std::string, std::string>> flags;
  for (const config::Setting& setting : config::AllSettings()) {
    const CLI::Option* option = app_.get_option(std::string(setting.flag));
    if (option->count() > 0) {
      flags.emplace_back(setting.path, values_.at(std::string(setting.path)));
    }
  }
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs yet.
    const char* value = std::getenv(name.c_str());
    if (!value) return std::nullopt;
    return value;
  };
  Problems problems = config::Override(file, environment, flags);
  if (problems.empty()) problems = config::Validate(file);
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return std::move(file.settings);
}

void Print(const Problems& problems) {
  for (const Problem& problem : problems) {
    std::fprintf(stderr, "%s\n", WithoutSecrets(problem.ToString()).c_str());
  }
}

}  // namespace sluice::cli
