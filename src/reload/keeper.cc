// SPDX-License-Identifier: Apache-2.0
#include "reload/keeper.h"

#include <utility>
#include <vector>

#include "core/text.h"
#include "rules/parse.h"
#include "rules/schema.h"

namespace sluice::reload {
namespace {

constexpr std::size_t kProblemsLogged = 20;

Keeper::Outcome Refused(Error error) { return {std::unexpected(std::move(error)), {}}; }

Keeper::Outcome IsOther(std::string_view id) {
  return {.result = std::unexpected(
              Error{ErrorCode::kInvalidRequest,
                    text::Cat("the rule set ", text::Quote(id), " is not the one that is meant")}),
          .problems = {},
          .is_other = true};
}

// Asks about what was read just now, of which another instance may have written more than is in
// force here.
bool Holds(Keeper::Condition& condition, const Sources& sources, const std::string& id) {
  if (!condition) return true;
  const auto found = sources.managed.find(id);
  if (found == sources.managed.end()) return condition({});
  const auto parsed = rules::ParseRuleSet(found->second, id);
  return parsed && condition((*parsed)->hash());
}

}  // namespace

Keeper::Keeper(Options options, const Parts& parts)
    : options_(std::move(options)),
      managed_(parts.managed),
      logger_(parts.logger),
      metrics_(parts.metrics) {}

Keeper::~Keeper() { Stop(); }

Problems Keeper::Load() {
  auto sources = ReadAll();
  if (!sources) return {{.file = "configuration", .message = sources.error().message}};
  return Adopt(*std::move(sources)).problems;
}

void Keeper::Start() {
  for (const std::string& place :
       {options_.places.config, options_.places.rules, options_.places.rls}) {
    watch_.Add(place);
  }
  managed_.Watch([this] { watch_.Wake(); });
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Keeper::Stop() {
  if (!thread_.joinable()) return;
  managed_.Watch(nullptr);
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

Expected<Sources> Keeper::ReadAll() {
  auto sources = Read(options_.places);
  if (sources) ReadManaged(*sources);
  return sources;
}

void Keeper::ReadManaged(Sources& sources) {
  if (auto documents = managed_.Load()) {
    managed_documents_ = *std::move(documents);
  } else {
    logger_.Warn("rule sets cannot be read; those known stay",
                 {{"from", managed_.Description()}, {"error", documents.error().message}});
  }
  sources.managed = managed_documents_;
}

void Keeper::NoteUnreadable(const Error& error) {
  unreadable_ = error.message;
  metrics_.Reloaded(telemetry::ReloadResult::kInvalid, 0);
  logger_.Error("rules cannot be read; the old ones stay", {{"error", unreadable_}});
}

// Takes what has changed and says when to look again.
std::chrono::milliseconds Keeper::Look() {
  const auto poll = std::chrono::ceil<std::chrono::milliseconds>(options_.poll_interval);
  const auto settle = std::chrono::ceil<std::chrono::milliseconds>(options_.settle);
  auto sources = ReadAll();
  if (!sources) {
    // Said once: a missing file is looked for again with every poll.
    if (unreadable_ != sources.error().message) NoteUnreadable(sources.error());
    TakeManaged();
    return poll;
  }
  unreadable_.clear();
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

// Files that are no good do not keep from this instance what all others have changed.
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
  if (outcome.result) WarnOfMissing(*before);
  return outcome;
}

// Rule sets that are managed go because somebody asked for it; those of files may by a mistake.
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
  auto catalog = Build(sources, generation);
  if (!catalog) {
    // The first time there are no old ones: whoever loads them tells what is wrong.
    if (catalog_) {
      refused_ = std::move(sources);
      metrics_.Reloaded(telemetry::ReloadResult::kInvalid, 0);
      std::size_t logged = 0;
      for (const Problem& problem : catalog.error()) {
        if (++logged > kProblemsLogged) break;
        logger_.Error("rules are not valid; the old ones stay", {{"problem", problem.ToString()}});
      }
    }
    return {std::unexpected(Error{ErrorCode::kInvalidInput, "the rules are not valid"}),
            std::move(catalog.error())};
  }
  refused_.reset();
  sources_ = std::move(sources);
  Publish(*std::move(catalog));
  return {};
}

void Keeper::Publish(std::shared_ptr<service::Catalog> catalog) {
  std::vector<std::pair<std::string_view, std::string_view>> names;
  for (const auto& rule_set : catalog->rules->rule_sets()) {
    for (const rules::Rule& rule : rule_set->rules()) names.emplace_back(rule_set->id(), rule.id);
  }
  metrics_.RetainRules(names);  // First: those that are gone make room.
  for (const auto& rule_set : catalog->rules->rule_sets()) {
    for (const rules::Rule& rule : rule_set->rules()) {
      catalog->rule_metrics.emplace(&rule, metrics_.Rule(rule_set->id(), rule.id));
    }
  }
  catalog_ = std::move(catalog);
  options_.publish(catalog_);
  metrics_.Reloaded(telemetry::ReloadResult::kOk, static_cast<std::int64_t>(catalog_->generation));
  logger_.Info("rules in force", {{"generation", catalog_->generation},
                                  {"rule_sets", catalog_->rules->rule_sets().size()},
                                  {"limits", catalog_->limits.size()},
                                  {"domains", catalog_->domains->domains().size()}});
}

void Keeper::Reload(Done done) {
  Post([this, done = std::move(done)]() mutable { done(Refresh()); });
}

// Not so if others have removed it of which this instance has not heard.
bool Keeper::IsOfFile(const std::string& id) const {
  return catalog_->rules->Find(id) && !catalog_->managed.contains(id);
}

Error Keeper::NotManaged(const std::string& id, std::string_view expected) const {
  if (!IsOfFile(id)) {
    return {ErrorCode::kNotFound, text::Cat("there is no rule set ", text::Quote(id))};
  }
  return {ErrorCode::kInvalidRequest,
          text::Cat("the rule set ", text::Quote(id), " is defined in a file; expected it to be ",
                    expected, " there")};
}

Sources Keeper::WithManaged() {
  Sources sources = sources_;
  ReadManaged(sources);
  return sources;
}

Keeper::Outcome Keeper::Put(Sources sources, const std::string& id, std::string document) {
  const std::string& put = sources.managed.insert_or_assign(id, std::move(document)).first->second;
  if (auto valid = Build(sources, 0); !valid) {
    return {std::unexpected(Error{ErrorCode::kInvalidInput, "the rule set is not valid"}),
            std::move(valid.error())};
  }
  // Saved before it is in force: what clients see is what a restart will see.
  if (auto saved = managed_.Save(id, put); !saved) return Refused(saved.error());
  managed_documents_ = sources.managed;
  return Adopt(std::move(sources));
}

void Keeper::Save(std::string id, std::string document, Condition condition, Done done) {
  Post([this, id = std::move(id), document = std::move(document), condition = std::move(condition),
        done = std::move(done)]() mutable {
    Sources sources = WithManaged();
    if (IsOfFile(id)) return done(Refused(NotManaged(id, "changed")));
    if (!Holds(condition, sources, id)) return done(IsOther(id));
    done(Put(std::move(sources), id, std::move(document)));
  });
}

void Keeper::Change(std::string id, Edit edit, Condition condition, Done done) {
  Post([this, id = std::move(id), edit = std::move(edit), condition = std::move(condition),
        done = std::move(done)]() mutable {
    Sources sources = WithManaged();
    const auto found = sources.managed.find(id);
    if (found == sources.managed.end()) return done(Refused(NotManaged(id, "changed")));
    if (!Holds(condition, sources, id)) return done(IsOther(id));
    const auto rule_set = rules::ParseRuleSet(found->second, text::Cat("managed rule set ", id));
    if (!rule_set) {
      return done({std::unexpected(Error{ErrorCode::kInvalidInput, "the rule set is not valid"}),
                   rule_set.error()});
    }
    done(Put(std::move(sources), id, edit(**rule_set)));
  });
}

void Keeper::Remove(std::string id, Condition condition, Done done) {
  Post([this, id = std::move(id), condition = std::move(condition),
        done = std::move(done)]() mutable {
    Sources sources = WithManaged();
    if (!sources.managed.contains(id)) return done(Refused(NotManaged(id, "removed")));
    if (!Holds(condition, sources, id)) return done(IsOther(id));
    sources.managed.erase(id);
    if (auto removed = managed_.Remove(id); !removed) return done(Refused(removed.error()));
    managed_documents_ = sources.managed;
    done(Adopt(std::move(sources)));
  });
}

}  // namespace sluice::reload
