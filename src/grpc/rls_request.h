// SPDX-License-Identifier: Apache-2.0
// Reads a serialized envoy.service.ratelimit.v3.RateLimitRequest in place. Generated code would
// first build everything that a message claims to contain: some hundred megabytes for four
// megabytes of empty descriptors. This keeps to the limits while it reads, and copies nothing.
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
inline constexpr std::size_t kEntriesMax = 1024;  // Over all descriptors.

struct RlsOverride {
  std::uint32_t requests_per_unit = 0;
  std::int32_t unit = 0;  // Any number: the reader must check it.
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

  // Replaces the contents. Skips unknown fields. Fails with kInternal if it is not such a message,
  // like gRPC; with kInvalidArgument beyond a maximum. Allocates only to grow.
  Status Parse(std::string_view message);
};

}  // namespace sluice::grpc
