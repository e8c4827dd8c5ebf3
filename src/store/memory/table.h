// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/memory/slot.h"

namespace sluice::memory {

// Open addressing with linear probing, the slots ordered by hash.
//
// A hash's home is hash * capacity / 2^64, which grows with the hash. Keeping the slots sorted
// therefore costs only a short shift on insertion. In return, a search for an absent key ends as
// early as one for a present key, growing is one sequential pass by any factor (an eighth at a time
// keeps the load between 0.69 and 0.78), and nothing wraps around.
//
// Not thread-safe; the shard's lock guards it.
class Table {
 public:
  Table() = default;
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return slot_count() * sizeof(Slot); }

  // All slots, including empty ones, ordered by hash.
  std::span<Slot> slots() { return {slots_, capacity_ == 0 ? 0 : capacity_ + slack_}; }
  std::span<const Slot> slots() const { return const_cast<Table*>(this)->slots(); }

  // Whether more slots lie past the last home than chance would ever put there.
  bool crowded() const { return slack_ > 1024; }

  // Null if absent. Valid until the next Insert or Erase. Always inlined: a call is noticeable in
  // the cost of a check.
  [[gnu::always_inline]] Slot* Find(const Identity& identity) {
    if (capacity_ == 0) return nullptr;
    Slot* slot = slots_ + Home(identity.hash, capacity_);
    while (!slot->empty() && slot->hash < identity.hash) ++slot;
    for (; !slot->empty() && slot->hash == identity.hash; ++slot) {
      if (slot->check == identity.check) return slot;
    }
    return nullptr;
  }

  // Makes an empty slot for an absent identity; the caller sets its limit and state.
  Slot* Insert(const Identity& identity);

  void Erase(Slot* slot);

  // Makes room for `size` slots at once. Needed before inserting many ordered by hash: a table that
  // grew with them would be crowded at its end all the time.
  void Reserve(std::size_t size);

  // Gives memory back after most slots were erased. Call it only when erasures were spread evenly
  // over the table, as after a full sweep, because what is left must be spread evenly, too.
  void ShrinkIfSparse();

  // A hint for the processor. Safe without the lock, since a stale address does no harm.
  void Prefetch(std::uint64_t hash) const {
    const Slot* slots = __atomic_load_n(&slots_, __ATOMIC_RELAXED);
    const std::uint64_t capacity = __atomic_load_n(&capacity_, __ATOMIC_RELAXED);
    if (!slots) return;
    // Two lines: a search looks at two or three slots on average.
    __builtin_prefetch(slots + Home(hash, capacity), 1);
    __builtin_prefetch(slots + Home(hash, capacity) + 2, 1);
  }

 private:
  static std::size_t Home(std::uint64_t hash, std::uint64_t capacity) {
    return static_cast<std::size_t>(static_cast<unsigned __int128>(hash) * capacity >> 64);
  }
  // One more than the slots in use: the last is always empty and ends every search.
  std::size_t slot_count() const { return capacity_ == 0 ? 0 : capacity_ + slack_ + 1; }

  void Rebuild(std::size_t capacity, std::size_t slack_min);

  Slot* slots_ = nullptr;
  std::uint64_t capacity_ = 0;  // Homes.
  std::size_t slack_ = 0;       // Slots past the last home, for slots that were pushed along.
  std::size_t size_ = 0;
};

}  // namespace sluice::memory
