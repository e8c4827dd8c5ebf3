// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sluice/store.h"

namespace sluice::memory {

struct HoldRecord {
  enum class Status : std::uint8_t {
    kLive,
    kExpired,
    kSettled,
    kSettledLate,
  };

  std::int64_t units = 0;  // That were held.
  std::int64_t taken_us = 0;
  std::int64_t expires_us = 0;
  OnExpiry on_expiry = OnExpiry::kCharge;
  Status status = Status::kLive;

  bool live() const { return status == Status::kLive; }
  // How many units are taken on its account, unless it was settled.
  std::int64_t Charged() const { return live() || on_expiry == OnExpiry::kCharge ? units : 0; }
  std::int64_t ForgottenUs() const { return expires_us + kHoldRemembered.count(); }
  // When time changes it next.
  std::int64_t DueUs() const { return live() ? expires_us : ForgottenUs(); }
};

// A record and its id, with room for `kIdBytesMax`.
template <std::size_t kIdBytesMax>
class IdentifiedHold : public HoldRecord {
 public:
  IdentifiedHold(std::string_view id, const HoldRecord& record)
      : HoldRecord(record), id_bytes_(static_cast<std::uint8_t>(id.size())) {
    std::ranges::copy(id, id_.begin());
  }

  std::string_view id() const { return {id_.data(), id_bytes_}; }

 private:
  std::uint8_t id_bytes_;
  std::array<char, kIdBytesMax> id_;
};

}  // namespace sluice::memory
