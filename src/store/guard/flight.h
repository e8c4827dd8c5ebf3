// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sluice/guarded_store.h"
#include "sluice/store.h"
#include "store/guard/breaker.h"
#include "store/guard/deny_cache.h"
#include "store/guard/overload.h"
#include "store/guard/places.h"

namespace sluice::guard {

// One call of the inner store. It owns copies of all that the store works on, because a call that
// is past its deadline goes on after its caller was answered. Used again and again: in steady state
// none of this allocates.
struct Flight {
  // Bits of `state`. Whoever sets the first of kAnswered and kExpired answers the caller; if that
  // was the deadline, whoever sets the second of kAnswered and kDecided settles the late answer.
  static constexpr unsigned kAnswered = 1;  // The store has answered.
  static constexpr unsigned kExpired = 2;   // The deadline has passed.
  static constexpr unsigned kDecided = 4;   // The policy has decided.
  std::atomic<unsigned> state = 0;

  // Copies the requests in `asked`.
  void Copy(DenyCache& cache);

  // Empties it, keeping its memory unless that is large.
  void Clear();

  // The numbers of each charge of request `i`, and where its states are remembered, or would be.
  std::span<const Decision> EachOf(std::size_t i) const;
  std::span<const DenyCache::Place> PlacesOf(std::size_t i) const;

  // Who is told of the answer; kept alive for as long as one is owed.
  std::shared_ptr<GuardedStore::Impl> owner;

  std::vector<Request*> asked;  // The caller's.
  std::vector<Request> requests;
  std::vector<Places::Grip> grips;        // Of those that were scarce when they were taken.
  std::vector<std::int64_t> local_units;  // What the policy took locally for each request.
  std::move_only_function<void()> done;
  bool errand = false;  // One of our own, which no caller waits for.

  Breaker::Pass pass{};
  Cause cause{};  // Why the policy decided, if the deadline passed.
  TimePoint sent;
  std::chrono::steady_clock::time_point deadline;

  // The list of those that wait for their deadline.
  Flight* previous = nullptr;
  Flight* next = nullptr;
  bool listed = false;

 private:
  std::vector<std::size_t> first_charge_;  // Of each request.
  std::vector<Charge> charges_;
  std::vector<Limit> limits_;
  std::vector<Decision> each_;
  std::vector<SeenState> seen_;
  std::vector<DenyCache::Place> places_;
  std::string text_;  // Keys and names.
};

// Flights in the order in which they were added.
class FlightList {
 public:
  bool empty() const { return first_ == nullptr; }
  Flight* front() const { return first_; }
  void PushBack(Flight* flight);
  void Remove(Flight* flight);

 private:
  Flight* first_ = nullptr;
  Flight* last_ = nullptr;
};

}  // namespace sluice::guard
