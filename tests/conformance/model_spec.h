// SPDX-License-Identifier: Apache-2.0
// Converts between the library's types and those of the reference model, which shares none with it.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "conformance/model.h"
#include "sluice/decision.h"
#include "sluice/limit.h"
#include "zones/database.h"

namespace sluice {

inline model::Kind KindOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTokenBucket:
    case Algorithm::kGcra:
      return model::Kind::kTokenBucket;
    case Algorithm::kLeakyBucket:
      return model::Kind::kLeakyBucket;
    case Algorithm::kFixedWindow:
      return model::Kind::kFixedWindow;
    case Algorithm::kSlidingWindow:
      return model::Kind::kSlidingWindow;
    case Algorithm::kSlidingWindowCounter:
      return model::Kind::kSlidingWindowCounter;
    case Algorithm::kConcurrency:
      return model::Kind::kConcurrency;
    case Algorithm::kCalendar:
      return model::Kind::kCalendar;
  }
  std::unreachable();
}

inline model::CalendarSpec CalendarSpecOf(const Limit& limit) {
  const Limit::CalendarSpec spec = limit.calendar();
  // The zone's name itself: the specification refers to it.
  model::CalendarSpec calendar{.every = static_cast<model::Every>(spec.every),
                               .zone = limit.zone()->name()};
  constexpr std::string_view kDays = "motuwethfrsasu";
  const std::string& anchor = spec.anchor;
  if (spec.every == Every::kWeek) {
    calendar.major = static_cast<int>(kDays.find(anchor.substr(0, 2)) / 2);
  } else {
    calendar.major = std::stoi(anchor);
    if (anchor.size() == 5) calendar.minor = std::stoi(anchor.substr(3));
  }
  return calendar;
}

inline model::Spec SpecOf(const Limit& limit) {
  if (limit.algorithm() == Algorithm::kCalendar) {
    return {.kind = model::Kind::kCalendar,
            .amount = limit.amount(),
            .calendar = CalendarSpecOf(limit)};
  }
  return {.kind = KindOf(limit.algorithm()),
          .amount = limit.amount(),
          .refill = limit.refill(),
          .span_us = limit.span().count()};
}

inline Decision DecisionOf(const model::Answer& answer) {
  return {.allowed = answer.allowed,
          .limit = answer.limit,
          .remaining = answer.remaining,
          .retry_after = Micros{answer.retry_after_us},
          .reset_after = Micros{answer.reset_after_us},
          .delay = Micros{answer.delay_us},
          .held = answer.held};
}

// For the messages of failed expectations.
inline void PrintTo(const Decision& decision, std::ostream* out) {
  *out << (decision.allowed ? "allowed" : "denied") << " limit=" << decision.limit
       << " remaining=" << decision.remaining << " retry_after=" << decision.retry_after.count()
       << " reset_after=" << decision.reset_after.count() << " delay=" << decision.delay.count()
       << " held=" << decision.held;
}

}  // namespace sluice
