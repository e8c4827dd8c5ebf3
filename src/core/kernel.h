// SPDX-License-Identifier: Apache-2.0
// The kernels, and the one way from a limit to its kernel.
//
// A kernel is a type of static members, pure functions of a limit and a state:
//
//   State           Integers and nothing else, in the order in which the script returns them. The
//                   memory store keeps two of any size, or three of 52, 46 and 46 bits.
//   kScriptKind     The kind of limit in sluice.lua.
//   kSeenComplete   Whether a SeenState is all that later decisions need.
//   kAmountMax      The largest amount of a limit.
//   Fit             The arithmetic for these numbers, or why no tick fits them.
//   Decide          The decision on a state, or on an untouched budget if it is null. 0 <= cost <=
//                   amount. Always inlined: a decision that goes through memory is noticeable in
//                   the cost of a check.
//   GiveBack        The state after up to `units` of what was taken are returned; none if there
//                   is nothing to return.
//   Untake          The state as if some units had not been taken when they were. What has left
//                   by now makes no difference.
//   Overdraw        The state after `units` more are taken, even if they are not there: a debt, at
//                   most what the arithmetic bears.
//   UsedUnits       Units used at a moment, rounded up. Unbounded: may exceed a lowered limit.
//   Recovered       Whether the state equals an untouched budget by now, so that it may be dropped.
//   RecoveryTicks   How long a used-up budget takes to recover, at most, if time advances.
//   NewestTick      The newest time of a state.
//   IsSound         Whether the arithmetic may trust a state that comes from outside, such as from
//                   a file or from Redis at `now`: every number is in the range that the kernel
//                   keeps it in, so that no sum or product overflows. What the numbers mean is not
//                   judged.
//
// When the numbers of a limit change, what was used stays used: a raised limit takes effect at
// once, and a lowered one never grants more. If more was used than the new limit ever grants, the
// state keeps that as a debt: changing a limit back and forth hands nothing out.
//
//   Carry           The state under a limit that counts in the same units; none if it does not.
//   Start           From any other limit: a state from which `used` units were taken at `now`,
//                   perhaps more than the limit grants.
//
// The sketch of the memory store needs two more functions, only of kernels whose units leave
// instead of flowing back:
//
//   LeftAt          When what is taken now will have left, in microseconds.
//   UsedUntil       A state in which `units` are used until then.
//
// What is on hold counts as lying in a bucket: it fills up to its capacity less that.
//
//   Capped          The state at `now` of a bucket with `held` units on hold.
//
// The log differs: a store keeps a Log, which is changed in place. So it has neither GiveBack,
// Untake, Overdraw nor Carry.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/algorithms.h"
#include "core/bucket.h"
#include "core/calendar.h"
#include "core/concurrency.h"
#include "core/fixed_window.h"
#include "core/window_counter.h"
#include "core/window_log.h"

namespace sluice::core {

// Calls `visitor` with a value of the kernel's type. Always inlined: a call would force what the
// visitor refers to into memory, which is noticeable in the cost of a decision.
template <typename Visitor>
[[gnu::always_inline]] inline decltype(auto) VisitKernel(KernelKind kernel,
                                                         const Visitor& visitor) {
  switch (kernel) {
    case KernelKind::kBucket:
      return visitor(Bucket{});
    case KernelKind::kFixedWindow:
      return visitor(FixedWindow{});
    case KernelKind::kWindowCounter:
      return visitor(WindowCounter{});
    case KernelKind::kWindowLog:
      return visitor(WindowLog{});
    case KernelKind::kConcurrency:
      return visitor(Concurrency{});
    case KernelKind::kCalendar:
      return visitor(Calendar{});
  }
  std::unreachable();
}

template <typename Visitor>
[[gnu::always_inline]] inline decltype(auto) VisitKernel(const Limit& limit,
                                                         const Visitor& visitor) {
  return VisitKernel(KernelOf(limit), visitor);
}

// Converts a state to its numbers, and back.
template <typename State, typename Number = std::int64_t>
using NumbersOf = std::array<Number, sizeof(State) / sizeof(Number)>;

template <typename State>
constexpr NumbersOf<State> ToNumbers(const State& state) {
  return std::bit_cast<NumbersOf<State>>(state);
}

template <typename State>
constexpr State FromNumbers(const NumbersOf<State>& numbers) {
  return std::bit_cast<State>(numbers);
}

}  // namespace sluice::core
