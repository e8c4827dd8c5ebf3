// SPDX-License-Identifier: Apache-2.0
// The whole library except redis_store.h (also link sluice-redis) and asio.h (needs Boost.Asio).
// Everything here needs only the standard library.
#pragma once

#include "sluice/decision.h"       // IWYU pragma: export
#include "sluice/error.h"          // IWYU pragma: export
#include "sluice/guarded_store.h"  // IWYU pragma: export
#include "sluice/hold.h"           // IWYU pragma: export
#include "sluice/limit.h"          // IWYU pragma: export
#include "sluice/limiter.h"        // IWYU pragma: export
#include "sluice/memory_store.h"   // IWYU pragma: export
#include "sluice/store.h"          // IWYU pragma: export
#include "sluice/time.h"           // IWYU pragma: export
