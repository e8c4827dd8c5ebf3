// SPDX-License-Identifier: Apache-2.0
#include "store/guard/store_call.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace sluice::guard {
namespace {

using namespace std::chrono_literals;

// Bytes in use by this process, as the allocator counts them.
std::size_t BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(StoreCall, GivesTheMemoryOfALargeBatchBack) {
  const Limit limit = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
  const std::string key(1'000, 'k');
  const Charge charge{.key = key, .limit = &limit};
  std::vector<Request> requests(10'000, Request{.charges = {&charge, 1}});
  DenyCache cache(0, 0s, {});
  StoreCall call;
  const std::size_t before = BytesInUse();
  for (Request& request : requests) call.asked.push_back(&request);
  call.Copy(cache);
  call.scarce_places.resize(requests.size());
  call.Clear();
  // Nothing except what the allocator itself keeps.
  EXPECT_LT(BytesInUse(), before + 4'096);
}

TEST(StoreCall, KeepsThatOfASmallOne) {
  const Limit limit = *Limit::Parse("algorithm=fixed_window,limit=10,window=1m");
  const Charge charge{.key = "k", .limit = &limit};
  Request request{.charges = {&charge, 1}};
  DenyCache cache(0, 0s, {});
  StoreCall call;
  const auto use = [&] {
    call.asked.push_back(&request);
    call.Copy(cache);
    const Request* const copy = call.requests.data();
    call.Clear();
    return copy;
  };
  const Request* const first = use();
  EXPECT_EQ(use(), first);
}

}  // namespace
}  // namespace sluice::guard
