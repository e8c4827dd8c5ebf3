// SPDX-License-Identifier: Apache-2.0
// Reads a serialized envoy.service.ratelimit.v3.RateLimitRequest where it lies. Generated code
// would first build all that a message claims to hold, which for four megabytes of empty
// descriptors is some hundred; this keeps to the maxima while it reads, and copies nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "grpc/status.h"
#include "rules/envoy.h"
#include "sluice/store.h"

namespace sluice::grpc {

inline constexpr std::size_t kDescriptorsMax = kChargesMax;
inline constexpr std::size_t kEntriesMax = 1024;  // Of all descriptors together.

struct RlsOverride {
  std::uint32_t requests_per_unit = 0;
  std::int32_t unit = 0;  // Any number: whoever reads it must check.
};

struct RlsDescriptor {
  std::size_t first_entry = 0;
  std::size_t entry_count = 0;
  std::optional<RlsOverride> limit;
  std::optional<std::uint64_t> hits_addend;
  bool is_negative_hits = false;
};

// Views point into the message. Texts may be any bytes, not only UTF-8.
struct RlsRequest {
  std::string_view domain;
  std::vector<RlsDescriptor> descriptors;
  std::vector<rules::RlsEntry> entries;
  std::uint32_t hits_addend = 0;

  // Replaces what is there. Fields that are not known are passed over. kInternal if it is not such
  // a message, as gRPC has it; kInvalidArgument beyond a maximum. Allocates only to grow.
  Status Parse(std::string_view message);
};

}  // namespace sluice::grpc
