// SPDX-License-Identifier: Apache-2.0
// Counts and bounds the open connections, over all loops.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace sluice::net {

// Safe to use from any thread.
class ConnectionCount {
 public:
  // One connection, until it is destroyed.
  class Slot {
   public:
    Slot(Slot&& other) noexcept = default;
    Slot& operator=(Slot&& other) noexcept {
      std::swap(count_, other.count_);
      return *this;
    }
    ~Slot() {
      if (count_) count_->open_.fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    friend class ConnectionCount;
    explicit Slot(std::shared_ptr<ConnectionCount> count) : count_(std::move(count)) {}

    std::shared_ptr<ConnectionCount> count_;
  };

  explicit ConnectionCount(std::size_t max) : max_(max) {}

  std::size_t open() const { return open_.load(std::memory_order_relaxed); }

  // None if the maximum is open already.
  static std::optional<Slot> Take(const std::shared_ptr<ConnectionCount>& count) {
    if (count->open_.fetch_add(1, std::memory_order_relaxed) < count->max_) return Slot(count);
    count->open_.fetch_sub(1, std::memory_order_relaxed);
    return std::nullopt;
  }

 private:
  const std::size_t max_;
  std::atomic<std::size_t> open_ = 0;
};

}  // namespace sluice::net
