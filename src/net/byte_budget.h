// SPDX-License-Identifier: Apache-2.0
// Bounds the bytes that all connections together hold for their clients: requests that have arrived
// in part, and answers that have not been read yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::net {

// Safe to use from any thread. Limits per connection are not enough: there may be thousands.
class ByteBudget {
 public:
  static constexpr std::size_t kDefaultBytes = std::size_t{64} << 20;

  // What each connection may hold in addition, uncounted. A client with small requests is served
  // even while others use the whole budget, and never touches what all threads share.
  static constexpr std::size_t kFreeBytes = std::size_t{16} << 10;

  // What one connection holds. Used by one thread at a time; the budget outlives it.
  class Share {
   public:
    explicit Share(ByteBudget& budget) : budget_(budget) {}
    ~Share() { budget_.GiveBack(counted_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Sets how many bytes it holds now. Returns false if there is no room for them: then the caller
    // has to release them, and what it held before still counts.
    [[nodiscard]] bool Hold(std::size_t bytes) {
      const std::size_t counted = Counted(bytes);
      if (counted == counted_) return true;
      if (counted < counted_) {
        budget_.GiveBack(counted_ - counted);
      } else if (!budget_.Take(counted - counted_)) {
        return false;
      }
      counted_ = counted;
      return true;
    }

   private:
    // Counts in steps, so that small changes cost nothing.
    static constexpr std::size_t kStepBytes = std::size_t{16} << 10;

    static std::size_t Counted(std::size_t bytes) {
      if (bytes <= kFreeBytes) return 0;
      return (bytes - kFreeBytes + kStepBytes - 1) / kStepBytes * kStepBytes;
    }

    ByteBudget& budget_;
    std::size_t counted_ = 0;
  };

  explicit ByteBudget(std::size_t bytes_max = kDefaultBytes) : bytes_max_(bytes_max) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  std::size_t bytes_max() const { return bytes_max_; }
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  // How often there was no room.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  // Time to release what is merely kept for later use.
  bool IsScarce() const { return held() > bytes_max_ / 2; }

 private:
  bool Take(std::size_t bytes) {
    std::size_t held = held_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_max_ - held) {
        refused_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
    } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  void GiveBack(std::size_t bytes) {
    if (bytes > 0) held_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  const std::size_t bytes_max_;
  std::atomic<std::size_t> held_ = 0;  // At most bytes_max_.
  std::atomic<std::uint64_t> refused_ = 0;
};

}  // namespace sluice::net
