// SPDX-License-Identifier: Apache-2.0
// Compiled rule sets: which rules apply to a request, and to which key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/problem.h"
#include "rules/context.h"
#include "rules/rule.h"
#include "sluice/error.h"
#include "sluice/store.h"

namespace sluice::rules {

// A rule that applies to a request, and a key it is counted under.
struct Selected {
  enum class Verdict : std::uint8_t {
    kCharge,      // Each of `bands` is charged `cost` under `key`.
    kUnlimited,   // An override lets it pass.
    kBlocked,     // An override denies it.
    kMissingKey,  // Denied: the request has no value for the scope.
  };

  const Rule* rule;
  std::span<const Band> bands;  // The rule's or its override's; only for kCharge.

  // "ip:…", "user:…", "apikey#…", "global" or "<attribute>:…" (rules/key.h). No two scopes or
  // values share one. Empty if the key is missing.
  std::string_view key;

  std::int64_t cost;
  Verdict verdict;
};

// The most bands of shadow rules that one request is counted under.
inline constexpr std::size_t kShadowChargesMax = kChargesMax;

class RuleSet;
struct SelectionScratch;

// The result of RuleSet::Select, and its memory: reused, it allocates nothing. Views point into it,
// into the rule set and into the context until the next Select. Not thread-safe.
class Selection {
 public:
  Selection();
  ~Selection();
  Selection(Selection&&) noexcept;
  Selection& operator=(Selection&&) noexcept;

  // In the order of the file. Empty: no rule applies. A rule that counts by a name in its paths
  // comes once for each value that servers may read there.
  std::span<const Selected> rules() const;

  // Rules that match and were skipped (OnMissingKey::kSkip), because the request does not tell
  // whose budget it is: in the order of the file, the first kSkippedMax.
  static constexpr std::size_t kSkippedMax = 8;
  std::span<const Rule* const> skipped() const;

 private:
  friend class RuleSet;

  std::unique_ptr<SelectionScratch> scratch_;
};

// What a rule set is made of. Parsing guarantees all bounds and distinct names.
struct RuleSetSpec {
  std::string id = {};
  std::string description = {};
  bool enabled = true;
  std::vector<Rule> rules = {};

  // Where it was read from, for people.
  std::string file = {};
  int line = 0;
  std::string source =
      {};  // The lines themselves, as one document; empty if they cannot be told apart.

  // Valid, but most likely not intended, such as a rule that never applies.
  Problems warnings = {};
};

// Immutable; safe to use from any thread.
class RuleSet {
 public:
  static std::shared_ptr<const RuleSet> Compile(RuleSetSpec spec);
  ~RuleSet();
  RuleSet(const RuleSet&) = delete;
  RuleSet& operator=(const RuleSet&) = delete;

  const std::string& id() const { return spec_.id; }
  bool enabled() const { return spec_.enabled; }
  std::span<const Rule> rules() const { return spec_.rules; }  // Including those that never apply.
  const RuleSetSpec& spec() const { return spec_; }

  // Null if there is none. In time that hardly depends on how many there are.
  const Rule* FindRule(std::string_view id) const;

  // Selects the rules that apply to a request. `permits` is multiplied by each rule's cost, so that
  // 0 peeks. Rules that are disabled or have no bands are skipped, and so are all if the rule set
  // is disabled. Time depends on the path's length, the attributes, the rules that apply, and those
  // that neither a path nor an attribute distinguishes; not on how many others there are. Errors:
  // kInvalidCost (negative permits, a cost that is not a whole number of 0 or more, or too large);
  // kInvalidRequest (a path that PathReadings refuses, a value longer than kValueBytesMax, or more
  // than kChargesMax bands at once). Shadow rules never cause an error: those that do not fit into
  // kShadowChargesMax bands are left out.
  Expected<void> Select(const Context& context, std::int64_t permits, Selection& selection) const;

  // Canonical: equal for equal rules, whatever their file looked like. It can be parsed again.
  std::string ToJson() const;

  // SHA-256 of ToJson, in hexadecimal digits.
  const std::string& hash() const { return hash_; }

 private:
  struct Index;

  explicit RuleSet(RuleSetSpec spec);

  // Constant after construction.
  RuleSetSpec spec_;
  std::string hash_;
  std::unique_ptr<const Index> index_;
};

}  // namespace sluice::rules
