// SPDX-License-Identifier: Apache-2.0
#include "sluice/limit.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <utility>

#include "base/text.h"
#include "core/bucket.h"
#include "core/make_limit.h"
#include "core/window_counter.h"

namespace sluice {
namespace {

using Int128 = __int128;

using core::kCounterAmountMax;
using core::kExactMax;

constexpr std::array kTicks = {Micros{1}, Micros{1'000}, Micros{1'000'000}};

struct Arithmetic {
  Micros tick;
  std::int64_t unit;
  std::int64_t rate;
};

std::optional<Arithmetic> FitBucket(std::int64_t amount, std::int64_t refill, Micros period) {
  for (const Micros tick : kTicks) {
    // Tokens per tick are refill * tick / period, reduced to lowest terms.
    const Int128 tokens = Int128{refill} * tick.count();
    const auto divisor =
        std::gcd(static_cast<std::int64_t>(tokens % period.count()), period.count());
    const Int128 rate = tokens / divisor;
    const std::int64_t unit = period.count() / divisor;
    if (rate <= kExactMax && Int128{amount} * unit <= kExactMax) {
      return Arithmetic{tick, unit, static_cast<std::int64_t>(rate)};
    }
  }
  return std::nullopt;
}

std::optional<Arithmetic> FitCounter(std::int64_t amount, Micros window) {
  for (const Micros tick : kTicks) {
    if (window % tick != Micros{0}) break;
    const std::int64_t unit = window / tick;
    if (Int128{amount} * unit <= kExactMax) return Arithmetic{tick, unit, 0};
  }
  return std::nullopt;
}

Error InvalidLimit(std::string message) { return {ErrorCode::kInvalidLimit, std::move(message)}; }

struct Field {
  std::string_view name;
  std::int64_t value;
  std::int64_t min;
  std::int64_t max;
};

std::optional<Error> FirstInvalid(Algorithm algorithm, std::initializer_list<Field> fields,
                                  std::string_view span_name, Micros span) {
  for (const Field& field : fields) {
    if (field.value >= field.min && field.value <= field.max) continue;
    return InvalidLimit(text::Cat(ToString(algorithm), ": ", field.name, "=", field.value,
                                  " is out of range; expected ", field.min, " to ", field.max));
  }
  if (span <= Micros{0} || span > kSpanMax) {
    return InvalidLimit(text::Cat(ToString(algorithm), ": ", span_name, "=", span.count(),
                                  "us is out of range; expected 1us to ", kSpanMax.count(), "us"));
  }
  return std::nullopt;
}

// Finalizer of SplitMix64: every input bit reaches every output bit.
constexpr std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Limit::Limit(Algorithm algorithm, std::int64_t amount, std::int64_t refill, Micros span)
    : algorithm_(algorithm), amount_(amount), refill_(refill), span_(span) {
  std::uint64_t hash = Mix(static_cast<std::uint64_t>(algorithm) + 1);
  for (const std::int64_t number : {amount, refill, span.count()}) {
    hash = Mix(hash ^ static_cast<std::uint64_t>(number)) + 0x9e3779b97f4a7c15;
  }
  fingerprint_ = hash;
}

Expected<Limit> Limit::Bucket(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                              Micros period) {
  const auto fit = FitBucket(amount, refill, period);
  if (!fit) {
    return std::unexpected(InvalidLimit(text::Cat(
        sluice::ToString(algorithm), ": ", amount, " tokens refilled ", refill, " per ",
        period.count(),
        "us need numbers of 2^53 or more even in ticks of 1 s; expected a smaller capacity, or a "
        "rate and a period with a larger common divisor")));
  }
  Limit limit(algorithm, amount, refill, period);
  limit.tick_ = fit->tick;
  limit.unit_ = fit->unit;
  limit.rate_ = fit->rate;
  return limit;
}

Expected<Limit> Limit::TokenBucket(const TokenBucketSpec& spec) {
  constexpr auto kThis = Algorithm::kTokenBucket;
  const auto invalid = FirstInvalid(
      kThis, {{"capacity", spec.capacity, 1, kExactMax}, {"refill", spec.refill, 1, kExactMax}},
      "period", spec.period);
  if (invalid) return std::unexpected(*invalid);
  return Bucket(kThis, spec.capacity, spec.refill, spec.period);
}

Expected<Limit> Limit::LeakyBucket(const LeakyBucketSpec& spec) {
  constexpr auto kThis = Algorithm::kLeakyBucket;
  const auto invalid = FirstInvalid(
      kThis, {{"capacity", spec.capacity, 1, kExactMax}, {"leak", spec.leak, 1, kExactMax}},
      "period", spec.period);
  if (invalid) return std::unexpected(*invalid);
  return Bucket(kThis, spec.capacity, spec.leak, spec.period);
}

Expected<Limit> Limit::Gcra(const GcraSpec& spec) {
  constexpr auto kThis = Algorithm::kGcra;
  const auto invalid = FirstInvalid(
      kThis, {{"burst", spec.burst, 0, kExactMax - 1}, {"count", spec.count, 1, kExactMax}},
      "period", spec.period);
  if (invalid) return std::unexpected(*invalid);
  return Bucket(kThis, spec.burst + 1, spec.count, spec.period);
}

Expected<Limit> Limit::Window(Algorithm algorithm, const WindowSpec& spec) {
  const bool counter = algorithm == Algorithm::kSlidingWindowCounter;
  const auto invalid =
      FirstInvalid(algorithm, {{"limit", spec.limit, 1, counter ? kCounterAmountMax : kExactMax}},
                   "window", spec.window);
  if (invalid) return std::unexpected(*invalid);

  Limit limit(algorithm, spec.limit, 0, spec.window);
  limit.unit_ = spec.window.count();
  if (counter) {
    const auto fit = FitCounter(spec.limit, spec.window);
    if (!fit) {
      return std::unexpected(InvalidLimit(
          text::Cat(sluice::ToString(algorithm), ": limit=", spec.limit,
                    " times window=", spec.window.count(),
                    "us is 2^53 or more in every tick (1 us, 1 ms, 1 s) that divides the window; "
                    "expected a smaller limit, or a window of whole seconds")));
    }
    limit.tick_ = fit->tick;
    limit.unit_ = fit->unit;
  }
  return limit;
}

Expected<Limit> Limit::FixedWindow(const WindowSpec& spec) {
  return Window(Algorithm::kFixedWindow, spec);
}

Expected<Limit> Limit::SlidingWindow(const WindowSpec& spec) {
  return Window(Algorithm::kSlidingWindow, spec);
}

Expected<Limit> Limit::SlidingWindowCounter(const WindowSpec& spec) {
  return Window(Algorithm::kSlidingWindowCounter, spec);
}

Expected<Limit> core::MakeLimit(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                                Micros span) {
  switch (algorithm) {
    case Algorithm::kTokenBucket:
      return Limit::TokenBucket({.capacity = amount, .refill = refill, .period = span});
    case Algorithm::kLeakyBucket:
      return Limit::LeakyBucket({.capacity = amount, .leak = refill, .period = span});
    case Algorithm::kGcra:
      // Less than nothing is as invalid as nothing, from which one can be taken away.
      return Limit::Gcra(
          {.burst = std::max<std::int64_t>(amount, 0) - 1, .count = refill, .period = span});
    case Algorithm::kFixedWindow:
      return Limit::FixedWindow({.limit = amount, .window = span});
    case Algorithm::kSlidingWindow:
      return Limit::SlidingWindow({.limit = amount, .window = span});
    case Algorithm::kSlidingWindowCounter:
      return Limit::SlidingWindowCounter({.limit = amount, .window = span});
  }
  std::unreachable();
}

}  // namespace sluice
