// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/error.h"
#include "sluice/time.h"

namespace sluice {

enum class Algorithm : std::uint8_t {
  kTokenBucket,    // Bursts up to the capacity, then a steady rate.
  kLeakyBucket,    // The same numbers seen as a queue, with the delay that smooths it.
  kGcra,           // The token bucket, described by emission interval and burst.
  kFixedWindow,    // One count per epoch-aligned window; cheap, but up to double at a boundary.
  kSlidingWindow,  // Every request remembered; exact, memory grows with the limit.
  kSlidingWindowCounter,  // Two counts, weighted; the default where none is named.
  kConcurrency,           // Units in use at a time; they are held and released, not checked.
  kCalendar,              // A fixed window whose bounds are those of a calendar in a time zone.
};

// How long the windows of a calendar are.
enum class Every : std::uint8_t { kDay, kWeek, kMonth, kQuarter, kYear };

namespace zones {
class Zone;
}

// "token_bucket" and so on, as used in the textual form.
std::string_view ToString(Algorithm algorithm);

// Accepts upper and lower case and the alias "sliding_window_log"; the error lists the known names.
Expected<Algorithm> ParseAlgorithm(std::string_view name);

// An algorithm with its numbers, validated: every Limit that exists can be decided exactly, without
// overflow, in C++ and in a Redis script. A small value; copying is cheap and never fails.
//
//   auto limit = Limit::TokenBucket({.capacity = 100, .refill = 10, .period = 1s});
//   auto same  = Limit::Parse("algorithm=token_bucket,capacity=100,refill=10,period=1s");
class Limit {
 public:
  struct TokenBucketSpec {
    std::int64_t capacity;
    std::int64_t refill;
    Micros period;
  };
  struct LeakyBucketSpec {
    std::int64_t capacity;
    std::int64_t leak;
    Micros period;
  };
  struct GcraSpec {
    std::int64_t burst;  // Beyond the first request: the bucket holds burst + 1.
    std::int64_t count;
    Micros period;
  };
  struct WindowSpec {
    std::int64_t limit;
    Micros window;
  };
  struct ConcurrencySpec {
    std::int64_t limit;
    Micros ttl;  // Of a hold that names none, kHoldTtlMin to kHoldTtlMax.
  };

  struct CalendarSpec {
    std::int64_t limit;
    Every every;
    std::string zone = "UTC";  // An IANA name, such as Europe/Berlin.

    // From when on in each window; empty for its beginning. A day: "HH:MM". A week: "monday" to
    // "sunday". A month, or the first one of a quarter: "1" to "31". A year: "MM-DD". A day that a
    // month does not have is its last.
    std::string anchor = {};
  };

  // Each fails with kInvalidLimit, naming the field, its value and what would be accepted.
  static Expected<Limit> TokenBucket(const TokenBucketSpec& spec);
  static Expected<Limit> LeakyBucket(const LeakyBucketSpec& spec);
  static Expected<Limit> Gcra(const GcraSpec& spec);
  static Expected<Limit> FixedWindow(const WindowSpec& spec);
  static Expected<Limit> SlidingWindow(const WindowSpec& spec);
  static Expected<Limit> SlidingWindowCounter(const WindowSpec& spec);
  static Expected<Limit> Concurrency(const ConcurrencySpec& spec);

  // Reads what the operating system knows about the zone (in $TZDIR, or else /usr/share/zoneinfo),
  // unless another limit has done so before. All limits see it when it is read again; see
  // ReloadTimeZones.
  static Expected<Limit> Calendar(const CalendarSpec& spec);

  // From what the accessors below return: Make(l.algorithm(), l.amount(), l.refill(), l.span()) ==
  // l. Windows ignore the refill, and calendars the span.
  static Expected<Limit> Make(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                              Micros span);

  // Reads the textual form: `name=value` pairs in any order, separated by commas. Names
  // may be in upper or lower case; durations are in us, ms, s, m, h or d. Without `algorithm` it is
  // a sliding_window_counter.
  static Expected<Limit> Parse(std::string_view text);

  // The textual form. Parse(limit.ToString()) == limit.
  std::string ToString() const;

  Algorithm algorithm() const { return algorithm_; }

  // The most that can ever be granted at once: the capacity, burst + 1, or the window's limit.
  std::int64_t amount() const { return amount_; }

  // Tokens per span() (buckets; zero for windows). Of a calendar, a number that stands for its
  // zone, windows and anchor, on every machine.
  std::int64_t refill() const { return refill_; }

  // The refill period, the window, or how long a hold lasts that does not say. Of a calendar, how
  // long a window is at most, if no clock is changed.
  Micros span() const { return span_; }

  // Of a calendar, and only of one.
  CalendarSpec calendar() const;
  const zones::Zone* zone() const { return zone_; }

  // The limit's own unit of time: the finest of 1 us, 1 ms and 1 s with which all products of its
  // arithmetic stay below 2^53.
  Micros tick() const { return Micros{tick_us_}; }

  // The numbers that the arithmetic runs on. For buckets, `rate / unit` is the refill in tokens per
  // tick in lowest terms, and a level counts in 1/unit of a token. For windows, `unit` is the
  // window in ticks; for concurrency, it is 1. `whole` is amount * unit.
  std::int64_t unit() const { return unit_; }
  std::int64_t rate() const { return rate_; }
  std::int64_t whole() const { return amount_ * unit_; }

  // Equal limits have equal fingerprints, on every machine and in every version that reads the same
  // snapshot. Different limits have different fingerprints, except by chance.
  std::uint64_t fingerprint() const { return fingerprint_; }

  friend bool operator==(const Limit& a, const Limit& b) {
    return a.fingerprint_ == b.fingerprint_ && a.algorithm_ == b.algorithm_ &&
           a.amount_ == b.amount_ && a.refill_ == b.refill_ && a.span_ == b.span_;
  }

 private:
  Limit(Algorithm algorithm, std::int64_t amount, std::int64_t refill, Micros span);

  // The first number is that of the algorithm's field; for GCRA, that is less than the amount.
  static Expected<Limit> FromFields(Algorithm algorithm, std::int64_t first, std::int64_t refill,
                                    Micros span);

  // Constant after construction.
  Algorithm algorithm_;
  std::int32_t tick_us_ = 1;
  std::int64_t amount_;
  std::int64_t refill_;
  Micros span_;
  std::int64_t unit_ = 0;
  std::int64_t rate_ = 0;
  std::uint64_t fingerprint_;
  const zones::Zone* zone_ = nullptr;
};

// Reads the time zones that limits refer to again, as after an update of the system's. Decisions
// made meanwhile use the old or the new data. Returns how many have changed; error: kInvalidLimit
// if one cannot be read, which then stays as it was.
Expected<int> ReloadTimeZones();

}  // namespace sluice
