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

// What is known about a rule set store.
struct KnownRules {
  enum class From : std::uint8_t { kNowhere, kFile, kStore };

  From from = From::kNowhere;
  Revision revision = {};
  Documents stored = {};  // As they are in the store.
  Documents good = {};    // The last valid version of each, which decides requests.
};

// What to do if a store differs from what is known.
enum class Verdict : std::uint8_t {
  kTake,     // The store is right.
  kFill,     // It was emptied: add what is known to what is there.
  kReplace,  // It went back in time: replace what is there by what is known.
};

Verdict Judge(const Stored& stored, const KnownRules& known);

// The status of the store's rules, for users of the service.
struct RulesStatus {
  static constexpr std::size_t kRejectedShown = 100;
  static constexpr std::size_t kIdBytesShown = 128;  // Anybody may have written it.

  struct Rejected {
    std::string id;
    std::string problem;
    bool has_last_good = false;  // An earlier version of it is in force.
  };

  bool ready = true;         // Whether the rule sets of the store are known at all.
  bool store_works = true;   // Whether the last read succeeded and nothing was lost.
  std::string problem = {};  // Why not.
  std::int64_t revision = 0;
  std::uint64_t restored = 0;           // How often lost documents were written back.
  bool keeps = false;                   // Whether there is a file for the next start.
  std::string keep_problem = {};        // What is wrong with it.
  std::uint64_t keep_failures = 0;      // How often it could not be written, or was damaged.
  std::size_t rejected_count = 0;       // Documents that are not in force.
  std::vector<Rejected> rejected = {};  // The first of them.

  bool degraded() const { return !store_works || rejected_count > 0 || !keep_problem.empty(); }
};

// The rule sets of a store, as far as they are known here. If a store loses them, they stay in
// force, and an invalid document does not hold up the others. For one thread, except status().
class ManagedRules {
 public:
  // Without `keep_file`, nothing survives a restart.
  ManagedRules(RuleSetStore& store, std::string keep_file, telemetry::Logger& logger);

  // Loads what the file keeps, until the store is read.
  void LoadKept();

  // Reads the store, and writes back what it has lost. Error: it cannot be read or repaired; what
  // is known stays.
  Expected<void> Read();

  // One step in the store, which was read before. If others changed the store since, it is read
  // again.
  Expected<Changed> Apply(Change change);

  // What is in force, unless a file defines it or there are too many.
  const Documents& documents() const { return known_.good; }

  // As it is in the store; null if there is none.
  const std::string* FindStored(std::string_view id) const;

  // The documents that could not be put in force along with the files, and why.
  void SetSkipped(Rejections skipped);

  RulesStatus status() const;  // From any thread.

 private:
  void Take(Stored stored);
  void NoteProblem(std::string problem);
  void LogRejected();
  void Keep();

  // Constant after construction.
  RuleSetStore& store_;
  const std::string keep_file_;
  telemetry::Logger& logger_;

  KnownRules known_;
  Rejections invalid_;    // Of what is stored.
  Rejections skipped_;    // Of what is good.
  Rejections logged_;     // Both, as last logged.
  bool is_kept_ = false;  // The file has what is known.

  mutable std::mutex mutex_;
  RulesStatus status_;  // Guarded by mutex_.
};

}  // namespace sluice::reload
