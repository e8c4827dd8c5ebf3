// SPDX-License-Identifier: Apache-2.0
#include "rules/parse.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/duration.h"
#include "base/glob.h"
#include "base/suggestion.h"
#include "base/text.h"
#include "base/yaml.h"
#include "core/algorithms.h"
#include "net/address.h"
#include "rules/key.h"
#include "rules/schema.h"

namespace sluice::rules {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::int64_t kUnitsMax = (std::int64_t{1} << 53) - 1;
constexpr std::size_t kDescriptionBytesMax = 4096;

constexpr std::array<std::string_view, 4> kRuleSetKeys = {"id", "description", "enabled", "rules"};
constexpr std::array<std::string_view, 14> kRuleKeys = {
    "id",        "description",  "enabled",        "shadow",     "scope",
    "attribute", "onMissingKey", "onStoreFailure", "onOverload", "cost",
    "hold",      "match",        "bands",          "overrides"};
constexpr std::array<std::string_view, 2> kHoldKeys = {"ttl", "onExpiry"};
constexpr std::array<std::string_view, 3> kMatchKeys = {"methods", "paths", "attributes"};
constexpr std::array<std::string_view, 3> kCostKeys = {"attribute", "default", "max"};
constexpr std::array<std::string_view, 5> kOverrideKeys = {"key", "pattern", "bands", "unlimited",
                                                           "blocked"};
constexpr std::array<std::string_view, 1> kRootKeys = {"ruleSets"};

constexpr std::array kScopes = {Scope::kGlobal, Scope::kPerIp, Scope::kPerUser, Scope::kPerApiKey,
                                Scope::kCustom};
constexpr std::array kOnMissingKey = {OnMissingKey::kSkip, OnMissingKey::kDeny,
                                      OnMissingKey::kUseIp};
constexpr std::array kOnExpiry = {OnExpiry::kCharge, OnExpiry::kRelease};
constexpr std::array kOnStoreFailure = {OnStoreFailure::kFailClosed, OnStoreFailure::kFailOpen,
                                        OnStoreFailure::kLocal};

// The keys of the other scopes start with these.
constexpr std::array<std::string_view, 4> kReservedAttributes = {"ip", "user", "apikey", "global"};

// The registered methods, and a few that are sent to caches and devices.
constexpr std::array<std::string_view, 46> kSentMethods = {"GET",
                                                           "HEAD",
                                                           "POST",
                                                           "PUT",
                                                           "DELETE",
                                                           "PATCH",
                                                           "OPTIONS",
                                                           "TRACE",
                                                           "CONNECT",
                                                           "ACL",
                                                           "BAN",
                                                           "BASELINE-CONTROL",
                                                           "BIND",
                                                           "CHECKIN",
                                                           "CHECKOUT",
                                                           "COPY",
                                                           "LABEL",
                                                           "LINK",
                                                           "LOCK",
                                                           "MERGE",
                                                           "MKACTIVITY",
                                                           "MKCALENDAR",
                                                           "MKCOL",
                                                           "MKREDIRECTREF",
                                                           "MKWORKSPACE",
                                                           "MOVE",
                                                           "M-SEARCH",
                                                           "NOTIFY",
                                                           "ORDERPATCH",
                                                           "PRI",
                                                           "PROPFIND",
                                                           "PROPPATCH",
                                                           "PURGE",
                                                           "QUERY",
                                                           "REBIND",
                                                           "REPORT",
                                                           "SEARCH",
                                                           "SUBSCRIBE",
                                                           "UNBIND",
                                                           "UNCHECKOUT",
                                                           "UNLINK",
                                                           "UNLOCK",
                                                           "UNSUBSCRIBE",
                                                           "UPDATE",
                                                           "UPDATEREDIRECTREF",
                                                           "VERSION-CONTROL"};

std::vector<std::string_view> BandKeys() {
  std::vector<std::string_view> keys = {"label"};
  keys.insert(keys.end(), LimitFields().begin(), LimitFields().end());
  return keys;
}

bool IsMethod(std::string_view text) {
  constexpr std::string_view kPunctuation = "!#$%&'*+-.^_`|~";
  return std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           kPunctuation.find(c) != std::string_view::npos;
  });
}

// The value that the node names.
template <typename Enum, std::size_t kCount>
std::optional<Enum> ReadEnum(const YamlNode& node, std::string_view what,
                             const std::array<Enum, kCount>& values, Reporter& reporter) {
  std::array<std::string_view, kCount> names;
  std::ranges::transform(values, names.begin(), [](Enum value) { return ToString(value); });
  const auto index = ReadName(node, what, names, reporter);
  return index ? std::optional(values[*index]) : std::nullopt;
}

std::string ToUpper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return upper;
}

// Reports texts that occur twice.
class Distinct {
 public:
  Distinct(std::string_view what, Reporter& reporter) : what_(what), reporter_(reporter) {}

  void Add(const YamlNode& node, std::string_view text) {
    const auto [first, is_new] = seen_.emplace(text, node.line);
    if (is_new) return;
    reporter_.Add(node, text::Cat(what_, " ", text::Quote(text), " is already used in line ",
                                  first->second, "; expected it once"));
  }

 private:
  std::string_view what_;
  Reporter& reporter_;
  std::unordered_map<std::string, int> seen_;
};

class RuleParser {
 public:
  RuleParser(const YamlNode& node, std::string_view rule_set, Reporter& reporter)
      : mapping_(node, "a rule", kRuleKeys, reporter), rule_set_(rule_set), reporter_(reporter) {
    rule_.line = node.line;
  }

  Rule Parse() {
    if (const auto* node = mapping_.Require("id", reporter_)) {
      rule_.id = ReadId(*node, "the id of a rule", reporter_).value_or("");
    }
    if (const auto* node = mapping_.Find("description")) {
      rule_.description =
          ReadText(*node, "description", kDescriptionBytesMax, reporter_).value_or("");
    }
    ReadFlag("enabled", rule_.enabled);
    ReadFlag("shadow", rule_.shadow);
    ParseScope();
    ParseOnMissingKey();
    if (const auto* node = mapping_.Find("onStoreFailure")) {
      rule_.on_store_failure = ReadEnum(*node, "onStoreFailure", kOnStoreFailure, reporter_)
                                   .value_or(rule_.on_store_failure);
    }
    if (const auto* node = mapping_.Find("onOverload")) {
      rule_.on_overload = ReadEnum(*node, "onOverload", kOnStoreFailure, reporter_);
    }
    if (const auto* node = mapping_.Find("match")) ParseMatch(*node);
    if (const auto* node = mapping_.Find("cost")) ParseCost(*node);
    if (const auto* node = mapping_.Find("hold")) ParseHold(*node);
    if (const auto* node = mapping_.Find("bands")) rule_.bands = ParseBands(*node);
    if (const auto* node = mapping_.Find("overrides")) ParseOverrides(*node);
    if (rule_.enabled && rule_.bands.empty()) {
      reporter_.Warn(mapping_.node(), text::Cat("rule ", text::Quote(rule_.id),
                                                " has no bands and never applies; expected bands, "
                                                "or enabled: false"));
    }
    CheckCaptures();
    return std::move(rule_);
  }

 private:
  void ReadFlag(std::string_view key, bool& flag) {
    const auto* const node = mapping_.Find(key);
    if (node != nullptr) flag = ReadBool(*node, key, reporter_).value_or(flag);
  }

  void ParseScope() {
    const auto* const node = mapping_.Require("scope", reporter_);
    const auto scope =
        node == nullptr ? std::nullopt : ReadEnum(*node, "scope", kScopes, reporter_);
    const auto* const attribute = mapping_.Find("attribute");
    if (!scope) return;
    rule_.scope = *scope;
    if (rule_.scope == Scope::kCustom) {
      if (attribute == nullptr) {
        reporter_.Add(*node, "scope CUSTOM needs attribute: the name of what to count by");
        return;
      }
      rule_.attribute = ReadId(*attribute, "attribute", reporter_).value_or("");
      if (std::ranges::find(kReservedAttributes, rule_.attribute) != kReservedAttributes.end()) {
        reporter_.Add(*attribute,
                      text::Cat("attribute ", text::Quote(rule_.attribute),
                                " could be mistaken for another scope; expected another name"));
      }
      NoteCapture(rule_.attribute, *attribute);
    } else if (attribute != nullptr) {
      reporter_.Add(*attribute, text::Cat("scope ", ToString(rule_.scope),
                                          " takes no attribute; only CUSTOM does"));
    }
  }

  void ParseOnMissingKey() {
    const auto* const node = mapping_.Find("onMissingKey");
    if (node == nullptr) return;
    const auto on_missing_key = ReadEnum(*node, "onMissingKey", kOnMissingKey, reporter_);
    if (!on_missing_key) return;
    rule_.on_missing_key = *on_missing_key;
    if (rule_.scope == Scope::kPerIp && rule_.on_missing_key == OnMissingKey::kUseIp) {
      reporter_.Add(*node, "onMissingKey is USE_IP under scope PER_IP; expected SKIP or DENY");
    }
  }

  // Checked against the paths later, when those are known.
  void NoteCapture(std::string_view attribute, const YamlNode& node) {
    if (attribute.starts_with(kCapturePrefix)) captures_.emplace_back(attribute, &node);
  }

  void ParseMatch(const YamlNode& node) {
    const Mapping match(node, "match", kMatchKeys, reporter_);
    if (const auto* methods = match.Find("methods")) ParseMethods(*methods);
    if (const auto* paths = match.Find("paths")) ParsePaths(*paths);
    if (const auto* attributes = match.Find("attributes")) ParseAttributes(*attributes);
  }

  void ParseMethods(const YamlNode& node) {
    Distinct distinct("method", reporter_);
    for (const YamlNode* item : ReadOneOrMore(node, "methods", kListMax, reporter_)) {
      const auto method = ReadText(*item, "a method", kIdBytesMax, reporter_);
      if (!method) continue;
      if (!IsMethod(*method)) {
        reporter_.Add(*item, text::Cat("method ", text::Quote(*method),
                                       "; expected a name such as GET; leave methods out to match "
                                       "all of them"));
      }
      rule_.match.methods.push_back(ToUpper(*method));
      if (std::ranges::find(kSentMethods, rule_.match.methods.back()) == kSentMethods.end()) {
        reporter_.Warn(*item, text::Cat("method ", text::Quote(*method),
                                        " is not one that clients are known to send; ",
                                        text::Suggestion(*method, kSentMethods),
                                        "the rule applies to no other method"));
      }
      distinct.Add(*item, rule_.match.methods.back());
    }
  }

  void ParsePaths(const YamlNode& node) {
    Distinct distinct("path", reporter_);
    for (const YamlNode* item : ReadOneOrMore(node, "paths", kListMax, reporter_)) {
      const auto text = ReadText(*item, "a path", kPathPatternBytesMax, reporter_);
      if (!text) continue;
      auto pattern = PathPattern::Parse(*text);
      if (!pattern) {
        reporter_.Add(*item, pattern.error().message);
        continue;
      }
      distinct.Add(*item, *text);
      rule_.match.paths.push_back(*std::move(pattern));
    }
  }

  void ParseAttributes(const YamlNode& node) {
    const Mapping attributes(node, "attributes", {}, reporter_);
    if (attributes.entries().size() > kListMax) {
      reporter_.Add(node, text::Cat("attributes has ", attributes.entries().size(),
                                    " entries; expected at most ", kListMax));
      return;
    }
    for (const Mapping::Entry& entry : attributes.entries()) {
      AttributeCondition condition;
      condition.name = ReadId(*entry.key_node, "the name of an attribute", reporter_).value_or("");
      NoteCapture(condition.name, *entry.key_node);
      if (entry.value->kind == YamlKind::kMapping) {
        constexpr std::array<std::string_view, 1> kKeys = {"present"};
        const Mapping present(*entry.value, "an attribute", kKeys, reporter_);
        if (const auto* value = present.Require("present", reporter_)) {
          condition.present = ReadBool(*value, "present", reporter_).value_or(true);
        }
      } else {
        for (const YamlNode* item :
             ReadOneOrMore(*entry.value, "an attribute", kListMax, reporter_)) {
          const auto value = ReadText(*item, "an attribute's value", kPatternBytesMax, reporter_);
          if (value) condition.values.emplace_back(*value);
        }
      }
      rule_.match.attributes.push_back(std::move(condition));
    }
    std::ranges::sort(rule_.match.attributes, {}, &AttributeCondition::name);
  }

  void ParseCost(const YamlNode& node) {
    if (node.kind != YamlKind::kMapping) {
      rule_.cost.units = ReadInteger(node, "cost", 1, kUnitsMax, reporter_).value_or(1);
      return;
    }
    const Mapping cost(node, "cost", kCostKeys, reporter_);
    if (const auto* attribute = cost.Require("attribute", reporter_)) {
      rule_.cost.attribute = ReadId(*attribute, "attribute", reporter_).value_or("");
      NoteCapture(rule_.cost.attribute, *attribute);
    }
    if (const auto* units = cost.Find("default")) {
      rule_.cost.units = ReadInteger(*units, "default", 0, kUnitsMax, reporter_).value_or(1);
    }
    if (const auto* max = cost.Find("max")) {
      rule_.cost.max = ReadInteger(*max, "max", 1, kUnitsMax, reporter_);
      if (rule_.cost.max && rule_.cost.units > *rule_.cost.max) {
        reporter_.Add(*max, text::Cat("max is ", *rule_.cost.max,
                                      "; expected at least the default, ", rule_.cost.units));
      }
    }
  }

  void ParseHold(const YamlNode& node) {
    const Mapping hold(node, "hold", kHoldKeys, reporter_);
    if (const auto* ttl = hold.Find("ttl")) rule_.hold.ttl = ReadHoldTtl(*ttl);
    if (const auto* on_expiry = hold.Find("onExpiry")) {
      rule_.hold.on_expiry = ReadEnum(*on_expiry, "onExpiry", kOnExpiry, reporter_);
    }
  }

  std::optional<Micros> ReadHoldTtl(const YamlNode& node) {
    const auto text = ReadText(node, "ttl", kIdBytesMax, reporter_);
    if (!text) return std::nullopt;
    const auto ttl = text::ParseDuration(*text);
    if (ttl && *ttl >= kHoldTtlMin && *ttl <= kHoldTtlMax) return *ttl;
    reporter_.Add(node, text::Cat("ttl is ", text::Quote(*text), "; expected ",
                                  text::FormatDuration(kHoldTtlMin), " to ",
                                  text::FormatDuration(kHoldTtlMax)));
    return std::nullopt;
  }

  std::vector<Band> ParseBands(const YamlNode& node) {
    std::vector<Band> bands;
    Distinct distinct("label", reporter_);
    int place = 0;
    for (const YamlNode* item : ReadList(node, "bands", kBandsMax, reporter_)) {
      // Named by position, so that the name stays when the numbers change.
      std::string label = text::Cat("band-", ++place);
      const auto limit = ParseBand(*item, label);
      distinct.Add(*item, label);
      if (!limit) continue;
      if (rule_.cost.units > limit->amount()) {
        reporter_.Add(*item,
                      text::Cat("the band holds at most ", limit->amount(), " and the cost is ",
                                rule_.cost.units, ": it could never be granted"));
      }
      std::string name = text::Cat(rule_set_, "/", rule_.id, "/", label);
      bands.push_back({.label = std::move(label), .name = std::move(name), .limit = *limit});
    }
    return bands;
  }

  std::optional<Limit> ParseBand(const YamlNode& node, std::string& label) {
    if (node.kind == YamlKind::kScalar) {
      const auto limit = Limit::Parse(node.text);
      if (limit) return *limit;
      reporter_.Add(node, limit.error().message);
      return std::nullopt;
    }
    const Mapping band(node, "a band", BandKeys(), reporter_);
    if (const auto* given = band.Find("label")) {
      label = ReadId(*given, "label", reporter_).value_or(label);
    }
    if (node.kind != YamlKind::kMapping) return std::nullopt;
    // Set here so that the message for a band without any field tells what is missing.
    const LimitDefault algorithm{"algorithm", std::string(ToString(core::kDefaultAlgorithm))};
    return ReadLimit(band, {&algorithm, 1}, reporter_);
  }

  void ParseOverrides(const YamlNode& node) {
    const auto items = ReadList(node, "overrides", kOverridesMax, reporter_);
    if (!items.empty() && rule_.scope == Scope::kGlobal) {
      reporter_.Add(node, "overrides are for some values of the scope, and GLOBAL has none");
    }
    Distinct keys("key", reporter_);
    std::size_t patterns = 0;
    for (const YamlNode* item : items) {
      Override override = ParseOverride(*item, keys);
      patterns += override.patterns.size();
      rule_.overrides.push_back(std::move(override));
    }
    if (patterns > kOverridePatternsMax) {
      reporter_.Add(node, text::Cat("overrides with ", patterns, " patterns; expected at most ",
                                    kOverridePatternsMax, "; there may be more keys"));
    }
  }

  Override ParseOverride(const YamlNode& node, Distinct& distinct) {
    Override override;
    override.line = node.line;
    const Mapping mapping(node, "an override", kOverrideKeys, reporter_);
    if (node.kind != YamlKind::kMapping) return override;
    if (const auto* keys = mapping.Find("key")) {
      for (const YamlNode* item : ReadOneOrMore(*keys, "key", kOverridesMax, reporter_)) {
        const auto key = ReadText(*item, "a key", kKeyBytesMax, reporter_);
        if (!key) continue;
        distinct.Add(*item, rule_.scope == Scope::kPerIp ? ClientOf(*key) : std::string(*key));
        WarnOfKey(*item, *key);
        override.keys.emplace_back(*key);
      }
    }
    if (const auto* patterns = mapping.Find("pattern")) {
      for (const YamlNode* item : ReadOneOrMore(*patterns, "pattern", kOverridesMax, reporter_)) {
        const auto pattern = ReadText(*item, "a pattern", kPatternBytesMax, reporter_);
        if (!pattern) continue;
        WarnOfPattern(*item, *pattern);
        override.patterns.emplace_back(*pattern);
      }
    }
    if (mapping.Find("key") == nullptr && mapping.Find("pattern") == nullptr) {
      reporter_.Add(node, "an override needs key or pattern");
    }
    ParseEffect(mapping, override);
    return override;
  }

  // The canonical form of an address or a network.
  static std::string ClientOf(std::string_view key) {
    if (const auto address = net::IpAddress::Parse(key)) return address->ToString();
    const auto network = net::Cidr::Parse(key);
    return network ? network->ToString() : std::string(key);
  }

  // Warns about a key or pattern that is written the way keys are shown, and so matches nobody. It
  // may be a secret, so only its beginning is shown.
  bool WarnOfScope(const YamlNode& node, std::string_view text) {
    const std::string prefix = text::Cat(KeyScope::Of(rule_.scope, rule_).name, ":");
    if (!text.starts_with(prefix)) return false;
    reporter_.Warn(node,
                   text::Cat("starts with ", text::Quote(prefix),
                             " but is compared with the value alone; expected only what follows"));
    return true;
  }

  void WarnOfKey(const YamlNode& node, std::string_view key) {
    if (WarnOfScope(node, key)) return;
    if (rule_.scope == Scope::kPerIp) {
      WarnOfAddress(node, key);
    } else if (KeyScope::Of(rule_.scope, rule_).secret && key.starts_with(kHashPrefix) &&
               !IsHash(key)) {
      reporter_.Warn(node, text::Cat("starts with ", kHashPrefix,
                                     " but 64 hexadecimal digits do not follow; it is compared as "
                                     "it is"));
    }
  }

  void WarnOfAddress(const YamlNode& node, std::string_view key) {
    constexpr int kUsualPrefix = 64;
    const auto network = net::Cidr::Parse(key);
    if (!network) {
      reporter_.Warn(node, text::Cat("key ", text::Quote(key),
                                     " matches no client: ", network.error().message));
    } else if (!network->address().IsV4() && network->prefix() > kUsualPrefix) {
      reporter_.Warn(node, text::Cat("key ", text::Quote(key),
                                     " is smaller than the /64 that IPv6 clients are known by; it "
                                     "matches no client unless client.ipv6Prefix says otherwise"));
    }
  }

  void WarnOfPattern(const YamlNode& node, std::string_view pattern) {
    constexpr std::string_view kOfAddresses = "0123456789abcdef.:/*";
    if (WarnOfScope(node, pattern)) return;
    if (rule_.scope == Scope::kPerIp &&
        pattern.find_first_not_of(kOfAddresses) != std::string_view::npos) {
      reporter_.Warn(node, text::Cat("pattern ", text::Quote(pattern),
                                     " matches no client; expected part of an address in lower "
                                     "case, or a network as key"));
    }
    // If the earlier one matches this pattern as a text, it matches whatever its stars match.
    const auto covers = [&](const std::string& earlier) { return GlobMatch(earlier, pattern); };
    if (const auto earlier = std::ranges::find_if(patterns_, covers); earlier != patterns_.end()) {
      reporter_.Warn(
          node,
          "an earlier pattern matches everything that this one matches; expected this one "
          "first");
    }
    if (patterns_.size() < kOverridePatternsMax) patterns_.emplace_back(pattern);
  }

  void ParseEffect(const Mapping& mapping, Override& override) {
    int effects = 0;
    if (const auto* bands = mapping.Find("bands")) {
      override.bands = ParseBands(*bands);
      ++effects;
      if (bands->kind == YamlKind::kSequence && bands->items.empty()) {
        reporter_.Add(*bands, "bands is empty; expected at least one, or unlimited: true");
      }
    }
    const std::array<std::pair<std::string_view, Override::Effect>, 2> flags = {
        {{"unlimited", Override::Effect::kUnlimited}, {"blocked", Override::Effect::kBlocked}}};
    for (const auto& [key, effect] : flags) {
      const auto* const node = mapping.Find(key);
      if (node == nullptr || !ReadBool(*node, key, reporter_).value_or(true)) continue;
      override.effect = effect;
      ++effects;
    }
    if (effects != 1) {
      reporter_.Add(mapping.node(),
                    "an override needs one of bands, unlimited: true and blocked: true");
    }
  }

  // A name in a path has a value only if every path has that name.
  void CheckCaptures() {
    for (const auto& [attribute, node] : captures_) {
      const std::string_view name = std::string_view(attribute).substr(kCapturePrefix.size());
      const bool everywhere =
          !rule_.match.paths.empty() &&
          std::ranges::all_of(rule_.match.paths, [&](const PathPattern& path) {
            return std::ranges::any_of(path.segments, [&](const PatternSegment& segment) {
              return !name.empty() && segment.capture == name;
            });
          });
      if (everywhere) continue;
      reporter_.Add(*node, text::Cat("attribute ", text::Quote(attribute), " needs {", name,
                                     "} in each of the rule's paths"));
    }
  }

  const Mapping mapping_;
  const std::string_view rule_set_;
  Reporter& reporter_;
  Rule rule_;
  std::vector<std::pair<std::string, const YamlNode*>> captures_;
  std::vector<std::string> patterns_;  // Of all overrides so far.
};

// Rules that apply to every request are charged together; shadow rules have their own maximum.
void CheckCharges(const RuleSetSpec& spec, const YamlNode& rules, Reporter& reporter) {
  static_assert(kShadowChargesMax == kChargesMax);
  std::size_t counting = 0;
  std::size_t shadows = 0;
  for (std::size_t i = 0; i < spec.rules.size(); ++i) {
    const Rule& rule = spec.rules[i];
    const Match& match = rule.match;
    if (!rule.enabled || !match.methods.empty() || !match.paths.empty() ||
        !match.attributes.empty()) {
      continue;
    }
    std::size_t& charges = rule.shadow ? shadows : counting;
    charges += rule.bands.size();
    if (charges > kChargesMax) {
      reporter.Add(*rules.items[i],
                   text::Cat("with this rule ", charges, rule.shadow ? " shadow" : "",
                             " bands apply to every request; expected at most ", kChargesMax));
      return;
    }
  }
}

RuleSetSpec ParseSpec(const YamlNode& node, Reporter& reporter) {
  RuleSetSpec spec;
  spec.file = reporter.file();
  spec.line = node.line;
  const Mapping mapping(node, "a rule set", kRuleSetKeys, reporter);
  if (const auto* id = mapping.Require("id", reporter)) {
    spec.id = ReadId(*id, "the id of a rule set", reporter).value_or("");
  }
  if (const auto* text = mapping.Find("description")) {
    spec.description = ReadText(*text, "description", kDescriptionBytesMax, reporter).value_or("");
  }
  if (const auto* enabled = mapping.Find("enabled")) {
    spec.enabled = ReadBool(*enabled, "enabled", reporter).value_or(true);
  }
  const auto* const rules = mapping.Find("rules");
  if (rules == nullptr) return spec;
  Distinct ids("rule", reporter);
  for (const YamlNode* item : ReadList(*rules, "rules", kRulesMax, reporter)) {
    spec.rules.push_back(RuleParser(*item, spec.id, reporter).Parse());
    if (!spec.rules.back().id.empty()) ids.Add(*item, spec.rules.back().id);
  }
  CheckCharges(spec, *rules, reporter);
  spec.warnings = reporter.TakeWarnings();
  return spec;
}

// The lines of a file.
class Lines {
 public:
  explicit Lines(std::string_view text) {
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size() - 1);
      lines_.push_back(text.substr(0, end + 1));
      text.remove_prefix(end + 1);
    }
  }

  // From the node's first character to the line before `end_line`, indented as if it stood alone.
  std::string From(const YamlNode& node, std::size_t end_line) const {
    const auto indent = static_cast<std::size_t>(node.column - 1);
    const auto begin = static_cast<std::size_t>(node.line - 1);
    auto end = std::min(end_line - 1, lines_.size());
    while (end > begin && IsBeyond(lines_[end - 1], indent)) --end;
    std::string source;
    for (std::size_t i = begin; i < end; ++i) {
      std::string_view line = lines_[i];
      const std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
      line.remove_prefix(std::min({i == begin ? indent : blanks, indent, line.size()}));
      source += line;
    }
    return source;
  }

  std::size_t size() const { return lines_.size(); }

  bool IsDash(const YamlNode& node) const {
    const auto line = static_cast<std::size_t>(node.line - 1);
    return line < lines_.size() &&
           lines_[line].substr(0, static_cast<std::size_t>(node.column)).ends_with('-');
  }

 private:
  // Blank, or a comment on what follows, or its dash.
  static bool IsBeyond(std::string_view line, std::size_t indent) {
    const auto first = line.find_first_not_of(" \t\r\n");
    return first == std::string_view::npos ||
           (first < indent && (line[first] == '#' || line[first] == '-'));
  }

  std::vector<std::string_view> lines_;
};

// Gives each rule set its own lines, if each item of the list has a dash.
void AddSources(std::string_view yaml, const YamlNode& root, const YamlNode& list,
                std::vector<RuleSetSpec>& specs) {
  const Lines lines(yaml);
  if (!lines.IsDash(list)) return;
  auto end = static_cast<int>(lines.size()) + 1;
  for (std::size_t i = 0; i < root.items.size(); i += 2) {
    if (root.items[i]->line > list.line) end = std::min(end, root.items[i]->line);
  }
  for (std::size_t i = specs.size(); i-- > 0;) {
    const YamlNode& node = *list.items[i];
    // An alias is elsewhere.
    if (node.line < list.line || node.line >= end) return;
    specs[i].source = lines.From(node, static_cast<std::size_t>(end));
    end = node.line;
  }
}

}  // namespace

std::expected<RuleSets, Problems> ParseRuleSets(std::string_view yaml, std::string_view file,
                                                OtherKeys other_keys) {
  Reporter reporter(file);
  const auto document = YamlDocument::Load(yaml, file, reporter.problems());
  if (!document) return std::unexpected(reporter.Take());
  const YamlNode& root = document->root();
  // The reader of the other keys reports that it is not a mapping.
  if (other_keys == OtherKeys::kIgnore && root.kind != YamlKind::kMapping) return RuleSets{};
  const Mapping mapping(root, "the document",
                        other_keys == OtherKeys::kForbid ? Names(kRootKeys) : Names(), reporter);
  // A file that was emptied, or cut off, must not pass for one without rules.
  const auto entry = std::ranges::find(mapping.entries(), "ruleSets", &Mapping::Entry::key);
  const YamlNode* const list = entry == mapping.entries().end() ? nullptr : entry->value;
  if (list == nullptr && other_keys == OtherKeys::kForbid && root.kind == YamlKind::kMapping) {
    reporter.Add(root, "the document needs ruleSets; expected a list, or [] for none");
  }
  std::vector<RuleSetSpec> specs;
  if (list != nullptr) {
    Distinct ids("rule set", reporter);
    for (const YamlNode* item : ReadList(*list, "ruleSets", kRuleSetsMax, reporter)) {
      specs.push_back(ParseSpec(*item, reporter));
      if (!specs.back().id.empty()) ids.Add(*item, specs.back().id);
    }
  }
  if (!reporter.empty()) return std::unexpected(reporter.Take());
  if (list != nullptr) AddSources(yaml, root, *list, specs);
  RuleSets rule_sets;
  for (RuleSetSpec& spec : specs) rule_sets.push_back(RuleSet::Compile(std::move(spec)));
  return rule_sets;
}

std::expected<std::shared_ptr<const RuleSet>, Problems> ParseRuleSet(std::string_view yaml,
                                                                     std::string_view file) {
  Reporter reporter(file);
  const auto document = YamlDocument::Load(yaml, file, reporter.problems());
  if (!document) return std::unexpected(reporter.Take());
  RuleSetSpec spec = ParseSpec(document->root(), reporter);
  if (!reporter.empty()) return std::unexpected(reporter.Take());
  spec.source = yaml;
  return RuleSet::Compile(std::move(spec));
}

}  // namespace sluice::rules
