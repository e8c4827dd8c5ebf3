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

// How far a rule set store has come. It is kept in the store, beside the rule sets and in one step
// with each change, so that a store that has lost something can be told from one that somebody
// emptied; see docs/adr/0016-rules-outlive-their-store.md.
struct Revision {
  std::string lineage;      // Random, from the first change on; empty before.
  std::int64_t number = 0;  // Grows by one with every change.

  // Nothing if it is not one.
  static std::optional<Revision> Parse(std::string_view text);
  std::string ToString() const;  // <lineage>:<number>; empty without a lineage.

  friend bool operator==(const Revision&, const Revision&) = default;
};

// A lineage that no other store has.
std::string NewLineage();

// All that a store holds, read at one moment.
struct Stored {
  Documents documents;
  std::string marker;  // Its revision as it is written there; empty if there is none.
};

// One rule set that is to be changed. The conditions are part of the step that changes it.
struct Change {
  enum class If : std::uint8_t { kAny, kAbsent, kSame };

  std::string id;
  std::optional<std::string> document;  // Nothing: it is to be removed.
  If condition = If::kAny;
  std::string same = {};   // With kSame: what must be stored.
  Revision at_least = {};  // The store must not be behind it.
};

struct Changed {
  enum class Result : std::uint8_t {
    kDone,   // Also if there was nothing to remove.
    kOther,  // The condition does not hold; nothing was changed.
    kBehind  // The store has lost changes; nothing was changed.
  };
  Result result = Result::kDone;
  bool existed = false;    // Of kDone: whether there was such a rule set before.
  Revision revision = {};  // Of kDone: the store's.
};

// What is to be put back into a store that has lost it.
struct Restoration {
  enum class Mode : std::uint8_t {
    kFill,    // What is there stays.
    kReplace  // What is there and not among the documents goes.
  };
  std::string marker;  // That must still be there.
  Revision revision;   // That it has afterwards.
  Documents documents;
  Mode mode = Mode::kFill;
};

// Where rule sets live that are made while the service runs. Methods may block; only the keeper's
// thread calls them. Errors: kUnavailable and its like if nothing was changed; kOutcomeUnknown if
// it may have been.
class RuleSetStore {
 public:
  virtual ~RuleSetStore() = default;

  virtual Expected<Stored> Load() = 0;

  // Each is one step, whoever else changes the store at that moment.
  virtual Expected<Changed> Apply(const Change& change) = 0;
  // False: the marker is another; nothing was changed.
  virtual Expected<bool> Restore(const Restoration& restoration) = 0;

  // From now on, calls `changed` when somebody else changed them, on any thread; null: no more, and
  // when this returns no call is under way.
  virtual void Watch(std::function<void()> changed) = 0;

  virtual std::string_view Description() const = 0;  // For people: "this process", "Redis".
};

// Keeps them in this process: they are gone when it ends.
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
