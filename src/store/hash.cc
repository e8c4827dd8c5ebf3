// SPDX-License-Identifier: Apache-2.0
#include "store/hash.h"

#include <sys/random.h>

#include <cstdlib>

namespace sluice {

Seed RandomSeed() {
  Seed seed;
  // Without a secret seed, clients could choose colliding keys. There is no fallback.
  if (::getentropy(seed.data(), sizeof(seed)) != 0) std::abort();
  return seed;
}

}  // namespace sluice
