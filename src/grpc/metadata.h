// SPDX-License-Identifier: Apache-2.0
// Parses the headers of a gRPC call.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace sluice::grpc {

// grpc-timeout: at most eight digits and one of H M S m u n. Nothing for anything else.
std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text);

// application/grpc or application/grpc+proto, with or without parameters.
bool IsGrpcContentType(std::string_view text);

}  // namespace sluice::grpc
