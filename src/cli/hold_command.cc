// SPDX-License-Identifier: Apache-2.0
#include "cli/hold_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/duration.h"
#include "base/text.h"
#include "cli/exit_code.h"
#include "client/hold_shell.h"
#include "config/load.h"
#include "net/access.h"

namespace sluice::cli {
namespace {

using text::Cat;

constexpr std::string_view kForever = "forever";
constexpr Micros kTtlMin{std::chrono::seconds{1}};

std::unexpected<Error> Invalid(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

// As the file of a service that has one token.
Expected<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return {};
  const auto file = config::ReadFile(path, config::FileKind::kAny, net::Tokens::kFileBytesMax);
  if (!file) return std::unexpected(file.error());
  const auto tokens = net::Tokens::Parse(*file);
  if (!tokens) return Invalid(Cat("--token-file ", path, ": ", tokens.error().message));
  if (tokens->size() != 1) return Invalid(Cat("--token-file ", path, ": expected one token"));
  std::string_view rest = *file;
  while (true) {
    const auto end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = text::Trim(line);
    // A name may stand before the token.
    if (!line.empty() && !line.starts_with('#')) {
      return std::string(line.substr(line.find_last_of(" \t") + 1));
    }
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

std::vector<std::string> CommandIn(std::span<char* const> arguments) {
  if (arguments.size() < 2 || arguments[1] != std::string_view("hold")) return {};
  const auto mark = std::ranges::find(arguments, std::string_view("--"),
                                      [](const char* text) { return std::string_view(text); });
  if (mark == arguments.end()) return {};
  return {std::next(mark), arguments.end()};
}

HoldCommand::HoldCommand(CLI::App& app)
    : app_(app.add_subcommand("hold", "Runs a command while it holds a slot, like flock")) {
  app_->footer(
      "The command stands after the options: sluice hold [OPTIONS] -- COMMAND [ARGUMENTS]...\n"
      "\n"
      "Takes a hold from a running service, runs the command, renews the hold every third of its\n"
      "ttl, and ends it with the command: slots are free then. The command also gets SIGTERM,\n"
      "SIGINT, SIGHUP and SIGQUIT. If this program is killed, slots are free after the ttl.\n"
      "\n"
      "Exit status: that of the command, or 128 + N if signal N ended it. Otherwise:\n"
      "  2    the options are wrong, or the service refused them\n"
      "  69   the service cannot be reached, or cannot reach its store\n"
      "  75   denied: no slot is free, or none became free in time\n"
      "  126  the command cannot be executed\n"
      "  127  the command was not found\n"
      "\n"
      "Example:\n"
      "  sluice hold --limit algorithm=concurrency,limit=1,ttl=30s --key docs -- tar -cf d.tar "
      "docs\n");
  app_->add_option("--server", server_, "The service")
      ->envname("SLUICE_SERVER")
      ->type_name("URL")
      ->capture_default_str();
  app_->add_option("--token-file", token_file_, "A file with the token to show to the service")
      ->type_name("FILE");
  app_->add_option("--limit", limit_,
                   "Limit to hold a slot of: a name under `limits:`, or written out")
      ->type_name("SPEC");
  app_->add_option("--key", key_, "Key whose budget it is; with --limit")->type_name("KEY");
  app_->add_option("--rule-set", rule_set_, "Rule set to hold under, in place of --limit")
      ->type_name("ID");
  app_->add_option("--context", context_,
                   "What its rules look at: ip, userId, apiKey, method, path, or an attribute")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app_->add_option("--permits", permits_, "Slots to hold")->type_name("N")->capture_default_str();
  app_->add_option("--ttl", ttl_, "How long the slot stays taken if this program dies")
      ->type_name("DURATION")
      ->capture_default_str();
  app_->add_option("--wait", wait_, "Wait for a slot; without a duration, for as long as it takes")
      ->type_name("DURATION")
      ->expected(0, 1)
      ->default_str(std::string(kForever));
  app_->add_option("--on-lost", on_lost_,
                   "When the hold is lost, or this program is killed: SIGTERM for the command "
                   "(term), or let it run (continue)")
      ->type_name("ACTION")
      ->check(CLI::IsMember({"term", "continue"}))
      ->capture_default_str();
}

Expected<client::HoldShellOptions> HoldCommand::Read(
    const std::vector<std::string>& command) const {
  if (command.empty()) return Invalid("expected -- and the command to run, after the options");
  const bool by_limit = !limit_.empty() && !key_.empty() && rule_set_.empty() && context_.empty();
  const bool by_rules = !rule_set_.empty() && limit_.empty() && key_.empty();
  if (!by_limit && !by_rules) {
    return Invalid("expected --limit and --key, or --rule-set and perhaps --context");
  }
  auto server = client::Server::Parse(server_);
  if (!server) return std::unexpected(std::move(server.error()));
  auto token = ReadToken(token_file_);
  if (!token) return std::unexpected(std::move(token.error()));
  const auto ttl = text::ParseDuration(ttl_);
  if (!ttl || *ttl < kTtlMin || *ttl > kHoldTtlMax) {
    return Invalid(Cat("--ttl: expected a duration such as 30s, from ",
                       text::FormatDuration(kTtlMin), " to ", text::FormatDuration(kHoldTtlMax)));
  }
  if (permits_ < 1) return Invalid("--permits: expected a whole number of 1 or more");
  client::HoldShellOptions options{
      .server = *std::move(server), .token = *std::move(token), .command = command};
  options.wish = {.limit = limit_,
                  .key = key_,
                  .rule_set = rule_set_,
                  .context = {},
                  .permits = permits_,
                  .ttl = *ttl};
  for (const std::string& text : context_) {
    auto pair = client::ParseContext(text);
    if (!pair) return std::unexpected(std::move(pair.error()));
    options.wish.context.push_back(*std::move(pair));
  }
  if (wait_ == kForever) {
    options.wait = Micros::max();
  } else if (!wait_.empty()) {
    const auto wait = text::ParseDuration(wait_);
    if (!wait) return Invalid("--wait: expected a duration such as 5m, or nothing");
    options.wait = *wait;
  }
  if (on_lost_ == "continue") options.on_lost = client::HoldRun::OnLost::kContinue;
  return options;
}

int HoldCommand::Run(const std::vector<std::string>& command) const {
  auto options = Read(command);
  if (!options) return Fail("hold", options.error());
  client::RunWhileHeld(*std::move(options));
}

}  // namespace sluice::cli
