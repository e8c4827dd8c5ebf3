// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "cli/exit_code.h"
#include "cli/hide_secrets.h"
#include "cli/progress.h"
#include "cli/spool.h"
#include "cli/stores.h"
#include "core/algorithms.h"
#include "replay/line_reader.h"
#include "replay/summary.h"
#include "sluice/hold.h"
#include "sluice/memory_store.h"
#include "sluice/redis_store.h"

namespace sluice::cli {
namespace {

using replay::LineReader;
using replay::Record;

constexpr std::string_view kDecisionsHeader =
    "allowed,remaining,retry_after_us,reset_after_us,delay_us";
constexpr std::string_view kOpsHeader = ",held,status";

// Nobody waits for a single decision, so Redis may be slow.
constexpr std::chrono::seconds kTimeout{30};

std::string DecisionLine(const Decision& decision) {
  std::string line = decision.allowed ? "1" : "0";
  for (const std::int64_t number : {decision.remaining, decision.retry_after.count(),
                                    decision.reset_after.count(), decision.delay.count()}) {
    line += ',';
    line += std::to_string(number);
  }
  return line;
}

// What the input asked for is refused, which is an answer as a denial is.
bool IsRefusal(ErrorCode code) {
  return code == ErrorCode::kHoldLost || code == ErrorCode::kHoldConflict ||
         code == ErrorCode::kNeedsHold || code == ErrorCode::kTooManyHolds;
}

std::string_view StatusOf(const Request& request) {
  if (!request.outcome) return ToString(request.outcome.error().code);
  if (!request.outcome->allowed) return "denied";
  return request.hold && request.hold->late ? "late" : "ok";
}

// A replay forgets nothing: its records may be out of order, and all of its keys must fit.
MemoryStore::Options ReplayOptions() {
  return {.keys_max = std::numeric_limits<std::int64_t>::max(),
          .log_entries_max = std::numeric_limits<std::int64_t>::max(),
          .recovered_kept_for = Micros::max()};
}

// Empties the key space of a replay on Redis.
struct PurgeAtEnd {
  std::shared_ptr<RedisStore> store;
  ~PurgeAtEnd() {
    if (store) static_cast<void>(store->Purge("*", false));
  }
};

// The store to replay on. On Redis, it uses its own key space, separate from live traffic but below
// the prefix, for which users of that Redis have permission.
Expected<std::shared_ptr<Store>> OpenStore(const std::string& text, PurgeAtEnd& purge) {
  if (text == kMemory) return std::make_shared<MemoryStore>(ReplayOptions());
  auto redis = OpenRedis({.uri = text,
                          .scratch = text::Cat("replay:", ::getpid(), ".", std::random_device{}()),
                          .timeout = kTimeout});
  if (!redis) return std::unexpected(redis.error());
  purge.store = *std::move(redis);
  return purge.store;
}

struct Input {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file;
  std::string name;
  std::int64_t bytes = 0;  // 0 if unknown.
};

Expected<Input> Open(const std::string& path) {
  const bool standard_input = path == "-";
  Input input{.file = {standard_input ? stdin : std::fopen(path.c_str(), "rbe"), &std::fclose},
              .name = standard_input ? "standard input" : WithoutSecrets(path)};
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

  Replay(Store& store, std::vector<Limit> limits, const Options& options)
      : options_(options),
        limits_(std::move(limits)),
        parser_(options.format),
        store_(store),
        summary_(limits_) {
    // Named by position, so that equal limits are still two budgets, as in a rule.
    for (std::size_t i = 0; i < limits_.size(); ++i) names_.push_back(std::to_string(i));
    has_ops_ = std::ranges::any_of(limits_, core::NeedsHold);
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
      if (*status == LineReader::Status::kEnd) return Decide(input);
      const auto record = *status == LineReader::Status::kTooLong ? TooLong() : parser_.Parse(line);
      if (!record) {
        // Errors in earlier lines come first.
        if (auto decided = Decide(input); !decided) return decided;
        if (auto bad = BadLine(input, reader.line_number(), record.error()); !bad) return bad;
        continue;
      }
      if (!*record) continue;
      earliest_us_ = std::min(earliest_us_, (*record)->timestamp_us);
      latest_us_ = std::max(latest_us_, (*record)->timestamp_us);
      asked_.push_back(
          {.line = reader.line_number(),
           .timestamp_us = (*record)->timestamp_us,
           .key = std::string((*record)->key),
           .cost = (*record)->cost,
           .action = (*record)->action,
           .hold_id = std::string((*record)->hold_id),
           .hold = {.id = {}, .ttl = (*record)->ttl, .on_expiry = (*record)->on_expiry}});
      has_ops_ = has_ops_ || (*record)->names_op;
      if (asked_.size() < kAtOnce) continue;
      if (auto decided = Decide(input); !decided) return decided;
      progress.Update(reader.bytes_read());
    }
  }

  const replay::Summary& summary() const { return summary_; }

  // What the input's times look like, if not what they are read as; otherwise empty.
  std::string_view OtherUnit() const {
    // 2001 to 5138, in seconds and in milliseconds. Times relative to the start of the recording
    // are smaller.
    constexpr std::int64_t kFirstSecond = 1'000'000'000;
    constexpr std::int64_t kLastSecond = 100'000'000'000;
    const auto lies_within = [this](std::int64_t first, std::int64_t last) {
      return earliest_us_ >= first && latest_us_ < last && earliest_us_ <= latest_us_;
    };
    if (lies_within(kFirstSecond, kLastSecond)) return "seconds";
    if (lies_within(kFirstSecond * 1'000, kLastSecond * 1'000)) return "milliseconds";
    return {};
  }

  // Whether the input does more than check.
  bool has_ops() const { return has_ops_; }
  Spool& decisions() { return has_ops_ ? decisions_of_ops_ : decisions_; }

 private:
  // Enough to keep Redis busy. Few enough that a distant one answers all within kTimeout: requests
  // with their own times need a round trip for every two.
  static constexpr std::size_t kAtOnce = 64;

  struct Asked {
    std::int64_t line;
    std::int64_t timestamp_us;
    std::string key;
    std::int64_t cost;
    Action action;
    std::string hold_id;
    HoldTerms hold;

    bool has_hold() const {
      return action == Action::kHold || action == Action::kSettle || action == Action::kExtend;
    }
  };

  static Expected<std::optional<Record>> TooLong() {
    return std::unexpected(Error{ErrorCode::kInvalidInput,
                                 text::Cat("longer than ", LineReader::kLineBytesMax, " bytes")});
  }

  // Returns an error unless bad lines are skipped.
  Expected<void> BadLine(const Input& input, std::int64_t line, const Error& error) {
    if (!options_.skip_bad) {
      return std::unexpected(
          Error{error.code, text::Cat(input.name, ":", line, ": ", error.message)});
    }
    summary_.AddBadLine();
    return {};
  }

  // Decides everything asked so far, in order.
  Expected<void> Decide(const Input& input) {
    const std::size_t limits = limits_.size();
    charges_.clear();
    for (const Asked& asked : asked_) {
      for (std::size_t i = 0; i < limits; ++i) {
        charges_.push_back(
            {.key = asked.key, .limit = &limits_[i], .name = names_[i], .cost = asked.cost});
      }
    }
    each_.resize(charges_.size());
    requests_.clear();
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      Asked& asked = asked_[i];
      if (asked.action == Action::kHold && asked.hold_id.empty()) asked.hold_id = NewHoldId();
      asked.hold.id = asked.hold_id;
      requests_.push_back({.charges = std::span(charges_).subspan(i * limits, limits),
                           .now = TimePoint{Micros{asked.timestamp_us}},
                           .each = std::span(each_).subspan(i * limits, limits),
                           .action = asked.action,
                           .hold = asked.has_hold() ? &asked.hold : nullptr});
    }
    std::promise<void> answered;
    store_.Apply(requests_, [&] { answered.set_value(); });
    answered.get_future().wait();

    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const Asked& asked = asked_[i];
      const auto& outcome = requests_[i].outcome;
      const bool refused = !outcome && has_ops_ && IsRefusal(outcome.error().code);
      if (!outcome && !refused) {
        const Error error{outcome.error().code,
                          text::Cat(ToString(outcome.error().code), ": ", outcome.error().message)};
        // An outage is not the line's fault.
        if (error.transient()) return std::unexpected(error);
        if (auto bad = BadLine(input, asked.line, error); !bad) return bad;
        continue;
      }
      const bool is_asked = asked.action == Action::kCheck || asked.action == Action::kHold;
      if (!refused && is_asked) {
        summary_.Add({.timestamp_us = asked.timestamp_us, .key = asked.key, .cost = asked.cost},
                     *outcome, requests_[i].each);
      }
      if (!options_.keep_decisions) continue;
      if (auto kept = Keep(requests_[i]); !kept) return kept;
    }
    asked_.clear();
    return {};
  }

  // In both forms, until it is known that the input has ops.
  Expected<void> Keep(const Request& request) {
    const Decision decision = request.outcome.value_or(Decision{});
    const std::string line = DecisionLine(decision);
    if (!has_ops_) {
      if (auto kept = decisions_.Append(line + "\n"); !kept) return kept;
    }
    return decisions_of_ops_.Append(
        text::Cat(line, ",", decision.held, ",", StatusOf(request), "\n"));
  }

  const Options options_;
  const std::vector<Limit> limits_;
  replay::RecordParser parser_;
  Store& store_;
  replay::Summary summary_;
  std::vector<std::string> names_;
  std::int64_t earliest_us_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t latest_us_ = 0;
  std::vector<Asked> asked_;
  std::vector<Charge> charges_;
  std::vector<Decision> each_;
  std::vector<Request> requests_;
  bool has_ops_ = false;
  Spool decisions_;
  Spool decisions_of_ops_;
};

}  // namespace

ReplayCommand::ReplayCommand(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("replay", "Shows what limits would have done to recorded traffic");
  command->footer(
      "Input is CSV (timestamp_us,key[,cost], with or without a header) or JSON lines with those\n"
      "names. Time comes only from the input. Several limits are all or nothing.\n"
      "JSON lines may also hold, settle, release, extend, give and reset: \"op\", with \"id\",\n"
      "\"ttl_us\" and \"on_expiry\"; --decisions then also prints held and status.\n"
      "\n"
      "Example:\n"
      "  sluice replay --limit algorithm=token_bucket,capacity=5,refill=1,period=1s traffic.csv\n");
  command->add_option("--limit", limits_, "Limit to apply to every key; may be repeated")
      ->required()
      ->type_name("SPEC")
      ->allow_extra_args(false);
  command->add_option("--store", store_, "Where the state lives: memory, or the URI of a Redis")
      ->type_name("URI")
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
  if (!limits) return Fail("replay", limits.error());
  const auto input = Open(file_);
  if (!input) return Fail("replay", input.error());

  const replay::Format format = format_ == "csv"     ? replay::Format::kCsv
                                : format_ == "jsonl" ? replay::Format::kJsonLines
                                                     : replay::Format::kDetect;
  PurgeAtEnd purge;
  const auto store = OpenStore(store_, purge);
  if (!store) return Fail("replay", store.error());
  Replay replay(**store, *std::move(limits),
                {.format = format, .keep_decisions = decisions_, .skip_bad = skip_bad_});
  if (const auto done = replay.Run(*input); !done) return Fail("replay", done.error());

  if (const auto unit = replay.OtherUnit(); !unit.empty()) {
    std::fprintf(
        stderr, "sluice replay: warning: %s\n",
        text::Cat("the times look like ", unit, " since the epoch, and are taken for microseconds")
            .c_str());
  }
  Expected<void> written;
  if (decisions_) {
    written =
        WriteAll(stdout, text::Cat(kDecisionsHeader, replay.has_ops() ? kOpsHeader : "", "\n"));
    if (written) written = replay.decisions().WriteTo(stdout);
    if (replay.summary().bad_lines() > 0) {
      std::fprintf(stderr, "sluice replay: bad lines skipped: %lld\n",
                   static_cast<long long>(replay.summary().bad_lines()));
    }
  } else {
    written = WriteAll(stdout, json_ ? replay.summary().ToJson() : replay.summary().ToText());
  }
  return written ? kExitOk : Fail("replay", written.error());
}

}  // namespace sluice::cli
