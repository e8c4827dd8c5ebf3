// SPDX-License-Identifier: Apache-2.0
#include "sluice/limit.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/text.h"
#include "core/kernel.h"
#include "zones/database.h"

namespace sluice {
namespace {

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

Expected<Limit> Limit::FromFields(Algorithm algorithm, std::int64_t first, std::int64_t refill,
                                  Micros span) {
  const core::AlgorithmRow& row = core::RowOf(algorithm);
  const auto invalid = [&](const auto&... parts) {
    return std::unexpected(Error{ErrorCode::kInvalidLimit, text::Cat(row.name, ": ", parts...)});
  };
  const auto out_of_range = [&](std::string_view field, std::int64_t value, std::int64_t min,
                                std::int64_t max, std::string_view unit) {
    return invalid(field, "=", value, unit, " is out of range; expected ", min, unit, " to ", max,
                   unit);
  };
  const std::int64_t amount_max =
      core::VisitKernel(row.kernel, [](auto kernel) { return kernel.kAmountMax; });
  const std::int64_t min = 1 - row.amount_above_field;
  const std::int64_t max = amount_max - row.amount_above_field;
  if (first < min || first > max) return out_of_range(row.fields().front(), first, min, max, "");
  const zones::Zone* zone = nullptr;
  if (algorithm == Algorithm::kCalendar) {
    const auto terms = core::CalendarTerms::FromNumber(refill);
    if (!terms) return invalid(refill, " does not stand for a calendar");
    const auto found = zones::Database::System().FindKey(terms->zone);
    if (!found) return invalid(found.error().message);
    zone = *found;
    span = core::NominalSpan(terms->every);
  } else if (!row.refills()) {
    refill = 0;
  } else if (refill < 1 || refill > core::kExactMax) {
    return out_of_range(row.fields()[1], refill, 1, core::kExactMax, "");
  }
  if (span <= Micros{0} || span > kSpanMax) {
    return out_of_range(row.fields().back(), span.count(), 1, kSpanMax.count(), "us");
  }

  Limit limit(algorithm, first + row.amount_above_field, refill, span);
  const auto fit = core::VisitKernel(
      row.kernel, [&](auto kernel) { return kernel.Fit(limit.amount_, refill, span); });
  if (!fit) return invalid(fit.error());
  limit.tick_us_ = static_cast<std::int32_t>(fit->tick.count());
  limit.unit_ = fit->unit;
  limit.rate_ = fit->rate;
  limit.zone_ = zone;
  return limit;
}

Expected<Limit> Limit::TokenBucket(const TokenBucketSpec& spec) {
  return FromFields(Algorithm::kTokenBucket, spec.capacity, spec.refill, spec.period);
}

Expected<Limit> Limit::LeakyBucket(const LeakyBucketSpec& spec) {
  return FromFields(Algorithm::kLeakyBucket, spec.capacity, spec.leak, spec.period);
}

Expected<Limit> Limit::Gcra(const GcraSpec& spec) {
  return FromFields(Algorithm::kGcra, spec.burst, spec.count, spec.period);
}

Expected<Limit> Limit::FixedWindow(const WindowSpec& spec) {
  return FromFields(Algorithm::kFixedWindow, spec.limit, 0, spec.window);
}

Expected<Limit> Limit::SlidingWindow(const WindowSpec& spec) {
  return FromFields(Algorithm::kSlidingWindow, spec.limit, 0, spec.window);
}

Expected<Limit> Limit::SlidingWindowCounter(const WindowSpec& spec) {
  return FromFields(Algorithm::kSlidingWindowCounter, spec.limit, 0, spec.window);
}

Expected<Limit> Limit::Concurrency(const ConcurrencySpec& spec) {
  return FromFields(Algorithm::kConcurrency, spec.limit, 0, spec.ttl);
}

Expected<Limit> Limit::Calendar(const CalendarSpec& spec) {
  const auto zone = zones::Database::System().Find(spec.zone);
  if (!zone) {
    return std::unexpected(
        Error{ErrorCode::kInvalidLimit, text::Cat("calendar: ", zone.error().message)});
  }
  const auto anchor = core::CalendarTerms::AnchorFrom(spec.every, spec.anchor);
  if (!anchor) {
    return std::unexpected(
        Error{ErrorCode::kInvalidLimit,
              text::Cat("calendar: anchor=", text::Quote(spec.anchor), " in windows of a ",
                        core::NameOf(spec.every), "; expected ",
                        core::CalendarTerms::AnchorForm(spec.every))});
  }
  const core::CalendarTerms terms{.every = spec.every, .anchor = *anchor, .zone = (*zone)->key()};
  return FromFields(Algorithm::kCalendar, spec.limit, terms.ToNumber(), {});
}

Limit::CalendarSpec Limit::calendar() const {
  const auto terms = core::CalendarTerms::FromNumber(refill_);
  return {.limit = amount_,
          .every = terms->every,
          .zone = zone_->name(),
          .anchor = terms->AnchorText()};
}

Expected<int> ReloadTimeZones() {
  const auto reloaded = zones::Database::System().Reload();
  if (reloaded.problems.empty()) return static_cast<int>(reloaded.changed);
  std::string problems;
  for (const std::string& problem : reloaded.problems) {
    if (!problems.empty()) problems += "; ";
    problems += problem;
  }
  return std::unexpected(Error{ErrorCode::kInvalidLimit, std::move(problems)});
}

Expected<Limit> Limit::Make(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                            Micros span) {
  // A negative amount is as invalid as 0, and 0 can be subtracted from safely.
  const std::int64_t first =
      std::max<std::int64_t>(amount, 0) - core::RowOf(algorithm).amount_above_field;
  return FromFields(algorithm, first, refill, span);
}

}  // namespace sluice
