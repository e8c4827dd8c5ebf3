// SPDX-License-Identifier: Apache-2.0
#include "store/memory/sketch.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/seen.h"
#include "store/memory/evaluate.h"
#include "store/memory/zeroed.h"

namespace sluice::memory {
namespace {

using core::CeilDiv;
using core::Us;

// Cells keep 48 or 36 of the 52 bits of a time, rounded up.
constexpr int kBucketShift = 4;   // 16 us
constexpr int kWindowShift = 16;  // 66 ms
constexpr int kPartsBits = 12;

// The latest time that both kinds of cell can keep.
constexpr std::int64_t kUntilMaxUs = kSpanMax.count() - (std::int64_t{1} << kWindowShift);

constexpr std::int64_t RoundUp(std::int64_t time_us, int shift) {
  return (time_us + (std::int64_t{1} << shift) - 1) >> shift << shift;
}

bool IsBucket(const Limit& limit) { return limit.rate() > 0; }

// When a bucket is full, in its ticks. If windows share the bound, the bucket is empty until then.
std::int64_t FullAt(const Limit& limit, const Bound& bound) {
  const std::int64_t until = CeilDiv(bound.until_us, limit.tick().count());
  const bool flows = bound.parts == Bound::kFlowsBack || bound.until_us == 0;
  return flows ? until : until + CeilDiv(limit.whole(), limit.rate());
}

// Likewise, but not before now.
std::int64_t FullAt(const Limit& limit, const Bound& bound, TimePoint now) {
  return std::max(FullAt(limit, bound), Us(now) / limit.tick().count());
}

// The bucket is empty at the moment from which it fills up exactly by then. That is right at any
// later moment, and grants nothing at an earlier one, whichever way the clock is set.
core::Bucket::State StateAs(core::Bucket, const Limit& limit, const Bound& bound) {
  const std::int64_t full_at = FullAt(limit, bound);
  const std::int64_t empty_at =
      std::max<std::int64_t>(0, full_at - CeilDiv(limit.whole(), limit.rate()));
  const __int128 missing = static_cast<__int128>(full_at - empty_at) * limit.rate();
  return {.level = limit.whole() - static_cast<std::int64_t>(
                                       std::min(missing, static_cast<__int128>(core::kExactMax))),
          .time = empty_at};
}

// Units of a window that are used until its bound ends.
std::int64_t UnitsOf(const Limit& limit, const Bound& bound) {
  if (bound.parts == Bound::kFlowsBack) return limit.amount();
  // Rounded up to parts, and down to units: no unit that was taken is lost.
  return static_cast<std::int64_t>(static_cast<__int128>(bound.parts) * limit.amount() /
                                   Bound::kPartsFull);
}

std::int64_t UsedOf(const Limit& limit, const Bound& bound, TimePoint now) {
  return bound.until_us <= Us(now) ? 0 : UnitsOf(limit, bound);
}

// A window's bound ends with a window; only rounding extends it.
template <typename Window>
typename Window::State StateAs(Window, const Limit& limit, const Bound& bound) {
  return Window::UsedUntil(limit, UnitsOf(limit, bound), bound.until_us);
}

// When what is taken from a window now will have left it. May be later than a cell can store.
std::int64_t LeftAt(const Limit& limit, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel) -> std::int64_t {
    if constexpr (std::is_same_v<Kernel, core::Bucket>) {
      std::unreachable();
    } else {
      return Kernel::LeftAt(limit, Us(now));
    }
  });
}

// How many more units a cell could record.
std::int64_t RoomIn(const Limit& limit, const Bound& bound, TimePoint now) {
  if (!IsBucket(limit)) return LeftAt(limit, now) <= kUntilMaxUs ? limit.amount() : 0;
  const std::int64_t ticks = kUntilMaxUs / limit.tick().count() - FullAt(limit, bound, now);
  if (ticks <= 0) return 0;
  return static_cast<std::int64_t>(std::min<__int128>(
      limit.amount(), static_cast<__int128>(ticks) * limit.rate() / limit.unit()));
}

Decision DecideBucket(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t cost) {
  const auto state = StateAs(core::Bucket{}, limit, bound);
  return core::Bucket::Decide(limit, &state, now, cost).decision;
}

Decision DecideWindow(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t cost) {
  const std::int64_t room = limit.amount() - UsedOf(limit, bound, now);
  Decision decision{.allowed = cost <= room, .limit = limit.amount()};
  const bool takes = decision.allowed && cost > 0;
  decision.remaining = takes ? room - cost : room;
  const std::int64_t until_us = takes ? Take(limit, bound, now, cost).until_us : bound.until_us;
  decision.reset_after = Micros{std::max<std::int64_t>(0, until_us - Us(now))};
  if (!takes && room == limit.amount()) return Evaluate(limit, nullptr, now, 0).decision;
  if (!decision.allowed) decision.retry_after = decision.reset_after;
  return decision;
}

}  // namespace

Bound Larger(const Bound& a, const Bound& b) {
  if (a.until_us == 0) return b;
  if (b.until_us == 0) return a;
  const std::int64_t until_us = std::max(a.until_us, b.until_us);
  const bool both_flow = a.parts == Bound::kFlowsBack && b.parts == Bound::kFlowsBack;
  if (both_flow) return {.until_us = until_us, .parts = Bound::kFlowsBack};
  // A bucket and a window have no common measure except "everything".
  const bool one_flows = a.parts == Bound::kFlowsBack || b.parts == Bound::kFlowsBack;
  return {.until_us = until_us,
          .parts = one_flows ? Bound::kPartsFull : std::max(a.parts, b.parts)};
}

Decision Decide(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t cost) {
  Decision decision = IsBucket(limit) ? DecideBucket(limit, bound, now, cost)
                                      : DecideWindow(limit, bound, now, cost);
  const std::int64_t room = RoomIn(limit, bound, now);
  if (decision.allowed && cost > room) {
    decision = Decide(limit, bound, now, 0);
    decision.allowed = false;
    decision.retry_after = std::max(limit.tick(), decision.reset_after);
    decision.delay = Micros{0};
    return decision;
  }
  decision.remaining = std::min(decision.remaining, decision.allowed ? room - cost : room);
  return decision;
}

Bound Take(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t units) {
  if (!IsBucket(limit)) {
    // More than everything counts as everything.
    const std::int64_t used =
        std::min(limit.amount(), UsedOf(limit, bound, now) + std::min(units, limit.amount()));
    const auto parts = static_cast<std::int64_t>(
        (static_cast<__int128>(used) * Bound::kPartsFull + limit.amount() - 1) / limit.amount());
    const Bound taken{.until_us = RoundUp(std::min(LeftAt(limit, now), kUntilMaxUs), kWindowShift),
                      .parts = parts};
    return bound.until_us <= Us(now) ? taken : Larger(bound, taken);
  }
  const std::int64_t tick = limit.tick().count();
  const __int128 ticks =
      static_cast<__int128>(FullAt(limit, bound, now)) +
      (static_cast<__int128>(units) * limit.unit() + limit.rate() - 1) / limit.rate();
  const auto until_us =
      static_cast<std::int64_t>(std::min(ticks * tick, static_cast<__int128>(kUntilMaxUs)));
  return {.until_us = RoundUp(until_us, kBucketShift), .parts = Bound::kFlowsBack};
}

Packed StateOf(const Limit& limit, const Bound& bound) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel kernel) {
    return Keep<Kernel>(limit, StateAs(kernel, limit, bound));
  });
}

SeenState See(const Limit& limit, const Bound& bound, TimePoint now) {
  return core::VisitKernel(limit, [&]<typename Kernel>(Kernel kernel) {
    const auto state = StateAs(kernel, limit, bound);
    return core::See<Kernel>(limit, &state, now);
  });
}

Sketch::Cell::Cell(std::uint64_t tag, const Bound& bound) : bits_(tag << kValueBits) {
  const auto until_us = static_cast<std::uint64_t>(bound.until_us);
  if (bound.parts == Bound::kFlowsBack) {
    bits_ |= until_us >> kBucketShift;
  } else {
    const std::uint64_t until = (until_us + (1 << kWindowShift) - 1) >> kWindowShift;
    bits_ |= kWindow | until << kPartsBits | static_cast<std::uint64_t>(bound.parts);
  }
}

Bound Sketch::Cell::bound() const {
  const std::uint64_t value = bits_ & ((std::uint64_t{1} << kValueBits) - 1);
  if ((bits_ & kWindow) == 0) {
    return {.until_us = static_cast<std::int64_t>(value << kBucketShift),
            .parts = Bound::kFlowsBack};
  }
  return {.until_us = static_cast<std::int64_t>(value >> kPartsBits << kWindowShift),
          .parts = static_cast<std::int64_t>(value & ((1 << kPartsBits) - 1))};
}

Sketch::Sketch(std::size_t lines)
    : lines_(lines), cells_(static_cast<Line*>(AllocateZeroed(lines * sizeof(Line)))) {}

Sketch::~Sketch() { FreeZeroed(cells_, bytes()); }

Sketch::Places Sketch::Look(const Identity& identity, std::int64_t horizon_us) const {
  // Two hashes make four that are as good as independent.
  const auto hash = static_cast<std::uint32_t>(identity.hash);
  const auto step = static_cast<std::uint32_t>(identity.hash >> 32) | 1;
  const std::uint64_t tag = identity.check & kTagMask;
  std::array<Line*, kRows> rows;
  for (std::uint32_t i = 0; i < kRows; ++i) {
    rows[i] = cells_ + (std::uint64_t{hash + i * step} * lines_ >> 32);
    __builtin_prefetch(rows[i], 1);
  }
  Places places;
  places.home = &(*rows[0])[identity.check >> kTagBits & (kCellsPerLine - 1)];
  std::size_t most_free = 0;
  for (Line* const row : rows) {
    Cell* first_free = nullptr;
    std::size_t free = 0;
    for (Cell& cell : *row) {
      if (cell.Free(horizon_us)) {
        if (++free == 1) first_free = &cell;
      } else if (cell.tag() == tag) {
        // There may be two, one of a stranger: nobody knows which of them is its own.
        places.own = &cell;
        places.bound = Larger(places.bound, cell.bound());
        places.shared = places.shared || cell.shared();
      }
    }
    // The emptiest line is used, which puts off for as long as possible that any line is full.
    if (free > most_free) {
      most_free = free;
      places.free = first_free;
    }
  }
  // An identity that once had to share may be recorded there, wherever else it is by now.
  if (!places.home->Free(horizon_us) && places.home->shared()) {
    if (!places.own) places.own = places.home;
    places.bound = Larger(places.bound, places.home->bound());
    places.shared = true;
  }
  return places;
}

Bound Sketch::Find(const Identity& identity, std::int64_t horizon_us) const {
  const Places places = Look(identity, horizon_us);
  return places.own || places.free ? places.bound : places.home->bound();
}

void Sketch::Raise(const Identity& identity, const Bound& bound, std::int64_t horizon_us) {
  const Places places = Look(identity, horizon_us);
  Cell* const cell = places.own ? places.own : places.free ? places.free : places.home;
  if (cell == places.free) {
    *cell = Cell(identity.check & kTagMask, bound);
  } else {
    const bool shared = cell->shared() || !places.own;
    *cell = Cell(cell->tag(), Larger(cell->bound(), bound));
    if (shared) cell->Share();
  }
  until_us_ = std::max(until_us_, cell->bound().until_us);
}

Sketch::Forgot Sketch::Forget(const Identity& identity, std::int64_t horizon_us) {
  Places places = Look(identity, horizon_us);
  if (places.shared) return Forgot::kShared;
  if (!places.own) return Forgot::kNothing;
  for (; places.own; places = Look(identity, horizon_us)) *places.own = Cell();
  return Forgot::kAll;
}

}  // namespace sluice::memory
