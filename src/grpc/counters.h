// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::grpc {

// Written by one thread, read by any.
class Counter {
 public:
  void Add() { value_.store(value() + 1, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

// Of the connections of one loop.
struct Counters {
  Counter calls;
  Counter refused;             // Calls whose headers or messages are not as they should be.
  Counter deadlines_exceeded;  // Calls that took longer than they may.
  Counter resets;              // Calls that the client gave up, or lost by errors of its own.
  Counter floods;              // Connections that were ended for one.
  Counter timeouts;            // Connections that were ended because the client was silent.
};

}  // namespace sluice::grpc
