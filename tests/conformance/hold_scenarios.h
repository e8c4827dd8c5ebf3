// SPDX-License-Identifier: Apache-2.0
//
// Scenarios of HOLDS.md, sections 1 to 3, with numbers worked out by hand. They know nothing of
// what decides them, so that the reference model and every store can be held to the same table.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "conformance/model.h"

namespace sluice::scenario {

using model::OnExpiry;
using model::Status;

// Times count from here: 20 s into an epoch-aligned minute, and a whole multiple of 10 s.
inline constexpr std::int64_t kStartUs = 1'700'000'000'000'000;
inline constexpr std::int64_t kMs = 1'000;
inline constexpr std::int64_t kS = 1'000'000;

// One number for all limits of a scenario, or one each.
struct Units {
  Units(std::int64_t of_all) : each{of_all} {}  // NOLINT(google-explicit-constructor)
  Units(std::initializer_list<std::int64_t> of_each) : each(of_each) {}
  std::vector<std::int64_t> each;
};
inline constexpr std::int64_t kNotInRequest = -1;

// The answer over all limits of the request. After an error nothing else is compared.
struct Want {
  Status status = Status::kOk;
  bool allowed = true;
  std::int64_t remaining = 0;
  std::int64_t retry = 0;
  std::int64_t reset = 0;
  std::int64_t delay = 0;
  std::int64_t held = 0;
  bool overdrawn = false;
  std::int64_t expires = 0;  // From kStartUs on; 0 where no hold was made, found or extended.
};

enum class Op { kCheck, kGive, kDebit, kHold, kSettle, kExtend, kReset };

struct Step {
  std::int64_t at_us = 0;  // From kStartUs on.
  Op op = Op::kCheck;
  Units units = 0;
  Want want = {};
  std::string id = {};
  std::int64_t ttl_us = 0;
  OnExpiry on_expiry = OnExpiry::kCharge;
  std::string key = "k";
};

struct Scenario {
  std::string name;
  std::vector<model::Spec> limits;
  std::vector<Step> steps;
};

inline Want Error(Status status) { return {.status = status}; }

inline Step Check(std::int64_t at, Units units, Want want) {
  return {.at_us = at, .op = Op::kCheck, .units = std::move(units), .want = want};
}
inline Step Peek(std::int64_t at, Want want) { return Check(at, 0, want); }
inline Step Give(std::int64_t at, Units units, Want want) {
  return {.at_us = at, .op = Op::kGive, .units = std::move(units), .want = want};
}
inline Step Debit(std::int64_t at, Units units, Want want) {
  return {.at_us = at, .op = Op::kDebit, .units = std::move(units), .want = want};
}
inline Step Reset(std::int64_t at) { return {.at_us = at, .op = Op::kReset}; }
inline Step Hold(std::int64_t at, std::string id, Units units, std::int64_t ttl, Want want,
                 OnExpiry on_expiry = OnExpiry::kCharge) {
  return {.at_us = at,
          .op = Op::kHold,
          .units = std::move(units),
          .want = want,
          .id = std::move(id),
          .ttl_us = ttl,
          .on_expiry = on_expiry};
}
inline Step Settle(std::int64_t at, std::string id, Units actual, Want want) {
  return {.at_us = at,
          .op = Op::kSettle,
          .units = std::move(actual),
          .want = want,
          .id = std::move(id)};
}
inline Step Release(std::int64_t at, std::string id, Want want) {
  return Settle(at, std::move(id), 0, want);
}
inline Step Extend(std::int64_t at, std::string id, std::int64_t ttl, Want want, Units units = 0) {
  return {.at_us = at,
          .op = Op::kExtend,
          .units = std::move(units),
          .want = want,
          .id = std::move(id),
          .ttl_us = ttl};
}
// The same step of another key, whose states share nothing with those of the others.
inline Step Of(std::string key, Step step) {
  step.key = std::move(key);
  return step;
}

// Ten units, one each second.
inline constexpr model::Spec kBucket{model::Kind::kTokenBucket, 10, 1, kS};
inline constexpr model::Spec kLeaky{model::Kind::kLeakyBucket, 10, 1, kS};
// 1 unit of 1/1000 of a token each millisecond: in microseconds, 10^16 would be above 2^53.
inline constexpr model::Spec kCoarseBucket{model::Kind::kTokenBucket, 10'000'000'000, 1, kS};
inline constexpr model::Spec kMinute{model::Kind::kFixedWindow, 10, 0, 60 * kS};
inline constexpr model::Spec kCounter{model::Kind::kSlidingWindowCounter, 10, 0, 10 * kS};
inline constexpr model::Spec kLog{model::Kind::kSlidingWindow, 10, 0, 10 * kS};
inline constexpr model::Spec kSlots{model::Kind::kConcurrency, 3, 0, 30 * kS};
inline constexpr model::Spec kOneSlot{model::Kind::kConcurrency, 1, 0, 60 * kS};

inline constexpr std::int64_t kHuge = 1'000'000'000'000'000'000;
inline constexpr std::int64_t kExactMax = (std::int64_t{1} << 53) - 1;

inline std::vector<Scenario> ForBuckets() {
  return {
      {"a_settled_hold_gives_the_rest_back_once",
       {kBucket},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           // With 6 on hold the bucket refills to 10 - 6.
           Peek(1 * kS, {.remaining = 4, .reset = 6 * kS, .held = 6}),
           // 4 of 6 come back: 4 + 4.
           Settle(2 * kS, "a", 2, {.remaining = 8, .reset = 2 * kS}),
           Peek(3 * kS, {.remaining = 9, .reset = 1 * kS}),
           Settle(3 * kS, "a", 9, {.remaining = 9, .reset = 1 * kS}),
           Release(3 * kS, "a", {.remaining = 9, .reset = 1 * kS}),
       }},
      {"waits_are_as_if_what_is_on_hold_had_been_spent",
       {kBucket},
       {
           Hold(0, "a", 10, 60 * kS,
                {.remaining = 0, .reset = 10 * kS, .held = 10, .expires = 60 * kS}),
           // Not one of the 20 units that 20 s bring fits beside the hold.
           Check(20 * kS, 1, {.allowed = false, .retry = 1 * kS, .reset = 10 * kS, .held = 10}),
           Release(20 * kS, "a", {.remaining = 10}),
       }},
      {"expired_with_charge_the_units_stay_taken_and_refill_from_then",
       {kBucket},
       {
           Hold(0, "a", 6, 10 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 10 * kS}),
           Of("unseen", Hold(0, "a", 6, 10 * kS,
                             {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 10 * kS})),
           Peek(10 * kS - 1, {.remaining = 4, .reset = 6 * kS, .held = 6}),
           Peek(10 * kS, {.remaining = 4, .reset = 6 * kS}),
           Peek(12 * kS, {.remaining = 6, .reset = 4 * kS}),
           Of("unseen", Peek(12 * kS, {.remaining = 6, .reset = 4 * kS})),
           // 2 instead of 6.
           Settle(12 * kS, "a", 2, {.status = Status::kLate, .remaining = 10}),
           Settle(12 * kS, "a", 9, {.status = Status::kLate, .remaining = 10}),
           // 9 instead of 6.
           Of("unseen",
              Settle(
                  12 * kS, "a", 9,
                  {.status = Status::kLate, .remaining = 3, .reset = 7 * kS, .overdrawn = true})),
       }},
      {"expired_with_release_the_units_come_back_at_that_moment",
       {kBucket},
       {
           Hold(0, "a", 6, 10 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 10 * kS},
                OnExpiry::kRelease),
           Check(8 * kS, 4, {.remaining = 0, .reset = 10 * kS, .held = 6}),
           // At 10 s: 2 that came since 8 s, and the 6. Then one more.
           Peek(11 * kS, {.remaining = 9, .reset = 1 * kS}),
           // Nothing of it was taken any more, so all of the 3 are.
           Settle(11 * kS, "a", 3, {.status = Status::kLate, .remaining = 6, .reset = 4 * kS}),
           Settle(11 * kS, "a", 3, {.status = Status::kLate, .remaining = 6, .reset = 4 * kS}),
       }},
      {"expiries_apply_in_the_order_of_their_time",
       {kBucket},
       {
           Hold(0, "a", 5, 10 * kS,
                {.remaining = 5, .reset = 5 * kS, .held = 5, .expires = 10 * kS}),
           Hold(0, "b", 5, 5 * kS,
                {.remaining = 0, .reset = 10 * kS, .held = 10, .expires = 5 * kS},
                OnExpiry::kRelease),
           // Nothing comes until 5 s. Then there are 5, and no room for more until 10 s.
           Peek(12 * kS, {.remaining = 7, .reset = 3 * kS}),
       }},
      {"settling_for_more_leaves_a_debt",
       {kBucket},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           // 4 - 9 = -5.
           Settle(0, "a", 15, {.remaining = 0, .reset = 15 * kS, .overdrawn = true}),
           Check(0, 1, {.allowed = false, .retry = 6 * kS, .reset = 15 * kS}),
           Check(6 * kS - 1, 1, {.allowed = false, .retry = 1, .reset = 9 * kS + 1}),
           Check(6 * kS, 1, {.remaining = 0, .reset = 10 * kS}),
       }},
      {"a_debt_is_bounded_by_what_the_arithmetic_bears",
       {kBucket},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           // A microsecond brings one of the 10^7 units of the whole bucket.
           Settle(0, "a", kHuge, {.remaining = 0, .reset = kExactMax, .overdrawn = true}),
           Check(0, 1,
                 {.allowed = false, .retry = kExactMax - 10 * kS + 1 * kS, .reset = kExactMax}),
       }},
      {"an_unknown_id_takes_all_and_is_remembered_for_a_minute",
       {kBucket},
       {
           Settle(0, "a", 3,
                  {.status = Status::kLate, .remaining = 7, .reset = 3 * kS, .overdrawn = true}),
           Settle(0, "a", 3, {.status = Status::kLate, .remaining = 7, .reset = 3 * kS}),
           Release(0, "b", {.status = Status::kLate, .remaining = 7, .reset = 3 * kS}),
           Hold(60 * kS - 1, "a", 1, 1 * kS, Error(Status::kHoldConflict)),
           Hold(60 * kS - 1, "b", 1, 1 * kS, Error(Status::kHoldConflict)),
           Extend(60 * kS - 1, "a", 1 * kS, Error(Status::kHoldLost)),
           Hold(60 * kS, "a", 1, 1 * kS,
                {.remaining = 9, .reset = 1 * kS, .held = 1, .expires = 61 * kS}),
           Hold(60 * kS, "b", 1, 1 * kS,
                {.remaining = 8, .reset = 2 * kS, .held = 2, .expires = 61 * kS}),
       }},
      {"the_same_hold_again_takes_nothing_and_another_conflicts",
       {kBucket},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           Hold(1 * kS, "a", 6, 5 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS},
                OnExpiry::kRelease),
           Hold(1 * kS, "a", 5, 30 * kS, Error(Status::kHoldConflict)),
           // Still CHARGE, and still at 30 s.
           Peek(30 * kS - 1, {.remaining = 4, .reset = 6 * kS, .held = 6}),
           Peek(30 * kS, {.remaining = 4, .reset = 6 * kS}),
           Hold(30 * kS, "a", 6, 30 * kS, Error(Status::kHoldConflict)),
           Release(31 * kS, "a", {.status = Status::kLate, .remaining = 10}),
           // Remembered until a minute after its expiry, not after its end.
           Hold(90 * kS - 1, "a", 6, 30 * kS, Error(Status::kHoldConflict)),
           Hold(90 * kS, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 120 * kS}),
       }},
      {"a_forgotten_id_is_settled_as_an_unknown_one",
       {kBucket},
       {
           Hold(0, "a", 6, 10 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 10 * kS}),
           Settle(5 * kS, "a", 6, {.remaining = 4, .reset = 6 * kS}),
           Settle(70 * kS - 1, "a", 6, {.remaining = 10}),
           Settle(70 * kS, "a", 6,
                  {.status = Status::kLate, .remaining = 4, .reset = 6 * kS, .overdrawn = true}),
       }},
      {"extending_moves_the_expiry_while_the_hold_is_live",
       {kBucket},
       {
           Hold(0, "a", 6, 10 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 10 * kS}),
           Extend(10 * kS - 1, "a", 20 * kS,
                  {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS - 1}),
           Peek(10 * kS, {.remaining = 4, .reset = 6 * kS, .held = 6}),
           Extend(11 * kS, "a", 1 * kMs,
                  {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 11 * kS + 1 * kMs}),
           Extend(11 * kS + 1 * kMs, "a", 20 * kS, Error(Status::kHoldLost)),
           Peek(11 * kS + 1 * kMs, {.remaining = 4, .reset = 6 * kS}),
           Extend(11 * kS + 1 * kMs, "b", 20 * kS, Error(Status::kHoldLost)),
       }},
      {"a_denied_hold_leaves_nothing",
       {kBucket},
       {
           Check(0, 8, {.remaining = 2, .reset = 8 * kS}),
           Hold(0, "a", 3, 30 * kS,
                {.allowed = false, .remaining = 2, .retry = 1 * kS, .reset = 8 * kS}),
           Extend(0, "a", 30 * kS, Error(Status::kHoldLost)),
           Hold(1 * kS, "a", 3, 30 * kS,
                {.remaining = 0, .reset = 10 * kS, .held = 3, .expires = 31 * kS}),
       }},
      {"a_hold_of_nothing_is_a_hold",
       {kBucket},
       {
           Hold(0, "a", 0, 30 * kS, {.remaining = 10, .expires = 30 * kS}),
           Hold(0, "a", 1, 30 * kS, Error(Status::kHoldConflict)),
           Settle(0, "a", 3, {.remaining = 7, .reset = 3 * kS, .overdrawn = true}),
       }},
      {"a_cost_above_the_limit_is_an_error_of_a_hold",
       {kBucket},
       {
           Hold(0, "a", 11, 30 * kS, Error(Status::kCostExceeds)),
           Hold(0, "a", 10, 30 * kS,
                {.remaining = 0, .reset = 10 * kS, .held = 10, .expires = 30 * kS}),
           // And not of a settle.
           Settle(0, "a", 11, {.remaining = 0, .reset = 11 * kS, .overdrawn = true}),
       }},
      {"what_is_on_hold_is_neither_given_back_nor_debited",
       {kBucket},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           Give(0, 100, {.remaining = 4, .reset = 6 * kS, .held = 6}),
           Check(0, 3, {.remaining = 1, .reset = 9 * kS, .held = 6}),
           Give(0, 1, {.remaining = 2, .reset = 8 * kS, .held = 6}),
           Give(0, 100, {.remaining = 4, .reset = 6 * kS, .held = 6}),
           Debit(0, 100, {.remaining = 0, .reset = 10 * kS, .held = 6}),
           Release(0, "a", {.remaining = 6, .reset = 4 * kS}),
       }},
      {"a_reset_forgets_holds",
       {kBucket},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           Reset(0),
           Peek(0, {.remaining = 10}),
           Settle(0, "a", 2,
                  {.status = Status::kLate, .remaining = 8, .reset = 2 * kS, .overdrawn = true}),
       }},
      {"an_expiry_within_a_tick_counts_as_its_start",
       {kCoarseBucket},
       {
           // Full again after 10^13 ticks of 1 ms.
           Hold(0, "a", 10'000'000'000, 1'500,
                {.remaining = 0,
                 .reset = 10'000'000'000 * kS,
                 .held = 10'000'000'000,
                 .expires = 1'500}),
           // Time stands at 1 ms, and 1,000 ticks bring one token.
           Check(1'499, 1,
                 {.allowed = false,
                  .retry = 1'001 * kMs - 1'499,
                  .reset = 10'000'000'000 * kS + 1 * kMs - 1'499,
                  .held = 10'000'000'000}),
           Check(1'500, 1,
                 {.allowed = false,
                  .retry = 1'001 * kMs - 1'500,
                  .reset = 10'000'000'000 * kS + 1 * kMs - 1'500}),
           Check(2'000, 1,
                 {.allowed = false,
                  .retry = 1'001 * kMs - 2'000,
                  .reset = 10'000'000'000 * kS + 1 * kMs - 2'000}),
       }},
      {"a_leaky_bucket_delays_a_hold_as_a_check_and_the_rest_as_a_peek",
       {kLeaky},
       {
           Hold(0, "a", 4, 30 * kS,
                {.remaining = 6, .reset = 4 * kS, .held = 4, .expires = 30 * kS}),
           Hold(0, "b", 2, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .delay = 4 * kS, .held = 6, .expires = 30 * kS}),
           Hold(0, "a", 4, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .delay = 6 * kS, .held = 6, .expires = 30 * kS}),
           Extend(
               0, "b", 40 * kS,
               {.remaining = 4, .reset = 6 * kS, .delay = 6 * kS, .held = 6, .expires = 40 * kS}),
           Settle(0, "b", 1, {.remaining = 5, .reset = 5 * kS, .delay = 5 * kS, .held = 4}),
           Hold(0, "c", 6, 30 * kS,
                {.allowed = false, .remaining = 5, .retry = 1 * kS, .reset = 5 * kS, .held = 4}),
       }},
  };
}

inline std::vector<Scenario> ForWindows() {
  return {
      {"a_fixed_window_takes_back_what_was_held_in_it_and_no_other",
       {kMinute},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 40 * kS, .held = 6, .expires = 30 * kS}),
           Settle(10 * kS, "a", 2, {.remaining = 8, .reset = 30 * kS}),
           Hold(30 * kS, "b", 4, 30 * kS,
                {.remaining = 4, .reset = 10 * kS, .held = 4, .expires = 60 * kS}),
           Hold(30 * kS, "c", 3, 30 * kS,
                {.remaining = 1, .reset = 10 * kS, .held = 7, .expires = 60 * kS}),
           // A new window.
           Peek(40 * kS, {.remaining = 10, .reset = 60 * kS, .held = 7}),
           Check(40 * kS, 3, {.remaining = 7, .reset = 60 * kS, .held = 7}),
           Settle(41 * kS, "b", 1, {.remaining = 7, .reset = 59 * kS, .held = 3}),
           // 2 more than was held, taken now.
           Settle(41 * kS, "c", 5, {.remaining = 5, .reset = 59 * kS, .overdrawn = true}),
       }},
      {"a_fixed_window_gives_back_at_the_expiry",
       {kMinute},
       {
           Hold(0, "a", 6, 10 * kS,
                {.remaining = 4, .reset = 40 * kS, .held = 6, .expires = 10 * kS},
                OnExpiry::kRelease),
           Peek(10 * kS - 1, {.remaining = 4, .reset = 30 * kS + 1, .held = 6}),
           Peek(10 * kS, {.remaining = 10, .reset = 30 * kS}),
           Hold(10 * kS, "b", 6, 10 * kS,
                {.remaining = 4, .reset = 30 * kS, .held = 6, .expires = 20 * kS}),
           Peek(20 * kS, {.remaining = 4, .reset = 20 * kS}),
           Settle(20 * kS, "a", 1, {.status = Status::kLate, .remaining = 3, .reset = 20 * kS}),
           Settle(20 * kS, "b", 1, {.status = Status::kLate, .remaining = 8, .reset = 20 * kS}),
       }},
      {"the_count_of_a_fixed_window_is_bounded",
       {kMinute},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 40 * kS, .held = 6, .expires = 30 * kS}),
           Settle(0, "a", kHuge, {.remaining = 0, .reset = 40 * kS, .overdrawn = true}),
           Give(0, kExactMax - 1, {.remaining = 9, .reset = 40 * kS}),
       }},
      {"nothing_goes_below_zero_when_units_on_hold_were_given_back_by_hand",
       {kMinute},
       {
           Hold(0, "a", 6, 30 * kS,
                {.remaining = 4, .reset = 40 * kS, .held = 6, .expires = 30 * kS}),
           Give(0, 4, {.remaining = 8, .reset = 40 * kS, .held = 6}),
           Release(0, "a", {.remaining = 10, .reset = 40 * kS}),
           Check(0, 10, {.remaining = 0, .reset = 40 * kS}),
       }},
      {"a_counter_takes_back_into_the_window_of_the_hold",
       {kCounter},
       {
           Hold(0, "a", 8, 60 * kS,
                {.remaining = 2, .reset = 20 * kS, .held = 8, .expires = 60 * kS}),
           // 8 at half their weight, and 3.
           Check(15 * kS, 3, {.remaining = 3, .reset = 15 * kS, .held = 8}),
           // 2 at half their weight, and 3.
           Settle(15 * kS, "a", 2, {.remaining = 6, .reset = 15 * kS}),
           // One more, now.
           Of("more", Hold(0, "a", 8, 60 * kS,
                           {.remaining = 2, .reset = 20 * kS, .held = 8, .expires = 60 * kS})),
           Of("more",
              Settle(15 * kS, "a", 9, {.remaining = 5, .reset = 15 * kS, .overdrawn = true})),
           // In the window after next, the hold's has no influence that could be taken back.
           Of("old", Hold(0, "a", 8, 60 * kS,
                          {.remaining = 2, .reset = 20 * kS, .held = 8, .expires = 60 * kS})),
           Of("old", Check(20 * kS, 3, {.remaining = 7, .reset = 20 * kS, .held = 8})),
           Of("old", Release(20 * kS, "a", {.remaining = 7, .reset = 20 * kS})),
       }},
      {"a_counter_gives_back_at_the_expiry",
       {kCounter},
       {
           Hold(0, "a", 8, 12 * kS,
                {.remaining = 2, .reset = 20 * kS, .held = 8, .expires = 12 * kS},
                OnExpiry::kRelease),
           // 8 with nearly 4/5 of their weight are more than 6.4.
           Peek(12 * kS - 1, {.remaining = 3, .reset = 8 * kS + 1, .held = 8}),
           Peek(12 * kS, {.remaining = 10}),
       }},
      {"the_count_of_a_counter_is_bounded",
       {kCounter},
       {
           Settle(0, "a", kHuge,
                  {.status = Status::kLate, .remaining = 0, .reset = 20 * kS, .overdrawn = true}),
           // 2,560 of the previous window weigh no more than 9 when at most 9/2,560 of it is left:
           // 35,156.25 us.
           Check(0, 1, {.allowed = false, .retry = 20 * kS - 35'156, .reset = 20 * kS}),
           Give(0, 2'556, {.remaining = 6, .reset = 20 * kS}),
       }},
      {"the_entry_of_a_log_shrinks_or_goes",
       {kLog},
       {
           Hold(0, "a", 3, 30 * kS,
                {.remaining = 7, .reset = 10 * kS, .held = 3, .expires = 30 * kS}),
           Check(0, 2, {.remaining = 5, .reset = 10 * kS, .held = 3}),
           Check(5 * kS, 4, {.remaining = 1, .reset = 10 * kS, .held = 3}),
           Settle(6 * kS, "a", 1, {.remaining = 3, .reset = 9 * kS}),
           Peek(10 * kS, {.remaining = 6, .reset = 5 * kS}),
           Hold(11 * kS, "b", 3, 30 * kS,
                {.remaining = 3, .reset = 10 * kS, .held = 3, .expires = 41 * kS}),
           Release(12 * kS, "b", {.remaining = 6, .reset = 3 * kS}),
       }},
      {"a_log_takes_what_is_more_now",
       {kLog},
       {
           Hold(0, "a", 3, 30 * kS,
                {.remaining = 7, .reset = 10 * kS, .held = 3, .expires = 30 * kS}),
           Settle(4 * kS, "a", 5, {.remaining = 5, .reset = 10 * kS, .overdrawn = true}),
           Peek(10 * kS, {.remaining = 8, .reset = 4 * kS}),
           Of("huge", Settle(0, "a", kHuge,
                             {.status = Status::kLate, .reset = 10 * kS, .overdrawn = true})),
           Of("huge", Give(0, kExactMax - 1, {.remaining = 9, .reset = 10 * kS})),
       }},
      {"a_log_gives_back_at_the_expiry_and_no_more_than_is_there",
       {kLog},
       {
           Hold(0, "a", 3, 4 * kS, {.remaining = 7, .reset = 10 * kS, .held = 3, .expires = 4 * kS},
                OnExpiry::kRelease),
           Check(1 * kS, 2, {.remaining = 5, .reset = 10 * kS, .held = 3}),
           // Both units of the newest, and one of the hold's.
           Give(2 * kS, 3, {.remaining = 8, .reset = 8 * kS, .held = 3}),
           Peek(4 * kS - 1, {.remaining = 8, .reset = 6 * kS + 1, .held = 3}),
           Peek(4 * kS, {.remaining = 10}),
       }},
      {"an_entry_that_has_left_is_not_given_back",
       {kLog},
       {
           Hold(0, "a", 3, 30 * kS,
                {.remaining = 7, .reset = 10 * kS, .held = 3, .expires = 30 * kS}),
           Check(10 * kS, 4, {.remaining = 6, .reset = 10 * kS, .held = 3}),
           Release(11 * kS, "a", {.remaining = 6, .reset = 9 * kS}),
       }},
  };
}

inline std::vector<Scenario> ForConcurrency() {
  return {
      {"slots_are_taken_while_they_are_held",
       {kSlots},
       {
           Peek(0, {.remaining = 3}),
           // A ttl of 0 is the limit's.
           Hold(0, "a", 1, 0, {.remaining = 2, .reset = 30 * kS, .held = 1, .expires = 30 * kS}),
           Hold(1 * kS, "b", 2, 10 * kS,
                {.remaining = 0, .reset = 29 * kS, .held = 3, .expires = 11 * kS}),
           Hold(2 * kS, "c", 1, 0,
                {.allowed = false, .retry = 9 * kS, .reset = 28 * kS, .held = 3}),
           // b's two are not enough.
           Hold(2 * kS, "c", 3, 0,
                {.allowed = false, .retry = 28 * kS, .reset = 28 * kS, .held = 3}),
           Hold(11 * kS - 1, "c", 2, 0,
                {.allowed = false, .retry = 1, .reset = 19 * kS + 1, .held = 3}),
           Hold(11 * kS, "c", 2, 1 * kMs,
                {.remaining = 0, .reset = 19 * kS, .held = 3, .expires = 11 * kS + 1 * kMs}),
           Peek(12 * kS, {.remaining = 2, .reset = 18 * kS, .held = 1}),
           // Whatever `actual` says.
           Settle(12 * kS, "a", 100, {.remaining = 3}),
           Settle(12 * kS, "a", 100, {.remaining = 3}),
           Settle(12 * kS, "b", 100, {.status = Status::kLate, .remaining = 3}),
           Settle(12 * kS, "unknown", 100, {.status = Status::kLate, .remaining = 3}),
           Hold(12 * kS, "unknown", 1, 0, Error(Status::kHoldConflict)),
           Extend(12 * kS, "a", 0, Error(Status::kHoldLost)),
       }},
      {"slots_come_back_at_expiry_even_if_charge_was_asked_for",
       {kSlots},
       {
           Hold(0, "a", 3, 10 * kS,
                {.remaining = 0, .reset = 10 * kS, .held = 3, .expires = 10 * kS}),
           Extend(5 * kS, "a", 0,
                  {.remaining = 0, .reset = 30 * kS, .held = 3, .expires = 35 * kS}),
           Peek(35 * kS - 1, {.remaining = 0, .reset = 1, .held = 3}),
           Peek(35 * kS, {.remaining = 3}),
           Reset(35 * kS),
           Hold(35 * kS, "a", 3, 10 * kS,
                {.remaining = 0, .reset = 10 * kS, .held = 3, .expires = 45 * kS}),
           Reset(35 * kS),
           Peek(35 * kS, {.remaining = 3}),
       }},
      {"the_same_hold_of_slots_again_takes_none",
       {kSlots},
       {
           Hold(0, "a", 2, 10 * kS,
                {.remaining = 1, .reset = 10 * kS, .held = 2, .expires = 10 * kS}),
           Hold(4 * kS, "a", 2, 10 * kS,
                {.remaining = 1, .reset = 6 * kS, .held = 2, .expires = 10 * kS}),
           Hold(4 * kS, "a", 1, 10 * kS, Error(Status::kHoldConflict)),
           Hold(10 * kS, "a", 2, 10 * kS, Error(Status::kHoldConflict)),
           Hold(70 * kS, "a", 2, 10 * kS,
                {.remaining = 1, .reset = 10 * kS, .held = 2, .expires = 80 * kS}),
       }},
      {"slots_need_a_hold",
       {kSlots},
       {
           Check(0, 1, Error(Status::kNeedsHold)),
           Give(0, 1, Error(Status::kNeedsHold)),
           Debit(0, 1, Error(Status::kNeedsHold)),
           Hold(0, "a", 4, 0, Error(Status::kCostExceeds)),
           Peek(0, {.remaining = 3}),
       }},
  };
}

inline std::vector<Scenario> ForGroups() {
  return {
      {"slots_and_a_rate_are_held_together",
       {kOneSlot, kBucket},
       {
           Hold(0, "a", {1, 6}, 30 * kS,
                {.remaining = 0, .reset = 30 * kS, .held = 1, .expires = 30 * kS}),
           // The bucket would wait 2 s, the slot 30.
           Hold(0, "b", {1, 6}, 30 * kS,
                {.allowed = false, .retry = 30 * kS, .reset = 30 * kS, .held = 1}),
           // The slot is free, and 4 of 6 came back.
           Settle(0, "a", 2, {.remaining = 1, .reset = 2 * kS}),
           // The bucket denies, so the slot stays free.
           Hold(0, "b", {1, 10}, 30 * kS,
                {.allowed = false, .remaining = 1, .retry = 2 * kS, .reset = 2 * kS}),
           Extend(0, "b", 30 * kS, Error(Status::kHoldLost)),
           Hold(0, "b", {1, 8}, 30 * kS,
                {.remaining = 0, .reset = 30 * kS, .held = 1, .expires = 30 * kS}),
           Check(0, {0, 1}, {.allowed = false, .retry = 1 * kS, .reset = 30 * kS, .held = 1}),
           Check(0, {1, 0}, Error(Status::kNeedsHold)),
           // At 30 s the slot is free, and the rate stays charged: 2 beside the 8 on hold, and 2
           // since then.
           Peek(32 * kS, {.remaining = 1, .reset = 6 * kS}),
           Settle(32 * kS, "b", {1, 9},
                  {.status = Status::kLate, .remaining = 1, .reset = 7 * kS, .overdrawn = true}),
       }},
      {"each_state_does_what_it_knows_of_an_id",
       {kBucket, kBucket},
       {
           Hold(0, "a", {6, kNotInRequest}, 30 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           Hold(0, "a", 6, 30 * kS, Error(Status::kHoldConflict)),
           Extend(0, "a", 40 * kS, Error(Status::kHoldLost)),
           Hold(0, "a", {6, kNotInRequest}, 40 * kS,
                {.remaining = 4, .reset = 6 * kS, .held = 6, .expires = 30 * kS}),
           // The first takes 2 instead of 6, the second 3 instead of nothing.
           Settle(0, "a", {2, 3},
                  {.status = Status::kLate, .remaining = 7, .reset = 3 * kS, .overdrawn = true}),
           Settle(0, "a", {2, kNotInRequest}, {.remaining = 8, .reset = 2 * kS}),
           Settle(0, "a", {kNotInRequest, 3},
                  {.status = Status::kLate, .remaining = 7, .reset = 3 * kS}),
       }},
      {"an_error_of_one_is_an_error_of_all",
       {kBucket, kOneSlot},
       {
           Hold(0, "a", {1, 2}, 30 * kS, Error(Status::kCostExceeds)),
           Hold(0, "a", {kNotInRequest, 1}, 30 * kS,
                {.remaining = 0, .reset = 30 * kS, .held = 1, .expires = 30 * kS}),
           Hold(0, "a", {1, 1}, 30 * kS, Error(Status::kHoldConflict)),
           Give(0, {1, 0}, Error(Status::kNeedsHold)),
           Peek(0, {.remaining = 0, .reset = 30 * kS, .held = 1}),
           Check(0, {10, kNotInRequest}, {.remaining = 0, .reset = 10 * kS}),
       }},
      {"a_group_is_held_as_long_as_all_of_it",
       {kBucket, kOneSlot},
       {
           Hold(0, "a", {1, kNotInRequest}, 30 * kS,
                {.remaining = 9, .reset = 1 * kS, .held = 1, .expires = 30 * kS}),
           Hold(0, "a", {kNotInRequest, 1}, 20 * kS,
                {.remaining = 0, .reset = 20 * kS, .held = 1, .expires = 20 * kS}),
           Hold(0, "a", 1, 10 * kS,
                {.remaining = 0, .reset = 20 * kS, .held = 1, .expires = 20 * kS}),
           Extend(0, "a", 5 * kS, {.remaining = 0, .reset = 5 * kS, .held = 1, .expires = 5 * kS}),
       }},
  };
}

inline std::vector<Scenario> All() {
  std::vector<Scenario> all = ForBuckets();
  for (auto* more : {&ForWindows, &ForConcurrency, &ForGroups}) {
    for (Scenario& scenario : more()) all.push_back(std::move(scenario));
  }
  return all;
}

}  // namespace sluice::scenario
