// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_command.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "cli/exit_code.h"
#include "cli/progress.h"
#include "cli/spool.h"
#include "core/text.h"
#include "replay/line_reader.h"
#include "replay/summary.h"
#include "sluice/memory_store.h"

namespace sluice::cli {
namespace {

using replay::LineReader;
using replay::Record;

constexpr std::string_view kDecisionsHeader =
    "allowed,remaining,retry_after_us,reset_after_us,delay_us\n";

std::string DecisionLine(const Decision& decision) {
  std::string line = decision.allowed ? "1" : "0";
  for (const std::int64_t number : {decision.remaining, decision.retry_after.count(),
                                    decision.reset_after.count(), decision.delay.count()}) {
    line += ',';
    line += std::to_string(number);
  }
  return line += '\n';
}

// A replay forgets nothing: its records may be out of order, and all its keys must fit.
MemoryStore::Options ReplayOptions() {
  return {.keys_max = std::numeric_limits<std::int64_t>::max(),
          .log_entries_max = std::numeric_limits<std::int64_t>::max(),
          .recovered_kept_for = Micros::max()};
}

Expected<std::vector<Limit>> ParseLimits(const std::vector<std::string>& texts) {
  if (texts.size() > kChargesMax) {
    return std::unexpected(
        Error{ErrorCode::kInvalidRequest,
              text::Cat(texts.size(), " limits; expected at most ", kChargesMax)});
  }
  std::vector<Limit> limits;
  for (const std::string& text : texts) {
    auto limit = Limit::Parse(text);
    if (!limit) {
      return std::unexpected(Error{limit.error().code, text::Cat("--limit ", text::Quote(text),
                                                                 ": ", limit.error().message)});
    }
    limits.push_back(*limit);
  }
  return limits;
}

struct Input {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file;
  std::string name;
  std::int64_t bytes = 0;  // 0 if not known.
};

Expected<Input> Open(const std::string& path) {
  const bool standard_input = path == "-";
  Input input{.file = {standard_input ? stdin : std::fopen(path.c_str(), "rbe"), &std::fclose},
              .name = standard_input ? "standard input" : path};
  struct stat status{};
  int error = 0;
  if (!input.file || ::fstat(::fileno(input.file.get()), &status) != 0) error = errno;
  if (S_ISDIR(status.st_mode)) error = EISDIR;
  if (error != 0) {
    return std::unexpected(
        Error{ErrorCode::kIo,
              text::Cat("cannot read ", input.name, ": ", std::generic_category().message(error))});
  }
  if (S_ISREG(status.st_mode)) input.bytes = status.st_size;
  return input;
}

// One pass over the input.
class Replay {
 public:
  struct Options {
    replay::Format format;
    bool keep_decisions;
    bool skip_bad;
  };

  Replay(std::vector<Limit> limits, const Options& options)
      : options_(options),
        limits_(std::move(limits)),
        parser_(options.format),
        store_(ReplayOptions()),
        summary_(limits_),
        each_(limits_.size()) {
    // Named by position: equal limits are then still two budgets, as in a rule.
    for (std::size_t i = 0; i < limits_.size(); ++i) names_.push_back(std::to_string(i));
  }

  Expected<void> Run(const Input& input) {
    LineReader reader(input.file.get());
    Progress progress("replay", input.bytes);
    std::string_view line;
    while (true) {
      const auto status = reader.Next(line);
      if (!status) {
        return std::unexpected(Error{
            ErrorCode::kIo, text::Cat("cannot read ", input.name, ": ", status.error().message)});
      }
      if (*status == LineReader::Status::kEnd) return {};
      const Expected<void> done =
          *status == LineReader::Status::kTooLong ? std::unexpected(TooLong()) : Step(line);
      if (!done && (done.error().code == ErrorCode::kIo || !options_.skip_bad)) {
        return std::unexpected(At(input, reader, done.error()));
      }
      if (!done) summary_.AddBadLine();
      if (reader.line_number() % 4096 == 0) progress.Update(reader.bytes_read());
    }
  }

  const replay::Summary& summary() const { return summary_; }
  Spool& decisions() { return decisions_; }

 private:
  static Error TooLong() {
    return {ErrorCode::kInvalidInput,
            text::Cat("longer than ", LineReader::kLineBytesMax, " bytes")};
  }

  static Error At(const Input& input, const LineReader& reader, const Error& error) {
    return {error.code, text::Cat(input.name, ":", reader.line_number(), ": ", error.message)};
  }

  Expected<void> Step(std::string_view line) {
    const auto parsed = parser_.Parse(line);
    if (!parsed) return std::unexpected(parsed.error());
    if (!*parsed) return {};
    const Record& record = **parsed;

    charges_.clear();
    for (std::size_t i = 0; i < limits_.size(); ++i) {
      charges_.push_back(
          {.key = record.key, .limit = &limits_[i], .name = names_[i], .cost = record.cost});
    }
    const auto decision = store_.CheckAll(charges_, each_, TimePoint{Micros{record.timestamp_us}});
    if (!decision) {
      return std::unexpected(
          Error{decision.error().code,
                text::Cat(ToString(decision.error().code), ": ", decision.error().message)});
    }
    summary_.Add(record, *decision, each_);
    return options_.keep_decisions ? decisions_.Append(DecisionLine(*decision)) : Expected<void>{};
  }

  const Options options_;
  const std::vector<Limit> limits_;
  replay::RecordParser parser_;
  MemoryStore store_;
  replay::Summary summary_;
  std::vector<std::string> names_;
  std::vector<Charge> charges_;
  std::vector<Decision> each_;
  Spool decisions_;
};

int Fail(const Error& error) {
  std::fprintf(stderr, "sluice replay: %s\n", error.message.c_str());
  return kExitError;
}

}  // namespace

ReplayCommand::ReplayCommand(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("replay", "Says what limits would have done to recorded traffic");
  command->footer(
      "Input is CSV (timestamp_us,key[,cost], with or without a header) or JSON lines with those\n"
      "names. Time comes from the input alone. Several limits are all or nothing.\n"
      "\n"
      "Example:\n"
      "  sluice replay --limit algorithm=token_bucket,capacity=5,refill=1,period=1s traffic.csv\n");
  command->add_option("--limit", limits_, "A limit to apply to every key; may be repeated")
      ->required()
      ->type_name("SPEC")
      ->allow_extra_args(false);
  command->add_option("--store", store_, "Where the state lives")
      ->check(CLI::IsMember({"memory"}, CLI::ignore_case))
      ->type_name("memory")
      ->capture_default_str();
  command->add_option("--format", format_, "Read this format instead of detecting it")
      ->transform(CLI::IsMember({"csv", "jsonl"}, CLI::ignore_case))
      ->type_name("csv|jsonl");
  CLI::Option* decisions = command->add_flag(
      "--decisions", decisions_,
      "Print one CSV line per request (allowed is 1 or 0) instead of the summary");
  command->add_flag("--json", json_, "Print the summary as JSON")->excludes(decisions);
  command->add_flag("--skip-bad", skip_bad_, "Count bad lines and go on instead of stopping");
  command->add_option("FILE", file_, "What to read; - is standard input")->capture_default_str();
}

int ReplayCommand::Run() const {
  auto limits = ParseLimits(limits_);
  if (!limits) return Fail(limits.error());
  const auto input = Open(file_);
  if (!input) return Fail(input.error());

  const replay::Format format = format_ == "csv"     ? replay::Format::kCsv
                                : format_ == "jsonl" ? replay::Format::kJsonLines
                                                     : replay::Format::kDetect;
  Replay replay(*std::move(limits),
                {.format = format, .keep_decisions = decisions_, .skip_bad = skip_bad_});
  if (const auto done = replay.Run(*input); !done) return Fail(done.error());

  Expected<void> written;
  if (decisions_) {
    written = WriteAll(stdout, kDecisionsHeader);
    if (written) written = replay.decisions().WriteTo(stdout);
    if (replay.summary().bad_lines() > 0) {
      std::fprintf(stderr, "sluice replay: bad lines skipped: %lld\n",
                   static_cast<long long>(replay.summary().bad_lines()));
    }
  } else {
    written = WriteAll(stdout, json_ ? replay.summary().ToJson() : replay.summary().ToText());
  }
  return written ? kExitOk : Fail(written.error());
}

}  // namespace sluice::cli
