// SPDX-License-Identifier: Apache-2.0
#include "store/memory/holds.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "store/hash.h"

namespace sluice::memory {

std::size_t Holds::HashOfId::operator()(std::string_view id) const {
  static const Seed seed = RandomSeed();
  return SipHasher<1, 3>(seed).Finish(id).low;
}

Holds::Entry* Holds::Find(std::string_view id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &*found;
}

Holds::Entry& Holds::Add(std::string_view id, const HoldRecord& record) {
  if (by_id_.size() >= by_id_.bucket_count()) {
    const std::size_t count = 4 * by_id_.bucket_count();
    auto buckets = std::make_unique<ById::bucket_type[]>(count);
    by_id_.rehash(ById::bucket_traits(buckets.get(), count));
    many_buckets_ = std::move(buckets);
  }
  auto* const entry = new Entry(id, record);
  by_id_.insert(*entry);
  if (record.status == HoldRecord::Status::kLive) {
    live_.insert(live_.end(), *entry);
    units_ += record.units;
  } else {
    ended_.insert(ended_.end(), *entry);
  }
  return *entry;
}

void Holds::Extend(Entry& entry, std::int64_t expires_us) {
  live_.erase(live_.iterator_to(entry));
  entry.record.expires_us = expires_us;
  live_.insert(live_.end(), entry);  // Most likely the last.
}

void Holds::End(Entry& entry, HoldRecord::Status status) {
  HoldRecord& record = entry.record;
  if (record.status == HoldRecord::Status::kLive) {
    live_.erase(live_.iterator_to(entry));
    ended_.insert(ended_.end(), entry);
    units_ -= record.units;
  }
  record.status = status;
}

Holds::Entry* Holds::FirstExpired(std::int64_t now_us) {
  if (live_.empty() || live_.begin()->record.expires_us > now_us) return nullptr;
  return &*live_.begin();
}

std::size_t Holds::Forget(std::int64_t now_us) {
  std::size_t forgotten = 0;
  while (!ended_.empty() && ended_.begin()->record.ForgottenUs() <= now_us) {
    const std::unique_ptr<Entry> entry(&*ended_.begin());
    ended_.erase(ended_.begin());
    by_id_.erase(by_id_.iterator_to(*entry));
    ++forgotten;
  }
  return forgotten;
}

std::int64_t Holds::ExpiredDownTo(std::int64_t units) const {
  std::int64_t held = units_;
  std::int64_t last = 0;
  for (auto next = live_.begin(); next != live_.end() && held > units; ++next) {
    held -= next->record.units;
    last = next->record.expires_us;
  }
  return last;
}

void Holds::List(HoldList& list) const {
  std::vector<const Entry*> found;
  if (!list.only.empty()) {
    const auto only = by_id_.find(list.only);
    const bool lives = only != by_id_.end() && only->record.status == HoldRecord::Status::kLive;
    if (lives) found.push_back(&*only);
  } else {
    // All that expire together, since `live_` has no order among those.
    for (const Entry& entry : live_) {
      if (found.size() >= kListedHoldsMax &&
          entry.record.expires_us > found.back()->record.expires_us) {
        break;
      }
      found.push_back(&entry);
    }
    std::ranges::sort(found, {}, [](const Entry* entry) {
      return std::tuple(entry->record.expires_us, entry->id());
    });
    found.resize(std::min(found.size(), kListedHoldsMax));
  }
  list.live = live_.size();
  list.holds.clear();
  for (const Entry* const entry : found) {
    const HoldRecord& record = entry->record;
    list.holds.push_back({.id = std::string(entry->id()),
                          .units = record.units,
                          .taken = TimePoint{Micros{record.taken_us}},
                          .expires = TimePoint{Micros{record.expires_us}},
                          .on_expiry = record.on_expiry});
  }
}

void Holds::Redate(std::int64_t taken_us, bool release) {
  for (Entry& entry : by_id_) {
    HoldRecord& record = entry.record;
    record.taken_us = taken_us;
    const bool live = record.status == HoldRecord::Status::kLive;
    if (release && live) record.on_expiry = OnExpiry::kRelease;
  }
}

}  // namespace sluice::memory
