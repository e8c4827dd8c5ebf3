// SPDX-License-Identifier: Apache-2.0
// Everything the library offers. Needs nothing but the standard library.
#pragma once

#include "sluice/decision.h"      // IWYU pragma: export
#include "sluice/error.h"         // IWYU pragma: export
#include "sluice/limit.h"         // IWYU pragma: export
#include "sluice/limiter.h"       // IWYU pragma: export
#include "sluice/memory_store.h"  // IWYU pragma: export
#include "sluice/store.h"         // IWYU pragma: export
#include "sluice/time.h"          // IWYU pragma: export
