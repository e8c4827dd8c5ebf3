// SPDX-License-Identifier: Apache-2.0
// Random limits and random traffic, for the property tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/algorithms.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/store.h"

namespace sluice {

inline constexpr std::int64_t kStartUs = 1'700'000'000'000'000;

inline TimePoint At(std::int64_t time_us) { return TimePoint{Micros{time_us}}; }

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool OneIn(std::int64_t n) { return Between(1, n) == 1; }

  // Small numbers, large ones and all sizes between are equally likely.
  std::int64_t AnySize(std::int64_t max) {
    const int bits = 64 - __builtin_clzll(static_cast<unsigned long long>(max));
    const auto size = static_cast<std::int64_t>((std::uint64_t{2} << Between(0, bits - 1)) - 1);
    return std::clamp<std::int64_t>(Between(0, size), 1, max);
  }

 private:
  std::mt19937_64 engine_;
};

// A fixed seed finds regressions, a fresh one new bugs: each test runs with both.
inline std::vector<std::uint64_t> Seeds() {
  if (const char* given = std::getenv("SLUICE_TEST_SEED")) {
    return {std::strtoull(given, nullptr, 10)};
  }
  return {1, std::random_device{}()};
}

// Those that can be checked.
inline constexpr auto kAlgorithms = [] {
  constexpr auto kCount =
      std::ranges::count(core::kAlgorithms, false, &core::AlgorithmRow::needs_hold);
  std::array<Algorithm, static_cast<std::size_t>(kCount)> checked{};
  auto* next = checked.begin();
  for (const core::AlgorithmRow& row : core::kAlgorithms) {
    if (!row.needs_hold) *next++ = row.algorithm;
  }
  return checked;
}();

inline Algorithm RandomAlgorithm(Random& random) {
  constexpr std::int64_t kLast = kAlgorithms.size() - 1;
  return kAlgorithms[static_cast<std::size_t>(random.Between(0, kLast))];
}

// With changes of the clock at midnight, by half an hour and by a day, and with none.
inline constexpr std::array kZones = {"UTC",          "Europe/Berlin", "America/Havana",
                                      "Pacific/Apia", "Asia/Gaza",     "Australia/Lord_Howe",
                                      "America/Nuuk", "Asia/Kolkata"};

inline Limit RandomCalendar(Random& random) {
  const auto two = [](std::int64_t number) {
    return std::to_string(number / 10) + std::to_string(number % 10);
  };
  constexpr std::array kDays = {"monday", "tuesday", "friday", "sunday"};
  Limit::CalendarSpec spec{
      .limit = random.OneIn(4) ? random.AnySize((1LL << 46) - 1) : random.Between(1, 30),
      .every = static_cast<Every>(random.Between(0, 4)),
      .zone = kZones[static_cast<std::size_t>(random.Between(0, kZones.size() - 1))]};
  if (random.OneIn(4)) return *Limit::Calendar(spec);
  switch (spec.every) {
    case Every::kDay:
      spec.anchor = two(random.Between(0, 23)) + ":" + two(random.Between(0, 59));
      break;
    case Every::kWeek:
      spec.anchor = kDays[static_cast<std::size_t>(random.Between(0, kDays.size() - 1))];
      break;
    case Every::kMonth:
    case Every::kQuarter:
      spec.anchor = std::to_string(random.Between(1, 31));
      break;
    case Every::kYear:
      spec.anchor = two(random.Between(1, 12)) + "-" + two(random.Between(1, 31));
      break;
  }
  return *Limit::Calendar(spec);
}

// For tests that take any limit of these numbers. Of a calendar, the window is a whole day or more.
inline Limit SimpleLimit(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                         Micros span) {
  if (algorithm != Algorithm::kCalendar) return *Limit::Make(algorithm, amount, refill, span);
  const bool day = span <= std::chrono::hours(24);
  return *Limit::Calendar({.limit = amount, .every = day ? Every::kDay : Every::kMonth});
}

inline Limit RandomLimit(Random& random, Algorithm algorithm) {
  if (algorithm == Algorithm::kCalendar) return RandomCalendar(random);
  while (true) {
    // Mostly limits that people would write, some with the largest numbers.
    const bool human = !random.OneIn(4);
    const std::int64_t amount = human ? random.Between(1, 30) : random.AnySize(1LL << 53);
    const std::int64_t refill = human ? random.Between(1, 30) : random.AnySize(1LL << 53);
    std::int64_t span = human ? random.Between(1, 100) : random.AnySize(kSpanMax.count());
    if (human) {
      constexpr std::array<std::int64_t, 5> kUnits = {1, 1'000, 1'000'000, 60'000'000,
                                                      86'400'000'000};
      span *= kUnits[static_cast<std::size_t>(random.Between(0, 4))];
    }
    if (const auto limit = Limit::Make(algorithm, amount, refill, Micros{span})) return *limit;
  }
}

inline Limit RandomLimit(Random& random) { return RandomLimit(random, RandomAlgorithm(random)); }

enum class Time { kForward, kAnyDirection };

// Moments that matter: the same, the next microsecond, a reported wait or one microsecond off it,
// parts and multiples of the span, and long pauses.
inline std::int64_t NextTime(Random& random, std::int64_t now, const Limit& limit,
                             const Decision& last, Time direction) {
  const std::int64_t span = limit.span().count();
  const std::int64_t refill = limit.algorithm() == Algorithm::kCalendar ? 0 : limit.refill();
  const std::int64_t per_unit = span / std::max<std::int64_t>(1, refill);
  std::int64_t step = 0;
  switch (random.Between(0, 9)) {
    case 0:
    case 1:
      step = 0;
      break;
    case 2:
      step = 1;
      break;
    case 3:
      step = last.retry_after.count() + random.Between(-1, 1);
      break;
    case 4:
      step = last.reset_after.count() + random.Between(-1, 1);
      break;
    case 5:
      step = random.Between(0, span);
      break;
    case 6:
      step = random.Between(0, 3) * span + random.Between(-1, 1);
      break;
    case 7:
      step = random.Between(0, 2 * per_unit + 1);
      break;
    case 8:
      step = random.Between(0, std::max<std::int64_t>(1, span / 20));
      break;
    default:
      step = random.OneIn(20) ? random.AnySize(1LL << 50) : 0;
  }
  if (direction == Time::kAnyDirection && random.OneIn(6)) step = -step;
  if (direction == Time::kForward) step = std::max<std::int64_t>(0, step);
  const std::int64_t end = kTimeMax.time_since_epoch().count();
  // Near the end of time, start over; if time only goes forward, stay.
  if (step > end - now) return direction == Time::kForward ? now : kStartUs;
  return std::max<std::int64_t>(0, now + step);
}

inline std::int64_t RandomCost(Random& random, const Limit& limit) {
  switch (random.Between(0, 9)) {
    case 0:
      return 0;
    case 1:
      return limit.amount();
    case 2:
      return limit.amount() + random.Between(0, 1);
    case 3:
    case 4:
      return random.Between(0, limit.amount());
    default:
      return std::min<std::int64_t>(limit.amount(), random.Between(1, 3));
  }
}

// Mostly checks. A debit may ask for more than there ever is.
inline Action RandomTake(Random& random) {
  return random.OneIn(5) ? Action::kDebit : Action::kCheck;
}

// The same, and now and then something is given back, which may be more than was taken.
inline Action RandomAction(Random& random) {
  return random.OneIn(6) ? Action::kGive : RandomTake(random);
}

inline std::int64_t RandomCost(Random& random, const Limit& limit, Action action) {
  if (action != Action::kCheck && random.OneIn(4)) {
    return limit.amount() + random.AnySize(std::numeric_limits<std::int64_t>::max() / 2);
  }
  return RandomCost(random, limit);
}

}  // namespace sluice
