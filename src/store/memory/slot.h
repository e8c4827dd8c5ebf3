// SPDX-License-Identifier: Apache-2.0
// How a state lies in memory: 32 bytes, two to a cache line.
#pragma once

#include <cstdint>

#include "core/bucket.h"
#include "core/fixed_window.h"
#include "core/window_counter.h"
#include "core/window_log.h"

namespace sluice::memory {

// What a table knows of a key: 96 bits of its hash. Among ten million keys of a store, the chance
// that any two share state is below 10^-15.
struct Identity {
  std::uint64_t hash;
  std::uint32_t check;

  friend bool operator==(const Identity&, const Identity&) = default;
};

// 144 bits for any kernel's state.
struct Packed {
  std::uint16_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
};

struct alignas(32) Slot {
  std::uint64_t hash;
  std::uint32_t check;
  std::uint16_t limit;  // Number of the limit in its shard's registry; 0 marks an empty slot.
  std::uint16_t a;
  std::uint64_t b;
  std::uint64_t c;

  bool empty() const { return limit == 0; }
  Identity identity() const { return {hash, check}; }
  Packed state() const { return {a, b, c}; }
  void set_state(const Packed& state) {
    a = state.a;
    b = state.b;
    c = state.c;
  }
};
static_assert(sizeof(Slot) == 32);

inline Packed Pack(const core::BucketState& state) {
  return {0, static_cast<std::uint64_t>(state.level), static_cast<std::uint64_t>(state.time)};
}

inline Packed Pack(const core::WindowState& state) {
  return {0, static_cast<std::uint64_t>(state.start), static_cast<std::uint64_t>(state.count)};
}

// The window number takes 52 bits. Each count takes 46, as it is at most CountMax of its limit, and
// so at most kCounterAmountMax (core/window_counter.h): the top 12 bits of b and the low 34 of c
// hold `previous`; the rest of c and all of a hold `current`.
inline Packed Pack(const core::CounterState& state) {
  const auto window = static_cast<std::uint64_t>(state.window);
  const auto previous = static_cast<std::uint64_t>(state.previous);
  const auto current = static_cast<std::uint64_t>(state.current);
  return {static_cast<std::uint16_t>(current >> 30), window | previous << 52,
          previous >> 12 | current << 34};
}

// The slot owns the log; see Shard.
inline Packed Pack(core::Log* log) { return {0, reinterpret_cast<std::uintptr_t>(log), 0}; }

template <typename State>
State Unpack(const Packed& packed);

template <>
inline core::BucketState Unpack(const Packed& packed) {
  return {.level = static_cast<std::int64_t>(packed.b),
          .time = static_cast<std::int64_t>(packed.c)};
}

template <>
inline core::WindowState Unpack(const Packed& packed) {
  return {.start = static_cast<std::int64_t>(packed.b),
          .count = static_cast<std::int64_t>(packed.c)};
}

template <>
inline core::CounterState Unpack(const Packed& packed) {
  constexpr std::uint64_t kWindowMask = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t kPreviousHighMask = (std::uint64_t{1} << 34) - 1;
  return {
      .window = static_cast<std::int64_t>(packed.b & kWindowMask),
      .previous = static_cast<std::int64_t>(packed.b >> 52 | (packed.c & kPreviousHighMask) << 12),
      .current = static_cast<std::int64_t>(packed.c >> 34 | std::uint64_t{packed.a} << 30)};
}

template <>
inline core::Log* Unpack(const Packed& packed) {
  return reinterpret_cast<core::Log*>(static_cast<std::uintptr_t>(packed.b));
}

}  // namespace sluice::memory
