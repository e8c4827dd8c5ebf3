// SPDX-License-Identifier: Apache-2.0
#include <sluice/sluice.h>

int main() {
  const auto limit = sluice::Limit::Parse("limit=1,window=1h");
  sluice::Limiter limiter(*limit);
  const bool first = limiter.Check("key")->allowed;
  const bool second = limiter.Check("key")->allowed;
  return first && !second ? 0 : 1;
}
