// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace sluice::memory {

// A number with a bound, of which every shard has a part. A shard books ahead of its needs, so that
// shards seldom write the memory that they all share; the less room there is, the less ahead.
class alignas(64) Total {
 public:
  // The part of one shard, which whoever holds the shard's lock may use.
  class Part {
   public:
    std::int64_t count() const { return count_; }

    // Whether one more fits. Parts that ask at the same time may get the same room.
    bool HasRoom(const Total& total) const { return count_ < booked_ || total.HasRoom(1); }

    // Returns how much of the total is free now and was not before.
    std::int64_t Add(std::int64_t count, Total& total) {
      count_ += count;
      const std::int64_t ahead = total.Ahead();
      if (count_ <= booked_ && booked_ - count_ <= 2 * ahead) return 0;
      const std::int64_t more = count_ + ahead - booked_;
      booked_ += more;
      total.booked_.fetch_add(more, std::memory_order_relaxed);
      return std::max<std::int64_t>(0, -more);
    }

   private:
    std::int64_t count_ = 0;
    std::int64_t booked_ = 0;
  };

  explicit Total(std::int64_t max) : max_(max) {}

  // Whether `more` fit, besides what is booked.
  bool HasRoom(std::int64_t more) const {
    return booked_.load(std::memory_order_relaxed) + more <= max_;
  }

 private:
  static constexpr std::int64_t kAheadMax = 64;
  static constexpr std::int64_t kRoomParts = 1024;  // A few for each shard.

  std::int64_t Ahead() const {
    const std::int64_t room = max_ - booked_.load(std::memory_order_relaxed);
    return std::clamp<std::int64_t>(room / kRoomParts, 0, kAheadMax);
  }

  const std::int64_t max_;
  std::atomic<std::int64_t> booked_ = 0;  // At least what all parts are together.
};

}  // namespace sluice::memory
