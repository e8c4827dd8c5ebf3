// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sluice/store.h"
#include "store/guard/breaker.h"
#include "store/guard/deny_cache.h"
#include "store/guard/kept_settles.h"
#include "store/guard/overload.h"
#include "store/guard/places.h"

namespace sluice::guard {

// One call of the inner store. It owns copies of everything that the store works on, because a call
// that misses its deadline goes on after its caller was answered. Calls are reused: in steady state
// nothing here allocates.
struct StoreCall {
  using Done = std::move_only_function<void()>;

  // Copies the requests in `asked`.
  void Copy(DenyCache& cache);

  // Empties it, keeping its memory unless that is large.
  void Clear();

  // The numbers of each charge of request `i`, and where its states are or would be remembered.
  std::span<const Decision> EachOf(std::size_t i) const;
  std::span<const DenyCache::Place> PlacesOf(std::size_t i) const;

  std::vector<Request*> asked;                     // The caller's.
  std::vector<Request> requests;                   // The copies, for the store.
  std::vector<Places::ScarcePlace> scarce_places;  // Of places taken while places were scarce.
  std::vector<std::int64_t> local_units;           // What the policy took locally for each request.
  std::vector<bool> refused;                       // Whether the caller was told of an error.
  std::vector<KeptSettles::Settle> settles;        // Own: what the requests say, one each.
  Done done;                                       // The caller's. Kept here, never called here.
  bool own = false;      // A report or a probe of the guard itself: no caller waits for it.
  bool decided = false;  // By policy, because the deadline passed.

  Breaker::Pass pass{};
  Cause cause{};  // Why the policy decided.
  TimePoint sent;
  TimePoint deadline;

  // Neighbours in the queue of calls that wait for their deadline.
  StoreCall* previous = nullptr;
  StoreCall* next = nullptr;

 private:
  std::vector<std::size_t> first_charge_;  // Of each request.
  std::vector<Charge> charges_;
  std::vector<Limit> limits_;
  std::vector<Decision> each_;
  std::vector<SeenState> seen_;
  std::vector<DenyCache::Place> places_;
  std::vector<HoldTerms> holds_;
  std::vector<HoldList> lists_;
  std::string text_;  // Keys, names and ids of holds.
};

// Calls in the order in which they were added.
class CallQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  StoreCall* front() const { return first_; }
  void PushBack(StoreCall* call);
  void Remove(StoreCall* call);

 private:
  StoreCall* first_ = nullptr;
  StoreCall* last_ = nullptr;
};

}  // namespace sluice::guard
