// SPDX-License-Identifier: Apache-2.0
// What the memory store does about holds. All of it requires the locks of the shards, and resolved
// places. Every function looks at all states of a request before it changes the first.
#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"
#include "core/combine.h"
#include "store/memory/memory_store_impl.h"

namespace sluice {
namespace {

using core::Us;
using memory::HeldState;
using memory::HoldRecord;
using memory::Holds;
using memory::Shard;
using Status = HoldRecord::Status;

Error NoRoomForHolds() {
  return {ErrorCode::kStoreFull,
          "the store remembers as many holds as it may; expected fewer, or "
          "a larger MemoryStore::Options::holds_max"};
}

bool IsLive(const Holds::Entry* hold) { return hold && hold->record.status == Status::kLive; }

}  // namespace

Expected<Decision> MemoryStore::Impl::DecideHold(Request& request, std::span<Place> places,
                                                 const StateGroup& group, TimePoint now) {
  places = places.first(request.charges.size());
  Holding holding{.request = request, .places = places, .group = group, .now = now};
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (group.first[i] != i) continue;
    if (places[i].sketched) return std::unexpected(NoRoomForHolds());
    HeldState* const held = places[i].held;
    holding.known[i] = held ? held->holds.Find(request.hold->id) : nullptr;
  }
  std::optional<Error> error;
  if (request.action == Action::kHold) {
    error = Hold(holding);
  } else if (request.action == Action::kSettle) {
    error = Settle(holding);
  } else {
    error = Extend(holding);
  }
  if (error) return std::unexpected(*std::move(error));
  // Making one state held may have found a place for another.
  for (std::size_t i = 0; i < places.size(); ++i) places[i].held = places[group.first[i]].held;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (group.first[i] != i) {
      holding.decisions[i] = holding.decisions[group.first[i]];
    } else if (!holding.decided) {
      holding.decisions[i] = EvaluateAt(places[i], *request.charges[i].limit, now, 0).decision;
    }
  }
  const auto decisions = std::span(holding.decisions).first(places.size());
  std::ranges::copy(decisions.first(request.each.size()), request.each.begin());
  for (std::size_t i = 0; i < request.seen.size(); ++i) {
    request.seen[i] = SeeAt(places[i], *request.charges[i].limit, now);
  }
  return core::Combine(decisions);
}

// For `count` ids in all, of which this place has the last.
bool MemoryStore::Impl::HasRoomForHolds(const Place& place, std::int64_t count) const {
  return count == 1 ? shards_[place.shard].HasRoomForHold() : totals_.holds.HasRoom(count);
}

// When a hold made at `now` expires under this limit.
std::int64_t MemoryStore::Impl::ExpiryOf(const HoldTerms& terms, const Limit& limit,
                                         const HeldState& state, TimePoint now) {
  const Micros ttl = terms.ttl > Micros{0} ? terms.ttl : limit.span();
  return Us(std::min(kTimeMax, memory::MomentOf(limit, state, now) + ttl));
}

std::optional<Error> MemoryStore::Impl::Hold(Holding& holding) {
  const auto charges = holding.request.charges;
  HoldTerms& terms = *holding.request.hold;
  std::int64_t states = 0;
  std::int64_t known = 0;
  bool same = true;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] != i) continue;
    ++states;
    const Holds::Entry* const hold = holding.known[i];
    known += hold != nullptr;
    same = same && IsLive(hold) && hold->record.units == holding.group.cost[i];
  }
  if (known > 0 && !same) return HoldConflict(terms.id);
  if (known > 0) {
    terms.expires = EarliestExpiry(holding);
    return std::nullopt;
  }
  bool allowed = true;
  Few<memory::Packed> next(charges.size());
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] != i) continue;
    const Place& place = holding.places[i];
    if (place.held && !place.held->holds.HasRoom(holding.group.cost[i])) {
      return TooManyHolds(charges[i]);
    }
    if (!HasRoomForHolds(place, states)) return NoRoomForHolds();
    const auto evaluation =
        EvaluateAt(place, *charges[i].limit, holding.now, holding.group.cost[i]);
    holding.decisions[i] = evaluation.decision;
    next[i] = evaluation.next;
    allowed = allowed && evaluation.decision.allowed;
  }
  holding.decided = true;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] != i) continue;
    const Limit& limit = *charges[i].limit;
    Decision& decision = holding.decisions[i];
    Place& place = holding.places[i];
    if (!allowed) {
      if (decision.allowed) decision = EvaluateAt(place, limit, holding.now, 0).decision;
      decision.delay = Micros{0};
      continue;
    }
    Shard& shard = shards_[place.shard];
    const std::int64_t cost = holding.group.cost[i];
    if (cost > 0 && !core::NeedsHold(limit)) {
      memory::Slot* const slot = place.held ? &place.held->slot : shard.Find(place.identity);
      shard.Commit(slot, place.identity, limit, next[i], holding.now, cost);
    }
    HeldState& state = MakeHeld(place, limit, holding.now);
    shard.AddHold(state, terms.id,
                  {.units = cost,
                   .taken_us = Us(memory::MomentOf(limit, state, holding.now)),
                   .expires_us = ExpiryOf(terms, limit, state, holding.now),
                   .on_expiry = core::NeedsHold(limit) ? OnExpiry::kRelease : terms.on_expiry});
    holding.known[i] = state.holds.Find(terms.id);
    if (core::NeedsHold(limit)) {
      decision = EvaluateAt(place, limit, holding.now, 0).decision;
    } else {
      decision.held += cost;
    }
  }
  if (allowed) terms.expires = EarliestExpiry(holding);
  return std::nullopt;
}

std::optional<Error> MemoryStore::Impl::Settle(Holding& holding) {
  const auto charges = holding.request.charges;
  HoldTerms& terms = *holding.request.hold;
  std::int64_t unknown = 0;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] != i || holding.known[i]) continue;
    if (!HasRoomForHolds(holding.places[i], ++unknown)) return NoRoomForHolds();
  }
  terms.late = false;
  terms.overdrawn = false;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] != i) continue;
    const Limit& limit = *charges[i].limit;
    Place& place = holding.places[i];
    Shard& shard = shards_[place.shard];
    const std::int64_t actual = holding.group.cost[i];
    if (Holds::Entry* const hold = holding.known[i]) {
      const Status status = hold->record.status;
      if (status == Status::kLive || status == Status::kExpired) {
        terms.overdrawn |= shard.Settle(*place.held, holding.now, *hold, actual);
      }
      terms.late |= hold->record.status == Status::kSettledLate;
      continue;
    }
    HeldState& state = MakeHeld(place, limit, holding.now);
    if (actual > 0) shard.Overdraw(state, holding.now, actual);
    const std::int64_t now_us = Us(memory::MomentOf(limit, state, holding.now));
    shard.AddHold(state, terms.id,
                  {.taken_us = now_us, .expires_us = now_us, .status = Status::kSettledLate});
    terms.late = true;
    terms.overdrawn |= actual > 0 && !core::NeedsHold(limit);
  }
  return std::nullopt;
}

std::optional<Error> MemoryStore::Impl::Extend(Holding& holding) {
  const auto charges = holding.request.charges;
  HoldTerms& terms = *holding.request.hold;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] == i && !IsLive(holding.known[i])) return HoldLost(terms.id);
  }
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (holding.group.first[i] != i) continue;
    HeldState& state = *holding.places[i].held;
    const Limit& limit = *charges[i].limit;
    state.holds.Extend(*holding.known[i], ExpiryOf(terms, limit, state, holding.now));
    memory::Summarize(limit, state);
  }
  terms.expires = EarliestExpiry(holding);
  return std::nullopt;
}

HeldState& MemoryStore::Impl::MakeHeld(Place& place, const Limit& limit, TimePoint now) {
  Shard& shard = shards_[place.shard];
  if (!place.held) {
    place.held = &shard.MakeHeld(shard.Find(place.identity), place.identity, limit, now);
  }
  return *place.held;
}

TimePoint MemoryStore::Impl::EarliestExpiry(const Holding& holding) {
  std::int64_t earliest = Us(kTimeMax);
  for (std::size_t i = 0; i < holding.places.size(); ++i) {
    if (holding.group.first[i] != i) continue;
    earliest = std::min(earliest, holding.known[i]->record.expires_us);
  }
  return TimePoint{Micros{earliest}};
}

}  // namespace sluice
