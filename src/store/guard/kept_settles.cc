// SPDX-License-Identifier: Apache-2.0
#include "store/guard/kept_settles.h"

#include <utility>

#include "base/text.h"

namespace sluice::guard {

bool KeptSettles::Add(Settle settle) {
  std::string key = KeyOf(settle.id, settle.parts.front().ToCharge());
  if (by_key_.contains(key)) return true;
  if (settles_.size() >= settles_max_ || bytes_ >= bytes_max_) return false;
  bytes_ += BytesOf(settle);
  const auto added = settles_.insert(settles_.end(), std::move(settle));
  by_key_.emplace(std::move(key), added);
  return true;
}

bool KeptSettles::Forget(std::string_view id, const Charge& first) {
  if (settles_.empty()) return false;
  const auto found = by_key_.find(KeyOf(id, first));
  if (found == by_key_.end()) return false;
  Remove(found->second);
  return true;
}

std::vector<KeptSettles::Settle> KeptSettles::Take(std::size_t most, TimePoint now) {
  std::vector<Settle> taken;
  while (taken.size() < most && !settles_.empty()) {
    Settle settle = Remove(settles_.begin());
    if (settle.until > now) {
      taken.push_back(std::move(settle));
    } else {
      ++too_late_;
    }
  }
  return taken;
}

std::string KeptSettles::KeyOf(std::string_view id, const Charge& first) {
  const std::string limit = first.name.empty() ? first.limit->ToString() : "";
  return text::Cat(id.size(), " ", id, first.name.size(), " ", first.name, limit, " ", first.key);
}

std::size_t KeptSettles::BytesOf(const Settle& settle) {
  constexpr std::size_t kNodes = 128;  // Of both containers, approximately.
  std::size_t bytes = kNodes + sizeof(Settle) + settle.id.size();
  for (const Ledger::Debt& part : settle.parts) bytes += part.bytes();
  return bytes + settle.parts.front().bytes();  // The key.
}

KeptSettles::Settle KeptSettles::Remove(Settles::iterator settle) {
  bytes_ -= BytesOf(*settle);
  by_key_.erase(KeyOf(settle->id, settle->parts.front().ToCharge()));
  Settle removed = std::move(*settle);
  settles_.erase(settle);
  return removed;
}

}  // namespace sluice::guard
