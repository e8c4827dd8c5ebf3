// SPDX-License-Identifier: Apache-2.0
#include "store/guard/deny_cache.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>

#include "core/combine.h"
#include "core/seen.h"

namespace sluice::guard {
namespace {

using core::WindowLog;

// Whether nothing was added to the log between these two observations: a new unit becomes the
// newest entry, or adds to the newest if that has the same microsecond. If so, what must leave for
// a cost to fit is the same for both.
bool IsSameLog(const SeenState& before, const SeenState& after) {
  const auto was = core::StateOf<WindowLog>(before);
  const auto is = core::StateOf<WindowLog>(after);
  return is.newest == was.newest && is.used <= was.used;
}

}  // namespace

DenyCache::DenyCache(std::size_t entries, Micros trust, const Seed& seed)
    : sets_((entries + kWays - 1) / kWays),
      trust_(trust),
      seed_(seed),
      entries_(std::make_unique<Entry[]>(sets_ * kWays)),
      shards_(std::make_unique<Shard[]>(kShards)) {}

// Spreads the costs of one state over all sets.
Hash128 DenyCache::HashOf(const Hash128& state, std::int64_t cost) const {
  const std::array words = {state.low, state.high, static_cast<std::uint64_t>(cost)};
  return SipHash<1, 3>(seed_, words, {});
}

// The entry of this hash, if there is one.
DenyCache::Entry* DenyCache::Get(const Hash128& hash) const {
  for (Entry& entry : Ways(hash)) {
    if (entry.until_us != 0 && entry.hash == hash) return &entry;
  }
  return nullptr;
}

// The same, if it is useful now.
std::optional<DenyCache::Entry> DenyCache::Find(const Hash128& hash, const Limit& limit,
                                                const Times& times) {
  const std::lock_guard lock(ShardOf(hash).lock);
  const Entry* const entry = Get(hash);
  if (!entry || entry->limit != limit.fingerprint()) return std::nullopt;
  if (times.now_us < entry->at_us || times.now_us >= entry->until_us) return std::nullopt;
  if (entry->at_us <= times.since_us) return std::nullopt;
  return *entry;
}

// WindowLog::State::leaves for this cost. If the store cannot be asked, it may be that of a smaller
// cost, or the oldest entry, since that must leave, too.
std::optional<std::int64_t> DenyCache::LeavesOf(const Entry& known, const Limit& limit,
                                                std::int64_t cost, const Times& times) {
  if (known.cost == cost) return known.leaves;
  const auto own = Find(HashOf(known.hash, cost), limit, times);
  if (own && own->generation == known.generation) return own->leaves;
  if (times.age == Age::kTrusted) return std::nullopt;
  return known.cost > 0 && known.cost < cost ? known.leaves
                                             : core::StateOf<WindowLog>(known.seen).oldest;
}

// None: it does not follow from what is known.
std::optional<Decision> DenyCache::Decide(const Entry& known, const Limit& limit, std::int64_t cost,
                                          const Times& times) {
  // An upper bound: the store decided after it was asked. So a denial is never believed to last
  // longer than it does.
  const std::int64_t now_us = known.seen.now_us() + times.now_us - known.at_us;
  const TimePoint now{Micros{now_us}};
  if (core::IsSeenComplete(limit)) return core::Decide(limit, known.seen, now, cost);
  WindowLog::State log = WindowLog::At(limit, core::StateOf<WindowLog>(known.seen), now);
  const auto has_left = [&](std::int64_t time) {
    return time + limit.span().count() <= WindowLog::MomentUs(log, now);
  };
  const bool exact = log.used == 0 || !has_left(log.oldest);
  if (!exact && times.age == Age::kTrusted) return std::nullopt;
  if (cost > std::max<std::int64_t>(0, limit.amount() - log.used)) {
    const auto leaves = LeavesOf(known, limit, cost, times);
    if (!leaves || has_left(*leaves)) return std::nullopt;
    log.leaves = *leaves;
  }
  return WindowLog::Decide(limit, &log, now, cost).decision;
}

// What is known of this charge's state, if it is enough to decide on this cost.
std::optional<Decision> DenyCache::Look(const Hash128& hash, const Charge& charge,
                                        const Times& times) {
  const auto known = Find(hash, *charge.limit, times);
  if (!known) return std::nullopt;
  const auto decision = Decide(*known, *charge.limit, charge.cost, times);
  if (!decision || !decision->allowed) return decision;
  // This charge does not deny the request. If another one does, nothing is taken from this one.
  auto peek = Decide(*known, *charge.limit, 0, times);
  if (peek) peek->delay = Micros{0};
  return peek;
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
    // Costs on one state add up; only the store can do that.
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
  const bool answered =
      request.charges.size() == 1 ? AnswerOne(request, times) : AnswerGroup(request, times);
  if (answered) std::ranges::fill(request.seen, SeenState{});  // Nobody was asked for the states.
  return answered;
}

DenyCache::Place DenyCache::PlaceOf(const Charge& charge) {
  const Hash128 hash = HashOf(charge);
  if (!enabled()) return {.hash = hash, .version = 0};
  Shard& shard = ShardOf(hash);
  const std::lock_guard lock(shard.lock);
  ForgetOther(shard, hash, *charge.limit);
  return {.hash = hash, .version = shard.version};
}

// The numbers behind a name have changed: the store carries the state over to them, even if it only
// peeks. What was learned under the old numbers must not come back with them, because the budget
// may have recovered faster in between.
void DenyCache::ForgetOther(Shard& shard, const Hash128& hash, const Limit& limit) {
  Entry* const entry = Get(hash);
  if (!entry || entry->limit == limit.fingerprint()) return;
  ++shard.version;
  Forget(shard, *entry);
}

void DenyCache::Learn(const Request& request, std::span<const Decision> each,
                      std::span<const Place> places, TimePoint asked) {
  if (!request.outcome) return;
  // A budget with holds grows whenever one of them ends.
  const bool held = request.action == Action::kSettle || request.action == Action::kExtend ||
                    std::ranges::any_of(each, [](const Decision& one) { return one.held > 0; });
  const std::int64_t asked_us = asked.time_since_epoch().count();
  if (request.outcome->allowed) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (held || request.now || request.action == Action::kGive ||
          request.action == Action::kReset) {
        // The numbers are from another moment, or the budget has more left than is known.
        Invalidate(places[i].hash);
      } else {
        Refresh(places[i], request.charges[i], request.seen[i], asked_us);
      }
    }
    return;
  }
  if (request.now || held) return;
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (places[i].hash == places[j].hash) return;
    }
  }
  // The longest waits, longer than any limit's, are capped to avoid overflow.
  const Micros useful_for = std::min(request.outcome->retry_after, kSpanMax);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Limit& limit = *request.charges[i].limit;
    const SeenState& seen = request.seen[i];
    if (seen.now_us() < 0) continue;
    Entry entry{};
    entry.hash = places[i].hash;
    entry.limit = limit.fingerprint();
    entry.at_us = asked_us;
    entry.until_us = asked_us + useful_for.count();
    entry.seen = seen;
    if (!core::IsSeenComplete(limit) && !each[i].allowed) {
      entry.cost = request.charges[i].cost;
      entry.leaves = core::LeavesOf(limit, seen, each[i]);
    }
    Remember(places[i], entry, limit.span());
  }
}

void DenyCache::Remember(const Place& place, Entry entry, Micros span) {
  std::optional<Entry> other;  // What was known of another cost, and still is.
  {
    Shard& shard = ShardOf(place.hash);
    const std::lock_guard lock(shard.lock);
    if (shard.version != place.version) return;
    const Entry* const old = Get(place.hash);
    if (old && old->at_us > entry.at_us) return;
    const bool known = old && old->limit == entry.limit;
    // Other requests that this state is part of stay denied for as long as before.
    if (known) entry.until_us = std::max(entry.until_us, old->until_us);
    if (known && IsSameLog(old->seen, entry.seen)) {
      entry.generation = old->generation;
      if (old->cost > 0 && old->cost != entry.cost) other = *old;
    } else {
      entry.generation = ++shard.generations;
    }
    Put(shard, entry);
  }
  if (!other) return;
  other->hash = HashOf(place.hash, other->cost);
  other->until_us = other->at_us + other->leaves + span.count() -
                    std::max(other->seen.now_us(), core::StateOf<WindowLog>(other->seen).newest);
  Shard& shard = ShardOf(other->hash);
  const std::lock_guard lock(shard.lock);
  Put(shard, *other);
}

// A charge was granted. If it took something and the state is known, it is now known as `seen`.
void DenyCache::Refresh(const Place& place, const Charge& charge, const SeenState& seen,
                        std::int64_t asked_us) {
  Shard& shard = ShardOf(place.hash);
  const std::lock_guard lock(shard.lock);
  ForgetOther(shard, place.hash, *charge.limit);
  Entry* const entry = Get(place.hash);
  if (!entry || entry->at_us > asked_us || charge.cost == 0) return;
  if (seen.now_us() < 0 || shard.version != place.version) return Forget(shard, *entry);
  entry->at_us = asked_us;
  entry->seen = seen;
  entry->generation = ++shard.generations;
  entry->cost = 0;
}

// Replaces the entry with the same hash, or else the one that stops being believed first.
void DenyCache::Put(Shard& shard, const Entry& entry) {
  const auto believed_until = [this](const Entry& other) {
    return std::min(other.until_us, other.at_us + trust_.count());
  };
  Entry* place = Get(entry.hash);
  if (!place) place = &*std::ranges::min_element(Ways(entry.hash), {}, believed_until);
  if (place->until_us == 0) ++shard.entries;
  *place = entry;
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
  if (Entry* const entry = Get(hash)) Forget(shard, *entry);
}

void DenyCache::Clear() {
  // Before anything else, so that nothing older gets into a set that was already emptied.
  for (std::size_t i = 0; i < kShards; ++i) {
    const std::lock_guard lock(shards_[i].lock);
    ++shards_[i].version;
  }
  // One set at a time, so that nobody waits for long.
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
