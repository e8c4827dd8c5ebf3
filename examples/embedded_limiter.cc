// SPDX-License-Identifier: Apache-2.0
// Limits requests inside a program: one limit, then two of them all or nothing.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "sluice/sluice.h"

using namespace std::chrono_literals;

namespace {

void Print(const char* what, const sluice::Expected<sluice::Decision>& decision) {
  if (!decision) {
    std::printf("%-22s error: %s\n", what, decision.error().message.c_str());
  } else if (decision->allowed) {
    std::printf("%-22s allowed, %lld left\n", what, static_cast<long long>(decision->remaining));
  } else {
    std::printf("%-22s denied, retry in %lld ms\n", what,
                static_cast<long long>(decision->retry_after / 1ms));
  }
}

}  // namespace

int main() {
  // A burst of three, then one request a second, for each user.
  const auto limit = sluice::Limit::TokenBucket({.capacity = 3, .refill = 1, .period = 1s});
  if (!limit) {
    std::fprintf(stderr, "%s\n", limit.error().message.c_str());
    return EXIT_FAILURE;
  }
  // Time stands still in this example; leave `clock` out to use the system's.
  sluice::ManualClock clock(sluice::TimePoint{1'700'000'000s});
  sluice::Limiter limiter(*limit, {.clock = &clock});
  for (int i = 0; i < 4; ++i) Print("alice", limiter.Check("alice"));
  clock.Advance(1s);
  Print("alice, 1 s later", limiter.Check("alice"));
  Print("bob, cost 2", limiter.Check("bob", 2));
  Print("bob, cost 4", limiter.Check("bob", 4));

  // Two limits for one request: both are charged, or neither.
  const auto daily = sluice::Limit::Parse("algorithm=fixed_window,limit=1000,window=1d");
  const sluice::Charge charges[] = {
      {.key = "carol", .limit = &*limit, .name = "burst"},
      {.key = "carol", .limit = &*daily, .name = "daily"},
  };
  Print("carol, both limits", limiter.store().CheckAll(charges));
  return EXIT_SUCCESS;
}
