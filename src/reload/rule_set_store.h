// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "reload/sources.h"
#include "sluice/error.h"

namespace sluice::reload {

// How far a rule set store has come. It is kept in the store, beside the rule sets, and updated in
// one step with each change, so that a store that has lost something can be told from one that
// somebody emptied; see docs/adr/0016-rules-outlive-their-store.md.
struct Revision {
  std::string lineage;      // Random, from the first change on; empty before.
  std::int64_t number = 0;  // Grows by one with every change.

  // Nothing if it is not a revision.
  static std::optional<Revision> Parse(std::string_view text);
  std::string ToString() const;  // <lineage>:<number>; empty without a lineage.

  friend bool operator==(const Revision&, const Revision&) = default;
};

// A lineage that no other store has.
std::string NewLineage();

// Everything that a store holds, read at one moment.
struct Stored {
  Documents documents;
  std::string marker;  // Its revision as written there; empty if none.
};

// A change to one rule set. The conditions are checked in the same step.
struct Change {
  enum class If : std::uint8_t { kAny, kAbsent, kSame };

  std::string id;
  std::optional<std::string> document;  // Nothing: remove it.
  If condition = If::kAny;
  std::string same = {};   // With kSame: what must be stored.
  Revision at_least = {};  // The store must not be behind this.
};

struct Changed {
  enum class Result : std::uint8_t {
    kDone,   // Also if there was nothing to remove.
    kOther,  // The condition does not hold; nothing was changed.
    kBehind  // The store has lost changes; nothing was changed.
  };
  Result result = Result::kDone;
  bool existed = false;    // For kDone: whether the rule set existed before.
  Revision revision = {};  // For kDone: the store's new revision.
};

// What to put back into a store that has lost it.
struct Restoration {
  enum class Mode : std::uint8_t {
    kFill,    // What is there stays.
    kReplace  // What is there and not in `documents` is removed.
  };
  std::string marker;  // Must still be there.
  Revision revision;   // The store's revision afterwards.
  Documents documents;
  Mode mode = Mode::kFill;
};

// Stores rule sets that are created while the service runs. Methods may block; only the keeper's
// thread calls them. Errors: kUnavailable and similar if nothing was changed; kOutcomeUnknown if it
// may have been.
class RuleSetStore {
 public:
  virtual ~RuleSetStore() = default;

  virtual Expected<Stored> Load() = 0;

  // Each is one atomic step.
  virtual Expected<Changed> Apply(const Change& change) = 0;
  // False: the marker differs; nothing was changed.
  virtual Expected<bool> Restore(const Restoration& restoration) = 0;

  // From now on, calls `changed` on any thread when somebody else changed them. Null: stops, and no
  // call is running when this returns.
  virtual void Watch(std::function<void()> changed) = 0;

  virtual std::string_view Description() const = 0;  // For people: "this process", "Redis".
};

// Keeps them in this process: they are lost when it ends.
class ProcessRuleSetStore final : public RuleSetStore {
 public:
  Expected<Stored> Load() override { return stored_; }
  Expected<Changed> Apply(const Change& change) override;
  Expected<bool> Restore(const Restoration& restoration) override;
  void Watch(std::function<void()>) override {}
  std::string_view Description() const override { return "this process"; }

 private:
  Stored stored_;
};

}  // namespace sluice::reload
