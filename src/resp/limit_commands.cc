// SPDX-License-Identifier: Apache-2.0
// The commands that the store decides: CL.THROTTLE, THROTTLE, SLUICE.*, DEL.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "net/address.h"
#include "resp/session.h"

namespace sluice::resp {
namespace {

using Arguments = std::span<const std::string_view>;

// The state of a key under CL.THROTTLE: only one, whatever numbers its commands have, like
// redis-cell. What was used stays used when they change. THROTTLE has its own, because its bucket
// differs. The single slash occurs in no name of a limit or rule.
constexpr std::string_view kCellState = "resp/cl.throttle";
constexpr std::string_view kCrabState = "resp/throttle";

constexpr std::int64_t kMicrosPerSecond = 1'000'000;

std::unexpected<Error> Refuse(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidRequest, std::move(message)});
}

// Digits only, like nearly every number; otherwise uses text::ParseInteger.
inline std::optional<std::int64_t> ParseDigits(std::string_view text) {
  constexpr std::size_t kSafeDigits = 18;  // This many never overflow 64 bits.
  if (text.empty() || text.size() > kSafeDigits) return text::ParseInteger(text);
  std::int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return text::ParseInteger(text);
    number = number * 10 + (c - '0');
  }
  return number;
}

constexpr std::int64_t kNumberMax = (std::int64_t{1} << 53) - 1;

// A whole number as an argument.
struct Number {
  std::string_view name;
  std::int64_t min;
  std::int64_t max;

  // Every command has several: errors, which are large, are built only when needed.
  std::optional<std::int64_t> Parse(std::string_view text) const {
    const auto number = ParseDigits(text);
    return number && *number >= min && *number <= max ? number : std::nullopt;
  }
  std::unexpected<Error> NotIn(std::string_view text) const {
    return Refuse(text::Cat(name, " is ", text::Quote(text), "; expected a whole number from ", min,
                            " to ", max));
  }
};

constexpr Number kCount{.name = "count", .min = 1, .max = kNumberMax};
constexpr Number kPeriod{
    .name = "period_seconds", .min = 1, .max = kSpanMax.count() / kMicrosPerSecond};
constexpr Number kQuantity{
    .name = "quantity", .min = 0, .max = std::numeric_limits<std::int64_t>::max()};
constexpr Number kCost{.name = "COST", .min = 0, .max = kNumberMax};

// The limit given by the three numbers after the key, for a bucket that holds `extra` more than the
// first of them.
Expected<Limit::GcraSpec> ParseSpec(Arguments arguments, std::int64_t extra) {
  const Number max_burst{.name = "max_burst", .min = 1 - extra, .max = kNumberMax - extra};
  const auto burst = max_burst.Parse(arguments[2]);
  if (!burst) return max_burst.NotIn(arguments[2]);
  const auto count = kCount.Parse(arguments[3]);
  if (!count) return kCount.NotIn(arguments[3]);
  const auto period = kPeriod.Parse(arguments[4]);
  if (!period) return kPeriod.NotIn(arguments[4]);
  return Limit::GcraSpec{
      .burst = *burst + extra - 1, .count = *count, .period = Micros{*period * kMicrosPerSecond}};
}

// Takes `WORD value` pairs and single words one by one, each word at most once, except for words
// with a name and a value.
class Options {
 public:
  explicit Options(Arguments arguments) : rest_(arguments) {}

  bool done() const { return rest_.empty(); }
  std::string_view next() const { return rest_[0]; }

  bool Take(std::string_view word) {
    if (!text::EqualsIgnoreCase(rest_[0], word)) return false;
    rest_ = rest_.subspan(1);
    Note(word);
    return true;
  }

  // The word and its value.
  bool Take(std::string_view word, std::string_view& value) {
    if (rest_.size() < 2 || !text::EqualsIgnoreCase(rest_[0], word)) return false;
    value = rest_[1];
    rest_ = rest_.subspan(2);
    Note(word);
    return true;
  }

  bool Take(std::string_view word, rules::Attribute& attribute) {
    if (rest_.size() < 3 || !text::EqualsIgnoreCase(rest_[0], word)) return false;
    attribute = {.name = rest_[1], .value = rest_[2]};
    rest_ = rest_.subspan(3);
    return true;
  }

  // The word that was taken twice; empty if there is none.
  std::string_view repeated() const { return repeated_; }

 private:
  void Note(std::string_view word) {
    const auto before = std::span(taken_).first(count_);
    if (std::ranges::find(before, word) != before.end()) {
      repeated_ = word;
    } else {
      taken_[count_++] = word;
    }
  }

  static constexpr std::size_t kWordsMax = 8;  // Of any command.

  Arguments rest_;
  std::array<std::string_view, kWordsMax> taken_;
  std::size_t count_ = 0;
  std::string_view repeated_;
};

// Which of two values counts must not be guessed: a proxy may have added one and its client the
// other.
std::unexpected<Error> RefuseRepeated(std::string_view option) {
  return Refuse(text::Cat(option, " is given twice; expected it once"));
}

}  // namespace

Expected<void> Session::Throttle(Arguments arguments, Dialect dialect) {
  constexpr std::size_t kArgumentsMax = 6;
  const bool cell = dialect == Dialect::kCell;
  if (arguments.size() > kArgumentsMax) {
    return Refuse(text::Cat("wrong number of arguments for '", cell ? "cl.throttle" : "throttle",
                            "' command"));
  }
  const auto spec = ParseSpec(arguments, cell ? 1 : 0);
  if (!spec) return std::unexpected(spec.error());
  std::int64_t quantity = 1;
  if (arguments.size() == kArgumentsMax) {
    const auto parsed = kQuantity.Parse(arguments[5]);
    if (!parsed) return kQuantity.NotIn(arguments[5]);
    quantity = *parsed;
  }
  const Limit* limit = worker_.limits().Find(*spec);
  if (!limit) {
    const auto made = Limit::Gcra(*spec);
    if (!made) return std::unexpected(made.error());
    limit = &worker_.limits().Keep(*spec, *made);
  }
  const Batch::Check check{.limit = *limit,
                           .key = arguments[1],
                           .name = cell ? kCellState : kCrabState,
                           .said = {},
                           .cost = quantity,
                           .on_store_failure = worker_.options().on_store_failure};
  if (quantity > limit->amount()) {
    batch_->AddNever(check, dialect, protocol_);
  } else {
    batch_->AddCheck(check, dialect, protocol_);
  }
  return {};
}

Expected<void> Session::Check(Arguments arguments, Taking taking) {
  if (text::EqualsIgnoreCase(arguments[1], "LIMIT")) return CheckLimit(arguments, taking);
  if (text::EqualsIgnoreCase(arguments[1], "RULESET")) return CheckRules(arguments, taking);
  return Refuse(text::Cat(text::Quote(arguments[1]), " is neither LIMIT nor RULESET"));
}

Expected<void> Session::CheckLimit(Arguments arguments, Taking taking) {
  constexpr std::string_view kTakeUsage = "expected LIMIT limit key [COST cost]";
  constexpr std::string_view kOtherUsage = "expected LIMIT limit key";
  const bool takes = taking == Taking::kTake;
  std::int64_t cost = takes ? 1 : 0;
  if (arguments.size() > 4) {
    const bool costs =
        takes && arguments.size() == 6 && text::EqualsIgnoreCase(arguments[4], "COST");
    if (takes && arguments.size() > 6 && text::EqualsIgnoreCase(arguments[6], "COST")) {
      return RefuseRepeated("COST");
    }
    if (!costs) {
      return Refuse(text::Cat("syntax error at ", text::Quote(arguments[4]), "; ",
                              takes ? kTakeUsage : kOtherUsage));
    }
    const auto parsed = kCost.Parse(arguments[5]);
    if (!parsed) return kCost.NotIn(arguments[5]);
    cost = *parsed;
  }
  if (arguments.size() < 4) {
    return Refuse(text::Cat("the key is missing; ", takes ? kTakeUsage : kOtherUsage));
  }
  const auto named = service::FindLimit(*worker_.engine().catalog(), arguments[2]);
  if (!named) return std::unexpected(named.error());
  if (taking == Taking::kReset) {
    batch_->AddReset(named->limit, named->name, arguments.subspan(3, 1));
    return {};
  }
  batch_->AddCheck({.limit = named->limit,
                    .key = arguments[3],
                    .name = named->name,
                    .said = arguments[2],
                    .cost = cost,
                    .on_store_failure = worker_.options().on_store_failure},
                   Dialect::kFields, protocol_);
  return {};
}

Expected<void> Session::CheckRules(Arguments arguments, Taking taking) {
  rules::Context context;
  std::vector<rules::Attribute>& attributes = worker_.attributes();
  attributes.clear();
  std::int64_t permits = taking == Taking::kTake ? 1 : 0;
  bool detail = false;
  Options options(arguments.subspan(3));
  while (!options.done()) {
    std::string_view text;
    rules::Attribute attribute;
    if (options.Take("ATTR", attribute)) {
      if (std::ranges::find(attributes, attribute.name, &rules::Attribute::name) !=
          attributes.end()) {
        return RefuseRepeated(text::Cat("ATTR ", text::Quote(attribute.name)));
      }
      attributes.push_back(attribute);
    } else if (taking == Taking::kTake && options.Take("COST", text)) {
      const auto parsed = kCost.Parse(text);
      if (!parsed) return kCost.NotIn(text);
      permits = *parsed;
    } else if (options.Take("PATH", text)) {
      context.path = text;
    } else if (!options.Take("IP", context.ip) && !options.Take("USER", context.user_id) &&
               !options.Take("APIKEY", context.api_key) &&
               !options.Take("METHOD", context.method)) {
      if (taking == Taking::kReset || !options.Take("DETAIL")) {
        return Refuse(text::Cat("syntax error at ", text::Quote(options.next()),
                                "; expected RULESET id ",
                                taking == Taking::kTake ? "[COST cost] " : "",
                                "[IP ip] [USER user] [APIKEY key] [METHOD method] [PATH path] "
                                "[ATTR name value ...]",
                                taking == Taking::kReset ? "" : " [DETAIL]"));
      }
      detail = true;
    }
    if (!options.repeated().empty()) return RefuseRepeated(options.repeated());
  }
  const std::string ip = net::ClientKey(context.ip, worker_.options().ipv6_prefix);
  context.ip = ip;
  context.attributes = attributes;
  const auto prepared = batch_->NextRules().Prepare(arguments[2], context, permits);
  if (!prepared) return std::unexpected(prepared.error());
  if (taking == Taking::kReset) {
    batch_->AddRulesReset();
  } else {
    batch_->AddRules(detail, protocol_);
  }
  return {};
}

Expected<void> Session::ResetThrottle(Arguments keys) {
  // The state is found by its name alone.
  const auto any = Limit::Gcra({.burst = 0, .count = 1, .period = Micros{kMicrosPerSecond}});
  if (!any) return std::unexpected(any.error());
  batch_->AddReset(*any, kCellState, keys);
  return {};
}

}  // namespace sluice::resp
