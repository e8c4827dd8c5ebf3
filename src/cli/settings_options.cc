// SPDX-License-Identifier: Apache-2.0
#include "cli/settings_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "base/suggestion.h"
#include "base/text.h"
#include "cli/hide_secrets.h"

namespace sluice::cli {
namespace {

constexpr std::size_t kUnknownMax = 100;

// Kubernetes sets these in every container if there is a service whose name starts with "sluice":
// SLUICE_SERVICE_HOST, SLUICE_ADMIN_PORT_8090_TCP and so on.
bool IsOfKubernetes(std::string_view name) {
  return name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") ||
         name.ends_with("_PORT") || name.contains("_PORT_");
}

}  // namespace

SettingsOptions::SettingsOptions(CLI::App& app) : app_(app) {
  app.add_option("--config", config_path_, "Configuration file")
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

config::File SettingsOptions::ReadConfig(Problems& problems) const {
  if (config_path_.empty()) return {};
  const auto text = config::ReadFile(config_path_);
  if (text) return config::Parse(*text, config_path_, problems);
  problems.push_back({.file = "--config", .message = text.error().message});
  return {};
}

Problems SettingsOptions::Override(config::File& file) const {
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
  return config::Override(file, environment, flags);
}

std::expected<config::Settings, Problems> SettingsOptions::Load() const {
  Problems problems;
  config::File file = ReadConfig(problems);
  if (problems.empty()) problems = Override(file);
  if (problems.empty()) problems = config::Validate(file);
  if (!problems.empty()) return std::unexpected(std::move(problems));
  return std::move(file.settings);
}

telemetry::LogFormat SettingsOptions::LogFormat() const {
  Problems reported_by_load;
  config::File file = ReadConfig(reported_by_load);
  static_cast<void>(Override(file));
  return file.settings.log.format;
}

Problems UnknownVariables() {
  std::vector<std::string> names = {"SLUICE_CONFIG", "SLUICE_SERVER"};
  for (const config::Setting& setting : config::AllSettings()) {
    names.push_back(setting.Environment());
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  Problems unknown;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs yet.
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    std::string_view name = *entry;
    name = name.substr(0, name.find('='));
    if (!name.starts_with("SLUICE_") || IsOfKubernetes(name) ||
        std::ranges::find(known, name) != known.end()) {
      continue;
    }
    if (unknown.size() == kUnknownMax) break;
    unknown.push_back(
        {.file = text::Escape(name),
         .message = text::Cat("there is no such setting; the variable has no effect; ",
                              text::Suggestion(name, known), "`sluice config` lists them")});
  }
  std::ranges::sort(unknown, {}, &Problem::file);
  return unknown;
}

void Print(const Problems& problems) {
  for (const Problem& problem : problems) {
    std::fprintf(stderr, "%s\n", WithoutSecrets(problem.ToString()).c_str());
  }
}

void PrintWarnings(const Problems& warnings) {
  for (Problem warning : warnings) {
    warning.message.insert(0, "warning: ");
    Print({std::move(warning)});
  }
}

}  // namespace sluice::cli
