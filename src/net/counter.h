// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::net {

// Written by one thread, read by any: cheaper than an atomic addition.
class Counter {
 public:
  void Add(std::uint64_t count = 1) { value_.store(value() + count, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

}  // namespace sluice::net
