// SPDX-License-Identifier: Apache-2.0
#include "cli/serve_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "cli/exit_code.h"
#include "cli/hide_secrets.h"
#include "daemon/daemon.h"
#include "telemetry/log.h"

namespace sluice::cli {

ServeCommand::ServeCommand(CLI::App& app)
    : app_(app.add_subcommand("serve", "Runs the service")), options_(*app_) {
  app_->footer(
      "Every setting can also be set in the configuration file and in the environment: --http is\n"
      "http.listen in the file and SLUICE_HTTP in the environment. Flags win over the "
      "environment,\n"
      "and the environment wins over the file. `sluice config` prints the settings in effect.\n"
      "\n"
      "On SIGTERM or SIGINT the service finishes the requests it has received and exits; a second\n"
      "signal ends it at once. On SIGHUP it reads rules, certificates and tokens again.\n"
      "\n"
      "Example:\n"
      "  sluice serve --http 127.0.0.1:8080 --rules rules.yaml --store redis://127.0.0.1:6379\n");
}

int ServeCommand::Run() const {
  const auto settings = options_.Load();
  if (!settings) return CannotStart(settings.error());
  auto started = daemon::Daemon::Start(*settings, options_.config_path(), UnknownVariables());
  if (!started) return CannotStart(started.error());
  (*started)->Run();
  return kExitOk;
}

int ServeCommand::CannotStart(const Problems& problems) const {
  const auto format = options_.LogFormat();
  if (format == telemetry::LogFormat::kText) {
    Print(problems);
  } else {
    for (const Problem& problem : problems) {
      const std::string line =
          telemetry::LogLine(format, SystemClock().Now(), telemetry::LogLevel::kError,
                             WithoutSecrets(problem.ToString()));
      std::fputs(line.c_str(), stderr);
    }
  }
  return kExitError;
}

}  // namespace sluice::cli
