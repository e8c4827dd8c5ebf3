// SPDX-License-Identifier: Apache-2.0
#include "rules/rule_set.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/digest.h"
#include "base/glob.h"
#include "base/text.h"
#include "rules/attribute_index.h"
#include "rules/key.h"
#include "rules/override_index.h"
#include "rules/path.h"
#include "rules/path_trie.h"

namespace sluice::rules {
namespace {

using Verdict = Selected::Verdict;

static_assert(kPatternBytesMax <= kGlobBytesMax && kPathPatternBytesMax <= kGlobBytesMax);

constexpr std::array<std::string_view, 9> kMethods = {
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"};

// One bit for each well-known method, and one for all others together.
using MethodSet = std::uint16_t;
constexpr MethodSet kOtherMethod = 1U << kMethods.size();
constexpr MethodSet kAllMethods = 2 * kOtherMethod - 1;

MethodSet MethodBit(std::string_view method) {
  for (std::size_t i = 0; i < kMethods.size(); ++i) {
    if (text::EqualsIgnoreCase(kMethods[i], method)) return static_cast<MethodSet>(1U << i);
  }
  return kOtherMethod;
}

// What most requests need of a rule, in one cache line.
struct CompiledRule {
  const Rule* rule;
  std::span<const Band> bands;
  std::int64_t cost_units;
  const OverrideIndex* overrides;  // Null if there are none.
  MethodSet methods;
  bool has_method_conditions;
  bool has_attribute_conditions;
  bool cost_from_attribute;
  bool uses_captures;  // Needs the values of the names in its paths.
  Scope scope;
  OnMissingKey on_missing_key;
};

// A rule whose path matches, and how.
struct Candidate {
  std::uint32_t rule;
  std::uint32_t pattern;
  std::uint32_t reading;
};

// Up to this many rules that differ only in attributes are checked one by one, which is no slower
// than looking them up.
constexpr std::size_t kIndexedMin = 16;

// Marks the rule of a target as the number of a group of the index.
constexpr std::uint32_t kGroup = std::uint32_t{1} << 31;
static_assert(kRulesMax < kGroup);

// Equal for patterns that match the same paths because they are written alike.
std::string ShapeOf(const PathPattern& pattern) {
  std::string shape;
  for (const PatternSegment& segment : pattern.segments) {
    shape += text::Cat(static_cast<int>(segment.kind), " ", segment.text.size(), " ", segment.text);
  }
  return shape;
}

struct KeyRange {
  std::size_t begin = 0;
  std::size_t size = 0;
};

}  // namespace

struct SelectionScratch {
  std::vector<Selected> selected;
  std::vector<KeyRange> keys;  // Of `selected`, until `key_bytes` stops moving.
  std::string key_bytes;
  std::array<KeyRange, 5> scope_keys;  // By scope, made when first needed.
  PathReadings readings;
  PathTrie::Scratch trie;
  std::vector<PathTrie::Target> targets;
  std::vector<Candidate> candidates;
  std::array<const Rule*, Selection::kSkippedMax> skipped;
  std::size_t skipped_count = 0;

  void Clear() {
    selected.clear();
    keys.clear();
    key_bytes.clear();
    scope_keys.fill({});
    candidates.clear();
    skipped_count = 0;
  }

  void Skip(const Rule* rule) {
    if (skipped_count == skipped.size()) return;
    // Another reading of the path may have led to the same rule.
    if (skipped_count > 0 && skipped[skipped_count - 1] == rule) return;
    skipped[skipped_count++] = rule;
  }
};

namespace {

std::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

// Patterns are matched against them, so their length must be bounded.
Expected<void> CheckValues(const Context& context) {
  const auto fits = [](std::string_view value) { return value.size() <= kValueBytesMax; };
  if (fits(context.ip) && fits(context.user_id) && fits(context.api_key) && fits(context.method) &&
      std::ranges::all_of(context.attributes, fits, &Attribute::value)) {
    return {};
  }
  return Fail(ErrorCode::kInvalidRequest,
              text::Cat("a value of more than ", kValueBytesMax, " bytes"));
}

bool UsesCaptures(const Rule& rule) {
  const auto is_capture = [](std::string_view name) { return name.starts_with(kCapturePrefix); };
  return is_capture(rule.attribute) || is_capture(rule.cost.attribute) ||
         std::ranges::any_of(rule.match.attributes, is_capture, &AttributeCondition::name);
}

// Drops parameters, which some servers drop and others do not: a client that adds `;x` gets no
// fresh budget. Never empty.
std::string_view WithoutParameters(std::string_view value) {
  const auto end = value.find(';');
  return end == 0 ? value : value.substr(0, end);
}

// The value of `{name}` in a path that the pattern matches.
std::string_view FindCapture(const PathPattern& pattern, std::span<const std::string_view> segments,
                             std::string_view name) {
  const auto& parts = pattern.segments;
  bool after_depth = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == PatternSegment::Kind::kAnyDepth) after_depth = true;
    if (parts[i].capture != name) continue;
    return WithoutParameters(after_depth ? segments[segments.size() - (parts.size() - i)]
                                         : segments[i]);
  }
  return {};
}

// Evaluates the candidates of one request.
class Evaluation {
 public:
  Evaluation(const Context& context, std::int64_t permits, MethodSet method,
             SelectionScratch& scratch)
      : context_(context), permits_(permits), method_(method), scratch_(scratch) {}

  // Adds the rule to the selection if it applies.
  Expected<void> Add(const CompiledRule& compiled, const Candidate& candidate) {
    if (!Applies(compiled, candidate)) return {};
    Selected selected{
        .rule = compiled.rule, .bands = {}, .key = {}, .cost = 0, .verdict = Verdict::kCharge};
    KeyRange key;
    const Override* override = nullptr;
    if (compiled.scope == Scope::kGlobal) {
      key = KeyOf(compiled, Scope::kGlobal, {});
    } else if (const auto value = ScopeValue(compiled, candidate); !value.empty()) {
      key = KeyOf(compiled, compiled.scope, value);
      if (compiled.overrides != nullptr) {
        override = compiled.overrides->Find(
            value, std::string_view(scratch_.key_bytes).substr(key.begin, key.size));
      }
    } else if (compiled.on_missing_key == OnMissingKey::kSkip) {
      scratch_.Skip(compiled.rule);
      return {};
    } else if (compiled.on_missing_key == OnMissingKey::kUseIp && !context_.ip.empty()) {
      key = KeyOf(compiled, Scope::kPerIp, context_.ip);
    } else {
      selected.verdict = Verdict::kMissingKey;
    }
    if (override != nullptr && override->effect != Override::Effect::kBands) {
      const bool unlimited = override->effect == Override::Effect::kUnlimited;
      selected.verdict = unlimited ? Verdict::kUnlimited : Verdict::kBlocked;
    }
    if (selected.verdict == Verdict::kCharge) {
      selected.bands = override == nullptr ? compiled.bands : override->bands;
      const auto cost = CostOf(compiled, candidate);
      if (!cost) return std::unexpected(cost.error());
      selected.cost = *cost;
    }
    if (compiled.uses_captures && IsRepeated(selected, key)) return {};
    if (selected.rule->shadow) {
      if (selected.bands.size() > kShadowChargesMax - shadow_charges_) return {};
      shadow_charges_ += selected.bands.size();
    } else {
      charges_ += selected.bands.size();
    }
    scratch_.selected.push_back(selected);
    scratch_.keys.push_back(key);
    return {};
  }

  // Points the keys to their bytes.
  void Finish() {
    const std::string_view bytes = scratch_.key_bytes;
    for (std::size_t i = 0; i < scratch_.selected.size(); ++i) {
      scratch_.selected[i].key = bytes.substr(scratch_.keys[i].begin, scratch_.keys[i].size);
    }
  }

  // Charges of rules that are not shadows.
  std::size_t charges() const { return charges_; }

 private:
  // Whether another reading of the path led to the same result. The larger cost counts.
  bool IsRepeated(const Selected& selected, const KeyRange& key) {
    const std::string_view bytes = scratch_.key_bytes;
    for (std::size_t i = scratch_.selected.size(); i-- > 0;) {
      Selected& other = scratch_.selected[i];
      if (other.rule != selected.rule) return false;
      const KeyRange& range = scratch_.keys[i];
      if (bytes.substr(range.begin, range.size) != bytes.substr(key.begin, key.size)) continue;
      other.cost = std::max(other.cost, selected.cost);
      return true;
    }
    return false;
  }

  // Empty if the request does not have it.
  std::string_view FindAttribute(const CompiledRule& compiled, const Candidate& candidate,
                                 std::string_view name) const {
    if (name.starts_with(kCapturePrefix)) {
      return FindCapture(compiled.rule->match.paths[candidate.pattern],
                         scratch_.readings[candidate.reading], name.substr(kCapturePrefix.size()));
    }
    const auto found = std::ranges::find(context_.attributes, name, &Attribute::name);
    return found == context_.attributes.end() ? std::string_view() : found->value;
  }

  bool Applies(const CompiledRule& compiled, const Candidate& candidate) const {
    if (compiled.has_method_conditions && !MethodMatches(compiled)) return false;
    if (!compiled.has_attribute_conditions) return true;
    return std::ranges::all_of(
        compiled.rule->match.attributes, [&](const AttributeCondition& condition) {
          const auto value = FindAttribute(compiled, candidate, condition.name);
          if (condition.values.empty()) return condition.present != value.empty();
          return !value.empty() &&
                 std::ranges::any_of(condition.values, [&](const std::string& pattern) {
                   return GlobMatch(pattern, value);
                 });
        });
  }

  bool MethodMatches(const CompiledRule& compiled) const {
    if ((compiled.methods & method_) == 0) return false;
    if (method_ != kOtherMethod) return true;
    return std::ranges::any_of(compiled.rule->match.methods, [&](const std::string& method) {
      return text::EqualsIgnoreCase(method, context_.method);
    });
  }

  std::string_view ScopeValue(const CompiledRule& compiled, const Candidate& candidate) const {
    switch (compiled.scope) {
      case Scope::kGlobal:
        return {};
      case Scope::kPerIp:
        return context_.ip;
      case Scope::kPerUser:
        return context_.user_id;
      case Scope::kPerApiKey:
        return context_.api_key;
      case Scope::kCustom:
        return FindAttribute(compiled, candidate, compiled.rule->attribute);
    }
    std::unreachable();
  }

  // Rules of one scope share the bytes, unless each may have its own attribute.
  KeyRange KeyOf(const CompiledRule& compiled, Scope scope, std::string_view value) {
    KeyRange own;
    KeyRange& key =
        scope == Scope::kCustom ? own : scratch_.scope_keys[static_cast<std::size_t>(scope)];
    if (key.size == 0) {
      key.begin = scratch_.key_bytes.size();
      AppendKey(scratch_.key_bytes, KeyScope::Of(scope, *compiled.rule), value);
      key.size = scratch_.key_bytes.size() - key.begin;
    }
    return key;
  }

  Expected<std::int64_t> CostOf(const CompiledRule& compiled, const Candidate& candidate) const {
    std::int64_t units = compiled.cost_units;
    if (compiled.cost_from_attribute) {
      const Cost& cost = compiled.rule->cost;
      const auto value = FindAttribute(compiled, candidate, cost.attribute);
      const auto given = text::ParseInteger(value);
      if (given && *given >= 0) {
        units = cost.max ? std::min(*given, *cost.max) : *given;
      } else if (!value.empty() && !compiled.rule->shadow) {
        return Fail(ErrorCode::kInvalidCost,
                    text::Cat("attribute ", text::Quote(cost.attribute), " is ", text::Quote(value),
                              " and the cost under rule ", text::Quote(compiled.rule->id),
                              "; expected a whole number of 0 or more"));
      }
    }
    std::int64_t total = 0;
    if (__builtin_mul_overflow(units, permits_, &total)) {
      // More than any limit grants, so that the store reports it for the shadow rule alone.
      if (compiled.rule->shadow) return std::numeric_limits<std::int64_t>::max();
      return Fail(ErrorCode::kInvalidCost,
                  text::Cat(permits_, " permits of cost ", units, " under rule ",
                            text::Quote(compiled.rule->id), " are too many"));
    }
    return total;
  }

  const Context& context_;
  const std::int64_t permits_;
  const MethodSet method_;
  SelectionScratch& scratch_;
  std::size_t charges_ = 0;
  std::size_t shadow_charges_ = 0;
};

}  // namespace

Selection::Selection() : scratch_(std::make_unique<SelectionScratch>()) {}
Selection::~Selection() = default;
Selection::Selection(Selection&&) noexcept = default;
Selection& Selection::operator=(Selection&&) noexcept = default;

std::span<const Selected> Selection::rules() const { return scratch_->selected; }

std::span<const Rule* const> Selection::skipped() const {
  return std::span(scratch_->skipped).first(scratch_->skipped_count);
}

// What makes a rule set fast. Points into the spec.
struct RuleSet::Index {
  explicit Index(const RuleSetSpec& spec);

  void Add(const Rule& rule, std::vector<PathTrie::Source>& sources);
  bool AddGroup(std::span<const PathTrie::Target> targets);
  void GroupPaths(std::vector<PathTrie::Source>& sources);
  Expected<void> MatchPath(const Context& context, SelectionScratch& scratch) const;
  void FindCandidates(const Context& context, SelectionScratch& scratch) const;
  void Expand(const Context& context, std::uint32_t reading, SelectionScratch& scratch) const;

  std::vector<CompiledRule> rules;             // Those that can apply, in order.
  std::vector<PathTrie::Target> without_path;  // Those without a path condition; or their group.
  std::vector<AttributeIndex> groups;          // Of rules that no path distinguishes.
  std::vector<std::unique_ptr<OverrideIndex>> overrides;
  std::vector<const Rule*> by_id;  // All, sorted.
  MethodSet methods = 0;           // That any rule applies to.
  std::optional<PathTrie> trie;
};

RuleSet::Index::Index(const RuleSetSpec& spec) {
  for (const Rule& rule : spec.rules) by_id.push_back(&rule);
  std::ranges::sort(by_id, {}, [](const Rule* rule) { return std::string_view(rule->id); });
  if (!spec.enabled) return;
  std::vector<PathTrie::Source> sources;
  for (const Rule& rule : spec.rules) {
    if (rule.enabled && !rule.bands.empty()) Add(rule, sources);
  }
  if (AddGroup(without_path)) without_path = {{.rule = kGroup, .pattern = 0}};
  GroupPaths(sources);
  if (!sources.empty()) trie.emplace(sources);
}

// Makes a group of the rules if attributes distinguish enough of them; returns whether it did.
bool RuleSet::Index::AddGroup(std::span<const PathTrie::Target> targets) {
  std::vector<AttributeIndex::Source> members;
  std::size_t found = 0;
  for (const PathTrie::Target& target : targets) {
    const Rule* const rule = rules[target.rule].rule;
    members.push_back({.rule = rule, .target = target});
    if (AttributeIndex::CanFind(*rule)) ++found;
  }
  if (found < kIndexedMin) return false;
  groups.emplace_back(members);
  return true;
}

// Replaces sources that have the same pattern and become a group by one source.
void RuleSet::Index::GroupPaths(std::vector<PathTrie::Source>& sources) {
  std::unordered_map<std::string, std::vector<std::size_t>> by_shape;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    by_shape[ShapeOf(*sources[i].pattern)].push_back(i);
  }
  for (const auto& [shape, places] : by_shape) {
    if (places.size() < kIndexedMin) continue;
    std::vector<PathTrie::Target> targets;
    for (const std::size_t place : places) targets.push_back(sources[place].target);
    const auto group = static_cast<std::uint32_t>(groups.size());
    if (!AddGroup(targets)) continue;
    sources[places.front()].target = {.rule = kGroup | group, .pattern = 0};
    for (const std::size_t place : std::span(places).subspan(1)) sources[place].pattern = nullptr;
  }
  std::erase_if(sources, [](const PathTrie::Source& source) { return source.pattern == nullptr; });
}

void RuleSet::Index::Add(const Rule& rule, std::vector<PathTrie::Source>& sources) {
  const auto index = static_cast<std::uint32_t>(rules.size());
  CompiledRule compiled{.rule = &rule,
                        .bands = rule.bands,
                        .cost_units = rule.cost.units,
                        .overrides = nullptr,
                        .methods = rule.match.methods.empty() ? kAllMethods : MethodSet{0},
                        .has_method_conditions = !rule.match.methods.empty(),
                        .has_attribute_conditions = !rule.match.attributes.empty(),
                        .cost_from_attribute = !rule.cost.attribute.empty(),
                        .uses_captures = UsesCaptures(rule),
                        .scope = rule.scope,
                        .on_missing_key = rule.on_missing_key};
  for (const std::string& method : rule.match.methods) compiled.methods |= MethodBit(method);
  methods |= compiled.methods;
  if (!rule.overrides.empty()) {
    compiled.overrides = overrides.emplace_back(std::make_unique<OverrideIndex>(rule)).get();
  }
  rules.push_back(compiled);
  if (rule.match.paths.empty()) without_path.push_back({.rule = index, .pattern = 0});
  for (std::uint32_t i = 0; i < rule.match.paths.size(); ++i) {
    sources.push_back({&rule.match.paths[i], {.rule = index, .pattern = i}});
  }
}

// Adds the targets as candidates; replaces a group by those of its rules that may apply.
void RuleSet::Index::Expand(const Context& context, std::uint32_t reading,
                            SelectionScratch& scratch) const {
  auto& targets = scratch.targets;
  // Expanding groups appends more targets meanwhile.
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const PathTrie::Target target = targets[i];
    if ((target.rule & kGroup) != 0) {
      groups[target.rule & ~kGroup].Match(context.attributes, targets);
    } else {
      scratch.candidates.push_back(
          {.rule = target.rule, .pattern = target.pattern, .reading = reading});
    }
  }
}

// Adds what matches any reading of the path.
Expected<void> RuleSet::Index::MatchPath(const Context& context, SelectionScratch& scratch) const {
  if (auto read = scratch.readings.Read(*context.path); !read) return read;
  for (std::uint32_t reading = 0; reading < scratch.readings.size(); ++reading) {
    scratch.targets.clear();
    trie->Match(scratch.readings[reading], scratch.trie, scratch.targets);
    Expand(context, reading, scratch);
  }
  return {};
}

// Adds the rules without paths, and keeps each rule once, in order; or once for each reading, if
// the names in its paths matter.
void RuleSet::Index::FindCandidates(const Context& context, SelectionScratch& scratch) const {
  auto& candidates = scratch.candidates;
  const bool in_order = candidates.empty() && groups.empty();
  scratch.targets.assign(without_path.begin(), without_path.end());
  Expand(context, 0, scratch);
  if (in_order || candidates.size() <= 1) return;

  std::ranges::sort(candidates, {}, [](const Candidate& candidate) {
    return std::tuple(candidate.rule, candidate.reading, candidate.pattern);
  });
  const auto repeated =
      std::ranges::unique(candidates, [this](const Candidate& a, const Candidate& b) {
        return a.rule == b.rule && (a.reading == b.reading || !rules[a.rule].uses_captures);
      });
  candidates.erase(repeated.begin(), repeated.end());
}

RuleSet::RuleSet(RuleSetSpec spec)
    : spec_(std::move(spec)), index_(std::make_unique<const Index>(spec_)) {
  AppendSha256(hash_, ToJson());
}

RuleSet::~RuleSet() = default;

std::shared_ptr<const RuleSet> RuleSet::Compile(RuleSetSpec spec) {
  return std::shared_ptr<const RuleSet>(new RuleSet(std::move(spec)));
}

const Rule* RuleSet::FindRule(std::string_view id) const {
  const auto found = std::ranges::lower_bound(
      index_->by_id, id, {}, [](const Rule* rule) { return std::string_view(rule->id); });
  return found != index_->by_id.end() && (*found)->id == id ? *found : nullptr;
}

Expected<void> RuleSet::Select(const Context& context, std::int64_t permits,
                               Selection& selection) const {
  SelectionScratch& scratch = *selection.scratch_;
  scratch.Clear();
  if (permits < 0) {
    return Fail(ErrorCode::kInvalidCost, text::Cat(permits, " permits; expected 0 or more"));
  }
  const MethodSet method = context.method.empty() ? MethodSet{0} : MethodBit(context.method);
  if (method != 0 && (index_->methods & method) == 0) return {};

  if (auto valid = CheckValues(context); !valid) return valid;
  if (index_->trie && context.path) {
    if (auto matched = index_->MatchPath(context, scratch); !matched) return matched;
  }
  index_->FindCandidates(context, scratch);

  Evaluation evaluation(context, permits, method, scratch);
  for (const Candidate& candidate : scratch.candidates) {
    const auto added = evaluation.Add(index_->rules[candidate.rule], candidate);
    if (!added) {
      scratch.selected.clear();
      return added;
    }
  }
  if (evaluation.charges() > kChargesMax) {
    scratch.selected.clear();
    return Fail(ErrorCode::kInvalidRequest,
                text::Cat("rule set ", text::Quote(spec_.id), ": rules with ", evaluation.charges(),
                          " bands apply to one request; expected at most ", kChargesMax));
  }
  evaluation.Finish();
  return {};
}

}  // namespace sluice::rules
