// SPDX-License-Identifier: Apache-2.0
// All that needs nothing but the standard library, which is the whole library but for redis_store.h
// (link sluice-redis, too) and asio.h (needs Boost.Asio).
#pragma once

#include "sluice/decision.h"       // IWYU pragma: export
#include "sluice/error.h"          // IWYU pragma: export
#include "sluice/guarded_store.h"  // IWYU pragma: export
#include "sluice/limit.h"          // IWYU pragma: export
#include "sluice/limiter.h"        // IWYU pragma: export
#include "sluice/memory_store.h"   // IWYU pragma: export
#include "sluice/store.h"          // IWYU pragma: export
#include "sluice/time.h"           // IWYU pragma: export
