// SPDX-License-Identifier: Apache-2.0
#include "grpc/rls.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "core/combine.h"
#include "grpc/duration.h"
#include "service/rate_limit_fields.h"
#include "telemetry/log.h"

namespace sluice::grpc {
namespace {

using rules::RlsUnit;
using Response = RlsBatch::Response;

std::uint32_t Clamp(std::int64_t number) {
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(number, 0, std::numeric_limits<std::uint32_t>::max()));
}

template <typename Key>
const service::RlsMetrics* Find(const std::unordered_map<const Key*, service::RlsMetrics>& metrics,
                                const Key* key) {
  const auto found = metrics.find(key);
  return found == metrics.end() ? nullptr : &found->second;
}

service::RlsOutcome OutcomeOf(const Decision& decision) {
  using enum service::RlsOutcome;
  const std::int64_t used = decision.limit - decision.remaining;
  return used * 5 >= decision.limit * 4 ? kNear : kOk;
}

}  // namespace

void RlsBatch::Start(std::shared_ptr<const service::Catalog> catalog, TimePoint now) {
  catalog_ = std::move(catalog);
  now_ = now;
  asked_count_ = 0;
  calls_.clear();
  charges_.clear();
  planned_.clear();
}

Status RlsBatch::Add(std::string_view message, std::string_view request_id) {
  if (Status status = request_.Parse(message); !status.ok()) return status;
  if (request_.domain.empty()) {
    return {StatusCode::kInvalidArgument, "the domain is empty; expected its name"};
  }
  if (request_.descriptors.empty()) {
    return {StatusCode::kInvalidArgument, "no descriptors; expected at least one"};
  }
  const rules::RlsDomain* domain = catalog_->domains->Find(request_.domain);
  const Call call = {.first = asked_count_,
                     .count = request_.descriptors.size(),
                     .request_id = std::string(request_id)};
  if (asked_.size() < call.first + call.count) asked_.resize(call.first + call.count);
  for (std::size_t i = 0; i < call.count; ++i) {
    Status status = Ask(domain, request_.descriptors[i], asked_[call.first + i]);
    if (!status.ok()) return status;
  }
  asked_count_ += call.count;
  calls_.push_back(call);
  Replace(call);
  Plan(call, domain && domain->all_or_nothing());
  return {};
}

std::span<const rules::RlsEntry> RlsBatch::EntriesOf(const RlsDescriptor& descriptor) const {
  return std::span(request_.entries).subspan(descriptor.first_entry, descriptor.entry_count);
}

Status RlsBatch::Ask(const rules::RlsDomain* domain, const RlsDescriptor& descriptor,
                     Asked& asked) {
  using enum Asked::Kind;
  const std::uint64_t hits =
      descriptor.hits_addend.value_or(std::max<std::uint32_t>(request_.hits_addend, 1));
  asked.cost = static_cast<std::int64_t>(
      std::min<std::uint64_t>(hits, std::numeric_limits<std::int64_t>::max()));
  asked.kind = kFree;
  asked.shadow = false;
  asked.quota = false;
  asked.postpaid = false;
  asked.gives = descriptor.is_negative_hits;
  asked.never = false;
  asked.needed = 0;
  asked.brought.reset();
  asked.match.limit = nullptr;
  asked.metrics = nullptr;
  if (!domain) return {};

  if (descriptor.limit) {
    asked.metrics = Find(catalog_->rls_override_metrics, domain);
    const auto [requests_per_unit, unit] = *descriptor.limit;
    if (unit < std::to_underlying(RlsUnit::kSecond) || unit > std::to_underlying(RlsUnit::kYear)) {
      return {StatusCode::kInvalidArgument,
              text::Cat("a limit with the unit ", unit, "; expected SECOND (1) to YEAR (6)")};
    }
    asked.unit = static_cast<RlsUnit>(unit);
    asked.kind = kBlocked;  // A limit of zero, which the engine does not know.
    if (requests_per_unit > 0) {
      const auto limit =
          Limit::FixedWindow({.limit = requests_per_unit, .window = rules::SpanOf(asked.unit)});
      if (!limit) return {StatusCode::kInvalidArgument, limit.error().message};
      asked.brought = *limit;
      asked.brought_state =
          text::Cat(rules::kRlsOverrideStatePrefix, requests_per_unit, "-per-", unit);
      asked.kind = kLimited;
      rules::RlsStateKey(domain->name(), EntriesOf(descriptor), asked.match.key);
    }
  } else {
    domain->Match(EntriesOf(descriptor), asked.match);
    if (!asked.match.limit) return {};
    const rules::RlsLimit& found = *asked.match.limit;
    asked.metrics = Find(catalog_->rls_metrics, &found);
    asked.kind = found.kind == rules::RlsLimit::Kind::kLimited     ? kLimited
                 : found.kind == rules::RlsLimit::Kind::kUnlimited ? kUnlimited
                                                                   : kBlocked;
    asked.unit = found.unit;
    asked.shadow = found.shadow_mode;
    asked.quota = found.quota_mode;
    asked.postpaid = found.postpaid;
  }
  if (asked.postpaid && asked.cost == 0 && !asked.gives) asked.needed = 1;
  asked.never = asked.kind == kLimited && asked.action() == Action::kCheck &&
                asked.cost > asked.limit().amount();
  return {};
}

// Drops the limits that others of the same call replace.
void RlsBatch::Replace(const Call& call) {
  for (const Asked& asked : AskedBy(call)) {
    const rules::RlsLimit* by = asked.match.limit;
    if (!by || by->replaces.empty()) continue;
    for (Asked& other : AskedBy(call)) {
      if (!other.match.limit || other.match.limit->name.empty()) continue;
      if (other.kind == Asked::Kind::kUnlimited) continue;
      if (std::ranges::find(by->replaces, other.match.limit->name) != by->replaces.end()) {
        other.kind = Asked::Kind::kFree;
      }
    }
  }
}

// Plans the charges. Each descriptor is its own request, unless all are charged or none is; those
// that do not deny by themselves are separate in either case.
void RlsBatch::Plan(const Call& call, bool all_or_nothing) {
  if (all_or_nothing) PlanTogether(call);
  for (Asked& asked : AskedBy(call)) {
    if (asked.kind != Asked::Kind::kLimited) continue;
    if (all_or_nothing && !asked.apart()) continue;
    StartRequest(asked.action());
    PlanCharge(asked, asked.never ? 0 : asked.cost);
  }
}

// Plans those that count as one request; if one is refused without asking, the others are only
// looked at.
void RlsBatch::PlanTogether(const Call& call) {
  bool refused = false;
  bool charged = false;
  for (Asked& asked : AskedBy(call)) {
    if (asked.apart() || asked.kind == Asked::Kind::kFree) continue;
    if (asked.kind == Asked::Kind::kLimited) {
      charged = true;
      asked.never = asked.cost > 0 && CostOfState(call, asked) > asked.limit().amount();
    }
    refused = refused || asked.refused();
  }
  if (!charged) return;
  StartRequest(Action::kCheck);
  for (Asked& asked : AskedBy(call)) {
    if (asked.kind != Asked::Kind::kLimited || asked.apart()) continue;
    if (refused && asked.cost > 0) asked.needed = CostOfState(call, asked);
    PlanCharge(asked, refused ? 0 : asked.cost);
  }
}

// What all descriptors that count take from this one's state: a client may name one twice.
std::int64_t RlsBatch::CostOfState(const Call& call, const Asked& of) {
  std::int64_t sum = 0;
  for (const Asked& asked : AskedBy(call)) {
    if (asked.kind != Asked::Kind::kLimited || asked.apart()) continue;
    if (asked.state() != of.state() || asked.match.key != of.match.key) continue;
    // Above any limit; sums of this do not overflow.
    static constexpr auto kCostMax =
        std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(kDescriptorsMax);
    sum += std::min(asked.cost, kCostMax);
  }
  return sum;
}

void RlsBatch::PlanCharge(Asked& asked, std::int64_t cost) {
  asked.charge = charges_.size();
  asked.request = planned_.size() - 1;
  ++planned_.back().charges;
  charges_.push_back({
      .key = asked.match.key,
      .limit = &asked.limit(),
      .name = asked.state(),
      .cost = cost,
      .on_store_failure = options_.on_store_failure,
  });
}

std::span<Request> RlsBatch::Requests() {
  decisions_.assign(charges_.size(), Decision{});
  requests_.clear();
  std::size_t first = 0;
  for (const auto& [action, size] : planned_) {
    requests_.push_back({.charges = std::span(charges_).subspan(first, size),
                         .each = std::span(decisions_).subspan(first, size),
                         .action = action});
    first += size;
  }
  return requests_;
}

void RlsBatch::Count(service::Engine& engine, const service::Engine::Span& span) {
  for (const Call& call : calls_) {
    const auto all = AskedBy(call);
    const bool over = IsOver(call);
    for (const Asked& asked : all) {
      CountLimit(engine, asked, over, span);
      CountDescriptor(asked);
    }
    // A failed call is counted with its error.
    if (!std::ranges::all_of(all, [&](const Asked& asked) { return CheckStore(asked).ok(); }) ||
        std::ranges::none_of(all, [&](const Asked& asked) { return IsRequest(asked); })) {
      continue;
    }
    engine.CountRequest(DecidingLimit(call, over), !over, span);
    if (over) LogDenial(engine.logger(), call);
  }
}

void RlsBatch::LogDenial(telemetry::Logger& logger, const Call& call) {
  if (!logger.Enabled(telemetry::LogLevel::kDebug)) return;
  const auto all = AskedBy(call);
  const auto found = std::ranges::find_if(all, [&](const Asked& asked) { return Denies(asked); });
  const bool has_key = found->match.limit || found->brought;
  logger.Debug("denied by a descriptor",
               {{"descriptor", found->match.limit ? found->match.limit->path : "(override)"},
                {"name", NameOf(*found)},
                {"key", has_key ? std::string_view(found->match.key) : std::string_view()},
                {"request_id", call.request_id}});
}

void RlsBatch::CountLimit(service::Engine& engine, const Asked& asked, bool over,
                          const service::Engine::Span& span) const {
  if (asked.kind == Asked::Kind::kFree || asked.gives) return;
  // A used-up quota denies only together with all others.
  const auto standing = asked.shadow || (asked.quota && !over) ? service::Standing::kShadow
                                                               : service::Standing::kCounts;
  if (asked.refused()) {
    // A limit of zero in the client's own request has no key.
    if (asked.match.limit || asked.brought) {
      engine.CountBlocked(asked.state(), asked.match.key, standing);
    }
    return;
  }
  if (asked.kind != Asked::Kind::kLimited) return;
  const Request& request = requests_[asked.request];
  if (!request.outcome) return;
  engine.CountLimit({.charge = charges_[asked.charge],
                     .decision = decisions_[asked.charge],
                     .source = request.source,
                     .standing = standing},
                    span.end);
}

void RlsBatch::CountDescriptor(const Asked& asked) const {
  using enum service::RlsOutcome;
  if (!asked.metrics || asked.kind == Asked::Kind::kFree || !IsRequest(asked)) return;
  if (IsOver(asked)) {
    asked.metrics->Count(asked.shadow ? kShadowOver : kOver);
  } else if (asked.kind == Asked::Kind::kUnlimited) {
    asked.metrics->Count(kOk);
  } else if (!requests_[asked.request].outcome) {
    asked.metrics->Count(kError);
  } else {
    asked.metrics->Count(OutcomeOf(decisions_[asked.charge]));
  }
}

// Null if no limit decided, such as for one that blocks.
const Limit* RlsBatch::DecidingLimit(const Call& call, bool over) {
  service::Deciding deciding;
  for (const Asked& asked : AskedBy(call)) {
    const bool denies = over && Denies(asked);
    if (denies && asked.kind != Asked::Kind::kLimited) return nullptr;
    if (asked.kind != Asked::Kind::kLimited || asked.shadow || !IsRequest(asked)) continue;
    if (!requests_[asked.request].outcome) continue;
    Decision decision = decisions_[asked.charge];
    decision.allowed = !denies;
    deciding.Add(asked.limit(), decision);
  }
  return deciding.limit();
}

Status RlsBatch::Answer(std::size_t index, std::string& reply) {
  const Call& call = calls_[index];
  response_.Clear();
  for (const Asked& asked : AskedBy(call)) {
    if (Status status = CheckStore(asked); !status.ok()) return status;
    AddStatus(asked);
  }
  response_.set_overall_code(IsOver(call) ? Response::OVER_LIMIT : Response::OK);
  AddMetadata(call);
  if (options_.headers) AddHeaders(call);
  response_.SerializeToString(&reply);
  return {};
}

Status RlsBatch::CheckStore(const Asked& asked) const {
  if (asked.kind != Asked::Kind::kLimited || asked.shadow) return {};
  const Expected<Decision>& outcome = requests_[asked.request].outcome;
  const bool overload = requests_[asked.request].source == Source::kOverload;
  if (outcome) return {};
  const Error& error = outcome.error();
  if (!error.outage()) return {StatusCode::kInvalidArgument, error.message};
  // Under overload, FAIL_OPEN does not let undecided requests pass.
  const bool undecided = overload && !asked.gives;
  if (options_.on_store_failure == OnStoreFailure::kFailOpen && !undecided) return {};
  return {StatusCode::kUnavailable, text::Cat(ToString(error.code), ": ", error.message)};
}

// Whether less is left than is asked for, shadow or not.
bool RlsBatch::IsOver(const Asked& asked) const {
  if (asked.kind == Asked::Kind::kFree) return false;
  if (asked.refused()) return true;
  if (asked.kind != Asked::Kind::kLimited || !requests_[asked.request].outcome) return false;
  const Decision& decision = decisions_[asked.charge];
  return !decision.allowed || decision.remaining < asked.needed;
}

// One descriptor that denies is enough. In quota mode all of them have to, for each may stand for
// another place where the request can go.
bool RlsBatch::IsOver(const Call& call) {
  bool any_quota = false;
  bool all_quotas = true;
  for (const Asked& asked : AskedBy(call)) {
    const bool denies = Denies(asked);
    if (denies && !asked.quota) return true;
    if (!asked.quota || asked.gives || asked.kind == Asked::Kind::kFree) continue;
    any_quota = true;
    all_quotas = all_quotas && denies;
  }
  return any_quota && all_quotas;
}

void RlsBatch::AddStatus(const Asked& asked) {
  using enum Asked::Kind;
  Response::DescriptorStatus& status = *response_.add_statuses();
  const bool denies = Denies(asked);
  status.set_code(denies ? Response::OVER_LIMIT : Response::OK);
  if (asked.kind == kFree) return;
  if (asked.kind == kUnlimited) {
    status.set_limit_remaining(std::numeric_limits<std::uint32_t>::max());
    return;
  }
  Response::RateLimit& limit = *status.mutable_current_limit();
  limit.set_requests_per_unit(asked.kind == kLimited ? Clamp(asked.limit().amount()) : 0);
  limit.set_unit(static_cast<Response::RateLimit::Unit>(asked.unit));
  if (asked.match.limit) limit.set_name(asked.match.limit->name);
  if (asked.kind != kLimited || !requests_[asked.request].outcome) return;
  const Decision& decision = decisions_[asked.charge];
  status.set_limit_remaining(Clamp(decision.remaining));
  if (asked.never) return;  // No wait would help.
  const Micros wait = decision.allowed ? decision.reset_after : decision.retry_after;
  status.mutable_duration_until_reset()->set_seconds(
      std::min(service::CeilSeconds(wait), kDurationSecondsMax));
}

std::string_view RlsBatch::NameOf(const Asked& asked) const {
  if (!asked.match.limit) return "override";
  return asked.match.limit->name.empty() ? asked.match.limit->path : asked.match.limit->name;
}

// How long the caller waits before it goes on: the longest delay among those that count. A call
// that is over its limit has none.
Micros RlsBatch::DelayOf(const Call& call) {
  Micros delay{0};
  if (response_.overall_code() != Response::OK) return delay;
  for (const Asked& asked : AskedBy(call)) {
    if (asked.kind != Asked::Kind::kLimited || asked.shadow) continue;
    if (!requests_[asked.request].outcome) continue;
    delay = std::max(delay, decisions_[asked.charge].delay);
  }
  return delay;
}

void RlsBatch::AddMetadata(const Call& call) {
  const auto set = [&](const char* name) -> google::protobuf::Value& {
    return (*response_.mutable_dynamic_metadata()->mutable_fields())[name];
  };
  if (const Micros delay = DelayOf(call); delay > Micros{0}) {
    set("delay_us").set_number_value(static_cast<double>(delay.count()));
  }
  bool named = response_.overall_code() == Response::OK;
  for (std::size_t i = 0; i < call.count; ++i) {
    const Asked& asked = asked_[call.first + i];
    const bool denies = Denies(asked);
    if (!named && denies) {
      named = true;
      set("denied_by").set_string_value(std::string(NameOf(asked)));
      set("denied_descriptor").set_number_value(static_cast<double>(i));
    }
    if (asked.quota && denies) {
      set("quotaModeViolations")
          .mutable_list_value()
          ->add_values()
          ->set_number_value(static_cast<double>(i));
    }
    if (asked.kind != Asked::Kind::kLimited) continue;
    const Request& request = requests_[asked.request];
    if (!request.outcome || request.source == Source::kFailOpen) {
      set("degraded").set_string_value("FAIL_OPEN");
    } else if (request.source == Source::kLocal) {
      set("degraded").set_string_value("LOCAL");
    } else if (request.source == Source::kOverload) {
      set("degraded").set_string_value("OVERLOAD");
    }
  }
}

void RlsBatch::AddHeaders(const Call& call) {
  std::vector<service::Policy> policies;
  std::vector<Decision> each;
  bool never = false;
  const bool over = response_.overall_code() == Response::OVER_LIMIT;
  for (const Asked& asked : AskedBy(call)) {
    if (asked.kind != Asked::Kind::kLimited || asked.shadow || (asked.quota && !over)) continue;
    if (!requests_[asked.request].outcome) continue;
    Decision decision = decisions_[asked.charge];
    // A look that denies is told when the budget is full again, which is long enough.
    if (asked.postpaid && decision.allowed) decision.retry_after = decision.reset_after;
    decision.allowed = !Denies(asked);
    never = never || asked.never;
    each.push_back(decision);
    policies.push_back({.name = NameOf(asked), .limit = &asked.limit(), .decision = decision});
  }
  if (policies.empty()) return;
  Decision overall = core::Combine(each);
  if (never) overall.retry_after = Micros{0};  // No wait would help.
  const Decision& binding = service::Binding(policies).decision;
  AddHeader("X-RateLimit-Limit", text::Cat(binding.limit));
  AddHeader("X-RateLimit-Remaining", text::Cat(binding.remaining));
  AddHeader("X-RateLimit-Reset", text::Cat(service::ResetSeconds(binding, now_)));
  if (!overall.allowed && !never) {
    AddHeader("Retry-After", text::Cat(service::RetryAfterSeconds(overall)));
  }
  if (const Micros delay = DelayOf(call); delay > Micros{0}) {
    AddHeader("X-Sluice-Delay-Micros", text::Cat(delay.count()));
  }
  std::string value;
  service::AppendPolicyValue(value, policies);
  AddHeader("RateLimit-Policy", value);
  value.clear();
  service::AppendRateLimitValue(value, overall, policies);
  AddHeader("RateLimit", value);
}

void RlsBatch::AddHeader(std::string_view name, std::string_view value) {
  auto& header = *response_.add_response_headers_to_add();
  header.set_key(std::string(name));
  header.set_value(std::string(value));
}

}  // namespace sluice::grpc
