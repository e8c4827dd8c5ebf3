// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::grpc {

// Unpacks a gzip stream, but never more than `bytes_max`: a small message that unpacks into a huge
// one costs no more than that. Errors: kInvalidInput if it is not exactly one gzip stream,
// kTooLarge if it holds more.
Expected<std::string> Gunzip(std::string_view compressed, std::size_t bytes_max);

}  // namespace sluice::grpc
