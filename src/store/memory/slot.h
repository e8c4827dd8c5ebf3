// SPDX-License-Identifier: Apache-2.0
// The memory layout of a state: 32 bytes, two to a cache line.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/kernel.h"

namespace sluice::memory {

// How a table identifies a key: 96 bits of its hash. Among ten million keys of a store, the chance
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

struct HeldState;

struct alignas(32) Slot {
  // In place of the limit's number: `b` refers to a state with holds, which the slot owns.
  static constexpr std::uint16_t kHeld = 0xffff;

  std::uint64_t hash;
  std::uint32_t check;
  std::uint16_t limit;  // Number of the limit in its shard's registry; 0 marks an empty slot.
  std::uint16_t a;
  std::uint64_t b;
  std::uint64_t c;

  bool empty() const { return limit == 0; }
  bool has_holds() const { return limit == kHeld; }
  HeldState* held() const { return reinterpret_cast<HeldState*>(b); }
  Identity identity() const { return {hash, check}; }
  Packed state() const { return {a, b, c}; }
  void set_state(const Packed& state) {
    a = state.a;
    b = state.b;
    c = state.c;
  }
};
static_assert(sizeof(Slot) == 32);

// Two numbers are stored as they are. Of three, the first takes 52 bits, and the others 46 each:
// the top 12 bits of b and the low 34 of c hold the second; the rest of c and all of a hold the
// third.
template <typename State>
[[gnu::always_inline]] inline Packed Pack(const State& state) {
  const auto numbers = std::bit_cast<core::NumbersOf<State, std::uint64_t>>(state);
  if constexpr (numbers.size() == 2) {
    return {0, numbers[0], numbers[1]};
  } else {
    static_assert(numbers.size() == 3);
    return {static_cast<std::uint16_t>(numbers[2] >> 30), numbers[0] | numbers[1] << 52,
            numbers[1] >> 12 | numbers[2] << 34};
  }
}

// The slot owns the log; see Shard.
inline Packed Pack(core::Log* log) { return {0, reinterpret_cast<std::uintptr_t>(log), 0}; }

inline core::Log* LogIn(const Packed& packed) {
  return reinterpret_cast<core::Log*>(static_cast<std::uintptr_t>(packed.b));
}

template <typename Kernel>
inline constexpr bool kIsLog = std::is_same_v<Kernel, core::WindowLog>;

inline bool IsLog(const Limit& limit) {
  return core::KernelOf(limit) == core::KernelKind::kWindowLog;
}

// What a slot holds under a limit of this kernel: a state, or a log.
template <typename Kernel>
decltype(auto) Unpack(const Packed& packed) {
  if constexpr (kIsLog<Kernel>) {
    return static_cast<const core::Log&>(*LogIn(packed));
  } else if constexpr (sizeof(typename Kernel::State) == 2 * sizeof(std::int64_t)) {
    return core::FromNumbers<typename Kernel::State>(
        {static_cast<std::int64_t>(packed.b), static_cast<std::int64_t>(packed.c)});
  } else {
    constexpr std::uint64_t kFirstMask = (std::uint64_t{1} << 52) - 1;
    constexpr std::uint64_t kSecondHighMask = (std::uint64_t{1} << 34) - 1;
    return core::FromNumbers<typename Kernel::State>(
        {static_cast<std::int64_t>(packed.b & kFirstMask),
         static_cast<std::int64_t>(packed.b >> 52 | (packed.c & kSecondHighMask) << 12),
         static_cast<std::int64_t>(packed.c >> 34 | std::uint64_t{packed.a} << 30)});
  }
}

// The state to decide on at `now`.
template <typename Kernel>
typename Kernel::State StateIn(const Limit& limit, const Packed& packed, TimePoint now,
                               std::int64_t cost) {
  if constexpr (kIsLog<Kernel>) {
    return Kernel::Look(limit, Unpack<Kernel>(packed), now, cost);
  } else {
    return Unpack<Kernel>(packed);
  }
}

// A state as a slot stores it. A log is built from what is known of it; the caller owns it.
template <typename Kernel>
Packed Keep(const Limit& limit, const typename Kernel::State& state) {
  if constexpr (kIsLog<Kernel>) {
    auto log = std::make_unique<core::Log>();
    if (state.used > 0) log->Add(limit.span(), TimePoint{Micros{state.newest}}, state.used);
    return Pack(log.release());
  } else {
    return Pack(state);
  }
}

}  // namespace sluice::memory
