// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/problem.h"
#include "reload/managed_rules.h"
#include "reload/rule_set_store.h"
#include "reload/sources.h"
#include "reload/watch.h"
#include "service/catalog.h"
#include "service/service_metrics.h"
#include "telemetry/log.h"

namespace sluice::reload {

// Keeps the catalog up to date with its sources. It looks at them when a folder changes, when the
// rule set store announces a change, at least every `poll_interval`, and on request. An invalid
// source changes nothing: the old catalog stays, and the failure is counted and logged. Changed
// files are taken once they are the same at a second look, so that none is taken while it is being
// written. Everything that blocks happens on the keeper's own thread.
class Keeper {
 public:
  struct Options {
    Places places;
    Micros poll_interval{5'000'000};
    Micros settle{100'000};      // How long files must stay the same before they are taken.
    std::string keep_file = {};  // Keeps the managed rule sets for the next start; empty: none.
    // Receives every new catalog, on the keeper's thread; the first one from Load.
    std::function<void(std::shared_ptr<const service::Catalog>)> publish;
  };

  struct Parts {
    RuleSetStore& managed;
    telemetry::Logger& logger;
    service::ServiceMetrics& metrics;
  };

  Keeper(Options options, const Parts& parts);
  ~Keeper();  // Stops.
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Reads everything for the first time, in the calling thread. A rule set store that cannot be
  // reached, or holds invalid rule sets, is not a problem: what was kept of it applies, and its
  // rule sets come later. Status tells whether there are any.
  Problems Load();

  // Starts to watch.
  void Start();

  // Finishes what was requested, and stops. Later requests are never carried out.
  void Stop();

  // The result of a change: nothing, or why it was refused. kInvalidInput comes with problems.
  // kOutcomeUnknown: it may have been made. Any other error: it was not.
  struct Outcome {
    Expected<void> result;
    Problems problems;
    bool created = false;  // There was none before.

    // If the change was made, or may have been: the rule set before and after it. Null: there is
    // none, or it is not valid.
    std::shared_ptr<const rules::RuleSet> before = {};
    std::shared_ptr<const rules::RuleSet> after = {};
  };
  using Done = std::move_only_function<void(Outcome)>;

  // Given the hash of the existing rule set, or nothing if there is none, returns whether it may be
  // changed. Null allows any change. It is asked again if the rule set changes before the change is
  // made: exactly what it approved is changed.
  using Condition = std::move_only_function<bool(std::optional<std::string_view> hash)>;

  // None of these waits; `done` runs on the keeper's thread. A change is one step in the store:
  // instances that share it never overwrite each other unnoticed.
  // Takes the files as they are now.
  void Reload(Done done);
  // Error: kConflict if the rule set exists, in a file or not.
  void Create(std::string id, std::string document, Done done);
  // Creates or replaces it. Error: kConflict if the id belongs to a rule set of a file, which must
  // be changed there.
  void Save(std::string id, std::string document, Condition condition, Done done);
  // Replaces a rule set by the result of `edit`, called with its version at that time, so that
  // earlier requests are not lost. `edit` runs again if others changed it meanwhile. Errors:
  // kNotFound; kConflict as above, or if the stored rule set is not valid.
  using Edit = std::move_only_function<std::string(const rules::RuleSet&)>;
  void Change(std::string id, Edit edit, Condition condition, Done done);
  // Removes it from the store, even if it is invalid or a file defines it, too. Errors: kNotFound;
  // kConflict if only a file defines it.
  void Remove(std::string id, Condition condition, Done done);

  // Runs a slow task on the keeper's thread.
  void Post(std::move_only_function<void()> task);

  std::string_view managed_by() const { return store_.Description(); }

  // The status of the store's rule sets. From any thread.
  RulesStatus status() const { return managed_.status(); }

  // The status of the files.
  struct FilesStatus {
    std::string problem = {};               // Why they are not in force; empty if they are.
    std::optional<TimePoint> good_at = {};  // When they were last taken, or found fixed.
  };
  // From any thread.
  FilesStatus files_status() const;

 private:
  void Run(const std::stop_token& stop);
  std::chrono::milliseconds Look();
  Outcome Refresh();
  Outcome Take(Sources sources);
  Outcome Adopt(Sources sources);
  Expected<Sources> ReadAll();
  Sources WithManaged() const;
  void TakeManaged();
  bool IsOfFile(const std::string& id) const;
  Error NotManaged(const std::string& id, std::string_view expected) const;

  // A change that was decided on, given what is stored; or why there is none.
  struct Plan {
    std::optional<std::string> document;  // Nothing: remove the rule set.
    reload::Change::If condition = reload::Change::If::kAny;
  };
  using Planner = std::move_only_function<std::expected<Plan, Outcome>(const std::string* stored)>;
  void Commit(std::string id, Planner plan, Done done);
  Outcome CommitNow(const std::string& id, Planner& plan);
  Outcome CheckFits(const std::string& id, const std::string& document) const;
  void NoteUnreadable(const Error& error);
  void NoteFiles(std::string problem);
  void WarnOfMissing(const service::Catalog& before);
  void LogWarnings() const;
  void Publish(std::shared_ptr<service::Catalog> catalog);

  // Constant after construction.
  const Options options_;
  RuleSetStore& store_;
  telemetry::Logger& logger_;
  service::ServiceMetrics& metrics_;

  // Used only by the keeper's thread.
  Sources sources_;                   // As last adopted.
  std::optional<Sources> refused_;    // What is there instead; counted once.
  std::optional<Sources> unsettled_;  // What is there instead, until it stays the same.
  std::chrono::steady_clock::time_point unsettled_since_;
  std::string unreadable_;  // Why nothing could be read; logged once.
  ManagedRules managed_;
  std::shared_ptr<const service::Catalog> catalog_;

  FolderWatch watch_;
  mutable std::mutex mutex_;
  FilesStatus files_;                                  // Guarded by mutex_.
  std::deque<std::move_only_function<void()>> tasks_;  // Guarded by mutex_.
  std::jthread thread_;                                // Last: it uses all of the above.
};

}  // namespace sluice::reload
