// SPDX-License-Identifier: Apache-2.0
#include "store/guard/deny_cache.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "core/bucket.h"
#include "core/combine.h"
#include "core/fixed_window.h"

namespace sluice::guard {
namespace {

constexpr bool IsBucket(Algorithm algorithm) {
  return algorithm == Algorithm::kTokenBucket || algorithm == Algorithm::kLeakyBucket ||
         algorithm == Algorithm::kGcra;
}

// Of these the answer is kept, not what it tells of the state.
constexpr bool HasOnePerCost(Algorithm algorithm) {
  return !IsBucket(algorithm) && algorithm != Algorithm::kFixedWindow;
}

// Longer waits than any limit's are not exact; see core::Instant.
constexpr std::int64_t kWaitMax = kSpanMax.count();

}  // namespace

DenyCache::DenyCache(std::size_t entries, Micros trust)
    : sets_((entries + kWays - 1) / kWays),
      trust_(trust),
      seed_(RandomSeed()),
      entries_(std::make_unique<Entry[]>(sets_ * kWays)),
      shards_(std::make_unique<Shard[]>(kShards)) {}

// What a decision tells of its state, with `until_us` still to be counted from when it was asked.
// Bucket: the level was in `a` .. `b`, in a tick that had begun `c` microseconds before.
// Fixed window: `a` was used, and the window had begun `b` microseconds before.
// Others: `a` is the cost that was denied, or else the complement of what remained; `b` is what
// remained and `c` the wait until the budget is whole.
std::optional<DenyCache::Entry> DenyCache::Knowledge(const Charge& charge, const Decision& decision,
                                                     Micros useful_for) {
  const Limit& limit = *charge.limit;
  const std::int64_t retry = decision.retry_after.count();
  const std::int64_t reset = decision.reset_after.count();
  if (retry > kWaitMax || reset > kWaitMax) return std::nullopt;
  Entry entry{};
  entry.limit = limit.fingerprint();
  entry.until_us = useful_for.count();

  if (IsBucket(limit.algorithm())) {
    const std::int64_t tick = limit.tick().count();
    const std::int64_t rate = limit.rate();
    std::int64_t low =
        decision.remaining > 0 ? decision.remaining * limit.unit() : -2 * core::kExactMax;
    std::int64_t high = (decision.remaining + 1) * limit.unit() - 1;
    // A wait of k ticks until the level is `target` says that it lacks more than k - 1 ticks' worth
    // and at most k.
    const auto narrow = [&](std::int64_t target, std::int64_t ticks) {
      low = std::max(low, target - rate * ticks);
      high = std::min(high, target - (ticks > 0 ? rate * (ticks - 1) + 1 : 0));
    };
    narrow(limit.whole(), core::CeilDiv(reset, tick));
    if (!decision.allowed) narrow(charge.cost * limit.unit(), core::CeilDiv(retry, tick));
    if (low > high) return std::nullopt;
    entry.a = low;
    entry.b = high;
    entry.c = core::CeilDiv(reset, tick) * tick - reset;
    return entry;
  }
  if (limit.algorithm() == Algorithm::kFixedWindow) {
    entry.a = limit.amount() - decision.remaining;
    entry.b = limit.span().count() - reset;
    return entry;
  }
  entry.a = decision.allowed ? ~decision.remaining : charge.cost;
  entry.b = decision.remaining;
  entry.c = reset;
  if (!decision.allowed) entry.until_us = retry;
  return entry;
}

// None: it does not follow from what is known.
std::optional<Decision> DenyCache::Decide(const Entry& entry, const Limit& limit, std::int64_t cost,
                                          std::int64_t now_us, Age age) {
  const std::int64_t elapsed = now_us - entry.at_us;
  if (IsBucket(limit.algorithm())) {
    const TimePoint now{Micros{entry.c + elapsed}};
    const core::BucketState low{.level = entry.a, .time = 0};
    const Decision decision = core::Decide(limit, &low, now, cost).decision;
    if (entry.a == entry.b) return decision;
    const core::BucketState high{.level = entry.b, .time = 0};
    if (core::Decide(limit, &high, now, cost).decision != decision) return std::nullopt;
    return decision;
  }
  if (limit.algorithm() == Algorithm::kFixedWindow) {
    const core::WindowState state{.start = 0, .count = entry.a};
    return core::Decide(limit, &state, TimePoint{Micros{entry.b + elapsed}}, cost).decision;
  }
  const bool allowed = entry.a < 0;
  const bool greater = age == Age::kAny && cost > entry.a;
  if (allowed ? cost > ~entry.a : cost != entry.a && !greater) return std::nullopt;
  return Decision{.allowed = allowed,
                  .limit = limit.amount(),
                  .remaining = entry.b,
                  .retry_after = Micros{allowed ? 0 : entry.until_us - now_us},
                  .reset_after = Micros{std::max<std::int64_t>(0, entry.c - elapsed)}};
}

// What is known of this charge's state, if it is enough to decide on this cost.
std::optional<Decision> DenyCache::Look(const Hash128& hash, const Charge& charge,
                                        const Times& times) {
  const std::int64_t now_us = times.now_us;
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  for (Entry& entry : Ways(hash)) {
    if (entry.until_us == 0 || entry.hash != hash) continue;
    if (entry.limit != charge.limit->fingerprint()) {
      // The numbers behind a name have changed. What was learned under the old ones must not come
      // back with them: in between, the budget may have recovered faster.
      ++shard.version;
      Forget(shard, entry);
      continue;
    }
    if (now_us < entry.at_us || now_us >= entry.until_us) continue;
    if (entry.at_us <= times.since_us) continue;
    if (const auto decision = Decide(entry, *charge.limit, charge.cost, now_us, times.age)) {
      if (!decision->allowed) return decision;
      // It does not stand in the way. If another does, nothing is taken from this one.
      auto peek = Decide(entry, *charge.limit, 0, now_us, times.age);
      if (peek) peek->delay = Micros{0};
      return peek;
    }
  }
  return std::nullopt;
}

bool DenyCache::AnswerOne(Request& request, const Times& times) {
  const Charge& charge = request.charges.front();
  const auto decision = Look(HashOf(charge), charge, times);
  if (!decision || decision->allowed) return false;
  request.outcome = *decision;
  if (!request.each.empty()) request.each.front() = *decision;
  return true;
}

bool DenyCache::AnswerGroup(Request& request, const Times& times) {
  const std::size_t size = request.charges.size();
  std::array<Hash128, kChargesMax> hashes;
  std::array<Decision, kChargesMax> decisions;
  bool denied = false;
  for (std::size_t i = 0; i < size; ++i) {
    hashes[i] = HashOf(request.charges[i]);
    // Costs on one state add up; that is for the store to do.
    if (std::find(hashes.begin(), hashes.begin() + i, hashes[i]) != hashes.begin() + i) {
      return false;
    }
    const auto decision = Look(hashes[i], request.charges[i], times);
    if (!decision) return false;
    decisions[i] = *decision;
    denied = denied || !decision->allowed;
  }
  if (!denied) return false;
  std::copy_n(decisions.begin(), request.each.size(), request.each.begin());
  request.outcome = core::Combine(std::span(decisions).first(size));
  return true;
}

bool DenyCache::Answer(Request& request, TimePoint now, Age age) {
  if (!enabled() || request.now || request.action != Action::kCheck) return false;
  const std::int64_t now_us = now.time_since_epoch().count();
  const Times times{.since_us = age == Age::kAny ? std::numeric_limits<std::int64_t>::min()
                                                 : now_us - trust_.count(),
                    .now_us = now_us,
                    .age = age};
  if (request.charges.size() == 1) return AnswerOne(request, times);
  return request.charges.size() <= kChargesMax && AnswerGroup(request, times);
}

DenyCache::Place DenyCache::PlaceOf(const Charge& charge) const {
  const Hash128 hash = HashOf(charge);
  const Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  return {.hash = hash, .version = shard.version};
}

void DenyCache::Learn(const Request& request, std::span<const Decision> each,
                      std::span<const Place> places, TimePoint asked) {
  if (!request.outcome) return;
  if (request.outcome->allowed) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (request.charges[i].cost == 0) continue;
      if (request.now) {
        Invalidate(places[i].hash);  // Its numbers are those of another moment.
      } else {
        Refresh(places[i], request.charges[i], each[i], asked);
      }
    }
    return;
  }
  if (request.now || places.size() > kChargesMax) return;
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (places[i].hash == places[j].hash) return;
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto entry = Knowledge(request.charges[i], each[i], request.outcome->retry_after);
    if (!entry) continue;
    entry->hash = places[i].hash;
    entry->at_us = asked.time_since_epoch().count();
    entry->until_us += entry->at_us;
    Insert(places[i], *entry, request.charges[i].limit->algorithm());
  }
}

void DenyCache::Insert(const Place& place, Entry entry, Algorithm algorithm) {
  Shard& shard = ShardOf(place.hash);
  const std::lock_guard lock(shard.lock);
  if (shard.version != place.version) return;
  Entry* chosen = nullptr;
  for (Entry& way : Ways(place.hash)) {
    if (way.until_us != 0 && way.hash == entry.hash && way.limit == entry.limit &&
        (!HasOnePerCost(algorithm) || way.a == entry.a || (way.a < 0 && entry.a < 0))) {
      if (way.at_us > entry.at_us) return;
      // The other requests that this state is part of are denied for as long as they were.
      if (!HasOnePerCost(algorithm)) entry.until_us = std::max(entry.until_us, way.until_us);
      chosen = &way;
      break;
    }
    if (!chosen || way.until_us < chosen->until_us) chosen = &way;
  }
  if (chosen->until_us == 0) ++shard.entries;
  *chosen = entry;
}

// Something was taken from a state. If it is known, it is now known as `decision` leaves it.
void DenyCache::Refresh(const Place& place, const Charge& charge, const Decision& decision,
                        TimePoint asked) {
  const std::int64_t asked_us = asked.time_since_epoch().count();
  Shard& shard = ShardOf(place.hash);
  const std::lock_guard lock(shard.lock);
  for (Entry& entry : Ways(place.hash)) {
    if (entry.until_us == 0 || entry.hash != place.hash || entry.at_us > asked_us) continue;
    auto known = Knowledge(charge, decision, Micros{0});
    const bool of_a_cost = HasOnePerCost(charge.limit->algorithm()) && entry.a >= 0;
    if (!known || of_a_cost || entry.limit != known->limit || shard.version != place.version) {
      Forget(shard, entry);
      continue;
    }
    known->hash = entry.hash;
    known->at_us = asked_us;
    known->until_us = entry.until_us;
    entry = *known;
  }
}

void DenyCache::Forget(Shard& shard, Entry& entry) {
  entry.until_us = 0;
  --shard.entries;
}

void DenyCache::Invalidate(const Hash128& hash) {
  if (!enabled()) return;
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  ++shard.version;
  for (Entry& entry : Ways(hash)) {
    if (entry.until_us != 0 && entry.hash == hash) Forget(shard, entry);
  }
}

void DenyCache::Clear() {
  // First of all, so that nothing from before finds its way into a set that was emptied.
  for (std::size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    ++shards_[i].version;
  }
  // A set at a time: nobody waits for long.
  for (std::size_t set = 0; set < sets_; ++set) {
    Shard& shard = shards_[set % kShards];
    const std::lock_guard lock(shard.lock);
    for (Entry& entry : std::span(entries_.get() + set * kWays, kWays)) {
      if (entry.until_us != 0) Forget(shard, entry);
    }
  }
}

DenyCache::Stats DenyCache::GetStats() const {
  Stats stats{
      .bytes = static_cast<std::int64_t>(sets_ * kWays * sizeof(Entry) + kShards * sizeof(Shard))};
  for (std::size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    stats.entries += shards_[i].entries;
  }
  return stats;
}

}  // namespace sluice::guard
