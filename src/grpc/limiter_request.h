// SPDX-License-Identifier: Apache-2.0
// Reads the messages of sluice.v1.Limiter in place. Like RlsRequest, they keep to their limits
// while they read: generated code would first build everything that a message claims to contain.
//
// Views point into the message. Unknown fields are skipped. Parse fails with kInternal if it is not
// such a message, like gRPC; and with kInvalidArgument if a value is not what a field takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "grpc/status.h"
#include "rules/context.h"
#include "service/hold_ticket.h"

namespace sluice::grpc {

// CheckRequest, HoldRequest or GiveRequest.
struct CheckMessage {
  enum class Type : std::uint8_t { kCheck, kHold, kGive };

  // Either a rule set, and perhaps a context, or a limit and a key.
  std::string_view rule_set;
  rules::Context context;  // Points to `attributes`.
  std::string_view limit;
  std::string_view key;
  std::int64_t permits = 1;
  bool detail = false;
  service::HoldWish wish;
  std::vector<rules::Attribute> attributes;

  bool by_rules() const { return !rule_set.empty(); }

  // Once.
  Status Parse(std::string_view message, Type type);
};

// CheckBatchRequest.
struct BatchMessage {
  std::vector<std::string_view> checks;  // Each a CheckRequest.

  Status Parse(std::string_view message);
};

// SettleRequest.
struct SettleMessage {
  std::string_view id;
  std::optional<std::int64_t> permits;
  std::vector<std::pair<std::string_view, std::int64_t>> rules;  // Each once.

  Status Parse(std::string_view message);
};

// ExtendRequest, or ReleaseRequest, which has no ttl.
struct ExtendMessage {
  enum class Type : std::uint8_t { kExtend, kRelease };

  std::string_view id;
  std::optional<Micros> ttl;

  Status Parse(std::string_view message, Type type);
};

}  // namespace sluice::grpc
