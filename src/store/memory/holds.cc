// SPDX-License-Identifier: Apache-2.0
#include "store/memory/holds.h"

namespace sluice::memory {

Holds::Entry* Holds::Find(std::string_view id) {
  const auto found = by_id_.find(std::string(id));
  return found == by_id_.end() ? nullptr : &*found;
}

Holds::Entry& Holds::Add(std::string_view id, const HoldRecord& record) {
  Entry& entry = *by_id_.emplace(id, record).first;
  if (record.status == HoldRecord::Status::kLive) {
    live_.emplace(record.expires_us, &entry);
    units_ += record.units;
  } else {
    ended_.emplace(record.ForgottenUs(), &entry);
  }
  return entry;
}

void Holds::Extend(Entry& entry, std::int64_t expires_us) {
  live_.erase({entry.second.expires_us, &entry});
  entry.second.expires_us = expires_us;
  live_.emplace(expires_us, &entry);
}

void Holds::End(Entry& entry, HoldRecord::Status status) {
  HoldRecord& record = entry.second;
  if (record.status == HoldRecord::Status::kLive) {
    live_.erase({record.expires_us, &entry});
    ended_.emplace(record.ForgottenUs(), &entry);
    units_ -= record.units;
  }
  record.status = status;
}

Holds::Entry* Holds::FirstExpired(std::int64_t now_us) {
  return live_.empty() || live_.begin()->first > now_us ? nullptr : live_.begin()->second;
}

std::size_t Holds::Forget(std::int64_t now_us) {
  std::size_t forgotten = 0;
  while (!ended_.empty() && ended_.begin()->first <= now_us) {
    by_id_.erase(by_id_.find(ended_.begin()->second->first));
    ended_.erase(ended_.begin());
    ++forgotten;
  }
  return forgotten;
}

std::int64_t Holds::ExpiredDownTo(std::int64_t units) const {
  std::int64_t held = units_;
  std::int64_t last = 0;
  for (auto next = live_.begin(); next != live_.end() && held > units; ++next) {
    held -= next->second->second.units;
    last = next->first;
  }
  return last;
}

void Holds::Redate(std::int64_t taken_us, bool release) {
  for (auto& [id, record] : by_id_) {
    record.taken_us = taken_us;
    const bool live = record.status == HoldRecord::Status::kLive;
    if (release && live) record.on_expiry = OnExpiry::kRelease;
  }
}

}  // namespace sluice::memory
