// SPDX-License-Identifier: Apache-2.0
#include "store/guard/fallback.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "core/combine.h"
#include "core/seen.h"
#include "store/group.h"

namespace sluice::guard {
namespace {

constexpr std::int64_t kInstancesMax = 1'000'000;
constexpr std::size_t kSharesMax = 4'096;

Decision Untouched(const Limit& limit) {
  return {.allowed = true, .limit = limit.amount(), .remaining = limit.amount()};
}

void Answer(Request& request, std::span<const Decision> each) {
  request.outcome = core::Combine(each);
  std::copy_n(each.begin(), request.each.size(), request.each.begin());
  std::ranges::fill(request.seen, SeenState{});  // The store's states are not known.
}

// Whether it is what any store would answer.
bool IsOfHold(const Error& error) {
  return error.code == ErrorCode::kHoldConflict || error.code == ErrorCode::kTooManyHolds;
}

Error NoShare(const Limit& limit) {
  return {ErrorCode::kInvalidLimit, text::Cat("no share of ", limit.ToString(), " is exact")};
}

}  // namespace

Expected<Limit> ShareOf(const Limit& limit, std::int64_t instances) {
  if (instances == 1) return limit;
  const std::int64_t amount = std::max<std::int64_t>(1, limit.amount() / instances);
  if (limit.rate() == 0) {
    return Limit::Make(limit.algorithm(), amount, limit.refill(), limit.span());
  }
  // A longer period divides the rate without a remainder.
  if (limit.span() <= kSpanMax / instances) {
    auto exact = Limit::Make(limit.algorithm(), amount, limit.refill(), limit.span() * instances);
    if (exact) return exact;
  }
  const std::int64_t refill = std::max<std::int64_t>(1, limit.refill() / instances);
  return Limit::Make(limit.algorithm(), amount, refill, limit.span());
}

Fallback::Fallback(const GuardedStore::Options& options, GuardedStore::Stats& stats, Holds holds)
    : on_overload_(options.on_overload),
      clock_(options.local.clock),
      holds_(holds),
      local_(options.local),
      stats_(stats),
      instances_(std::clamp<std::int64_t>(options.instances, 1, kInstancesMax)) {}

OnStoreFailure Fallback::PolicyOf(const Charge& charge, Cause cause) const {
  if (cause == Cause::kOutage) return charge.on_store_failure;
  if (charge.on_overload) return *charge.on_overload;
  // Overload changes the policy only of charges that would pass undecided.
  return charge.on_store_failure == OnStoreFailure::kFailOpen ? on_overload_
                                                              : charge.on_store_failure;
}

void Fallback::SetInstances(std::int64_t instances) {
  const std::int64_t before =
      std::exchange(instances_, std::clamp<std::int64_t>(instances, 1, kInstancesMax));
  if (instances_ != before) shares_.clear();
}

std::optional<Fallback::Share> Fallback::FindShare(const Limit& limit) {
  const auto found = shares_.find(limit);
  if (found != shares_.end()) return found->second;
  const auto share_limit = ShareOf(limit, instances_);
  if (!share_limit) return std::nullopt;
  Share share{.limit = *share_limit, .name = {}};
  const std::array<std::int64_t, 4> numbers = {static_cast<std::int64_t>(limit.algorithm()),
                                               limit.amount(), limit.refill(),
                                               limit.span().count()};
  // No name that a person gives a limit starts with this byte.
  static_assert(sizeof(numbers) + 1 == sizeof(share.name));
  share.name[0] = '\0';
  std::memcpy(share.name.data() + 1, numbers.data(), sizeof(numbers));
  if (shares_.size() >= kSharesMax) shares_.clear();
  shares_.emplace(limit, share);
  return share;
}

Charge Fallback::LocalCharge(const Charge& charge, const Share& share) {
  return {.key = charge.key,
          .limit = &share.limit,
          .name = charge.name.empty() ? std::string_view(share.name.data(), share.name.size())
                                      : charge.name,
          .cost = charge.cost};
}

void Fallback::FailClosed(Request& request, const Error& error, Cause cause) {
  request.outcome = std::unexpected(error);
  request.source = cause == Cause::kOverload ? Source::kOverload : Source::kStore;
  ++stats_.failed_closed;
}

// All kLocal charges or none; their numbers go to their places in `each`.
Expected<Decision> Fallback::DecideLocally(const Request& request, Cause cause,
                                           std::span<Decision> each) {
  std::array<std::optional<Share>, kChargesMax> shares;
  std::array<Charge, kChargesMax> charges;
  std::array<Decision, kChargesMax> decisions;
  std::size_t size = 0;
  for (const Charge& charge : request.charges) {
    if (PolicyOf(charge, cause) != OnStoreFailure::kLocal) continue;
    shares[size] = FindShare(*charge.limit);
    if (!shares[size]) return std::unexpected(NoShare(*charge.limit));
    charges[size] = LocalCharge(charge, *shares[size]);
    ++size;
  }
  Request local{.charges = std::span(charges).first(size),
                .now = request.now,
                .each = std::span(decisions).first(size),
                .action = request.action,
                .hold = request.hold};
  local_.ApplyInline({&local, 1});
  if (!local.outcome) return local.outcome;
  auto next = decisions.begin();
  for (std::size_t i = 0; i < request.charges.size(); ++i) {
    if (PolicyOf(request.charges[i], cause) == OnStoreFailure::kLocal) each[i] = *next++;
  }
  return local.outcome;
}

TimePoint Fallback::ExpiryOf(const Request& request) const {
  Micros ttl = request.hold->ttl;
  if (ttl == Micros{0}) {
    const auto shortest = std::ranges::min_element(request.charges, {},
                                                   [](const Charge& c) { return c.limit->span(); });
    ttl = shortest->limit->span();
  }
  return request.now.value_or(clock_->Now()) + ttl;
}

std::int64_t Fallback::Decide(Request& request, const Error& error, Cause cause) {
  // Nobody but the store can take a debit, or give back. Nor may these costs be added up: each of
  // them may be the largest number there is.
  const bool holds = request.action == Action::kHold;
  if (request.action != Action::kCheck && !holds) {
    FailClosed(request, error, cause);
    return 0;
  }
  std::size_t local = 0;
  std::int64_t units = 0;
  for (const Charge& charge : request.charges) {
    const OnStoreFailure policy = PolicyOf(charge, cause);
    if (policy == OnStoreFailure::kFailClosed) {
      FailClosed(request, error, cause);
      return 0;
    }
    if (policy == OnStoreFailure::kLocal) {
      ++local;
      units += charge.cost;
    }
  }
  std::array<Decision, kChargesMax> room;
  const std::span<Decision> each = std::span(room).first(request.charges.size());
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = Untouched(*request.charges[i].limit);
  if (holds) {
    request.hold->expires = ExpiryOf(request);
    request.hold->held = local > 0;
  }
  if (local > 0) {
    const auto decided = holds && holds_ == Holds::kNo ? std::unexpected(error)
                                                       : DecideLocally(request, cause, each);
    if (!decided) {
      // The store would grant a cost above this instance's share, so it is not denied. Nor may it
      // pass: large costs would be a way around the limit.
      FailClosed(request, IsOfHold(decided.error()) ? decided.error() : error, cause);
      return 0;
    }
    if (!decided->allowed || holds) units = 0;
  }
  Answer(request, each);
  const bool overload = cause == Cause::kOverload;
  request.source = local < each.size() ? Source::kFailOpen
                   : overload          ? Source::kOverload
                                       : Source::kLocal;
  if (local == 0) {
    ++stats_.failed_open;
    return 0;
  }
  if (request.outcome->allowed) {
    ++(overload ? stats_.overload_allowed : stats_.local_allowed);
  } else {
    ++(overload ? stats_.overload_denied : stats_.local_denied);
  }
  stats_.local_units += units;
  return units;
}

void Fallback::DecideOnHold(Request& request, std::span<const Ledger::Debt> parts) {
  std::array<Decision, kChargesMax> room;
  const std::span<Decision> each = std::span(room).first(request.charges.size());
  std::ranges::transform(request.charges, each.begin(),
                         [](const Charge& charge) { return Untouched(*charge.limit); });
  std::array<std::optional<Share>, kChargesMax> shares;
  std::array<Charge, kChargesMax> charges;
  std::array<Decision, kChargesMax> decisions;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    shares[i] = FindShare(parts[i].limit);
    if (!shares[i]) return FailClosed(request, NoShare(parts[i].limit), Cause::kOutage);
    charges[i] = LocalCharge(parts[i].ToCharge(), *shares[i]);
  }
  Request local{.charges = std::span(charges).first(parts.size()),
                .now = request.now,
                .each = std::span(decisions).first(parts.size()),
                .action = request.action,
                .hold = request.hold};
  local_.ApplyInline({&local, 1});
  request.hold->held = true;
  request.source = Source::kLocal;
  if (!local.outcome) {
    request.outcome = std::move(local.outcome);
    return;
  }
  for (std::size_t i = 0; i < each.size(); ++i) {
    const auto same = std::ranges::find_if(parts, [&](const Ledger::Debt& part) {
      return IsSameState(part.ToCharge(), request.charges[i]);
    });
    if (same != parts.end()) each[i] = decisions[static_cast<std::size_t>(same - parts.begin())];
  }
  Answer(request, each);
}

void Fallback::AnswerKept(Request& request) {
  std::array<Decision, kChargesMax> room;
  const std::span<Decision> each = std::span(room).first(request.charges.size());
  std::ranges::transform(request.charges, each.begin(),
                         [](const Charge& charge) { return Untouched(*charge.limit); });
  request.hold->late = false;
  request.hold->overdrawn = false;
  request.source = Source::kLocal;
  Answer(request, each);
}

void Fallback::StartFrom(const Charge& charge, const LastSeen::Left& left) {
  const auto share = FindShare(*charge.limit);
  if (!share) return;
  // A share is at least one unit, and so is the rest of one that is not used up.
  const std::int64_t part =
      left.units == 0 ? 0 : std::max<std::int64_t>(1, left.units / instances_);
  Charge local = LocalCharge(charge, *share);
  local.cost = 0;
  const auto before = local_.Check(local);
  if (!before || before->remaining <= part) return;
  local.cost = before->remaining - part;
  Request debit{.charges = {&local, 1},
                .now = std::max(clock_->Now() - left.taken_ago, TimePoint{}),
                .action = Action::kDebit};
  local_.Apply({&debit, 1}, [] {});
}

std::int64_t Fallback::Used(const Charge& charge) {
  const auto share = FindShare(*charge.limit);
  if (!share) return 0;
  Charge peek = LocalCharge(charge, *share);
  peek.cost = 0;
  SeenState seen{};
  Request request{.charges = {&peek, 1}, .seen = {&seen, 1}};
  local_.Apply({&request, 1}, [] {});
  return request.outcome ? core::UsedUnits(share->limit, seen) : 0;
}

void Fallback::Reset(const Charge& charge) {
  if (const auto share = FindShare(*charge.limit)) local_.Reset(LocalCharge(charge, *share));
}

}  // namespace sluice::guard
