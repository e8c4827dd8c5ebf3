// SPDX-License-Identifier: Apache-2.0
#include "clock/held_reading.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>

namespace sluice {
namespace {

constexpr std::int64_t kMeasuredForNs = 10'000'000;

#if defined(__x86_64__)

// Whether the counter advances at one rate, whatever the processor does.
bool CounterIsSteady() {
  constexpr unsigned kPowerManagement = 0x8000'0007;
  constexpr unsigned kInvariantCounter = 1U << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0 && (d & kInvariantCounter) != 0;
}

CounterMoment ThisMoment() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return {.ticks = __builtin_ia32_rdtsc(), .ns = now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

// The rate of this machine's counter; 0 while it is being measured.
std::uint64_t CounterRate() {
  static constinit std::atomic<std::uint64_t> known = 0;
  if (const auto rate = known.load(std::memory_order_relaxed); rate > 0) return rate;
  static const bool steady = CounterIsSteady();
  if (!steady) return 0;
  static const CounterMoment first = ThisMoment();
  const std::uint64_t rate = TicksPerMicro(first, ThisMoment());
  known.store(rate, std::memory_order_relaxed);
  return rate;
}

#else

std::uint64_t CounterRate() { return 0; }

#endif

}  // namespace

std::uint64_t TicksPerMicro(const CounterMoment& first, const CounterMoment& second) {
  // A reading is held for as many ticks as one of its microseconds has at this rate. If the counter
  // was changed while it was measured, this bounds how much too long that is.
  constexpr std::uint64_t kRateMax = 8'000;
  const std::int64_t ns = second.ns - first.ns;
  if (ns < kMeasuredForNs || second.ticks <= first.ticks) return 0;
  const auto ticks = static_cast<unsigned __int128>(second.ticks - first.ticks);
  const auto rate = ticks * 1'000 / static_cast<std::uint64_t>(ns);
  return rate > kRateMax ? 0 : static_cast<std::uint64_t>(rate - rate / 256);
}

void Renew(HeldReading& held, clockid_t clock, std::uint64_t ticks) {
  timespec now{};
  ::clock_gettime(clock, &now);
  held.Keep(now, ticks, CounterRate());
}

}  // namespace sluice
