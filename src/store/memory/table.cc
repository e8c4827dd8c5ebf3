// SPDX-License-Identifier: Apache-2.0
#include "store/memory/table.h"

#include <algorithm>
#include <cstring>

#include "store/memory/zeroed.h"

namespace sluice::memory {
namespace {

constexpr std::size_t kCapacityMin = 8;

// How far the last run may extend past the last home. At the highest load, it exceeds 64 slots once
// in 10^15 tables, and 8 once in a hundred.
constexpr std::size_t Slack(std::size_t capacity) {
  return std::clamp<std::size_t>(capacity / 8, 8, 64);
}

Slot* AllocateSlots(std::size_t count) {
  return static_cast<Slot*>(AllocateZeroed(count * sizeof(Slot)));
}

void Free(Slot* slots, std::size_t count) { FreeZeroed(slots, count * sizeof(Slot)); }

// Above a load of 25/32, searches get long; see the class comment for the lower end.
constexpr std::size_t SizeMax(std::size_t capacity) { return capacity * 25 / 32; }

constexpr std::size_t Grown(std::size_t capacity) { return capacity + capacity / 8 + kCapacityMin; }

}  // namespace

Table::~Table() { Free(slots_, slot_count()); }

Slot* Table::Insert(const Identity& identity) {
  if (size_ + 1 > SizeMax(capacity_)) Rebuild(Grown(capacity_), 0);
  while (true) {
    Slot* const end = slots_ + capacity_ + slack_;
    Slot* place = slots_ + Home(identity.hash, capacity_);
    while (!place->empty() && place->hash < identity.hash) ++place;
    Slot* free = place;
    while (!free->empty()) ++free;
    if (free == end) {  // The slack is used up, which is rare.
      Rebuild(capacity_, 2 * slack_);
      continue;
    }
    std::memmove(place + 1, place, static_cast<std::size_t>(free - place) * sizeof(Slot));
    *place = {.hash = identity.hash, .check = identity.check, .limit = 0, .a = 0, .b = 0, .c = 0};
    ++size_;
    return place;
  }
}

void Table::Erase(Slot* slot) {
  // Slots that follow without a gap and are not at home move back by one.
  Slot* next = slot + 1;
  while (!next->empty() && Home(next->hash, capacity_) < static_cast<std::size_t>(next - slots_)) {
    ++next;
  }
  std::memmove(slot, slot + 1, static_cast<std::size_t>(next - slot - 1) * sizeof(Slot));
  *(next - 1) = Slot{};
  --size_;
}

void Table::Reserve(std::size_t size) {
  if (size > SizeMax(capacity_)) Rebuild(size * 32 / 25 + kCapacityMin, 0);
}

void Table::ShrinkIfSparse() {
  if (capacity_ > 4 * kCapacityMin && size_ < capacity_ / 4) {
    Rebuild(std::max(kCapacityMin, size_ * 2), 0);
  }
}

void Table::Rebuild(std::size_t capacity, std::size_t slack_min) {
  const std::size_t slack = std::max(Slack(capacity), slack_min);
  Slot* const slots = AllocateSlots(capacity + slack + 1);
  Slot* const end = slots + capacity + slack;
  Slot* next = slots;
  for (const Slot& slot : this->slots()) {
    if (slot.empty()) continue;
    next = std::max(next, slots + Home(slot.hash, capacity));
    if (next == end) {  // As in Insert.
      Free(slots, capacity + slack + 1);
      return Rebuild(capacity, 2 * slack);
    }
    *next++ = slot;
  }
  Free(slots_, slot_count());
  __atomic_store_n(&slots_, slots, __ATOMIC_RELAXED);
  __atomic_store_n(&capacity_, capacity, __ATOMIC_RELAXED);
  slack_ = slack;
}

}  // namespace sluice::memory
