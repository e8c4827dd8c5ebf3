// SPDX-License-Identifier: Apache-2.0
#include <sluice/redis_store.h>

int main() {
  // Nothing listens there: the store starts anyway, and reports it.
  const auto store = sluice::RedisStore::Create({.uri = "redis://127.0.0.1:1"});
  const auto limit = sluice::Limit::Parse("limit=1,window=1h");
  const auto decision = (*store)->Check({.key = "key", .limit = &*limit});
  return !decision && decision.error().code == sluice::ErrorCode::kUnavailable ? 0 : 1;
}
