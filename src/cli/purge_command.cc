// SPDX-License-Identifier: Apache-2.0
#include "cli/purge_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/text.h"
#include "cli/exit_code.h"
#include "cli/progress.h"
#include "cli/spool.h"
#include "cli/stores.h"
#include "rules/key.h"
#include "sluice/redis_store.h"

namespace sluice::cli {
namespace {

// Secrets are stored as hashes, so a pattern can only match all of them, or one complete value.
Expected<std::string> StoredPattern(const std::string& match) {
  const auto colon = match.find(':');
  if (colon == std::string::npos || !rules::IsSecretName(match.substr(0, colon))) return match;
  if (match.substr(colon) == ":*") return text::Cat(match.substr(0, colon), "#*");
  if (match.find_first_of("*?") == std::string::npos) return rules::StoredKey(match);
  return std::unexpected(
      Error{ErrorCode::kInvalidInput,
            text::Cat("values of ", match.substr(0, colon), " are stored as hashes; expected ",
                      match.substr(0, colon), ":* or one of them, written out")});
}

}  // namespace

PurgeCommand::PurgeCommand(CLI::App& app)
    : app_(app.add_subcommand("purge", "Resets keys in Redis by removing their states")) {
  app_->footer(
      "The budgets of matching keys are full again. The command walks through the server in small\n"
      "steps, by SCAN and UNLINK, and removes nothing but states. Very long keys and API keys are\n"
      "stored as hashes: they match only '*', 'apikey:*', and themselves, written out.\n"
      "\n"
      "Example:\n"
      "  sluice purge --store redis://127.0.0.1:6379 --match 'user:*' --dry-run\n");
  app_->add_option("--store", store_, "Redis to purge, such as redis://127.0.0.1:6379")
      ->required()
      ->envname("SLUICE_STORE")
      ->type_name("URI");
  app_->add_option(
          "--match", match_,
          "Keys to purge; * matches any characters, ? matches one, all else matches itself")
      ->required()
      ->type_name("PATTERN");
  app_->add_flag("--dry-run", dry_run_, "Count the states, but remove nothing");
}

int PurgeCommand::Run() const {
  const auto match = StoredPattern(match_);
  if (!match) return Fail("purge", match.error());
  auto store = OpenRedis({.uri = store_});
  if (!store) return Fail("purge", store.error());
  const auto total = (*store)->CountKeys();
  if (!total) return Fail("purge", total.error());
  Progress progress("purge", *total);
  const auto done = (*store)->Purge(*match, dry_run_, [&](const RedisStore::PurgeProgress& so_far) {
    progress.Update(so_far.scanned);
  });
  if (!done) return Fail("purge", done.error());
  const auto written = WriteAll(
      stdout, text::Cat(dry_run_ ? "would remove " : "removed ", done->matched, " states\n"));
  return written ? kExitOk : Fail("purge", written.error());
}

}  // namespace sluice::cli
