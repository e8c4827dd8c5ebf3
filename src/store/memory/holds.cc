// SPDX-License-Identifier: Apache-2.0
#include "store/memory/holds.h"

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <boost/container/static_vector.hpp>

namespace sluice::memory {

HoldRecord* Holds::Find(std::string_view id) {
  if (many_) return many_->Find(id);
  for (FewHold& hold : few()) {
    if (hold.id() == id) return &hold;
  }
  return nullptr;
}

HoldRecord& Holds::Add(std::string_view id, const HoldRecord& record) {
  if (!many_ && (size_ == kFew || id.size() > kShortIdBytes)) {
    auto many = std::make_unique<HoldIndex>();
    for (const FewHold& hold : few()) many->Add(hold.id(), hold);
    many_ = std::move(many);
  }
  HoldRecord& hold =
      many_ ? many_->Add(id, record) : *std::construct_at(few_.data() + size_, id, record);
  ++size_;
  if (record.live()) {
    ++live_;
    units_ += record.units;
  }
  due_us_ = std::min(due_us_, record.DueUs());
  return hold;
}

void Holds::Extend(HoldRecord& hold, std::int64_t expires_us) {
  if (many_) {
    many_->Extend(hold, expires_us);
  } else {
    hold.expires_us = expires_us;
  }
  due_us_ = std::min(due_us_, expires_us);
}

void Holds::End(HoldRecord& hold, HoldRecord::Status status) {
  if (hold.live()) {
    --live_;
    units_ -= hold.units;
  }
  if (many_) return many_->End(hold, status);
  hold.status = status;
}

HoldRecord* Holds::FirstExpired(std::int64_t now_us) {
  if (live_ == 0) return nullptr;
  if (many_) return many_->FirstExpired(now_us);
  HoldRecord* first = nullptr;
  for (FewHold& hold : few()) {
    const bool expired = hold.live() && hold.expires_us <= now_us;
    if (expired && (!first || hold.expires_us < first->expires_us)) first = &hold;
  }
  return first;
}

std::size_t Holds::Forget(std::int64_t now_us) {
  const std::size_t before = size_;
  due_us_ = kNever;
  if (many_) {
    size_ -= static_cast<std::uint32_t>(many_->Forget(now_us));
    due_us_ = many_->DueUs();
    return before - size_;
  }
  size_ = 0;
  for (const FewHold& hold : std::span(few_).first(before)) {
    const std::int64_t due_us = hold.DueUs();
    if (!hold.live() && due_us <= now_us) continue;
    due_us_ = std::min(due_us_, due_us);
    few_[size_++] = hold;
  }
  return before - size_;
}

std::int64_t Holds::LastExpiry() const {
  if (many_) return many_->LastExpiry();
  std::int64_t last = 0;
  for (const FewHold& hold : few()) {
    if (hold.live()) last = std::max(last, hold.expires_us);
  }
  return last;
}

template <typename Function>
void Holds::ForEachLive(Function function) const {
  if (many_) return many_->ForEachLive(function);
  boost::container::static_vector<const FewHold*, kFew> live;
  for (const FewHold& hold : few()) {
    if (hold.live()) live.push_back(&hold);
  }
  std::ranges::sort(live, {},
                    [](const FewHold* hold) { return std::pair(hold->expires_us, hold); });
  for (const FewHold* const hold : live) {
    if (!function(hold->id(), *hold)) return;
  }
}

std::int64_t Holds::ExpiredDownTo(std::int64_t units) const {
  std::int64_t held = units_;
  std::int64_t last = 0;
  ForEachLive([&](std::string_view, const HoldRecord& hold) {
    if (held <= units) return false;
    held -= hold.units;
    last = hold.expires_us;
    return true;
  });
  return last;
}

void Holds::List(HoldList& list) {
  list.live = live_;
  list.holds.clear();
  const auto add = [&](std::string_view id, const HoldRecord& hold) {
    list.holds.push_back({.id = std::string(id),
                          .units = hold.units,
                          .taken = TimePoint{Micros{hold.taken_us}},
                          .expires = TimePoint{Micros{hold.expires_us}},
                          .on_expiry = hold.on_expiry});
  };
  if (!list.only.empty()) {
    const HoldRecord* const only = Find(list.only);
    if (only && only->live()) add(list.only, *only);
    return;
  }
  // All that expire together, since nothing orders those.
  ForEachLive([&](std::string_view id, const HoldRecord& hold) {
    const TimePoint expires{Micros{hold.expires_us}};
    if (list.holds.size() >= kListedHoldsMax && expires > list.holds.back().expires) return false;
    add(id, hold);
    return true;
  });
  std::ranges::sort(list.holds, {},
                    [](const HoldList::Hold& hold) { return std::tie(hold.expires, hold.id); });
  list.holds.resize(std::min(list.holds.size(), kListedHoldsMax));
}

void Holds::Redate(std::int64_t taken_us, bool release) {
  const auto redate = [&](HoldRecord& hold) {
    hold.taken_us = taken_us;
    if (release && hold.live()) hold.on_expiry = OnExpiry::kRelease;
  };
  if (many_) return many_->ForEach([&](std::string_view, HoldRecord& hold) { redate(hold); });
  std::ranges::for_each(few(), redate);
}

void Holds::Clear() {
  many_.reset();
  size_ = 0;
  live_ = 0;
  units_ = 0;
  due_us_ = kNever;
}

}  // namespace sluice::memory
