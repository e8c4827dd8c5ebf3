// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "reload/kept_rules.h"
#include "reload/rule_set_store.h"
#include "reload/sources.h"
#include "sluice/error.h"
#include "telemetry/log.h"

namespace sluice::reload {

// What is known of a rule set store.
struct KnownRules {
  enum class From : std::uint8_t { kNowhere, kFile, kStore };

  From from = From::kNowhere;
  Revision revision = {};
  Documents stored = {};  // As they lie in the store.
  Documents good = {};    // The last valid version of each, by which requests are decided.
};

// What to do about a store that says something else than is known.
enum class Verdict : std::uint8_t {
  kTake,     // It is right.
  kFill,     // It was emptied: what is known is put beside what is there.
  kReplace,  // It went back in time: what is known is put in the place of what is there.
};

Verdict Judge(const Stored& stored, const KnownRules& known);

// How the rules of the store are, for those who ask the service.
struct RulesStatus {
  static constexpr std::size_t kRejectedShown = 100;
  static constexpr std::size_t kIdBytesShown = 128;  // Somebody else may have written it.

  struct Rejected {
    std::string id;
    std::string problem;
    bool has_last_good = false;  // An earlier version of it is in force.
  };

  bool ready = true;         // Whether the rule sets of the store are known at all.
  bool store_works = true;   // Whether the store could be read, and was whole, the last time.
  std::string problem = {};  // Why not.
  std::int64_t revision = 0;
  std::uint64_t restored = 0;           // Times that what the store had lost was written back.
  bool keeps = false;                   // Whether there is a file for the next start.
  std::string keep_problem = {};        // Why it is not as it should be.
  std::uint64_t keep_failures = 0;      // Times that it could not be written, or was damaged.
  std::size_t rejected_count = 0;       // Documents that are not in force.
  std::vector<Rejected> rejected = {};  // The first of them.

  bool degraded() const { return !store_works || rejected_count > 0 || !keep_problem.empty(); }
};

// The rule sets of a store, as far as they are known here: a store that loses them does not take
// them out of force, and a document that is not valid does not hold up the others. Of one thread,
// but for status().
class ManagedRules {
 public:
  // Without `keep_file` nothing is kept over a restart.
  ManagedRules(RuleSetStore& store, std::string keep_file, telemetry::Logger& logger);

  // Takes what the file keeps, until the store is read.
  void LoadKept();

  // Reads the store, and writes back what it has lost. Error: it cannot be read or mended; what is
  // known stays.
  Expected<void> Read();

  // One step in the store, which was read before. If that did not see what others did since, it is
  // read again.
  Expected<Changed> Apply(Change change);

  // What is in force, unless a file defines it or there are too many.
  const Documents& documents() const { return known_.good; }

  // As it lies in the store; null if there is none.
  const std::string* FindStored(std::string_view id) const;

  // The documents that could not be put in force beside the files, and why.
  void SetSkipped(Rejections skipped);

  RulesStatus status() const;  // From any thread.

 private:
  void Take(Stored stored);
  void NoteProblem(std::string problem);
  void TellOfRejected();
  void Keep();

  // Constant after construction.
  RuleSetStore& store_;
  const std::string keep_file_;
  telemetry::Logger& logger_;

  KnownRules known_;
  Rejections invalid_;    // Of what is stored.
  Rejections skipped_;    // Of what is good.
  Rejections told_;       // Both, as they were last logged.
  bool is_kept_ = false;  // The file has what is known.

  mutable std::mutex mutex_;
  RulesStatus status_;  // Guarded by mutex_.
};

}  // namespace sluice::reload
