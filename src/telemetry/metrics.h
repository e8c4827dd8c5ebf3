// SPDX-License-Identifier: Apache-2.0
// Metrics in the text format of Prometheus. Each thread counts in its own memory, with a plain load
// and store, and the numbers are added up when somebody reads them. What a thread has counted stays
// when it ends.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/error.h"
#include "telemetry/thread_slot.h"

namespace sluice::telemetry {

inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";
inline constexpr std::size_t kLabelBytesMax = 128;  // Of a value; the rest is cut off.
inline constexpr std::size_t kCellsMax = 1 << 15;   // Numbers of all counters and histograms.

// The value of all labels of a family once it is full.
inline constexpr std::string_view kOtherLabel = "other";

using Labels = std::vector<std::pair<std::string, std::string>>;

inline constexpr std::size_t kCommonLabelsMax = 16;

// Parses configured labels for all metrics, each "name=value". Fails with kInvalidInput.
Expected<Labels> ParseCommonLabels(std::span<const std::string> texts);

// A number that grows. A handle that is cheap to copy; any thread may use it as long as its
// registry lives. A default-constructed one counts nothing.
class Counter {
 public:
  Counter() = default;

  void Add(std::uint64_t amount = 1) const {
    if (cell_ != nullptr) AddTo(cell_, ThreadSlot(), amount);
  }

  std::uint64_t Value() const;

 private:
  friend class Registry;
  friend class CounterFamily;
  friend class Histogram;
  explicit Counter(std::uint64_t* cell) : cell_(cell) {}

  // No other thread writes to this thread's cells, so no read-modify-write is needed.
  static void AddTo(std::uint64_t* cell, std::uint32_t slot, std::uint64_t amount) {
    const std::atomic_ref<std::uint64_t> own(cell[slot * kCellsMax]);
    if (slot == kSharedSlot) [[unlikely]] {
      own.fetch_add(amount, std::memory_order_relaxed);
    } else {
      own.store(own.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
  }

  std::uint64_t* cell_ = nullptr;  // Slot 0's; the others are kCellsMax apart.
};

// How long something took, in buckets from 1 us to 1 s. A handle like Counter.
class Histogram {
 public:
  // The upper bounds of the buckets, inclusive; one more bucket takes everything above.
  static constexpr auto kBoundsNs = std::to_array<std::uint64_t>(
      {1'000, 2'500, 5'000, 10'000, 25'000, 50'000, 100'000, 250'000, 500'000, 1'000'000, 2'500'000,
       5'000'000, 10'000'000, 25'000'000, 50'000'000, 100'000'000, 250'000'000, 500'000'000,
       1'000'000'000});
  static constexpr std::size_t kBuckets = kBoundsNs.size() + 1;

  Histogram() = default;

  // A negative duration, as from a clock that was set back, counts as zero.
  void Observe(std::chrono::nanoseconds duration) const {
    if (cells_ == nullptr) return;
    const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
    const std::uint32_t slot = ThreadSlot();
    Counter::AddTo(cells_ + Bucket(ns), slot, 1);
    Counter::AddTo(cells_ + kBuckets, slot, ns);
  }

  // The bucket that a duration falls into.
  static constexpr std::size_t Bucket(std::uint64_t ns) {
    // No two bounds are within a factor of two, so the width in bits leaves two candidates.
    const std::size_t first = kFirst[static_cast<std::size_t>(std::bit_width(ns))];
    return first + static_cast<std::size_t>(first < kBoundsNs.size() && ns > kBoundsNs[first]);
  }

  std::uint64_t Count() const;
  std::chrono::nanoseconds Sum() const;

 private:
  friend class Registry;
  explicit Histogram(std::uint64_t* cells) : cells_(cells) {}

  static constexpr std::size_t kCells = kBuckets + 1;  // The buckets, then the sum in ns.

  // By the width of a number in bits: the first bucket that the smallest such number fits into.
  static constexpr std::array<std::uint8_t, 65> kFirst = [] {
    std::array<std::uint8_t, 65> first{};
    for (std::size_t width = 1; width < first.size(); ++width) {
      const std::uint64_t smallest = std::uint64_t{1} << (width - 1);
      while (first[width] < kBoundsNs.size() && kBoundsNs[first[width]] < smallest) ++first[width];
    }
    return first;
  }();

  std::uint64_t* cells_ = nullptr;
};

// A number that goes up and down. A handle like Counter, but all threads share one number.
class Gauge {
 public:
  Gauge() = default;

  void Set(std::int64_t value) const {
    if (value_ != nullptr) value_->store(value, std::memory_order_relaxed);
  }
  void Add(std::int64_t amount) const {
    if (value_ != nullptr) value_->fetch_add(amount, std::memory_order_relaxed);
  }
  std::int64_t Value() const {
    return value_ != nullptr ? value_->load(std::memory_order_relaxed) : 0;
  }

 private:
  friend class Registry;
  explicit Gauge(std::atomic<std::int64_t>* value) : value_(value) {}

  std::atomic<std::int64_t>* value_ = nullptr;
};

// Counters whose labels become known while the program runs, such as the rules of a file. Each set
// of labels has one counter for each outcome. At most `sets_max` sets are held; any more are
// counted under kOtherLabel, so that no configuration can grow the metrics without bound.
class CounterFamily {
 public:
  struct Spec {
    std::string name;
    std::string help;
    std::vector<std::string> labels;  // Names of the labels whose values come later.
    std::string outcome_label;        // The last label, with a counter for each of its values.
    std::vector<std::string> outcomes;
    std::size_t sets_max = 1024;
  };

  class Set {
   public:
    Set() = default;
    Counter operator[](std::size_t outcome) const {
      return first_ == nullptr ? Counter{} : Counter(first_ + outcome);
    }

   private:
    friend class CounterFamily;
    explicit Set(std::uint64_t* first) : first_(first) {}
    std::uint64_t* first_ = nullptr;
  };

  CounterFamily(const CounterFamily&) = delete;
  CounterFamily& operator=(const CounterFamily&) = delete;

  // The counters for these values, one value per label; the same counters for the same values.
  // Takes a lock: call it when rules are loaded, and keep the result.
  Set With(std::span<const std::string_view> values);
  Set With(std::initializer_list<std::string_view> values) {
    return With(std::span(values.begin(), values.size()));
  }

  // Forgets all other sets. Their handles remain safe to use, but once their place is reused, what
  // is added to them counts for its new owner. The set that was forgotten first is reused first.
  void Retain(std::span<const std::vector<std::string_view>> sets);

 private:
  friend class Registry;

  CounterFamily(Spec spec, std::uint64_t* cells);
  std::vector<std::string> Clean(std::span<const std::string_view> values) const;
  std::uint64_t* CellsOf(std::size_t place) const { return cells_ + place * spec_.outcomes.size(); }
  void AppendTo(std::string& out, const std::string& common) const;

  // Constant after construction.
  Spec spec_;
  std::uint64_t* cells_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::map<std::vector<std::string>, std::size_t> places_;  // By values.
  std::deque<std::size_t> free_;                            // In the order of their release.
  std::vector<std::uint64_t> base_;  // By cell: what was counted there for earlier owners.
  bool other_used_ = false;          // Its place is the last one, at sets_max.
};

// Makes metrics and renders them. Metrics with the same name form a family: they have the same type
// and help. Names and label names are ours, and valid; label values may be any text. Make them at
// start-up: using a name for two types, or more than kCellsMax cells, ends the program.
class Registry {
 public:
  enum class Type { kCounter, kGauge };

  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Counter AddCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram AddHistogram(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge AddGauge(std::string_view name, std::string_view help, const Labels& labels = {});

  // A number that is kept elsewhere. `read` runs only during Text(), on its thread; it must not use
  // the registry.
  void AddCallback(Type type, std::string_view name, std::string_view help, const Labels& labels,
                   std::function<double()> read);

  // Numbers that are kept elsewhere, each with the values of these labels. There should be few;
  // they may differ each time. `read` runs like that of AddCallback.
  using Samples = std::vector<std::pair<std::vector<std::string>, double>>;
  void AddSamples(Type type, std::string_view name, std::string_view help,
                  std::vector<std::string> labels, std::function<Samples()> read);

  // A gauge that is 1 for each name that `read` returns. There should be few.
  void AddNames(std::string_view name, std::string_view help, std::string_view label,
                std::function<std::vector<std::string>()> read);

  // The result lives as long as the registry.
  CounterFamily& AddFamily(CounterFamily::Spec spec);

  // Labels for all metrics from now on. A metric's own label of the same name wins.
  void SetCommonLabels(Labels labels);

  // All metrics in the text format 0.0.4. From any thread; counting goes on meanwhile.
  std::string Text() const;

  // The names of all families, in the order of Text().
  std::vector<std::string> Names() const;

 private:
  struct Family;
  struct Freer {
    void operator()(std::uint64_t* cells) const { std::free(cells); }
  };

  std::uint64_t* Allocate(std::size_t cells);
  Family& Find(std::string_view name, std::string_view help, std::string_view type);

  // Zeroed pages, which take no memory until a thread counts there.
  std::unique_ptr<std::uint64_t, Freer> cells_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::size_t cells_used_ = 0;
  std::deque<std::atomic<std::int64_t>> gauges_;
  std::vector<std::unique_ptr<Family>> families_;
  Labels common_;
};

// Memory, file descriptors, processor time and start of this process under their standard names.
void AddProcessMetrics(Registry& registry);

}  // namespace sluice::telemetry
