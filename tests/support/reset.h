// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>

#include "sluice/store.h"

namespace sluice::testing_support {

// Resets one charge through any store, and waits. Returns whether there was any state.
inline Expected<bool> ResetAndWait(Store& store, const Charge& charge) {
  Request request{.charges = {&charge, 1}, .action = Action::kReset};
  std::promise<void> done;
  store.Apply({&request, 1}, [&] { done.set_value(); });
  done.get_future().wait();
  if (!request.outcome) return std::unexpected(request.outcome.error());
  return request.existed;
}

}  // namespace sluice::testing_support
