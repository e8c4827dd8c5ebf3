// SPDX-License-Identifier: Apache-2.0
#include "reload/keeper.h"

#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/text.h"
#include "rules/parse.h"
#include "rules/schema.h"

namespace sluice::reload {
namespace {

constexpr std::size_t kProblemsLogged = 20;

Keeper::Outcome Refused(Error error) { return {std::unexpected(std::move(error)), {}}; }

Keeper::Outcome Invalid(Problems problems) {
  return {std::unexpected(Error{ErrorCode::kInvalidInput, "the rule set is not valid"}),
          std::move(problems)};
}

Keeper::Outcome IsOther(std::string_view id) {
  return {.result = std::unexpected(
              Error{ErrorCode::kPreconditionFailed,
                    text::Cat("the rule set ", text::Quote(id), " is not the one that is meant")}),
          .problems = {}};
}

// Each failure means that somebody else has changed the same rule set.
constexpr int kCommitTriesMax = 32;

// If the content is not a rule set, hashes the content itself: nobody was given such a hash.
std::string HashOf(const std::string& stored) {
  const auto parsed = rules::ParseRuleSet(stored, "stored");
  if (parsed) return (*parsed)->hash();
  std::string digest;
  AppendSha256(digest, stored);
  return digest;
}

// Null if it is not valid.
std::shared_ptr<const rules::RuleSet> ParseStored(const std::string& id,
                                                  const std::string& stored) {
  auto parsed = rules::ParseRuleSet(stored, text::Cat("managed rule set ", id));
  return parsed ? *std::move(parsed) : nullptr;
}

bool Holds(Keeper::Condition& condition, const std::string* stored) {
  if (!condition) return true;
  return stored ? condition(HashOf(*stored)) : condition(std::nullopt);
}

// What must still be stored for a condition that was found to hold.
Change::If StillThere(const Keeper::Condition& condition, const std::string* stored) {
  if (!condition) return Change::If::kAny;
  return stored ? Change::If::kSame : Change::If::kAbsent;
}

Error NothingChanged(const Error& error) {
  // Only reading was tried.
  const ErrorCode code =
      error.code == ErrorCode::kOutcomeUnknown ? ErrorCode::kUnavailable : error.code;
  return {code,
          text::Cat("the rule set store cannot be read, and nothing was changed: ", error.message)};
}

Error NotSaved(const Error& error) {
  if (error.code != ErrorCode::kOutcomeUnknown) return error;
  return {error.code, text::Cat("the rule set may have been changed or not: ", error.message,
                                "; read it again before you repeat this")};
}

}  // namespace

Keeper::Keeper(Options options, const Parts& parts)
    : options_(std::move(options)),
      store_(parts.managed),
      logger_(parts.logger),
      metrics_(parts.metrics),
      managed_(parts.managed, options_.keep_file, parts.logger) {}

Keeper::~Keeper() { Stop(); }

Problems Keeper::Load() {
  managed_.LoadKept();
  auto sources = ReadAll();
  if (!sources) return {{.file = "configuration", .message = sources.error().message}};
  Problems problems = Adopt(*std::move(sources)).problems;
  if (problems.empty()) NoteFiles({});
  return problems;
}

Keeper::FilesStatus Keeper::files_status() const {
  const std::scoped_lock lock(mutex_);
  return files_;
}

// The result of looking at the files; empty: they are in force.
void Keeper::NoteFiles(std::string problem) {
  const std::scoped_lock lock(mutex_);
  if (problem.empty()) files_.good_at = logger_.clock().Now();
  files_.problem = std::move(problem);
}

void Keeper::Start() {
  for (const std::string& place :
       {options_.places.config, options_.places.rules, options_.places.rls}) {
    watch_.Add(place);
  }
  store_.Watch([this] { watch_.Wake(); });
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Keeper::Stop() {
  if (!thread_.joinable()) return;
  store_.Watch(nullptr);
  thread_.request_stop();
  watch_.Wake();
  thread_.join();
}

void Keeper::Run(const std::stop_token& stop) {
  while (true) {
    std::deque<std::move_only_function<void()>> tasks;
    {
      const std::scoped_lock lock(mutex_);
      tasks.swap(tasks_);
    }
    for (auto& task : tasks) task();
    if (!tasks.empty()) continue;
    if (stop.stop_requested()) return;
    watch_.Wait(Look());
  }
}

void Keeper::Post(std::move_only_function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  watch_.Wake();
}

// If the store cannot be read, its status tells so, and what is known of it stays.
Expected<Sources> Keeper::ReadAll() {
  auto sources = Read(options_.places);
  static_cast<void>(managed_.Read());
  if (sources) sources->managed = managed_.documents();
  return sources;
}

void Keeper::NoteUnreadable(const Error& error) {
  unreadable_ = error.message;
  NoteFiles(unreadable_);
  metrics_.Reloaded(service::ReloadResult::kInvalid, 0);
  logger_.Error("rules cannot be read; the old ones stay", {{"error", unreadable_}});
}

// Takes what has changed, and returns when to look again.
std::chrono::milliseconds Keeper::Look() {
  const auto poll = std::chrono::ceil<std::chrono::milliseconds>(options_.poll_interval);
  const auto settle = std::chrono::ceil<std::chrono::milliseconds>(options_.settle);
  auto sources = ReadAll();
  if (!sources) {
    // Logged once: a missing file is looked for at every poll.
    if (unreadable_ != sources.error().message) NoteUnreadable(sources.error());
    TakeManaged();
    return poll;
  }
  unreadable_.clear();
  // Files that were restored to what is in force are fixed, without anything to take.
  if (SameFiles(*sources, sources_) && !files_status().problem.empty()) NoteFiles({});
  if (*sources == sources_) refused_.reset();
  if (*sources == sources_ || *sources == refused_) {
    unsettled_.reset();
    return poll;
  }
  if (!SameFiles(*sources, sources_)) {
    const auto now = std::chrono::steady_clock::now();
    if (!unsettled_ || !SameFiles(*sources, *unsettled_)) {
      unsettled_ = *std::move(sources);
      unsettled_since_ = now;
      return settle;
    }
    if (now - unsettled_since_ < settle) return settle;
  }
  unsettled_.reset();
  if (!Take(*std::move(sources)).result) TakeManaged();
  return poll;
}

// Invalid files do not keep this instance from taking what all others have changed.
void Keeper::TakeManaged() {
  Sources known = WithManaged();
  if (known == sources_ || !Build(known, 0)) return;
  auto refused = std::move(refused_);
  Adopt(std::move(known));
  refused_ = std::move(refused);
}

Keeper::Outcome Keeper::Refresh() {
  auto sources = ReadAll();
  if (!sources) {
    NoteUnreadable(sources.error());
    return Refused(sources.error());
  }
  unreadable_.clear();
  return Take(*std::move(sources));
}

Keeper::Outcome Keeper::Take(Sources sources) {
  const auto before = catalog_;
  Outcome outcome = Adopt(std::move(sources));
  if (outcome.result) {
    NoteFiles({});
    WarnOfMissing(*before);
  } else {
    NoteFiles(outcome.problems.front().ToString());
  }
  return outcome;
}

// Managed rule sets disappear because somebody asked for it; those of files may by mistake.
void Keeper::WarnOfMissing(const service::Catalog& before) {
  const auto warn = [this](std::string_view message, const std::vector<std::string_view>& names) {
    if (names.empty()) return;
    logger_.Warn(message, {{"count", names.size()}, {"names", rules::JoinNames(names)}});
  };
  std::vector<std::string_view> rule_sets;
  for (const auto& rule_set : before.rules->rule_sets()) {
    if (before.managed.contains(rule_set->id()) || catalog_->rules->Find(rule_set->id())) continue;
    rule_sets.push_back(rule_set->id());
  }
  warn("rule sets are gone from the files; requests for them are not found", rule_sets);
  std::vector<std::string_view> domains;
  for (const rules::RlsDomain& domain : before.domains->domains()) {
    if (!catalog_->domains->Find(domain.name())) domains.push_back(domain.name());
  }
  warn("domains are gone from the files; requests for them pass", domains);
}

Keeper::Outcome Keeper::Adopt(Sources sources) {
  const std::uint64_t generation = catalog_ ? catalog_->generation + 1 : 1;
  auto built = Build(sources, generation);
  if (!built) {
    // The first time there is no old catalog: the caller of Load reports the problems.
    if (catalog_) {
      refused_ = std::move(sources);
      metrics_.Reloaded(service::ReloadResult::kInvalid, 0);
      std::size_t logged = 0;
      for (const Problem& problem : built.error()) {
        if (++logged > kProblemsLogged) break;
        logger_.Error("rules are not valid; the old ones stay", {{"problem", problem.ToString()}});
      }
    }
    return {std::unexpected(Error{ErrorCode::kInvalidInput, "the rules are not valid"}),
            std::move(built.error())};
  }
  refused_.reset();
  sources_ = std::move(sources);
  managed_.SetSkipped(std::move(built->skipped));
  Publish(std::move(built->catalog));
  return {};
}

void Keeper::Publish(std::shared_ptr<service::Catalog> catalog) {
  std::vector<std::pair<std::string_view, std::string_view>> names;
  for (const auto& rule_set : catalog->rules->rule_sets()) {
    for (const rules::Rule& rule : rule_set->rules()) names.emplace_back(rule_set->id(), rule.id);
  }
  metrics_.RetainRules(names);  // First: removed rules make room.
  for (const auto& rule_set : catalog->rules->rule_sets()) {
    for (const rules::Rule& rule : rule_set->rules()) {
      catalog->rule_metrics.emplace(&rule, metrics_.Rule(rule_set->id(), rule.id));
    }
  }
  service::AddDescriptorMetrics(*catalog, metrics_);
  catalog_ = std::move(catalog);
  options_.publish(catalog_);
  metrics_.Reloaded(service::ReloadResult::kOk, static_cast<std::int64_t>(catalog_->generation));
  logger_.Info("rules in force", {{"generation", catalog_->generation},
                                  {"rule_sets", catalog_->rules->rule_sets().size()},
                                  {"limits", catalog_->limits.size()},
                                  {"domains", catalog_->domains->domains().size()}});
  LogWarnings();
}

// Only the first ones; `sluice validate` prints them all.
void Keeper::LogWarnings() const {
  std::size_t logged = 0;
  for (const auto& rule_set : catalog_->rules->rule_sets()) {
    for (const Problem& warning : rule_set->spec().warnings) {
      if (++logged > kProblemsLogged) return;
      logger_.Warn("a rule may not do what is meant", {{"warning", warning.ToString()}});
    }
  }
}

void Keeper::Reload(Done done) {
  Post([this, done = std::move(done)]() mutable { done(Refresh()); });
}

// False if another instance has removed it and this one has not heard of it.
bool Keeper::IsOfFile(const std::string& id) const {
  return catalog_->rules->Find(id) && !catalog_->managed.contains(id);
}

Error Keeper::NotManaged(const std::string& id, std::string_view expected) const {
  if (!IsOfFile(id)) {
    return {ErrorCode::kNotFound, text::Cat("there is no rule set ", text::Quote(id))};
  }
  return {ErrorCode::kConflict,
          text::Cat("the rule set ", text::Quote(id), " is defined in a file; expected it to be ",
                    expected, " there")};
}

Sources Keeper::WithManaged() const {
  Sources sources = sources_;
  sources.managed = managed_.documents();
  return sources;
}

// Whether a document can be put in force along with all others.
Keeper::Outcome Keeper::CheckFits(const std::string& id, const std::string& document) const {
  Sources sources = WithManaged();
  sources.managed.insert_or_assign(id, document);
  const auto built = Build(sources, 0);
  if (!built) return Invalid(built.error());
  const auto skipped = built->skipped.find(id);
  if (skipped == built->skipped.end()) return {};
  return Invalid({{.file = text::Cat("rule set ", id), .message = skipped->second}});
}

void Keeper::Commit(std::string id, Planner plan, Done done) {
  Post([this, id = std::move(id), plan = std::move(plan), done = std::move(done)]() mutable {
    done(CommitNow(id, plan));
  });
}

// Reads, decides and changes what was read, or starts over if that has changed.
Keeper::Outcome Keeper::CommitNow(const std::string& id, Planner& plan) {
  for (int tries = 0; tries < kCommitTriesMax; ++tries) {
    if (const auto read = managed_.Read(); !read) return Refused(NothingChanged(read.error()));
    const std::string* stored = managed_.FindStored(id);
    auto planned = plan(stored);
    const auto before = stored ? ParseStored(id, *stored) : nullptr;
    if (!planned) return std::move(planned.error());
    if (planned->document) {
      if (Outcome fits = CheckFits(id, *planned->document); !fits.result) return fits;
    }
    const bool removal = !planned->document;
    // Saved before it is in force: what clients see is what a restart will see.
    const auto changed = managed_.Apply({.id = id,
                                         .document = std::move(planned->document),
                                         .condition = planned->condition,
                                         .same = stored ? *stored : std::string()});
    if (!changed) {
      Outcome outcome = Refused(NotSaved(changed.error()));
      outcome.before = before;
      return outcome;
    }
    if (changed->result != Changed::Result::kDone) continue;
    if (removal && !changed->existed) return Refused(NotManaged(id, "removed"));
    Outcome outcome = Adopt(WithManaged());
    outcome.created = !changed->existed;
    outcome.before = before;
    if (!removal) outcome.after = {catalog_->rules, catalog_->rules->Find(id)};
    return outcome;
  }
  return Refused({ErrorCode::kUnavailable,
                  text::Cat("the rule set ", text::Quote(id),
                            " is being changed by others; nothing was changed here")});
}

void Keeper::Create(std::string id, std::string document, Done done) {
  auto plan = [this, id, document = std::move(document)](
                  const std::string* stored) -> std::expected<Plan, Outcome> {
    if (!stored && !IsOfFile(id)) {
      return Plan{.document = document, .condition = reload::Change::If::kAbsent};
    }
    return std::unexpected(
        Refused({ErrorCode::kConflict,
                 text::Cat("there is a rule set ", text::Quote(id), "; PUT replaces it")}));
  };
  Commit(std::move(id), std::move(plan), std::move(done));
}

void Keeper::Save(std::string id, std::string document, Condition condition, Done done) {
  auto plan = [this, id, document = std::move(document), condition = std::move(condition)](
                  const std::string* stored) mutable -> std::expected<Plan, Outcome> {
    if (IsOfFile(id)) return std::unexpected(Refused(NotManaged(id, "changed")));
    if (!Holds(condition, stored)) return std::unexpected(IsOther(id));
    return Plan{.document = document, .condition = StillThere(condition, stored)};
  };
  Commit(std::move(id), std::move(plan), std::move(done));
}

void Keeper::Change(std::string id, Edit edit, Condition condition, Done done) {
  auto plan = [this, id, edit = std::move(edit), condition = std::move(condition)](
                  const std::string* stored) mutable -> std::expected<Plan, Outcome> {
    if (!stored || IsOfFile(id)) return std::unexpected(Refused(NotManaged(id, "changed")));
    if (!Holds(condition, stored)) return std::unexpected(IsOther(id));
    const auto rule_set = rules::ParseRuleSet(*stored, text::Cat("managed rule set ", id));
    if (!rule_set) {
      return std::unexpected(Refused(
          {ErrorCode::kConflict, text::Cat("what is stored as the rule set ", text::Quote(id),
                                           " is not valid; PUT replaces it, DELETE removes it")}));
    }
    return Plan{.document = edit(**rule_set), .condition = reload::Change::If::kSame};
  };
  Commit(std::move(id), std::move(plan), std::move(done));
}

void Keeper::Remove(std::string id, Condition condition, Done done) {
  auto plan = [this, id, condition = std::move(condition)](
                  const std::string* stored) mutable -> std::expected<Plan, Outcome> {
    if (!stored) return std::unexpected(Refused(NotManaged(id, "removed")));
    if (!Holds(condition, stored)) return std::unexpected(IsOther(id));
    return Plan{.document = std::nullopt, .condition = StillThere(condition, stored)};
  };
  Commit(std::move(id), std::move(plan), std::move(done));
}

}  // namespace sluice::reload
