// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "core/bucket.h"
#include "core/fixed_window.h"
#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/lease/message.h"

namespace sluice::lease {

// The store's side of leases: one state and the leases of it. Pure, like a kernel.
//
// Why holders and store together never grant more than the limit does. Of a window: what is granted
// was taken from the count of this window before, and is void when it ends. Of a bucket: count what
// the store has, its level and the flow that was taken and is not due yet, together with what is in
// use of the leases. What is in use of a lease never exceeds its capacity, and the store never
// fills beyond the limit's less all of theirs. So the sum never exceeds the capacity of the limit;
// it grows by the refill only, since flow that becomes due moves from the store to a lease; and
// every grant takes from it.
class Pool {
 public:
  struct Lease {
    std::int64_t seq = 0;
    std::int64_t capacity = 0;
    std::int64_t want = 0;
    std::int64_t back = 0;
    std::int64_t spill = 0;
    TimePoint told{};             // When the last ask was answered,
    bool full = false;            // and what the answer said.
    std::int64_t last_stock = 0;  // What the last ask was given, in case its answer was lost.
    TimePoint last_slot{};        // The slot whose flow it was given; the epoch if none.
    TimePoint slot{};             // The slot of the following two.
    std::int64_t flow = 0;        // In it.
    std::int64_t next_flow = 0;   // In the one after it.
    TimePoint expiry{};
  };

  // What plain requests need to know of the leases.
  struct Head {
    std::int64_t capacity = 0;  // Of all leases.
    std::int64_t want = 0;
    TimePoint slot{};
    std::int64_t flow = 0;
    std::int64_t next_flow = 0;
    TimePoint first_expiry{};  // None expires earlier.
    TimePoint last_expiry{};   // None expires later.
  };

  explicit Pool(const Limit& limit);

  // Requires IsEligible(limit).
  Reply Answer(const Ask& ask, TimePoint now);

  // A check by the store.
  bool Take(std::int64_t cost, TimePoint now);

  // How many units a check at `now` could take.
  std::int64_t Free(TimePoint now);

  // The state and what is known of leases are public as in any kernel.
  Limit limit;
  core::Bucket::State bucket;       // If it is a bucket.
  core::FixedWindow::State window;  // If it is a window.
  Head head;
  std::map<std::uint64_t, Lease> leases;

 private:
  void Advance(TimePoint now);
  void Refill(TimePoint now);
  void MoveSlots(TimePoint now);
  void DropAll();
  void DropExpired(TimePoint now);
  void Drop(std::map<std::uint64_t, Lease>::iterator it);
  std::int64_t FreeUnits(TimePoint now) const;
  bool MayFill(std::int64_t capacity, TimePoint now) const;
  std::int64_t NotDue(TimePoint now) const;
  void GiveBack(std::int64_t units);
  void Cancel(Lease& lease, TimePoint slot, TimePoint now);
  void GiveFlow(const Ask& ask, Lease& lease, TimePoint now, Reply& reply);
};

}  // namespace sluice::lease
