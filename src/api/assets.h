// SPDX-License-Identifier: Apache-2.0
// Files that are compiled in: openapi.json and docs.html of this folder.
#pragma once

#include <string_view>

namespace sluice::api {

extern const std::string_view kOpenApi;
extern const std::string_view kDocsPage;

}  // namespace sluice::api
