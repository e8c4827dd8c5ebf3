// SPDX-License-Identifier: Apache-2.0
// The `sluice` program: parses the command line and runs a command.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/check_command.h"
#include "cli/config_command.h"
#include "cli/exit_code.h"
#include "cli/hide_secrets.h"
#include "cli/hold_command.h"
#include "cli/purge_command.h"
#include "cli/replay_command.h"
#include "cli/serve_command.h"
#include "cli/validate_command.h"
#include "core/algorithms.h"
#include "telemetry/log.h"

namespace {

std::string About() {
  std::string about =
      "Sluice is a rate limiter: it decides, exactly and fast, whether a request may pass.\n"
      "\n"
      "Limits are written as name=value pairs; durations take us, ms, s, m, h, d:\n";
  for (const auto& row : sluice::core::kAlgorithms) {
    about += sluice::text::Cat("  algorithm=", row.name, ",", row.default_text, "\n");
  }
  return about;
}

constexpr const char* kVersion = "sluice " SLUICE_VERSION;

void LogAsJson(std::string_view message) {
  namespace telemetry = sluice::telemetry;
  const std::string line =
      telemetry::LogLine(telemetry::LogFormat::kJson, sluice::SystemClock().Now(),
                         telemetry::LogLevel::kError, message);
  std::fputs(line.c_str(), stderr);
}

// The caller may have closed a standard stream. A file that we open must not get its number, or
// output would go there. Opened in the wrong direction, so that using it still fails.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) {
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
  }
}

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Null if there is no such command.
const CLI::App* FindCommand(const CLI::App& app, std::string_view name) {
  for (const CLI::App* command : Commands(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::string UnknownCommand(const CLI::App& app, const std::string& name) {
  std::string commands;
  for (const CLI::App* command : Commands(app)) {
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  }
  // It may be a URI with a password.
  const bool is_word = std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-'; });
  return "unknown command" + (is_word ? " \"" + name + '"' : "") + "; expected one of " + commands;
}

// Shows only the names of flags: an unexpected argument may be a password.
std::string Unexpected(const CLI::App& app) {
  const std::vector<std::string> remaining = app.remaining(true);
  std::string flags;
  for (const std::string& argument : remaining) {
    if (argument.starts_with('-')) flags += " " + argument.substr(0, argument.find('='));
  }
  if (!flags.empty()) return "unknown flags:" + flags;
  if (app.get_subcommands().empty()) return UnknownCommand(app, remaining.front());
  return "more arguments than expected";
}

// Whether to report failures to start as JSON. Needed even when the arguments themselves are wrong.
bool LogsJson(std::span<char* const> arguments) {
  constexpr std::string_view kFlag = "--log-format";
  if (arguments.size() < 2 || arguments[1] != std::string_view("serve")) return false;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs yet.
  const char* const variable = std::getenv("SLUICE_LOG_FORMAT");
  std::string_view format = variable == nullptr ? "" : variable;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == kFlag && i + 1 < arguments.size()) format = arguments[i + 1];
    if (argument.starts_with(kFlag) && argument.substr(kFlag.size()).starts_with('=')) {
      format = argument.substr(kFlag.size() + 1);
    }
  }
  return sluice::text::EqualsIgnoreCase(format, "json");
}

// In the order that CLI11 expects, last first. CLI11 reads `--flag=` as a flag whose value is the
// next argument; here its value is empty.
std::vector<std::string> ArgumentsOf(const CLI::App& app, std::span<char* const> arguments) {
  const CLI::App* const command = arguments.size() > 1 ? FindCommand(app, arguments[1]) : nullptr;
  std::vector<std::string> texts;
  bool flags_end = false;
  for (const std::string_view argument :
       arguments.subspan(std::min<std::size_t>(1, arguments.size()))) {
    flags_end = flags_end || argument == "--";
    const std::string name(argument.substr(0, argument.find('=')));
    const CLI::Option* const option = flags_end || command == nullptr || !name.starts_with("--")
                                          ? nullptr
                                          : command->get_option_no_throw(name);
    if (option != nullptr && option->get_items_expected_max() > 0 &&
        argument.size() == name.size() + 1) {
      texts.push_back(name);
      texts.emplace_back();
    } else {
      texts.emplace_back(argument);
    }
  }
  std::ranges::reverse(texts);
  return texts;
}

// sluice help [COMMAND]. Not left to CLI11, which would complain about the command's required
// options.
int Help(const CLI::App& app, std::span<char* const> topics) {
  const CLI::App* const about = topics.empty() ? &app : FindCommand(app, topics.front());
  if (about == nullptr || topics.size() > 1) {
    std::cerr << "sluice: "
              << (about == nullptr ? UnknownCommand(app, topics.front())
                                   : "more arguments than expected")
              << '\n';
    return sluice::cli::kExitError;
  }
  const std::string name = about == &app ? "sluice" : "sluice " + about->get_name();
  std::cout << app.get_formatter()->make_help(about, name, CLI::AppFormatMode::Normal)
            << std::flush;
  return std::cout ? sluice::cli::kExitOk : sluice::cli::kExitError;
}

int Run(std::span<char*> all_arguments) {
  // What follows is a command line of somebody else.
  const std::vector<std::string> command = sluice::cli::CommandIn(all_arguments);
  const auto arguments =
      all_arguments.first(all_arguments.size() - (command.empty() ? 0 : command.size() + 1));
  CLI::App app(About(), "sluice");
  app.set_version_flag("--version", kVersion);
  app.failure_message([&](const CLI::App* failed, const CLI::Error& error) {
    const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string what =
        unexpected ? Unexpected(*failed) : sluice::cli::WithoutSecrets(error.what());
    if (!LogsJson(arguments)) {
      return "sluice: " + what + "\nTry 'sluice --help' or 'sluice COMMAND --help'.\n";
    }
    LogAsJson(what);
    return std::string();
  });
  const sluice::cli::ReplayCommand replay(app);
  const sluice::cli::CheckCommand check(app);
  const sluice::cli::HoldCommand hold(app);
  const sluice::cli::PurgeCommand purge(app);
  const sluice::cli::ServeCommand serve(app);
  const sluice::cli::ValidateCommand validate(app);
  const sluice::cli::ConfigCommand config(app);
  app.add_subcommand("help", "Explains a command: sluice help COMMAND");
  const CLI::App* const version = app.add_subcommand("version", "Prints the version");
  if (arguments.size() > 1 && arguments[1] == std::string_view("help")) {
    return Help(app, arguments.subspan(2));
  }
  try {
    app.parse(ArgumentsOf(app, arguments));
    sluice::cli::HideSecrets(all_arguments);
  } catch (const CLI::ParseError& error) {
    const bool help_or_version = app.exit(error) == 0;
    return help_or_version && std::cout.flush() ? sluice::cli::kExitOk : sluice::cli::kExitError;
  }
  if (app.get_subcommands().empty()) {
    std::cerr << "sluice: expected a command\n\n" << app.help();
    return sluice::cli::kExitError;
  }
  if (app.got_subcommand(version)) {
    std::cout << kVersion << '\n' << std::flush;
    return std::cout ? sluice::cli::kExitOk : sluice::cli::kExitError;
  }
  if (app.got_subcommand(check.app())) return check.Run();
  if (app.got_subcommand(hold.app())) return hold.Run(command);
  if (app.got_subcommand(purge.app())) return purge.Run();
  if (app.got_subcommand(serve.app())) return serve.Run();
  if (app.got_subcommand(validate.app())) return validate.Run();
  if (app.got_subcommand(config.app())) return config.Run();
  return replay.Run();
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  try {
    OccupyStandardStreams();
    // Exceeding the file size limit is an error of that file; by default it would end the process.
    std::signal(SIGXFSZ, SIG_IGN);
    return Run(arguments);
  } catch (const std::exception& error) {  // Out of memory, mostly.
    if (LogsJson(arguments)) {
      LogAsJson(error.what());
    } else {
      std::fprintf(stderr, "sluice: %s\n", error.what());
    }
    return sluice::cli::kExitError;
  }
}
