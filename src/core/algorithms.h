// SPDX-License-Identifier: Apache-2.0
// The table of algorithms: everything in which they differ except their arithmetic, which is in
// their kernel (core/kernel.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/limit.h"

namespace sluice::core {

enum class KernelKind : std::uint8_t {
  kBucket,
  kFixedWindow,
  kWindowCounter,
  kWindowLog,
  kConcurrency,
  kCalendar,
};

struct AlgorithmRow {
  std::string_view name;        // In the textual form.
  std::string_view upper_name;  // In the API and in metrics.
  std::string_view alias = {};  // Another name that is accepted, but never written.
  std::string_view short_name;  // In the Redis keys of limits without a name.
  KernelKind kernel;

  // In the order of the textual form: the amount, the refill if any, the span; of a calendar, what
  // describes its windows. The last of them may be left out, if they are optional.
  std::array<std::string_view, 4> field_names;
  std::size_t optional_fields = 0;
  int amount_above_field = 0;     // How much larger the amount is than the value of its field.
  std::string_view default_text;  // The numbers of a check that names the algorithm but no limit.
  bool queues = false;            // Whether answers report how much is queued.
  bool needs_hold = false;        // Whether it can only be held and looked at.
  Algorithm algorithm = {};       // Filled in below.

  constexpr bool refills() const { return kernel == KernelKind::kBucket; }
  constexpr std::span<const std::string_view> fields() const {
    std::size_t count = 0;
    while (count < field_names.size() && !field_names[count].empty()) ++count;
    return std::span(field_names).first(count);
  }
  constexpr std::span<const std::string_view> required_fields() const {
    return fields().first(fields().size() - optional_fields);
  }
};

// Used where none is named.
inline constexpr Algorithm kDefaultAlgorithm = Algorithm::kSlidingWindowCounter;

// A switch, so that the compiler reports an algorithm that has no row.
constexpr AlgorithmRow MakeRow(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTokenBucket:
      return {.name = "token_bucket",
              .upper_name = "TOKEN_BUCKET",
              .short_name = "tb",
              .kernel = KernelKind::kBucket,
              .field_names = {"capacity", "refill", "period"},
              .default_text = "capacity=100,refill=10,period=1s"};
    case Algorithm::kLeakyBucket:
      return {.name = "leaky_bucket",
              .upper_name = "LEAKY_BUCKET",
              .short_name = "lb",
              .kernel = KernelKind::kBucket,
              .field_names = {"capacity", "leak", "period"},
              .default_text = "capacity=10,leak=1,period=1s",
              .queues = true};
    case Algorithm::kGcra:
      return {.name = "gcra",
              .upper_name = "GCRA",
              .short_name = "gcra",
              .kernel = KernelKind::kBucket,
              .field_names = {"burst", "count", "period"},
              .amount_above_field = 1,
              .default_text = "burst=99,count=10,period=1s"};
    case Algorithm::kFixedWindow:
      return {.name = "fixed_window",
              .upper_name = "FIXED_WINDOW",
              .short_name = "fw",
              .kernel = KernelKind::kFixedWindow,
              .field_names = {"limit", "window"},
              .default_text = "limit=10,window=60s"};
    case Algorithm::kSlidingWindow:
      return {.name = "sliding_window",
              .upper_name = "SLIDING_WINDOW",
              .alias = "sliding_window_log",
              .short_name = "sw",
              .kernel = KernelKind::kWindowLog,
              .field_names = {"limit", "window"},
              .default_text = "limit=100,window=60s"};
    case Algorithm::kSlidingWindowCounter:
      return {.name = "sliding_window_counter",
              .upper_name = "SLIDING_WINDOW_COUNTER",
              .short_name = "swc",
              .kernel = KernelKind::kWindowCounter,
              .field_names = {"limit", "window"},
              .default_text = "limit=10,window=60s"};
    case Algorithm::kConcurrency:
      return {.name = "concurrency",
              .upper_name = "CONCURRENCY",
              .short_name = "con",
              .kernel = KernelKind::kConcurrency,
              .field_names = {"limit", "ttl"},
              .default_text = "limit=10,ttl=30s",
              .needs_hold = true};
    case Algorithm::kCalendar:
      return {.name = "calendar",
              .upper_name = "CALENDAR",
              .short_name = "cal",
              .kernel = KernelKind::kCalendar,
              .field_names = {"limit", "every", "zone", "anchor"},
              .optional_fields = 2,
              .default_text = "limit=1000,every=month,zone=UTC,anchor=1"};
  }
  return {};  // Past the last one.
}

inline constexpr std::size_t kAlgorithmCount = [] {
  std::size_t count = 0;
  while (!MakeRow(static_cast<Algorithm>(count)).name.empty()) ++count;
  return count;
}();

// Indexed by the number of the algorithm.
inline constexpr auto kAlgorithms = [] {
  std::array<AlgorithmRow, kAlgorithmCount> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = MakeRow(static_cast<Algorithm>(i));
    rows[i].algorithm = static_cast<Algorithm>(i);
  }
  return rows;
}();

constexpr const AlgorithmRow& RowOf(Algorithm algorithm) {
  return kAlgorithms[static_cast<std::size_t>(algorithm)];
}

// Kept apart from the rows, and read without a check: every decision looks it up.
inline constexpr auto kKernels = [] {
  std::array<KernelKind, kAlgorithmCount> kernels{};
  for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i] = kAlgorithms[i].kernel;
  return kernels;
}();

inline bool NeedsHold(const Limit& limit) { return RowOf(limit.algorithm()).needs_hold; }

inline KernelKind KernelOf(const Limit& limit) {
  return kKernels.data()[static_cast<std::size_t>(limit.algorithm())];
}

}  // namespace sluice::core
