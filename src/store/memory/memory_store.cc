// SPDX-License-Identifier: Apache-2.0
#include "sluice/memory_store.h"

#include <algorithm>
#include <bitset>
#include <mutex>

#include "base/text.h"
#include "core/combine.h"
#include "store/group.h"
#include "store/memory/memory_store_impl.h"
#include "store/memory/snapshot.h"

namespace sluice {
namespace {

using memory::Evaluate;
using memory::Evaluation;
using memory::See;
using memory::Shard;
using memory::Slot;
using memory::Total;

// Locks any set of shards in ascending order, so that no two threads can deadlock.
class ShardLocks {
 public:
  explicit ShardLocks(std::span<Shard> shards) : shards_(shards) {}
  ~ShardLocks() {
    ForEach([](Shard& shard) { shard.lock().unlock(); });
  }
  ShardLocks(const ShardLocks&) = delete;
  ShardLocks& operator=(const ShardLocks&) = delete;

  void Add(std::size_t shard) { chosen_.set(shard); }
  void Lock() {
    ForEach([](Shard& shard) { shard.lock().lock(); });
  }

  template <typename Function>
  void ForEach(Function function) {
    for (std::size_t i = chosen_._Find_first(); i < chosen_.size(); i = chosen_._Find_next(i)) {
      function(shards_[i]);
    }
  }

 private:
  std::span<Shard> shards_;
  std::bitset<MemoryStore::Impl::kShards> chosen_;
};

// Whether a request is a check, or is about a hold, of one state, of which only the outcome is
// asked. Its charge is valid then.
bool IsPlain(const Request& request, TimePoint now) {
  return request.charges.size() == 1 && request.each.empty() && request.seen.empty() &&
         (request.action == Action::kCheck || IsAboutHold(request.action)) &&
         IsValid(request.charges.front(), now, request.action);
}

MemoryStore::Options WithinBounds(MemoryStore::Options options) {
  options.keys_max = std::max<std::int64_t>(1, options.keys_max);
  options.recovered_kept_for = std::max(Micros{0}, options.recovered_kept_for);
  if (!options.clock) options.clock = &SystemClock();
  return options;
}

}  // namespace

MemoryStore::Impl::Impl(const Options& options, const Seed& seed)
    : options_(WithinBounds(options)),
      seed_(seed),
      shards_(std::make_unique<Shard[]>(kShards)),
      totals_{
          .keys = Total(options_.keys_max),
          .holds = Total(options_.holds_max),
          .log_entries_max = options_.log_entries_max,
          // Shards get equal shares except for chance, which the sketch allows for.
          .sketch_lines = memory::Sketch::LinesFor(options_.keys_max / std::int64_t{kShards} + 1)} {
  for (Shard& shard : shards()) shard.set_totals(&totals_);
}

TimePoint MemoryStore::Impl::Horizon(TimePoint now) const {
  return std::max(TimePoint{}, now - options_.recovered_kept_for);
}

bool MemoryStore::Impl::HasRoom(const Shard& own, const Limit& limit, std::int64_t new_keys) const {
  const bool fits = new_keys == 0 ? own.HasRoomForKey() : totals_.keys.HasRoom(new_keys + 1);
  return fits && !(memory::IsLog(limit) && totals_.LogsFull());
}

// Makes room for one more key besides `new_keys`, by dropping recovered state if necessary.
// Bounded: what is dropped may not be of the kind that room is needed for.
bool MemoryStore::Impl::MakeRoom(Shard& own, const Limit& limit, TimePoint now,
                                 std::int64_t new_keys) {
  constexpr int kReclaimsMax = 4;
  for (int i = 0; i < kReclaimsMax; ++i) {
    if (HasRoom(own, limit, new_keys)) return true;
    if (!Reclaim(own, now)) return false;
  }
  return HasRoom(own, limit, new_keys);
}

// The slot to decide on. Null for an untouched budget, and for one that the sketch decides on
// because there is no room for a new key. `new_keys` are new in the same request. Requires the
// shard's lock.
[[gnu::noinline]] Slot* MemoryStore::Impl::Resolve(Place& place, const Limit& limit, TimePoint now,
                                                   std::int64_t new_keys) {
  Shard& shard = shards_[place.shard];
  Slot* slot = shard.Find(place.identity);
  if (slot && slot->has_holds()) {
    slot->held()->Prefetch();
    place.held = shard.HeldIn(slot, now, place.to_hold);
    slot = place.held ? &place.held->slot : shard.Find(place.identity);
  }
  if (slot && shard.LimitOf(*slot) == limit) return slot;
  const bool has_number = shard.CanAcquire(limit, kChargesMax);
  if (slot && has_number) {
    place.held ? shard.Convert(*place.held, limit, now) : shard.Convert(slot, limit, now);
    return slot;
  }
  // Its holds are lost.
  if (std::exchange(place.held, nullptr)) slot = shard.Find(place.identity);
  if (slot) shard.MoveToSketch(slot, limit, now, Horizon(now));
  if (has_number && MakeRoom(shard, limit, now, new_keys)) {
    return shard.has_sketch() ? shard.MoveFromSketch(place.identity, limit, Horizon(now)) : nullptr;
  }
  ++shard.overflow_decisions;
  place.sketched = true;
  return nullptr;
}

// Sweeps a bit of the shard whose turn it is, with or without traffic. Never waits for its lock, so
// that the caller may hold others.
std::int64_t MemoryStore::Impl::SweepNext(TimePoint horizon, std::size_t slots) {
  Shard& shard = shards_[sweep_next_.fetch_add(1, std::memory_order_relaxed) % kShards];
  const std::unique_lock lock(shard.lock(), std::try_to_lock);
  return lock ? shard.Sweep(horizon, slots) : 0;
}

// Makes room for one key by dropping recovered state of this shard or of any that is not locked.
// Bounded work: after a failed search the next one waits a while, so that a flood of new keys costs
// little.
bool MemoryStore::Impl::Reclaim(Shard& own, TimePoint now) {
  constexpr std::int64_t kPauseUs = 1'000;
  const std::int64_t now_us = now.time_since_epoch().count();
  const std::int64_t pause_us = reclaim_after_us_.load(std::memory_order_relaxed) - now_us;
  // A longer pause means that the clock was set back since.
  if (pause_us > 0 && pause_us <= kPauseUs) return false;

  const TimePoint horizon = Horizon(now);
  if (own.Sweep(horizon, memory::kSlotsPerSweep) > 0) return true;
  for (std::size_t i = 0; i < kShards; ++i) {
    if (SweepNext(horizon, memory::kSlotsPerSweep) > 0) return true;
  }
  reclaim_after_us_.store(now_us + kPauseUs, std::memory_order_relaxed);
  return false;
}

// Inlined into both callers that decide one charge: a call would be noticeable in the cost of a
// check.
[[gnu::always_inline]] inline Expected<Decision> MemoryStore::Impl::Decide(const Charge& charge,
                                                                           Place& place,
                                                                           TimePoint now) {
  const Limit& limit = *charge.limit;
  Shard& shard = shards_[place.shard];
  std::unique_lock lock(shard.lock());
  Slot* slot = shard.Find(place.identity);
  if (!slot || slot->has_holds() || shard.LimitOf(*slot) != limit) [[unlikely]] {
    if (auto invalid = NotOffered(charge, Action::kCheck)) {
      return std::unexpected(*std::move(invalid));
    }
    slot = Resolve(place, limit, now, 0);
    if (place.sketched) return DecideBySketch(place, charge, now);
    if (place.held) return DecideHeld(place, charge, now);
  }
  const Evaluation evaluation = Evaluate(limit, slot, now, charge.cost);
  if (evaluation.decision.allowed && charge.cost > 0) {
    shard.Commit(slot, place.identity, limit, evaluation.next, now, charge.cost);
  }
  if (shard.CountDecision()) [[unlikely]] {
    lock.unlock();
    SweepNext(Horizon(now), memory::kSlotsPerSweep);
  }
  return evaluation.decision;
}

// Requires the shard's lock.
[[gnu::noinline]] Decision MemoryStore::Impl::DecideBySketch(const Place& place,
                                                             const Charge& charge, TimePoint now) {
  Shard& shard = shards_[place.shard];
  const Decision decision = EvaluateAt(place, *charge.limit, now, charge.cost).decision;
  if (decision.allowed && charge.cost > 0) {
    shard.TakeFromSketch(place.identity, *charge.limit, now, Horizon(now), charge.cost);
  }
  if (shard.CountDecision()) SweepNext(Horizon(now), memory::kSlotsPerSweep);
  return decision;
}

// Likewise.
[[gnu::noinline]] Decision MemoryStore::Impl::DecideHeld(const Place& place, const Charge& charge,
                                                         TimePoint now) {
  Shard& shard = shards_[place.shard];
  const Evaluation evaluation = EvaluateAt(place, *charge.limit, now, charge.cost);
  if (evaluation.decision.allowed && charge.cost > 0) {
    shard.Commit(&place.held->slot, place.identity, *charge.limit, evaluation.next, now,
                 charge.cost);
  }
  if (shard.CountDecision()) SweepNext(Horizon(now), memory::kSlotsPerSweep);
  return evaluation.decision;
}

// Decides on whatever is known at a resolved place. Changes nothing.
Evaluation MemoryStore::Impl::EvaluateAt(const Place& place, const Limit& limit, TimePoint now,
                                         std::int64_t cost) {
  if (place.held) return memory::Evaluate(limit, *place.held, now, cost);
  return EvaluateUnheld(place, limit, now, cost);
}

Evaluation MemoryStore::Impl::EvaluateUnheld(const Place& place, const Limit& limit, TimePoint now,
                                             std::int64_t cost) {
  Shard& shard = shards_[place.shard];
  if (!place.sketched) return Evaluate(limit, shard.Find(place.identity), now, cost);
  const memory::Bound bound = shard.BoundOf(place.identity, Horizon(now));
  return {memory::Decide(limit, bound, now, cost), {}};
}

// Hot: else GCC would rather inline what requests about holds need.
[[gnu::hot]] Expected<Decision> MemoryStore::Impl::Check(const Charge& charge,
                                                         std::optional<TimePoint> at) {
  const TimePoint now = at ? *at : options_.clock->Now();
  if (!IsValid(charge, now)) [[unlikely]] {
    return std::unexpected(Invalid(charge, now));
  }
  Place place = PlaceOf(LastLimitHasher::Of(seed_, charge));
  shards_[place.shard].Prefetch(place.identity.hash);
  return Decide(charge, place, now);
}

// A few at a time: while one is decided, the states of the next are being fetched from memory.
[[gnu::hot]] void MemoryStore::Impl::Apply(std::span<Request> requests) {
  constexpr std::size_t kAhead = 16;
  const TimePoint clock_now = options_.clock->Now();
  std::array<Place, kAhead> places;
  std::array<bool, kAhead> is_plain;
  StateHasher hasher(seed_);
  while (!requests.empty()) {
    const std::span<Request> some = requests.first(std::min(requests.size(), kAhead));
    requests = requests.subspan(some.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Request& request = some[i];
      is_plain[i] = IsPlain(request, request.now.value_or(clock_now));
      if (!is_plain[i]) continue;
      places[i] = PlaceOf(hasher.Of(request.charges.front()));
      shards_[places[i].shard].Prefetch(places[i].identity.hash);
      if (request.action == Action::kCheck) continue;
      // Meanwhile the state is being fetched.
      is_plain[i] = HasValidShape(request) && !InvalidTerms(request);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      Request& request = some[i];
      const TimePoint now = request.now.value_or(clock_now);
      if (!is_plain[i]) {
        request.outcome = Decide(request, now);
      } else if (request.action == Action::kCheck) {
        request.outcome = Decide(request.charges.front(), places[i], now);
      } else {
        request.outcome = DecideHold(request, places[i], now);
      }
    }
  }
}

Expected<Decision> MemoryStore::Impl::Decide(Request& request, TimePoint now) {
  if (!HasValidShape(request)) return std::unexpected(InvalidShape(request));
  const std::span<const Charge> charges = request.charges;
  const Action action = request.action;
  for (const Charge& charge : charges) {
    if (auto invalid = NotOffered(charge, action)) return std::unexpected(*std::move(invalid));
  }
  for (const Charge& charge : charges) {
    if (!IsValid(charge, now, action)) return std::unexpected(Invalid(charge, now, action));
  }
  if (auto invalid = InvalidTerms(request)) return std::unexpected(*std::move(invalid));
  // A request that can never be granted leaves no trace: not even states are carried over for it.
  Few<Place> places(charges.size());
  StateHasher hasher(seed_);
  for (std::size_t i = 0; i < charges.size(); ++i) places[i] = PlaceOf(hasher.Of(charges[i]));
  const auto same = [&](std::size_t i, std::size_t j) { return SameState(places[i], places[j]); };
  StateGroup group;
  if (auto invalid = AddUp(charges, action, same, group)) {
    return std::unexpected(*std::move(invalid));
  }
  ShardLocks locks(shards());
  for (std::size_t i = 0; i < charges.size(); ++i) locks.Add(places[i].shard);
  locks.Lock();
  if (action == Action::kReset) {
    auto existed = Forget(std::span(places).first(charges.size()), now);
    if (!existed) return std::unexpected(std::move(existed.error()));
    request.existed = *existed;
  }

  // Charges of one state have one place; the first of them takes for all.
  std::int64_t new_keys = 0;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (group.first[i] != i) {
      places[i] = places[group.first[i]];
      continue;
    }
    places[i].to_hold = request.hold != nullptr;
    const Slot* const slot = Resolve(places[i], *charges[i].limit, now, new_keys);
    const bool takes = (group.cost[i] > 0 && action != Action::kGive) || request.hold;
    new_keys += !slot && !places[i].sketched && takes ? 1 : 0;
  }
  const auto sweep = [&] {
    bool due = false;
    locks.ForEach([&](Shard& shard) { due |= shard.CountDecision(); });
    if (due) SweepNext(Horizon(now), memory::kSlotsPerSweep);
  };
  if (request.hold) {
    auto decision = DecideHold(request, places, group, now);
    sweep();
    return decision;
  }
  if (action == Action::kGive) GiveBack(charges, places, now);

  // First decide without taking anything.
  Few<Decision> decisions(charges.size());
  Few<memory::Packed> next(charges.size());
  std::array<std::int64_t, kChargesMax> costs;
  bool allowed = true;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Limit& limit = *charges[i].limit;
    costs[i] = action == Action::kGive ? 0 : group.cost[group.first[i]];
    if (action == Action::kDebit) {
      costs[i] = std::min(costs[i], EvaluateAt(places[i], limit, now, 0).decision.remaining);
    }
    const Evaluation evaluation = EvaluateAt(places[i], limit, now, costs[i]);
    decisions[i] = evaluation.decision;
    next[i] = evaluation.next;
    allowed = allowed && evaluation.decision.allowed;
  }

  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Limit& limit = *charges[i].limit;
    const memory::Identity& identity = places[i].identity;
    Shard& shard = shards_[places[i].shard];
    if (!allowed) {
      // Charges that would have passed are not charged either, and report that.
      if (decisions[i].allowed) decisions[i] = EvaluateAt(places[i], limit, now, 0).decision;
      decisions[i].delay = Micros{0};
    } else if (costs[i] == 0 || group.first[i] != i) {
      continue;
    } else if (places[i].sketched) {
      shard.TakeFromSketch(identity, limit, now, Horizon(now), costs[i]);
    } else {
      // Look it up again: making room for one key may have moved the others.
      Slot* const slot = places[i].held ? &places[i].held->slot : shard.Find(identity);
      shard.Commit(slot, identity, limit, next[i], now, costs[i]);
    }
  }
  sweep();
  if (request.listed) {
    memory::HeldState* const held = places.front().held;
    held ? held->holds.List(*request.listed) : memory::Holds().List(*request.listed);
  }
  for (std::size_t i = 0; i < request.seen.size(); ++i) {
    request.seen[i] = SeeAt(places[i], *charges[i].limit, now);
  }
  std::ranges::copy(std::span(decisions).first(request.each.size()), request.each.begin());
  return core::Combine(std::span(decisions).first(charges.size()));
}

SeenState MemoryStore::Impl::SeeAt(const Place& place, const Limit& limit, TimePoint now) {
  Shard& shard = shards_[place.shard];
  if (place.held) return memory::See(limit, *place.held, now);
  if (place.sketched) return See(limit, shard.BoundOf(place.identity, Horizon(now)), now);
  return See(limit, shard.Find(place.identity), now);
}

// A bound in the sketch may be shared with others, so it cannot be lowered. Requires the locks.
void MemoryStore::Impl::GiveBack(std::span<const Charge> charges, std::span<const Place> places,
                                 TimePoint now) {
  for (std::size_t i = 0; i < charges.size(); ++i) {
    Shard& shard = shards_[places[i].shard];
    if (places[i].sketched) continue;
    if (places[i].held) {
      shard.GiveBack(*places[i].held, now, CostOf(charges[i], Action::kGive));
      continue;
    }
    Slot* const slot = shard.Find(places[i].identity);
    if (slot) shard.GiveBack(slot, *charges[i].limit, now, CostOf(charges[i], Action::kGive));
  }
}

// Makes these budgets untouched; returns whether there was any state. Requires the locks.
Expected<bool> MemoryStore::Impl::Forget(std::span<const Place> places, TimePoint now) {
  using memory::Sketch;
  bool existed = false;
  bool shared = false;
  for (const Place& place : places) {
    Shard& shard = shards_[place.shard];
    if (Slot* const slot = shard.Find(place.identity)) {
      shard.Erase(slot);
      existed = true;
    }
    const Sketch::Forgot forgot = shard.ForgetInSketch(place.identity, Horizon(now));
    existed = existed || forgot == Sketch::Forgot::kAll;
    shared = shared || forgot == Sketch::Forgot::kShared;
  }
  if (!shared) return existed;
  return std::unexpected(Error{ErrorCode::kStoreFull,
                               "the store is full, and this key shares its record of use with "
                               "others, who would be reset, too"});
}

MemoryStore::Stats MemoryStore::Impl::GetStats() const {
  Stats stats{.log_entries = totals_.log_entries.load(std::memory_order_relaxed)};
  for (const Shard& shard : shards()) {
    const std::lock_guard lock(shard.lock());
    stats.keys += shard.keys();
    stats.holds += shard.holds();
    stats.bytes += static_cast<std::int64_t>(shard.bytes());
    stats.dropped += shard.dropped;
    stats.dropped_ahead += shard.dropped_ahead;
    stats.overflow_decisions += shard.overflow_decisions;
  }
  stats.bytes += stats.log_entries * static_cast<std::int64_t>(sizeof(core::Log::Entry)) +
                 static_cast<std::int64_t>(sizeof(Impl) + sizeof(Shard) * kShards);
  return stats;
}

MemoryStore::MemoryStore(const Options& options)
    : MemoryStore(std::make_unique<Impl>(options, RandomSeed())) {}
MemoryStore::MemoryStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MemoryStore::~MemoryStore() = default;

Expected<Decision> MemoryStore::Check(const Charge& charge, std::optional<TimePoint> now) {
  return impl_->Check(charge, now);
}

Expected<Decision> MemoryStore::CheckAll(std::span<const Charge> charges, std::span<Decision> each,
                                         std::optional<TimePoint> now) {
  Request request{.charges = charges, .now = now, .each = each};
  return impl_->Decide(request, now.value_or(impl_->options().clock->Now()));
}

void MemoryStore::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  impl_->Apply(requests);
  done();
}

void MemoryStore::ApplyInline(std::span<Request> requests) { impl_->Apply(requests); }

Expected<bool> MemoryStore::Reset(const Charge& charge) {
  Request request{.charges = {&charge, 1}, .action = Action::kReset};
  const auto outcome = impl_->Decide(request, impl_->options().clock->Now());
  if (!outcome) return std::unexpected(outcome.error());
  return request.existed;
}

MemoryStore::Stats MemoryStore::GetStats() const { return impl_->GetStats(); }

Expected<std::int64_t> MemoryStore::Save(const std::filesystem::path& path) const {
  return memory::SaveSnapshot(*impl_, path);
}

Expected<std::unique_ptr<MemoryStore>> MemoryStore::Restore(const std::filesystem::path& path,
                                                            const Options& options) {
  auto impl = memory::LoadSnapshot(path, options);
  if (!impl) return std::unexpected(impl.error());
  return std::unique_ptr<MemoryStore>(new MemoryStore(*std::move(impl)));
}

}  // namespace sluice
