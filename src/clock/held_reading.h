// SPDX-License-Identifier: Apache-2.0
// Readings of the system's clocks that cost little where many are taken one after another.
//
// Decisions count whole microseconds, so a reading holds until the microsecond it names is over.
// Whether it is over is told by the processor's own counter, which costs less than half of a clock:
// before a clock reads it, the processor must complete everything it has begun, among it the loads
// of a check that still waits for memory.
#pragma once

#include <time.h>

#include <cstdint>

#include "sluice/time.h"

namespace sluice {

// One reading, and how long it holds.
class HeldReading {
 public:
  // Whether the reading still holds when the counter has come to `ticks`. A counter that went back,
  // as after a move to another machine, ends it.
  bool Holds(std::uint64_t ticks) const { return ticks - since_ < held_for_; }
  TimePoint now() const { return now_; }

  // Keeps a reading that was taken after the counter's. `ticks_per_us` is a lower bound; 0 holds
  // nothing.
  void Keep(const timespec& reading, std::uint64_t ticks, std::uint64_t ticks_per_us) {
    constexpr std::int64_t kNanosPerMicro = 1'000;
    const std::int64_t left = kNanosPerMicro - reading.tv_nsec % kNanosPerMicro;
    now_ = TimePoint{Micros{reading.tv_sec * 1'000'000 + reading.tv_nsec / kNanosPerMicro}};
    since_ = ticks;
    held_for_ = static_cast<std::uint64_t>(left) * ticks_per_us / kNanosPerMicro;
  }

 private:
  TimePoint now_;
  std::uint64_t since_ = 0;
  std::uint64_t held_for_ = 0;
};

// A moment by the processor's counter and by a clock that nobody sets.
struct CounterMoment {
  std::uint64_t ticks;
  std::int64_t ns;
};

// A lower bound of the counter's rate, from two moments at least ten milliseconds apart; 0 if they
// cannot be right. Rounded down by 1/256: no clock is slewed by as much.
std::uint64_t TicksPerMicro(const CounterMoment& first, const CounterMoment& second);

// Takes a new reading of `clock`; the counter was at `ticks` before.
void Renew(HeldReading& held, clockid_t clock, std::uint64_t ticks);

// The clock's time in whole microseconds. Each thread holds its own reading.
template <clockid_t kClock>
TimePoint ReadClock() {
#if defined(__x86_64__)
  static constinit thread_local HeldReading held;
  const std::uint64_t ticks = __builtin_ia32_rdtsc();
  if (!held.Holds(ticks)) Renew(held, kClock, ticks);
  return held.now();
#else
  HeldReading read;
  Renew(read, kClock, 0);
  return read.now();
#endif
}

}  // namespace sluice
