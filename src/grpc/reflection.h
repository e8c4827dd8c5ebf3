// SPDX-License-Identifier: Apache-2.0
// grpc.reflection, v1 and v1alpha: tells tools what this server offers, from the descriptors that
// are compiled in.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::grpc {

enum class ReflectionVersion { kV1, kV1Alpha };

// The reply to one serialized ServerReflectionRequest; `services` are those that are listed. Error:
// kInvalidInput, if it is not such a message.
Expected<std::string> Reflect(ReflectionVersion version, std::string_view message,
                              std::span<const std::string_view> services);

}  // namespace sluice::grpc
