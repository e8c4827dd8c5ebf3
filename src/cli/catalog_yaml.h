// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "service/catalog.h"

namespace sluice::cli {

// The limits, defaults and rule sets of a catalog in the form of a configuration file. API keys in
// rules are redacted, each to a different text.
std::string ToYaml(const service::Catalog& catalog);

}  // namespace sluice::cli
