// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "service/catalog.h"

namespace sluice::cli {

// The limits, defaults and rule sets of a catalog as they would stand in a configuration file. API
// keys that rules name are redacted, each to a text of its own.
std::string ToYaml(const service::Catalog& catalog);

}  // namespace sluice::cli
