// SPDX-License-Identifier: Apache-2.0
#include "store/lease/pool.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/arithmetic.h"

namespace sluice::lease {
namespace {

// Of those that are eligible.
bool IsBucket(const Limit& limit) { return limit.rate() > 0; }

// floor(a * part / kSlot) without a product that a script could not hold.
std::int64_t PartOf(std::int64_t a, Micros part) {
  const std::int64_t slot = kSlot.count();
  return a / slot * part.count() + a % slot * part.count() / slot;
}

// How many whole units flow in during a slot.
std::int64_t FlowMax(const Limit& limit) { return limit.rate() * kSlot.count() / limit.unit(); }

}  // namespace

Pool::Pool(const Limit& whose)
    : limit(whose), bucket{.level = whose.whole(), .time = 0}, window{.start = 0, .count = 0} {}

// Flow that was taken and is not due, in the bucket's parts of a unit, rounded down.
std::int64_t Pool::NotDue(TimePoint now) const {
  const Micros left = head.slot + kSlot - now;
  return PartOf(head.flow * limit.unit(), left) + head.next_flow * limit.unit();
}

// Requires Advance.
std::int64_t Pool::FreeUnits(TimePoint now) const {
  if (!IsBucket(limit)) return std::max<std::int64_t>(0, limit.amount() - window.count);
  return std::max<std::int64_t>(0, bucket.level + NotDue(now)) / limit.unit();
}

// Whether a bucket may be full within kTrusted: from what it has, what holders give back, what
// flows in until then, as much that is due already without their knowing, and twice as much that
// they had no room for.
bool Pool::MayFill(std::int64_t capacity, TimePoint now) const {
  if (!IsBucket(limit)) return false;
  const std::int64_t own = (limit.amount() - head.capacity) * limit.unit();
  return FreeUnits(now) * limit.unit() + 4 * limit.rate() * kTrusted.count() +
             (capacity + 1) * limit.unit() >=
         own;
}

// The slots of the head are those of `now`.
void Pool::MoveSlots(TimePoint now) {
  const TimePoint slot = SlotOf(now);
  if (slot == head.slot) return;
  head.flow = slot == head.slot + kSlot ? head.next_flow : 0;
  head.next_flow = 0;
  head.slot = slot;
}

// A bucket is full when it holds all that leases have no room for.
void Pool::Refill(TimePoint now) {
  bucket.level = core::Bucket::LevelAt(limit, bucket, core::Us(now));
  bucket.time = core::Us(now);
  MoveSlots(now);
  const std::int64_t own = (limit.amount() - head.capacity) * limit.unit();
  const std::int64_t flow = head.flow * limit.unit();
  const bool is_rounded =
      flow % kSlot.count() * (head.slot + kSlot - now).count() % kSlot.count() > 0;
  bucket.level = std::min(bucket.level, own - NotDue(now) - (is_rounded ? 1 : 0));
}

void Pool::Advance(TimePoint now) {
  if (!IsBucket(limit)) {
    const core::FixedWindow::State next = core::FixedWindow::Decide(limit, &window, now, 0).next;
    if (next.start != window.start) DropAll();
    window = next;
    if (head.last_expiry > TimePoint{} && now >= head.last_expiry) DropAll();
    return;
  }
  // A check does not look for leases that have expired, and is right without: their room stays
  // empty a while longer.
  if (head.last_expiry > TimePoint{} && now >= head.last_expiry) {
    Refill(std::max(head.last_expiry, TimePoint{Micros{bucket.time}}));
    DropAll();
  }
  Refill(now);
}

bool Pool::Take(std::int64_t cost, TimePoint now) {
  now = std::max(now, TimePoint{Micros{bucket.time}});
  Advance(now);
  if (FreeUnits(now) < cost) return false;
  if (IsBucket(limit)) {
    bucket.level -= cost * limit.unit();
  } else {
    window.count += cost;
  }
  return true;
}

std::int64_t Pool::Free(TimePoint now) {
  now = std::max(now, TimePoint{Micros{bucket.time}});
  Advance(now);
  return FreeUnits(now);
}

void Pool::DropAll() {
  head = {.slot = head.slot};
  leases.clear();
}

void Pool::DropExpired(TimePoint now) {
  if (head.first_expiry > now || leases.empty()) return;
  head.first_expiry = now + kLife;
  for (auto it = leases.begin(); it != leases.end();) {
    const Lease& lease = it->second;
    if (lease.expiry > now) {
      head.first_expiry = std::min(head.first_expiry, lease.expiry);
      ++it;
      continue;
    }
    head.capacity -= lease.capacity;
    head.want -= lease.want;
    it = leases.erase(it);
  }
  if (leases.empty()) DropAll();
}

void Pool::GiveBack(std::int64_t units) {
  if (IsBucket(limit)) {
    bucket.level += units * limit.unit();
  } else {
    window.count -= std::min(units, window.count);
  }
}

// Takes back what is not due yet of a slot's flow.
void Pool::Cancel(Lease& lease, TimePoint slot, TimePoint now) {
  if (slot == head.slot && lease.slot == slot) {
    bucket.level += PartOf(lease.flow * limit.unit(), head.slot + kSlot - now);
    head.flow -= std::exchange(lease.flow, 0);
  } else if (slot == head.slot + kSlot && lease.slot == head.slot) {
    bucket.level += lease.next_flow * limit.unit();
    head.next_flow -= std::exchange(lease.next_flow, 0);
  }
}

// Flow that was not taken back before is lost.
void Pool::Drop(std::map<std::uint64_t, Lease>::iterator it) {
  head.capacity -= it->second.capacity;
  head.want -= it->second.want;
  leases.erase(it);
  if (leases.empty()) DropAll();
}

Reply Pool::Answer(const Ask& ask, TimePoint now) {
  now = std::max(now, TimePoint{Micros{bucket.time}});
  Advance(now);
  DropExpired(now);

  Reply reply;
  reply.now = now;
  const auto known = leases.find(ask.id);
  if (known != leases.end() && ask.seq <= known->second.seq) {
    reply.status = Reply::Status::kStale;
    return reply;
  }
  if (known == leases.end() ? ask.seq != 1 : known->second.seq < ask.ack) {
    // The store has lost what it knew, or the lease has expired. The holder grants until it learns
    // of it, so nothing is taken back.
    if (known != leases.end()) Drop(known);
    reply.status = Reply::Status::kVoid;
    reply.free = FreeUnits(now);
    return reply;
  }

  const auto it = leases.try_emplace(ask.id).first;
  Lease& lease = it->second;
  if (lease.slot != head.slot) {
    lease.flow = lease.slot + kSlot == head.slot ? lease.next_flow : 0;
    lease.next_flow = 0;
    lease.slot = head.slot;
  }
  if (lease.seq > ask.ack) {
    // The answer was lost.
    GiveBack(lease.last_stock);
    if (lease.last_slot > TimePoint{}) Cancel(lease, lease.last_slot, now);
  }
  GiveBack(ask.back - lease.back);
  if (lease.seq == ask.ack && !lease.full && now - lease.told <= kTrusted) {
    GiveBack(ask.spill - lease.spill);
  }
  lease.back = ask.back;
  lease.spill = ask.spill;
  lease.seq = ask.seq;
  lease.last_stock = 0;
  lease.last_slot = {};
  const std::int64_t keep = std::min(ask.keep, lease.capacity);

  const std::int64_t want = std::min(ask.want, limit.amount());
  head.capacity -= lease.capacity;
  head.want += want - lease.want;
  lease.want = want;
  if (want == 0) {
    lease.capacity = 0;
    Cancel(lease, head.slot, now);
    Cancel(lease, head.slot + kSlot, now);
    Drop(it);
    if (IsBucket(limit)) Refill(now);
    reply.free = FreeUnits(now);
    return reply;
  }
  const std::int64_t room = std::max<std::int64_t>(0, ask.capacity - head.capacity);
  const double share = static_cast<double>(want) / static_cast<double>(head.want);
  const std::int64_t fair =
      head.want > ask.capacity
          ? std::max<std::int64_t>(
                1, static_cast<std::int64_t>(static_cast<double>(ask.capacity) * share))
          : want;
  lease.capacity = std::max(keep, std::min({want, fair, room}));
  head.capacity += lease.capacity;

  // A unit of flow that is coming is in use from the moment when that of the one before it is due.
  const std::int64_t flowing = HasFlow(limit) ? 1 : 0;
  const auto free = static_cast<double>(FreeUnits(now));
  std::int64_t stock = std::max<std::int64_t>(0, lease.capacity - keep - flowing);
  const double half = IsBucket(limit) ? 1 : 0.5;
  if (free < 2 * static_cast<double>(ask.capacity)) {
    stock = std::min(stock, static_cast<std::int64_t>(std::ceil(free * share * half)));
  }
  reply.stock = std::min(stock, FreeUnits(now));
  GiveBack(-reply.stock);
  lease.last_stock = reply.stock;
  if (flowing > 0 && lease.capacity > 0) GiveFlow(ask, lease, now, reply);
  if (IsBucket(limit)) Refill(now);

  lease.expiry = now + kLife;
  if (!IsBucket(limit)) {
    lease.expiry = std::min(lease.expiry, TimePoint{Micros{window.start + limit.unit()}});
  }
  head.last_expiry = std::max(head.last_expiry, lease.expiry);
  head.first_expiry = leases.size() == 1 ? lease.expiry : std::min(head.first_expiry, lease.expiry);
  reply.capacity = lease.capacity;
  reply.expiry = lease.expiry;
  reply.free = FreeUnits(now);
  reply.more = static_cast<std::int64_t>(std::ceil(static_cast<double>(reply.free) * share / 2));
  reply.full = MayFill(ask.capacity, now);
  lease.told = now;
  lease.full = reply.full;
  reply.saturated = flowing > 0 && reply.free < ask.capacity;
  return reply;
}

void Pool::GiveFlow(const Ask& ask, Lease& lease, TimePoint now, Reply& reply) {
  const TimePoint end = head.slot + kSlot;
  const bool is_next = lease.flow > 0;
  if (is_next && (lease.next_flow > 0 || end - now > kAhead)) return;
  std::int64_t& total = is_next ? head.next_flow : head.flow;
  std::int64_t& own = is_next ? lease.next_flow : lease.flow;
  const std::int64_t flow_max = FlowMax(limit);
  // A sixty-fourth is left to requests of those without a lease.
  const double fair = static_cast<double>(lease.want) / static_cast<double>(head.want) *
                      static_cast<double>(flow_max) * 63 / 64;
  // Of the demand, which `want` has for 100 ms.
  const double wanted = static_cast<double>(lease.want) * 4 / 5;
  const auto chance = static_cast<double>(ask.dice) / Ask::kDice;
  own = std::min(flow_max - total, static_cast<std::int64_t>(chance + std::min(wanted, fair)));
  total += own;
  if (own == 0) return;
  reply.slot = is_next ? end : head.slot;
  reply.flow = own;
  lease.last_slot = reply.slot;
  const std::int64_t taken = is_next ? own : own - DueAfter(own, now - head.slot);
  bucket.level -= taken * limit.unit();
}

}  // namespace sluice::lease
