// SPDX-License-Identifier: Apache-2.0
// What the memory store does about holds. All of it requires the locks of the shards, and resolved
// places, unless it says otherwise. Every function looks at all states of a request before it
// changes the first.
#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include "base/text.h"
#include "core/combine.h"
#include "store/memory/memory_store_impl.h"

namespace sluice {
namespace {

using core::Us;
using memory::HeldState;
using memory::HoldRecord;
using memory::Shard;
using Status = HoldRecord::Status;

Error NoRoomForHolds() {
  return {ErrorCode::kStoreFull,
          "the store remembers as many holds as it may; expected fewer, or "
          "a larger MemoryStore::Options::holds_max"};
}

bool IsLive(const HoldRecord* hold) { return hold && hold->live(); }

}  // namespace

// One charge, without the lock of its shard, which it takes.
Expected<Decision> MemoryStore::Impl::DecideHold(Request& request, Place& place, TimePoint now) {
  const Charge& charge = request.charges.front();
  Shard& shard = shards_[place.shard];
  HoldPart part{place, charge, CostOf(charge, request.action)};
  std::optional<Error> error;
  bool due = false;
  {
    const std::lock_guard lock(shard.lock());
    place.to_hold = true;
    Resolve(place, *charge.limit, now, 0);
    error = DecideHold(request.action, *request.hold, {&part, 1}, now);
    due = shard.CountDecision();
  }
  if (due) [[unlikely]]
    SweepNext(Horizon(now), memory::kSlotsPerSweep);
  if (error) return std::unexpected(*std::move(error));
  return part.decision;
}

Expected<Decision> MemoryStore::Impl::DecideHold(Request& request, std::span<Place> places,
                                                 const StateGroup& group, TimePoint now) {
  const std::span<const Charge> charges = request.charges;
  Few<HoldPart> parts;
  std::array<std::uint8_t, kChargesMax> part_of;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    if (group.first[i] != i) {
      part_of[i] = part_of[group.first[i]];
      continue;
    }
    part_of[i] = static_cast<std::uint8_t>(parts.size());
    parts.push_back({places[i], charges[i], group.cost[i]});
  }
  if (auto error = DecideHold(request.action, *request.hold, parts, now)) {
    return std::unexpected(*std::move(error));
  }
  Few<Decision> decisions;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    decisions.push_back(parts[part_of[i]].decision);
    if (!request.seen.empty()) {
      request.seen[i] = SeeAt(parts[part_of[i]].place, *charges[i].limit, now);
    }
  }
  std::ranges::copy(std::span(decisions).first(request.each.size()), request.each.begin());
  return core::Combine(decisions);
}

std::optional<Error> MemoryStore::Impl::DecideHold(Action action, HoldTerms& terms,
                                                   std::span<HoldPart> parts, TimePoint now) {
  for (HoldPart& part : parts) {
    if (part.place.sketched) return NoRoomForHolds();
    if (part.place.held) part.hold = part.place.held->holds.Find(terms.id);
  }
  switch (action) {
    case Action::kHold:
      return Hold(terms, parts, now);
    case Action::kSettle:
      return Settle(terms, parts, now);
    default:
      return Extend(terms, parts, now);
  }
}

// For `count` ids in all, of which this place has the last.
bool MemoryStore::Impl::HasRoomForHolds(const Place& place, std::size_t count) const {
  return count == 1 ? shards_[place.shard].HasRoomForHold()
                    : totals_.holds.HasRoom(static_cast<std::int64_t>(count));
}

// When a hold made at a state's moment expires under this limit.
std::int64_t MemoryStore::Impl::ExpiryOf(const HoldTerms& terms, const Limit& limit,
                                         TimePoint moment) {
  const Micros ttl = terms.ttl > Micros{0} ? terms.ttl : limit.span();
  return Us(std::min(kTimeMax, moment + ttl));
}

// The numbers as they stand.
void MemoryStore::Impl::Look(std::span<HoldPart> parts, TimePoint now) {
  for (HoldPart& part : parts) {
    part.decision = EvaluateAt(part.place, part.limit(), now, 0).decision;
  }
}

std::optional<Error> MemoryStore::Impl::Hold(HoldTerms& terms, std::span<HoldPart> parts,
                                             TimePoint now) {
  if (std::ranges::any_of(parts, &HoldPart::hold)) {
    const bool same = std::ranges::all_of(parts, [](const HoldPart& part) {
      return IsLive(part.hold) && part.hold->units == part.cost;
    });
    if (!same) return HoldConflict(terms.id);
    terms.expires = EarliestExpiry(parts);
    Look(parts, now);
    return std::nullopt;
  }
  bool allowed = true;
  for (HoldPart& part : parts) {
    const HeldState* const held = part.place.held;
    if (held && !held->holds.HasRoom(part.cost)) return TooManyHolds(part.charge);
    if (!HasRoomForHolds(part.place, parts.size())) return NoRoomForHolds();
    const auto evaluation = EvaluateAt(part.place, part.limit(), now, part.cost);
    part.decision = evaluation.decision;
    part.next = evaluation.next;
    allowed = allowed && evaluation.decision.allowed;
  }
  if (!allowed) {
    for (HoldPart& part : parts) {
      // What would have been allowed is not taken either, and reports that.
      if (part.decision.allowed)
        part.decision = EvaluateAt(part.place, part.limit(), now, 0).decision;
      part.decision.delay = Micros{0};
    }
    return std::nullopt;
  }
  for (HoldPart& part : parts) {
    const Limit& limit = part.limit();
    const bool needs_hold = core::NeedsHold(limit);
    Shard& shard = shards_[part.place.shard];
    HeldState& state = MakeHeld(part.place, limit, now);
    if (part.cost > 0 && !needs_hold) {
      shard.Commit(&state.slot, part.place.identity, limit, part.next, now, part.cost);
    }
    const TimePoint moment = memory::MomentOf(limit, state, now);
    part.hold = &shard.AddHold(state, terms.id,
                               {.units = part.cost,
                                .taken_us = Us(moment),
                                .expires_us = ExpiryOf(terms, limit, moment),
                                .on_expiry = needs_hold ? OnExpiry::kRelease : terms.on_expiry});
    if (needs_hold) {
      part.decision = EvaluateAt(part.place, limit, now, 0).decision;
    } else {
      part.decision.held += part.cost;
    }
  }
  terms.expires = EarliestExpiry(parts);
  return std::nullopt;
}

std::optional<Error> MemoryStore::Impl::Settle(HoldTerms& terms, std::span<HoldPart> parts,
                                               TimePoint now) {
  std::size_t unknown = 0;
  for (const HoldPart& part : parts) {
    if (!part.hold && !HasRoomForHolds(part.place, ++unknown)) return NoRoomForHolds();
  }
  terms.late = false;
  terms.overdrawn = false;
  for (HoldPart& part : parts) {
    Shard& shard = shards_[part.place.shard];
    if (part.hold) {
      const Status status = part.hold->status;
      if (status == Status::kLive || status == Status::kExpired) {
        terms.overdrawn |= shard.Settle(*part.place.held, now, *part.hold, part.cost);
      }
      terms.late |= part.hold->status == Status::kSettledLate;
      continue;
    }
    HeldState& state = MakeHeld(part.place, part.limit(), now);
    if (part.cost > 0) shard.Overdraw(state, now, part.cost);
    const std::int64_t now_us = Us(memory::MomentOf(part.limit(), state, now));
    shard.AddHold(state, terms.id,
                  {.taken_us = now_us, .expires_us = now_us, .status = Status::kSettledLate});
    terms.late = true;
    terms.overdrawn |= part.cost > 0 && !core::NeedsHold(part.limit());
  }
  Look(parts, now);
  return std::nullopt;
}

std::optional<Error> MemoryStore::Impl::Extend(HoldTerms& terms, std::span<HoldPart> parts,
                                               TimePoint now) {
  for (const HoldPart& part : parts) {
    if (!IsLive(part.hold)) return HoldLost(terms.id);
  }
  for (HoldPart& part : parts) {
    HeldState& state = *part.place.held;
    const TimePoint moment = memory::MomentOf(part.limit(), state, now);
    state.holds.Extend(*part.hold, ExpiryOf(terms, part.limit(), moment));
    memory::Summarize(part.limit(), state);
  }
  terms.expires = EarliestExpiry(parts);
  Look(parts, now);
  return std::nullopt;
}

HeldState& MemoryStore::Impl::MakeHeld(Place& place, const Limit& limit, TimePoint now) {
  Shard& shard = shards_[place.shard];
  if (!place.held) {
    place.held = &shard.MakeHeld(shard.Find(place.identity), place.identity, limit, now);
  }
  return *place.held;
}

TimePoint MemoryStore::Impl::EarliestExpiry(std::span<const HoldPart> parts) {
  std::int64_t earliest = Us(kTimeMax);
  for (const HoldPart& part : parts) earliest = std::min(earliest, part.hold->expires_us);
  return TimePoint{Micros{earliest}};
}

}  // namespace sluice
