// SPDX-License-Identifier: Apache-2.0
#include "service/limit_hold.h"

#include <string>

#include "sluice/hold.h"

namespace sluice::service {

Expected<void> LimitHold::Prepare(const Wanted& wanted) {
  const auto limit = FindLimit(*catalog_, wanted.limit);
  if (!limit) return std::unexpected(limit.error());
  const HoldWish& wish = wanted.wish;
  ticket_.id = wish.id.empty() ? NewHoldId() : std::string(wish.id);
  ticket_.ttl = wish.ttl.value_or(Micros{0});
  ticket_.parts.push_back({.key = std::string(wanted.key),
                           .limit = limit->limit,
                           .name = std::string(limit->name),
                           .held = wanted.cost});
  charge_ = {.key = part().key,
             .limit = &part().limit,
             .name = part().name,
             .cost = part().held,
             .on_store_failure = wanted.on_store_failure};
  terms_ = {.id = ticket_.id,
            .ttl = ticket_.ttl,
            .on_expiry = wish.on_expiry.value_or(OnExpiry::kCharge)};
  request_ = {.charges = {&charge_, 1}, .action = Action::kHold, .hold = &terms_};
  return {};
}

HoldTicket LimitHold::MakeTicket() const {
  HoldTicket ticket = ticket_;
  ticket.expires = terms_.expires;
  ticket.held = terms_.held;
  return ticket;
}

}  // namespace sluice::service
