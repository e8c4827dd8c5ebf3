// SPDX-License-Identifier: Apache-2.0
// What holders of leases and the store say to each other.
//
// A lease is a part of a limit that one instance, the holder, grants from without asking. It is
// stock, units that were taken from the limit, and flow, units that a bucket gets during a slot,
// each of which the holder may grant from the moment at which the bucket has it. See docs/adr/0022.
#pragma once

#include <cstdint>

#include "sluice/limit.h"
#include "sluice/time.h"

namespace sluice::lease {

// How long a lease lives that is not renewed.
inline constexpr Micros kLife{1'000'000};

// Flow is given for slots of this length, counted from the epoch, so that all holders have the
// same.
inline constexpr Micros kSlot{80'000};

// The next slot's flow is given this long before it begins.
inline constexpr Micros kAhead{20'000};

// How long a holder believes what the store said about how much is left.
inline constexpr Micros kTrusted{100'000};

// A lease of fewer units would be renewed too often.
inline constexpr std::int64_t kCapacityMin = 16;

// Whether a limit has flow.
bool HasFlow(const Limit& limit);

// Whether a limit may be leased: a fixed window, or a bucket whose tick is a microsecond and that
// delays nothing.
bool IsEligible(const Limit& limit);

struct Ask {
  // Random; a holder begins anew with another one whenever it forgets what it had.
  std::uint64_t id = 0;

  std::int64_t seq = 0;   // 1, 2, 3 and so on. What has a smaller one than the store knows is late.
  std::int64_t ack = 0;   // The last one that was answered, as far as the holder knows.
  std::int64_t back = 0;  // Units that the holder has given back under this id, all together.

  // Flow that became due when the holder had no room for it, likewise. The store takes back what
  // cannot have overflowed its bucket meanwhile.
  std::int64_t spill = 0;

  // The holder has no more than this of its capacity in use, until it gets an answer.
  std::int64_t keep = 0;

  std::int64_t want = 0;      // How many units it would like to have at hand. 0: the lease ends.
  std::int64_t capacity = 0;  // How many may lie in all leases together.

  // Below kDice. Shares of a slot's flow below one unit are given to this chance.
  std::int64_t dice = 0;
  static constexpr std::int64_t kDice = 65'536;
};

struct Reply {
  enum class Status : std::uint8_t {
    kGranted,  // Perhaps nothing.
    kVoid,     // The store knows nothing of this lease: all of it is lost.
    kStale,    // A later ask was answered before.
    kRefused,  // The state is not leased now, such as because it has holds.
  };
  Status status = Status::kGranted;

  TimePoint now{};  // The server's clock.

  std::int64_t stock = 0;     // Units that were taken for the holder.
  std::int64_t capacity = 0;  // How much may be in use from now on.

  // Flow of the slot that begins then. Unit j, counted from 0, is due at begin + ceil((j + 1) *
  // kSlot / flow). The holder has those that are due later than `now`.
  TimePoint slot{};
  std::int64_t flow = 0;

  std::int64_t free = 0;  // Units that are left in the store.

  // How many of them the holder would get next.
  std::int64_t more = 0;

  // A bucket of which fewer units are left than may lie in leases.
  bool saturated = false;

  // Whether a bucket may fill up within kTrusted. If not, a holder need not care that it learns
  // late of flow that has become due, and may give back what it has no room for.
  bool full = false;

  TimePoint expiry{};  // The lease is void then: after kLife, or when the window ends.

  friend bool operator==(const Reply&, const Reply&) = default;
};

// How many of `flow` units of a slot are due after that much of it.
constexpr std::int64_t DueAfter(std::int64_t flow, Micros elapsed) {
  if (elapsed <= Micros{0}) return 0;
  if (elapsed >= kSlot) return flow;
  return flow * elapsed.count() / kSlot.count();
}

constexpr TimePoint SlotOf(TimePoint at) { return at - at.time_since_epoch() % kSlot; }

}  // namespace sluice::lease
