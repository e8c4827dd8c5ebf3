// SPDX-License-Identifier: Apache-2.0
#include "reload/managed_rules.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "rules/parse.h"

namespace sluice::reload {
namespace {

using From = KnownRules::From;

// Each failure means that somebody else has succeeded.
constexpr int kChangeTriesMax = 8;

constexpr std::size_t kRejectedLogged = 20;

std::string Summary(const Problems& problems) {
  std::string text = problems.front().ToString();
  if (problems.size() > 1) text += text::Cat(" (and ", problems.size() - 1, " more)");
  return text;
}

// What is wrong with a document; nothing if it is valid.
std::optional<std::string> ProblemOf(const std::string& id, const std::string& document) {
  const auto parsed = rules::ParseRuleSet(document, "document");
  if (!parsed) return Summary(parsed.error());
  if ((*parsed)->id() != id) {
    return text::Cat("its id is ", text::Quote((*parsed)->id()), "; expected ", text::Quote(id));
  }
  return std::nullopt;
}

struct Sorted {
  Documents good;
  Rejections invalid;
};

// The valid documents, and the last good version of the others, if there is one.
Sorted Sort(const Documents& stored, const Documents& last_good) {
  Sorted sorted;
  for (const auto& [id, document] : stored) {
    const auto known = last_good.find(id);
    if (known != last_good.end() && known->second == document) {
      sorted.good.insert(*known);
    } else if (auto problem = ProblemOf(id, document); !problem) {
      sorted.good.emplace(id, document);
    } else {
      sorted.invalid.emplace(id, *std::move(problem));
      if (known != last_good.end()) sorted.good.insert(*known);
    }
  }
  return sorted;
}

// Puts back what is known. The revision stays, so that if several instances do this at once, the
// one that knows most wins.
Restoration RestorationOf(const Stored& stored, const KnownRules& known, Verdict verdict) {
  Restoration restoration{.marker = stored.marker,
                          .revision = known.revision,
                          .documents = known.stored,
                          .mode = verdict == Verdict::kReplace ? Restoration::Mode::kReplace
                                                               : Restoration::Mode::kFill};
  if (auto other = Revision::Parse(stored.marker); other && verdict == Verdict::kFill) {
    restoration.revision = *std::move(other);
    ++restoration.revision.number;
  } else if (known.revision.lineage.empty()) {
    restoration.revision = {.lineage = NewLineage(), .number = 1};
  }
  return restoration;
}

}  // namespace

Verdict Judge(const Stored& stored, const KnownRules& known) {
  if (known.from == From::kNowhere) return Verdict::kTake;
  const auto revision = Revision::Parse(stored.marker);
  if (!revision) {
    // A store that was never changed through the API has no revision to lose.
    const bool lost =
        known.revision.lineage.empty() ? stored.documents.empty() && !known.stored.empty() : true;
    return lost ? Verdict::kFill : Verdict::kTake;
  }
  if (revision->lineage == known.revision.lineage) {
    return revision->number < known.revision.number ? Verdict::kReplace : Verdict::kTake;
  }
  // It was emptied, and somebody unaware of that started anew. A file may be from another store.
  const bool was_read = known.from == From::kStore && !known.revision.lineage.empty();
  const bool has_all = std::ranges::all_of(
      known.stored, [&](const auto& one) { return stored.documents.contains(one.first); });
  return was_read && !has_all ? Verdict::kFill : Verdict::kTake;
}

ManagedRules::ManagedRules(RuleSetStore& store, std::string keep_file, telemetry::Logger& logger)
    : store_(store), keep_file_(std::move(keep_file)), logger_(logger) {
  status_.ready = false;
  status_.store_works = false;
  status_.problem = "the rule sets were not read yet";
  status_.keeps = !keep_file_.empty();
}

void ManagedRules::LoadKept() {
  if (keep_file_.empty()) return;
  auto kept = reload::Read(keep_file_);
  if (!kept) {
    if (kept.error().code == ErrorCode::kNotFound) return;
    logger_.Error("the kept rule sets cannot be used",
                  {{"file", keep_file_}, {"error", kept.error().message}});
    const std::scoped_lock lock(mutex_);
    status_.keep_problem = kept.error().message;
    ++status_.keep_failures;
    return;
  }
  // A version that was valid when it was written may not be valid any more.
  Sorted last_good = Sort(kept->good, {});
  auto [good, invalid] = Sort(kept->stored, last_good.good);
  known_ = {.from = From::kFile,
            .revision = std::move(kept->revision),
            .stored = std::move(kept->stored),
            .good = std::move(good)};
  invalid_ = std::move(invalid);
  is_kept_ = true;
  logger_.Info("kept rule sets read", {{"file", keep_file_}, {"rule_sets", known_.good.size()}});
  LogRejected();
  const std::scoped_lock lock(mutex_);
  status_.ready = true;
  status_.revision = known_.revision.number;
}

Expected<void> ManagedRules::Read() {
  for (int tries = 0; tries < kChangeTriesMax; ++tries) {
    auto stored = store_.Load();
    if (!stored) {
      NoteProblem(text::Cat("the rule sets cannot be read: ", stored.error().message));
      return std::unexpected(stored.error());
    }
    const Verdict verdict = Judge(*stored, known_);
    if (verdict == Verdict::kTake) {
      Take(*std::move(stored));
      return {};
    }
    const std::string_view what = verdict == Verdict::kFill
                                      ? "the rule set store has lost its rule sets"
                                      : "the rule set store has lost its last changes";
    const Restoration restoration = RestorationOf(*stored, known_, verdict);
    const auto restored = store_.Restore(restoration);
    if (!restored) {
      NoteProblem(text::Cat(what, ", which cannot be written back: ", restored.error().message));
      return std::unexpected(restored.error());
    }
    if (!*restored) continue;  // Somebody else was faster.
    known_.revision = restoration.revision;
    logger_.Warn(text::Cat(what, "; what is known here was written back"),
                 {{"to", store_.Description()},
                  {"revision", known_.revision.number},
                  {"rule_sets", known_.stored.size()}});
    const std::scoped_lock lock(mutex_);
    ++status_.restored;
  }
  NoteProblem("the rule set store changes faster than it can be read");
  return std::unexpected(
      Error{ErrorCode::kUnavailable, "the rule set store changes faster than it can be read"});
}

Expected<Changed> ManagedRules::Apply(Change change) {
  change.at_least = known_.revision;
  auto changed = store_.Apply(change);
  if (!changed || changed->result != Changed::Result::kDone) return changed;
  const Revision& before = known_.revision;
  const bool is_next = changed->revision.number == before.number + 1 &&
                       (before.lineage.empty() || before.lineage == changed->revision.lineage);
  if (!is_next) {
    // The change is made, whether or not this succeeds.
    static_cast<void>(Read());
    return changed;
  }
  Stored stored{.documents = known_.stored, .marker = changed->revision.ToString()};
  if (change.document) {
    stored.documents.insert_or_assign(change.id, *std::move(change.document));
  } else {
    stored.documents.erase(change.id);
  }
  Take(std::move(stored));
  return changed;
}

const std::string* ManagedRules::FindStored(std::string_view id) const {
  const auto found = known_.stored.find(id);
  return found == known_.stored.end() ? nullptr : &found->second;
}

void ManagedRules::Take(Stored stored) {
  Revision revision = Revision::Parse(stored.marker).value_or(Revision{});
  if (known_.from == From::kFile && !known_.revision.lineage.empty() &&
      revision.lineage != known_.revision.lineage) {
    logger_.Warn("the kept rule sets are those of another store and are not used any more",
                 {{"file", keep_file_}});
    known_ = {};
  }
  if (revision != known_.revision) is_kept_ = false;
  if (known_.from == From::kNowhere || known_.stored != stored.documents) {
    is_kept_ = false;
    auto [good, invalid] = Sort(stored.documents, known_.good);
    known_.stored = std::move(stored.documents);
    known_.good = std::move(good);
    invalid_ = std::move(invalid);
  }
  known_.from = From::kStore;
  known_.revision = std::move(revision);
  {
    const std::scoped_lock lock(mutex_);
    if (!status_.problem.empty() && status_.ready) {
      logger_.Info("the rule sets can be read again", {{"from", store_.Description()}});
    }
    status_.ready = true;
    status_.store_works = true;
    status_.problem.clear();
    status_.revision = known_.revision.number;
  }
  LogRejected();
  Keep();
}

// Logged once: the store is read again at every poll.
void ManagedRules::NoteProblem(std::string problem) {
  const std::scoped_lock lock(mutex_);
  if (status_.problem == problem) return;
  logger_.Warn("the rule sets in force may not be those of the store; those known stay",
               {{"from", store_.Description()}, {"error", problem}});
  status_.store_works = false;
  status_.problem = std::move(problem);
}

void ManagedRules::SetSkipped(Rejections skipped) {
  skipped_ = std::move(skipped);
  LogRejected();
}

void ManagedRules::LogRejected() {
  Rejections all = invalid_;
  all.insert(skipped_.begin(), skipped_.end());
  if (all != logged_) {
    std::size_t logged = 0;
    for (const auto& [id, problem] : all) {
      const auto before = logged_.find(id);
      if (before != logged_.end() && before->second == problem) continue;
      if (++logged > kRejectedLogged) break;
      logger_.Error(
          "a rule set of the store is not valid and was left out",
          {{"rule_set", id},
           {"problem", problem},
           {"in_force", known_.good.contains(id) && !skipped_.contains(id) ? "its last good version"
                                                                           : "no version of it"}});
    }
    for (const auto& [id, problem] : logged_) {
      if (all.contains(id)) continue;
      if (++logged > kRejectedLogged) break;
      logger_.Info("a rule set of the store is valid again, or gone", {{"rule_set", id}});
    }
    logged_ = all;
  }
  const std::scoped_lock lock(mutex_);
  status_.rejected_count = all.size();
  status_.rejected.clear();
  for (const auto& [id, problem] : all) {
    if (status_.rejected.size() == RulesStatus::kRejectedShown) break;
    status_.rejected.push_back(
        {.id = std::string(text::CutUtf8(id, RulesStatus::kIdBytesShown)),
         .problem = problem,
         .has_last_good = known_.good.contains(id) && !skipped_.contains(id)});
  }
}

void ManagedRules::Keep() {
  if (keep_file_.empty() || is_kept_) return;
  KeptRules kept{.revision = known_.revision, .stored = known_.stored, .good = {}};
  for (const auto& [id, problem] : invalid_) {
    const auto good = known_.good.find(id);
    if (good != known_.good.end()) kept.good.insert(*good);
  }
  const auto written = Write(kept, keep_file_);
  std::string problem = written ? "" : written.error().message;
  is_kept_ = written.has_value();
  const std::scoped_lock lock(mutex_);
  if (!written) ++status_.keep_failures;
  // Logged once: it is tried again at every poll.
  if (!written && status_.keep_problem != problem) {
    logger_.Error("the rule sets cannot be kept for the next start",
                  {{"file", keep_file_}, {"error", problem}});
  }
  status_.keep_problem = std::move(problem);
}

RulesStatus ManagedRules::status() const {
  const std::scoped_lock lock(mutex_);
  return status_;
}

}  // namespace sluice::reload
