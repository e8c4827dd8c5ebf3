// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/problem.h"
#include "reload/rule_set_store.h"
#include "reload/sources.h"
#include "reload/watch.h"
#include "service/catalog.h"
#include "telemetry/log.h"
#include "telemetry/service_metrics.h"

namespace sluice::reload {

// Keeps the catalog as its sources say. It looks at them when a folder changes, when the rule set
// store announces a change, every `poll_interval` in any case, and when asked to. An invalid source
// changes nothing: the old catalog stays, and that is counted and logged. Files that it finds
// changed are taken once they are the same at a second look, so that none is taken while it is
// written. All that blocks happens on the keeper's own thread.
class Keeper {
 public:
  struct Options {
    Places places;
    Micros poll_interval{5'000'000};
    Micros settle{100'000};  // How long files must stay the same before they are taken.
    // Gets every new catalog, on the keeper's thread; the first one from Load.
    std::function<void(std::shared_ptr<const service::Catalog>)> publish;
  };

  struct Parts {
    RuleSetStore& managed;
    telemetry::Logger& logger;
    telemetry::ServiceMetrics& metrics;
  };

  Keeper(Options options, const Parts& parts);
  ~Keeper();  // Stops.
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Reads everything for the first time, here and now. A rule set store that cannot be reached is
  // no problem; its rule sets come when it can.
  Problems Load();

  // Starts to watch.
  void Start();

  // Finishes what was asked, and stops; what is asked afterwards is never done.
  void Stop();

  // What became of a change: nothing, or why it was refused. kInvalidInput comes with problems.
  struct Outcome {
    Expected<void> result;
    Problems problems;
    bool is_other = false;  // The rule set is not the one that the condition wants.
  };
  using Done = std::move_only_function<void(Outcome)>;

  // Says by its hash, which is empty if there is none, whether the rule set may be changed; null
  // says yes.
  using Condition = std::move_only_function<bool(std::string_view hash)>;

  // Each does not wait; `done` runs on the keeper's thread.
  // Takes the files as they are now.
  void Reload(Done done);
  // Error: kInvalidRequest if the id belongs to a rule set of a file, which is changed there.
  void Save(std::string id, std::string document, Condition condition, Done done);
  // Replaces a rule set by what `edit` makes of it, as it is when its turn comes: what was asked
  // before is not lost. Errors: kNotFound; kInvalidRequest as above.
  using Edit = std::move_only_function<std::string(const rules::RuleSet&)>;
  void Change(std::string id, Edit edit, Condition condition, Done done);
  // Errors as Change.
  void Remove(std::string id, Condition condition, Done done);

  // Runs something that takes its time on the keeper's thread.
  void Post(std::move_only_function<void()> task);

  std::string_view managed_by() const { return managed_.Description(); }

 private:
  void Run(const std::stop_token& stop);
  std::chrono::milliseconds Look();
  Outcome Refresh();
  Outcome Take(Sources sources);
  Outcome Adopt(Sources sources);
  Expected<Sources> ReadAll();
  void ReadManaged(Sources& sources);
  Sources WithManaged();
  void TakeManaged();
  bool IsOfFile(const std::string& id) const;
  Error NotManaged(const std::string& id, std::string_view expected) const;
  Outcome Put(Sources sources, const std::string& id, std::string document);
  void NoteUnreadable(const Error& error);
  void WarnOfMissing(const service::Catalog& before);
  void Publish(std::shared_ptr<service::Catalog> catalog);

  // Constant after construction.
  const Options options_;
  RuleSetStore& managed_;
  telemetry::Logger& logger_;
  telemetry::ServiceMetrics& metrics_;

  // Of the keeper's thread.
  Sources sources_;                   // As adopted last.
  std::optional<Sources> refused_;    // What is there instead, so that it is counted once.
  std::optional<Sources> unsettled_;  // What is there instead, until it stays the same.
  std::chrono::steady_clock::time_point unsettled_since_;
  std::string unreadable_;       // Why nothing could be read, so that it is said once.
  Documents managed_documents_;  // As they were when the store could be reached.
  std::shared_ptr<const service::Catalog> catalog_;

  FolderWatch watch_;
  std::mutex mutex_;
  std::deque<std::move_only_function<void()>> tasks_;  // Guarded by mutex_.
  std::jthread thread_;                                // Last: it uses all of the above.
};

}  // namespace sluice::reload
