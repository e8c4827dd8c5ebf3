// SPDX-License-Identifier: Apache-2.0
// Configuration files of envoyproxy/ratelimit, unchanged. docs/reference/rls-config.md lists what
// they may contain and what Sluice adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/problem.h"
#include "sluice/limit.h"

namespace sluice::rules {

inline constexpr std::size_t kRlsFilesMax = 1024;
inline constexpr std::size_t kRlsDepthMax = 32;
inline constexpr std::size_t kRlsTextBytesMax = 1024;  // Keys, values, names and domains.

// Numbered as envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
enum class RlsUnit : std::uint8_t {
  kUnknown,
  kSecond,
  kMinute,
  kHour,
  kDay,
  kMonth,
  kYear,
  kWeek,
};

// The algorithm of a limit that names none.
inline constexpr Algorithm kRlsAlgorithm = Algorithm::kFixedWindow;

// Zero for kUnknown. A month has 30 days, a year 365.
Micros SpanOf(RlsUnit unit);

// "MINUTE" and so on, as Envoy writes it.
std::string_view ToString(RlsUnit unit);

struct RlsLimit {
  enum class Kind : std::uint8_t {
    kLimited,
    kUnlimited,  // Passes without a store call.
    kBlocked,    // requests_per_unit is 0: never passes, which no Limit can express.
  };

  Kind kind = Kind::kLimited;
  std::optional<Limit> limit;  // Of kLimited only.

  // What an answer reports as current_limit. Under an algorithm with its own numbers: the most that
  // can be granted at once, and the unit that is as long as its period, or kUnknown. The same holds
  // for the unit under a multiplier.
  std::uint32_t requests_per_unit = 0;
  RlsUnit unit = RlsUnit::kUnknown;

  std::string name;
  std::vector<std::string> replaces;  // Limits with these names in the same request are dropped.
  bool shadow_mode = false;
  bool quota_mode = false;
  bool postpaid = false;  // Hits were used before they are charged: they never deny, but looks do.
  bool detailed_metric = false;
  bool value_to_metric = false;
  bool share_threshold = false;

  std::string path;  // "domain.key_value.key", for metrics, logs and answers; no client's values.
  int line = 0;
};

struct RlsEntry {
  std::string_view key;
  std::string_view value;
};

// The name of the state that a descriptor is charged to, for Charge. Each limit that a request
// brings has its own state, under the prefix and its numbers. Both have one slash, unlike any name
// of a rule's state.
inline constexpr std::string_view kRlsStateName = "rls/configured";
inline constexpr std::string_view kRlsOverrideStatePrefix = "rls/";

// The path of limits that requests bring themselves.
inline constexpr std::string_view kRlsOverridePath = "(override)";

// The key of the state of these entries: no two domains or lists of entries share one. Values under
// secret names (rules/key.h) are hashed, and so are keys longer than kKeyBytesMax as a whole.
// Overwrites `key`. For limits that a request brings itself; those of the configuration get theirs
// from Match.
void RlsStateKey(std::string_view domain, std::span<const RlsEntry> entries, std::string& key);

struct RlsMatch {
  const RlsLimit* limit = nullptr;  // Null: no limit applies, and the request passes.
  std::string key;                  // Its state, if there is a limit.
};

class RlsDomain {
 public:
  struct Tree;

  explicit RlsDomain(std::unique_ptr<const Tree> tree);
  ~RlsDomain();
  RlsDomain(RlsDomain&&) noexcept;
  RlsDomain& operator=(RlsDomain&&) noexcept;

  const std::string& name() const;
  const std::string& file() const;  // The first file that has it.

  // Whether the descriptors of a request are charged all or none. Otherwise each is charged even if
  // another denies, as in envoyproxy/ratelimit.
  bool all_or_nothing() const;

  // In the order of the files.
  const std::deque<RlsLimit>& limits() const;

  // Matches level by level: the entry's key and value, else the first wildcard that matches, else
  // the key alone, without backtracking. A limit applies if it is exactly as deep as the entries.
  // Allocates only if `match.key` must grow.
  void Match(std::span<const RlsEntry> entries, RlsMatch& match) const;

 private:
  std::unique_ptr<const Tree> tree_;
};

// What to do with a domain that is in two files.
enum class RlsMerge : std::uint8_t {
  kForbid,  // Report a problem.
  kMerge,   // Combine the descriptors of all files; each descriptor must be in only one.
};

// All domains at one moment. Immutable; safe to use from any thread.
class RlsConfig {
 public:
  struct File {
    std::string name;
    std::string text;
  };

  // Each file holds one domain. Reports all problems.
  static std::expected<std::shared_ptr<const RlsConfig>, Problems> Parse(
      std::span<const File> files, RlsMerge merge = RlsMerge::kForbid);

  ~RlsConfig();
  RlsConfig(const RlsConfig&) = delete;
  RlsConfig& operator=(const RlsConfig&) = delete;

  const RlsDomain* Find(std::string_view name) const;
  std::span<const RlsDomain> domains() const { return domains_; }

  // SHA-256 of the files, in hexadecimal digits: equal for equal content.
  const std::string& hash() const { return hash_; }

 private:
  RlsConfig(std::vector<RlsDomain> domains, std::string hash);

  // Constant after construction.
  std::vector<RlsDomain> domains_;
  std::unordered_map<std::string_view, const RlsDomain*> by_name_;
  std::string hash_;
};

}  // namespace sluice::rules
