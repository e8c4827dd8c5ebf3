// SPDX-License-Identifier: Apache-2.0
#include "store/memory/hold_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "store/hash.h"

namespace sluice::memory {

std::size_t HoldIndex::HashOfId::operator()(std::string_view id) const {
  static const Seed seed = RandomSeed();
  return SipHasher<1, 3>(seed).Finish(id).low;
}

HoldRecord* HoldIndex::Find(std::string_view id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &*found;
}

HoldRecord& HoldIndex::Add(std::string_view id, const HoldRecord& record) {
  if (by_id_.size() >= by_id_.bucket_count()) {
    const std::size_t count = 4 * by_id_.bucket_count();
    auto buckets = std::make_unique<ById::bucket_type[]>(count);
    by_id_.rehash(ById::bucket_traits(buckets.get(), count));
    buckets_ = std::move(buckets);
  }
  auto* const node = new Node(id, record);
  by_id_.insert(*node);
  // Most likely the last.
  ByTime& in_time = node->live() ? live_ : ended_;
  in_time.insert(in_time.end(), *node);
  return *node;
}

void HoldIndex::Extend(HoldRecord& hold, std::int64_t expires_us) {
  Node& node = static_cast<Node&>(hold);
  live_.erase(live_.iterator_to(node));
  node.expires_us = expires_us;
  live_.insert(live_.end(), node);
}

void HoldIndex::End(HoldRecord& hold, HoldRecord::Status status) {
  Node& node = static_cast<Node&>(hold);
  if (node.live()) {
    live_.erase(live_.iterator_to(node));
    ended_.insert(ended_.end(), node);
  }
  node.status = status;
}

HoldRecord* HoldIndex::FirstExpired(std::int64_t now_us) {
  if (live_.empty() || live_.begin()->expires_us > now_us) return nullptr;
  return &*live_.begin();
}

std::size_t HoldIndex::Forget(std::int64_t now_us) {
  std::size_t forgotten = 0;
  while (!ended_.empty() && ended_.begin()->ForgottenUs() <= now_us) {
    const std::unique_ptr<Node> node(&*ended_.begin());
    ended_.erase(ended_.begin());
    by_id_.erase(by_id_.iterator_to(*node));
    ++forgotten;
  }
  return forgotten;
}

std::int64_t HoldIndex::DueUs() const {
  std::int64_t due_us = std::numeric_limits<std::int64_t>::max();
  for (const ByTime* const in_time : {&live_, &ended_}) {
    if (!in_time->empty()) due_us = std::min(due_us, in_time->begin()->DueUs());
  }
  return due_us;
}

}  // namespace sluice::memory
