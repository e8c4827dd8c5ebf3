// SPDX-License-Identifier: Apache-2.0
// The `sluice` program: reads the command line and hands over to a command.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/check_command.h"
#include "cli/config_command.h"
#include "cli/exit_code.h"
#include "cli/hide_secrets.h"
#include "cli/purge_command.h"
#include "cli/replay_command.h"
#include "cli/serve_command.h"
#include "cli/validate_command.h"

namespace {

constexpr const char* kAbout =
    "Sluice decides, exactly and fast, whether a request may pass.\n"
    "\n"
    "Limits are written as name=value pairs; durations take us, ms, s, m, h, d:\n"
    "  algorithm=token_bucket,capacity=100,refill=10,period=1s\n"
    "  algorithm=leaky_bucket,capacity=10,leak=1,period=1s\n"
    "  algorithm=gcra,burst=5,count=30,period=60s\n"
    "  algorithm=fixed_window,limit=100,window=60s\n"
    "  algorithm=sliding_window,limit=100,window=60s\n"
    "  algorithm=sliding_window_counter,limit=100,window=60s\n";

// Whoever started us may have closed a standard stream. A file that we open must not take its
// number, or output would go there. Opened the wrong way round, so that using it still fails.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1) {
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
  }
}

std::string UnknownCommand(const CLI::App& app, const std::string& name) {
  std::string commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  }
  // A URI may have a password in it.
  const bool is_word = std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-'; });
  return "unknown command" + (is_word ? " \"" + name + '"' : "") + "; expected one of " + commands;
}

// The names of the flags alone: what was not expected may be a password.
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

int Run(int argc, char** argv) {
  CLI::App app(kAbout, "sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    return "sluice: " +
           (unexpected ? Unexpected(*failed) : sluice::cli::WithoutSecrets(error.what())) +
           "\nTry 'sluice --help' or 'sluice COMMAND --help'.\n";
  });
  const sluice::cli::ReplayCommand replay(app);
  const sluice::cli::CheckCommand check(app);
  const sluice::cli::PurgeCommand purge(app);
  const sluice::cli::ServeCommand serve(app);
  const sluice::cli::ValidateCommand validate(app);
  const sluice::cli::ConfigCommand config(app);
  try {
    app.parse(argc, argv);
    sluice::cli::HideSecrets({argv, static_cast<std::size_t>(argc)});
  } catch (const CLI::ParseError& error) {
    const bool help_or_version = app.exit(error) == 0;
    return help_or_version && std::cout.flush() ? sluice::cli::kExitOk : sluice::cli::kExitError;
  }
  if (app.get_subcommands().empty()) {
    std::cerr << "sluice: a command is needed\n\n" << app.help();
    return sluice::cli::kExitError;
  }
  if (app.got_subcommand(check.app())) return check.Run();
  if (app.got_subcommand(purge.app())) return purge.Run();
  if (app.got_subcommand(serve.app())) return serve.Run();
  if (app.got_subcommand(validate.app())) return validate.Run();
  if (app.got_subcommand(config.app())) return config.Run();
  return replay.Run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    OccupyStandardStreams();
    // A file that may not grow is an error of that file; by default it would end the process.
    std::signal(SIGXFSZ, SIG_IGN);
    return Run(argc, argv);
  } catch (const std::exception& error) {  // Out of memory, mostly.
    std::fprintf(stderr, "sluice: %s\n", error.what());
    return sluice::cli::kExitError;
  }
}
