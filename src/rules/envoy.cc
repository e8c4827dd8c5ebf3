// SPDX-License-Identifier: Apache-2.0
#include "rules/envoy.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "base/digest.h"
#include "base/glob.h"
#include "base/percent.h"
#include "base/text.h"
#include "base/yaml.h"
#include "core/algorithms.h"
#include "core/calendar.h"
#include "rules/key.h"
#include "rules/schema.h"
#include "sluice/store.h"

namespace sluice::rules {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::array<std::string_view, 3> kDomainKeys = {"domain", "descriptors", "all_or_nothing"};
constexpr std::array<std::string_view, 11> kDescriptorKeys = {
    "key",        "value",           "rate_limit",      "descriptors",     "shadow_mode",
    "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
    "postpaid"};
constexpr std::array<std::string_view, 1> kReplacesKeys = {"name"};
constexpr std::size_t kReplacesMax = 1024;

std::vector<std::string_view> RateLimitKeys() {
  std::vector<std::string_view> keys = {
      "unit", "unit_multiplier", "requests_per_unit", "calendar", "unlimited", "name", "replaces"};
  keys.insert(keys.end(), LimitFields().begin(), LimitFields().end());
  return keys;
}

// In the order of RlsUnit, from kSecond.
constexpr std::array<std::string_view, 7> kUnits = {"second", "minute", "hour", "day",
                                                    "month",  "year",   "week"};

// Converts a whole number in the forms that envoyproxy/ratelimit accepts to decimal: with
// underscores, a plus sign, or another base. Digits after a zero are octal if they can be. Anything
// else stays as it is.
YamlNode InDecimal(YamlNode node) {
  static constexpr std::array<std::pair<std::string_view, int>, 7> kBases = {
      {{"0x", 16}, {"0X", 16}, {"0o", 8}, {"0O", 8}, {"0b", 2}, {"0B", 2}, {"0", 8}}};
  std::string digits = node.text;
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (!digits.starts_with('_')) std::erase(digits, '_');
  for (const auto& [prefix, base] : kBases) {
    if (!digits.starts_with(prefix)) continue;
    const auto value =
        text::ParseNumber<std::uint64_t>(std::string_view(digits).substr(prefix.size()), base);
    if (!value) continue;
    digits = std::to_string(*value);
    break;
  }
  if (text::ParseInteger(digits)) node.text = digits;
  return node;
}

RlsUnit UnitOf(Micros span) {
  for (std::size_t i = 1; i <= kUnits.size(); ++i) {
    if (SpanOf(static_cast<RlsUnit>(i)) == span) return static_cast<RlsUnit>(i);
  }
  return RlsUnit::kUnknown;
}

// In the order of Every.
constexpr std::array kUnitsOfCalendar = {RlsUnit::kDay, RlsUnit::kWeek, RlsUnit::kMonth,
                                         RlsUnit::kUnknown, RlsUnit::kYear};

RlsUnit UnitOf(Every every) { return kUnitsOfCalendar[std::to_underlying(every)]; }

std::optional<Every> EveryOf(RlsUnit unit) {
  const auto* const found = std::ranges::find(kUnitsOfCalendar, unit);
  if (unit == RlsUnit::kUnknown || found == kUnitsOfCalendar.end()) return std::nullopt;
  return static_cast<Every>(found - kUnitsOfCalendar.begin());
}

// These join the parts of a key, and a hash starts with the last one. None of them appears in a
// part.
constexpr char kEntrySeparator = '|';
constexpr char kValueSeparator = '=';
constexpr char kSharedSeparator = '~';
constexpr char kHashed = '#';

void AppendEscaped(std::string& out, std::string_view text) {
  const auto keep = [](char c) {
    return std::string_view("|=~#%").find(c) == std::string_view::npos;
  };
  text::AppendPercentEncoded(out, text, keep, text::kLowerHex);
}

void AppendEntry(std::string& out, std::string_view key, char separator, std::string_view value) {
  out += kEntrySeparator;
  AppendEscaped(out, key);
  out += separator;
  AppendEscaped(out, value);
}

// A secret's value is replaced by its hash.
void AppendEntry(std::string& out, const RlsEntry& entry, bool secret) {
  if (!secret || entry.value.empty()) {
    return AppendEntry(out, entry.key, kValueSeparator, entry.value);
  }
  out += kEntrySeparator;
  AppendEscaped(out, entry.key);
  out += kHashed;
  AppendSha256(out, entry.value);
}

// A value of the configuration, for people: secrets are identified by the beginning of their hash.
std::string ShownValue(std::string_view key, std::string_view value) {
  constexpr std::size_t kDigitsShown = 12;
  if (!IsSecretName(key) || value.contains('*')) return std::string(value);
  std::string shown(1, kHashed);
  AppendSha256(shown, value);
  shown.resize(1 + kDigitsShown);
  return shown;
}

void Shorten(std::string& key) {
  if (key.size() <= kKeyBytesMax) return;
  std::string hashed(1, kHashed);
  AppendSha256(hashed, key);
  key.assign(hashed);
}

static_assert(kRlsTextBytesMax <= kGlobBytesMax);

struct EntryHash {
  std::size_t operator()(const RlsEntry& entry) const {
    const std::hash<std::string_view> hash;
    return hash(entry.key) * 0x9e3779b97f4a7c15 + hash(entry.value);
  }
};
struct EntryEqual {
  bool operator()(const RlsEntry& a, const RlsEntry& b) const {
    return a.key == b.key && a.value == b.value;
  }
};

// A descriptor of the configuration, or the root. An empty value means any.
struct Node {
  struct Wildcard {
    const std::string* key;
    const std::string* pattern;
    const Node* node;
  };

  std::string key;
  std::string value;
  const RlsLimit* limit = nullptr;
  bool shared = false;  // Everything that the wildcard matches shares one state.
  bool secret = false;  // Its values are hashed.
  std::unordered_map<RlsEntry, const Node*, EntryHash, EntryEqual> children;
  std::vector<Wildcard> wildcards;

  const Node* Find(const RlsEntry& entry) const {
    // The key alone is stored under an empty value, and comes last.
    if (!entry.value.empty()) {
      if (const auto exact = children.find(entry); exact != children.end()) return exact->second;
    }
    for (const Wildcard& wildcard : wildcards) {
      if (*wildcard.key == entry.key && GlobMatch(*wildcard.pattern, entry.value)) {
        return wildcard.node;
      }
    }
    const auto bare = children.find({.key = entry.key, .value = {}});
    return bare == children.end() ? nullptr : bare->second;
  }
};

}  // namespace

struct RlsDomain::Tree {
  std::string name;
  std::string file;
  std::optional<bool> all_or_nothing;            // If a file says so.
  std::deque<Node> nodes = std::deque<Node>(1);  // The first is the root; they never move.
  std::deque<RlsLimit> limits;
};

namespace {

// The domains of the files read so far.
class RlsForest {
 public:
  explicit RlsForest(RlsMerge merge) : merge_(merge) {}

  // The tree for the descriptors of a file whose domain is in `node`, if given.
  RlsDomain::Tree& Open(const YamlNode* node, Reporter& reporter) {
    std::string name;
    if (node != nullptr) name = ReadText(*node, "domain", kRlsTextBytesMax, reporter).value_or("");
    const auto [known, is_new] = by_name_.emplace(name, trees_.size());
    if (!is_new && !name.empty()) {
      RlsDomain::Tree& tree = *trees_[known->second];
      if (merge_ == RlsMerge::kMerge) return tree;
      reporter.Add(*node, text::Cat("domain ", text::Quote(name), " is already in ", tree.file,
                                    "; expected each in one file"));
    }
    RlsDomain::Tree& tree = *trees_.emplace_back(std::make_unique<RlsDomain::Tree>());
    tree.name = std::move(name);
    tree.file = reporter.file();
    return tree;
  }

  std::vector<RlsDomain> Take() {
    std::vector<RlsDomain> domains;
    domains.reserve(trees_.size());
    for (auto& tree : trees_) domains.emplace_back(std::move(tree));
    return domains;
  }

 private:
  const RlsMerge merge_;
  std::vector<std::unique_ptr<RlsDomain::Tree>> trees_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

// Reads one file into the tree of its domain.
class RlsParser {
 public:
  static void Parse(const YamlNode& root, RlsForest& forest, Reporter& reporter) {
    const Mapping mapping(root, "the document", kDomainKeys, reporter);
    RlsParser parser(forest.Open(mapping.Require("domain", reporter), reporter), reporter);
    parser.ReadAllOrNothing(mapping);
    if (const auto* descriptors = mapping.Find("descriptors")) {
      RlsDomain::Tree& tree = parser.tree_;
      parser.ParseDescriptors(*descriptors, tree.nodes.front(), tree.name, 1);
    }
  }

 private:
  RlsParser(RlsDomain::Tree& tree, Reporter& reporter) : tree_(tree), reporter_(reporter) {}

  void ReadAllOrNothing(const Mapping& mapping) {
    const auto* const node = mapping.Find("all_or_nothing");
    if (node == nullptr) return;
    const auto given = ReadBool(*node, "all_or_nothing", reporter_);
    if (!given) return;
    if (tree_.all_or_nothing.value_or(*given) != *given) {
      reporter_.Add(*node, text::Cat("all_or_nothing is ", *given ? "true" : "false",
                                     " here, and not so in another file of the domain ",
                                     text::Quote(tree_.name)));
    }
    tree_.all_or_nothing = given;
  }

  void ReadFlag(const Mapping& mapping, std::string_view key, bool& flag) {
    const auto* const node = mapping.Find(key);
    if (node != nullptr) flag = ReadBool(*node, key, reporter_).value_or(flag);
  }

  std::string ReadOptionalText(const Mapping& mapping, std::string_view key) {
    const auto* const node = mapping.Find(key);
    if (node == nullptr || (node->kind == YamlKind::kScalar && node->text.empty())) return {};
    return std::string(ReadText(*node, key, kRlsTextBytesMax, reporter_).value_or(""));
  }

  void ParseDescriptors(const YamlNode& node, Node& parent, const std::string& path,
                        std::size_t depth) {
    if (depth > kRlsDepthMax) {
      reporter_.Add(node, text::Cat("descriptors more than ", kRlsDepthMax, " levels deep"));
      return;
    }
    for (const YamlNode* item : ReadList(node, "descriptors", kYamlNodesMax, reporter_)) {
      ParseDescriptor(*item, parent, path, depth);
    }
  }

  void ParseDescriptor(const YamlNode& node, Node& parent, const std::string& parent_path,
                       std::size_t depth) {
    const Mapping mapping(node, "a descriptor", kDescriptorKeys, reporter_);
    if (node.kind != YamlKind::kMapping) return;
    Node& child = tree_.nodes.emplace_back();
    if (const auto* key = mapping.Require("key", reporter_)) {
      child.key = ReadText(*key, "key", kRlsTextBytesMax, reporter_).value_or("");
    }
    child.value = ReadOptionalText(mapping, "value");
    child.secret = IsSecretName(child.key);
    const bool is_new =
        parent.children.emplace(RlsEntry{.key = child.key, .value = child.value}, &child).second;
    if (!is_new && !child.key.empty()) {
      reporter_.Add(node, text::Cat("key ", text::Quote(child.key),
                                    child.value.empty() ? " without a value" : " with value ",
                                    child.value.empty() ? "" : text::Quote(child.value),
                                    " is already defined; expected it once"));
    }
    const bool is_wildcard = child.value.find('*') != std::string::npos;
    if (is_wildcard) {
      parent.wildcards.push_back({.key = &child.key, .pattern = &child.value, .node = &child});
    }

    const std::string path =
        text::Cat(parent_path, ".", child.key,
                  child.value.empty() ? "" : "_" + ShownValue(child.key, child.value));
    RlsLimit limit;
    limit.path = path;
    limit.line = node.line;
    ReadFlag(mapping, "shadow_mode", limit.shadow_mode);
    ReadFlag(mapping, "quota_mode", limit.quota_mode);
    ReadFlag(mapping, "postpaid", limit.postpaid);
    ReadFlag(mapping, "detailed_metric", limit.detailed_metric);
    ReadFlag(mapping, "value_to_metric", limit.value_to_metric);
    ReadFlag(mapping, "share_threshold", limit.share_threshold);
    child.shared = limit.share_threshold && is_wildcard;
    if (const auto* rate_limit = mapping.Find("rate_limit")) {
      ParseRateLimit(*rate_limit, limit);
      CheckPostpaid(*rate_limit, limit);
      child.limit = &tree_.limits.emplace_back(std::move(limit));
    }
    if (const auto* descriptors = mapping.Find("descriptors")) {
      ParseDescriptors(*descriptors, child, path, depth + 1);
    }
  }

  // Everywhere else, units come back one by one, and each of them would let a look pass and be all
  // that its request is charged.
  void CheckPostpaid(const YamlNode& rate_limit, const RlsLimit& limit) {
    if (!limit.postpaid || !limit.limit || limit.limit->algorithm() == Algorithm::kFixedWindow)
      return;
    reporter_.Add(rate_limit, text::Cat("a postpaid limit cannot be ", limit.limit->ToString(),
                                        "; expected the algorithm fixed_window"));
  }

  void ParseRateLimit(const YamlNode& node, RlsLimit& limit) {
    const Mapping mapping(node, "rate_limit", RateLimitKeys(), reporter_);
    if (node.kind != YamlKind::kMapping) return;
    limit.name = ReadOptionalText(mapping, "name");
    if (const auto* replaces = mapping.Find("replaces")) ParseReplaces(*replaces, limit);
    const auto* const unit = mapping.Find("unit");
    const auto* const requests = mapping.Find("requests_per_unit");
    if (unit != nullptr) {
      const auto index = ReadName(*unit, "unit", kUnits, reporter_);
      if (!index) return;
      limit.unit = static_cast<RlsUnit>(*index + 1);
    }
    Micros span = SpanOf(limit.unit);
    if (const auto* multiplier = mapping.Find("unit_multiplier")) {
      const auto times = ReadMultiplier(*multiplier, limit.unit);
      if (!times) return;
      span *= *times;
      limit.unit = UnitOf(span);
    }
    if (requests != nullptr) {
      const auto count = ReadInteger(InDecimal(*requests), "requests_per_unit", 0,
                                     std::numeric_limits<std::uint32_t>::max(), reporter_);
      if (!count) return;
      limit.requests_per_unit = static_cast<std::uint32_t>(*count);
    }
    bool unlimited = false;
    ReadFlag(mapping, "unlimited", unlimited);
    if (unlimited) {
      limit.kind = RlsLimit::Kind::kUnlimited;
      CheckUnlimited(mapping);
    } else if (unit != nullptr || requests != nullptr) {
      ParsePerUnit(mapping, span, limit);
    } else {
      ParseOwnNumbers(mapping, limit);
    }
  }

  std::optional<std::int64_t> ReadMultiplier(const YamlNode& node, RlsUnit unit) {
    if (unit == RlsUnit::kUnknown) {
      reporter_.Add(node, "unit_multiplier is given without a unit; expected both");
      return std::nullopt;
    }
    return ReadInteger(InDecimal(node), "unit_multiplier", 1, kSpanMax / SpanOf(unit), reporter_);
  }

  // Whether it has any field that envoyproxy/ratelimit does not know.
  static bool HasOwnNumbers(const Mapping& mapping) {
    return std::ranges::any_of(
        LimitFields(), [&](std::string_view field) { return mapping.Find(field) != nullptr; });
  }

  void ParseReplaces(const YamlNode& node, RlsLimit& limit) {
    for (const YamlNode* item : ReadList(node, "replaces", kReplacesMax, reporter_)) {
      const Mapping mapping(*item, "an entry of replaces", kReplacesKeys, reporter_);
      const auto* const name = mapping.Require("name", reporter_);
      if (name == nullptr) continue;
      const auto text = ReadText(*name, "name", kRlsTextBytesMax, reporter_);
      if (!text) continue;
      if (*text == limit.name) reporter_.Add(*name, "a limit cannot replace itself");
      limit.replaces.emplace_back(*text);
    }
  }

  void CheckUnlimited(const Mapping& mapping) {
    std::vector<std::string_view> others = {"unit", "unit_multiplier", "calendar"};
    others.insert(others.end(), LimitFields().begin(), LimitFields().end());
    for (const std::string_view key : others) {
      if (const auto* node = mapping.Find(key)) {
        reporter_.Add(*node, text::Cat(key, " is given with unlimited: true; expected only one"));
      }
    }
  }

  // `unit` and `requests_per_unit`, perhaps under another algorithm, and perhaps with its own
  // capacity. As in envoyproxy/ratelimit, `unit` alone grants nothing.
  void ParsePerUnit(const Mapping& mapping, Micros span, RlsLimit& limit) {
    const bool complete =
        mapping.Require("unit", reporter_) != nullptr &&
        (!HasOwnNumbers(mapping) || mapping.Require("requests_per_unit", reporter_) != nullptr);
    if (!complete) return;
    bool is_calendar = false;
    ReadFlag(mapping, "calendar", is_calendar);
    const auto is_allowed = [&](std::string_view field) {
      if (is_calendar) return field == "zone" || field == "anchor";
      return field == "algorithm" || field == "capacity" || field == "burst";
    };
    for (const std::string_view field : LimitFields()) {
      const auto* const node = mapping.Find(field);
      if (node != nullptr && is_calendar && !is_allowed(field)) {
        reporter_.Add(*node, text::Cat(field, " is given with calendar: true; expected only one"));
        return;
      }
      if (node != nullptr && !is_allowed(field)) {
        reporter_.Add(*node, text::Cat(field,
                                       " is given with unit and requests_per_unit; expected "
                                       "either those or all numbers of the algorithm"));
        return;
      }
    }
    Algorithm algorithm = kRlsAlgorithm;
    if (const auto* node = mapping.Find("algorithm"); node != nullptr) {
      const auto named = ParseAlgorithm(node->text);
      if (!named) {
        reporter_.Add(*node, named.error().message);
        return;
      }
      algorithm = *named;
      if (algorithm == Algorithm::kCalendar) {
        reporter_.Add(*node,
                      "a unit becomes one of the calendar by calendar: true; expected that, or "
                      "limit and every in place of requests_per_unit and unit");
        return;
      }
    }
    if (is_calendar) return ParsePerCalendarUnit(mapping, limit);
    if (limit.requests_per_unit == 0) {
      limit.kind = RlsLimit::Kind::kBlocked;
      return;
    }
    limit.limit = ReadChecked(mapping, DefaultsOf(algorithm, limit.requests_per_unit, span));
  }

  // The unit is that of a calendar, in a zone.
  void ParsePerCalendarUnit(const Mapping& mapping, RlsLimit& limit) {
    if (const auto* multiplier = mapping.Find("unit_multiplier")) {
      reporter_.Add(*multiplier, "unit_multiplier is given with calendar: true; expected only one");
      return;
    }
    const YamlNode& unit = *mapping.Find("unit");
    const auto every = EveryOf(limit.unit);
    if (!every) {
      reporter_.Add(unit, text::Cat("unit is ", text::Quote(unit.text),
                                    " with calendar: true; expected day, week, month or year"));
      return;
    }
    // A zone or an anchor that is wrong is reported in any case.
    const std::array<LimitDefault, 3> defaults = {
        {{"algorithm", std::string(ToString(Algorithm::kCalendar))},
         {"limit", std::to_string(std::max<std::uint32_t>(1, limit.requests_per_unit))},
         {"every", std::string(core::NameOf(*every))}}};
    limit.limit = ReadChecked(mapping, defaults);
    if (limit.requests_per_unit > 0) return;
    limit.kind = RlsLimit::Kind::kBlocked;
    limit.limit.reset();
  }

  // Nobody could release what a descriptor holds.
  std::optional<Limit> ReadChecked(const Mapping& mapping, std::span<const LimitDefault> defaults) {
    auto limit = ReadLimit(mapping, defaults, reporter_);
    if (!limit || !core::NeedsHold(*limit)) return limit;
    reporter_.Add(mapping.node(),
                  text::Cat("algorithm ", ToString(limit->algorithm()),
                            " is held and released, and descriptors are only checked; expected "
                            "another algorithm"));
    return std::nullopt;
  }

  static std::vector<LimitDefault> DefaultsOf(Algorithm algorithm, std::int64_t count, Micros per) {
    const core::AlgorithmRow& row = core::RowOf(algorithm);
    std::vector<LimitDefault> defaults = {
        {"algorithm", std::string(row.name)},
        {row.fields().front(), std::to_string(count - row.amount_above_field)},
        {row.fields().back(), text::Cat(per.count(), "us")}};
    if (row.refills()) defaults.push_back({row.fields()[1], std::to_string(count)});
    return defaults;
  }

  void ParseOwnNumbers(const Mapping& mapping, RlsLimit& limit) {
    if (const auto* calendar = mapping.Find("calendar")) {
      reporter_.Add(*calendar, "calendar is given without a unit; expected both");
      return;
    }
    if (!HasOwnNumbers(mapping)) {
      reporter_.Add(mapping.node(),
                    "rate_limit needs unit and requests_per_unit, unlimited: true, or an algorithm "
                    "with its numbers");
      return;
    }
    const LimitDefault algorithm{"algorithm", std::string(ToString(kRlsAlgorithm))};
    limit.limit = ReadChecked(mapping, {&algorithm, 1});
    if (!limit.limit) return;
    constexpr std::int64_t kMax = std::numeric_limits<std::uint32_t>::max();
    limit.requests_per_unit = static_cast<std::uint32_t>(std::min(limit.limit->amount(), kMax));
    limit.unit = limit.limit->algorithm() == Algorithm::kCalendar
                     ? UnitOf(limit.limit->calendar().every)
                     : UnitOf(limit.limit->span());
  }

  RlsDomain::Tree& tree_;
  Reporter& reporter_;
};

}  // namespace

Micros SpanOf(RlsUnit unit) {
  switch (unit) {
    case RlsUnit::kUnknown:
      return Micros{0};
    case RlsUnit::kSecond:
      return seconds{1};
    case RlsUnit::kMinute:
      return minutes{1};
    case RlsUnit::kHour:
      return hours{1};
    case RlsUnit::kDay:
      return days{1};
    case RlsUnit::kMonth:
      return days{30};
    case RlsUnit::kYear:
      return days{365};
    case RlsUnit::kWeek:
      return days{7};
  }
  std::unreachable();
}

std::string_view ToString(RlsUnit unit) {
  static constexpr std::array<std::string_view, 8> kNames = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                                             "DAY",     "MONTH",  "YEAR",   "WEEK"};
  return kNames[std::to_underlying(unit)];
}

void RlsStateKey(std::string_view domain, std::span<const RlsEntry> entries, std::string& key) {
  key.clear();
  AppendEscaped(key, domain);
  for (const RlsEntry& entry : entries) {
    AppendEntry(key, entry, IsSecretName(entry.key));
  }
  Shorten(key);
}

RlsDomain::RlsDomain(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
RlsDomain::~RlsDomain() = default;
RlsDomain::RlsDomain(RlsDomain&&) noexcept = default;
RlsDomain& RlsDomain::operator=(RlsDomain&&) noexcept = default;

const std::string& RlsDomain::name() const { return tree_->name; }
const std::string& RlsDomain::file() const { return tree_->file; }
bool RlsDomain::all_or_nothing() const { return tree_->all_or_nothing.value_or(false); }
const std::deque<RlsLimit>& RlsDomain::limits() const { return tree_->limits; }

void RlsDomain::Match(std::span<const RlsEntry> entries, RlsMatch& match) const {
  match.limit = nullptr;
  match.key.clear();
  const Node* node = &tree_->nodes.front();
  AppendEscaped(match.key, tree_->name);
  for (const RlsEntry& entry : entries) {
    node = node->Find(entry);
    if (node == nullptr) return;
    if (node->shared) {
      AppendEntry(match.key, entry.key, kSharedSeparator, node->value);
    } else {
      AppendEntry(match.key, entry, node->secret);
    }
  }
  match.limit = node->limit;
  Shorten(match.key);
}

RlsConfig::RlsConfig(std::vector<RlsDomain> domains, std::string hash)
    : domains_(std::move(domains)), hash_(std::move(hash)) {
  for (const RlsDomain& domain : domains_) by_name_.emplace(domain.name(), &domain);
}

RlsConfig::~RlsConfig() = default;

const RlsDomain* RlsConfig::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::expected<std::shared_ptr<const RlsConfig>, Problems> RlsConfig::Parse(
    std::span<const File> files, RlsMerge merge) {
  Problems problems;
  if (files.size() > kRlsFilesMax) {
    problems.push_back({.file = files.front().name,
                        .message = text::Cat("is one of ", files.size(),
                                             " files; expected at most ", kRlsFilesMax)});
    return std::unexpected(std::move(problems));
  }
  RlsForest forest(merge);
  std::string content;
  for (const File& file : files) {
    Reporter reporter(file.name);
    const auto document =
        YamlDocument::Load(file.text, file.name, reporter.problems(), YamlMerges::kResolve);
    if (document) RlsParser::Parse(document->root(), forest, reporter);
    std::ranges::move(reporter.Take(), std::back_inserter(problems));
    AppendSha256(content, file.text);
  }
  if (!problems.empty()) return std::unexpected(std::move(problems));
  std::string hash;
  AppendSha256(hash, content);
  return std::shared_ptr<const RlsConfig>(new RlsConfig(forest.Take(), std::move(hash)));
}

}  // namespace sluice::rules
