// SPDX-License-Identifier: Apache-2.0
#include "store/guard/store_call.h"

namespace sluice::guard {
namespace {

// Assigning an empty list, or an empty string to a string, would keep the memory.
template <typename... Containers>
void Free(Containers&... containers) {
  (Containers().swap(containers), ...);
}

}  // namespace

void StoreCall::Copy(DenyCache& cache) {
  std::size_t charges = 0;
  std::size_t bytes = 0;
  std::size_t holds = 0;
  std::size_t lists = 0;
  for (const Request* request : asked) {
    charges += request->charges.size();
    holds += request->hold != nullptr;
    lists += request->listed != nullptr;
    if (request->hold) bytes += request->hold->id.size();
    if (request->listed) bytes += request->listed->only.size();
    for (const Charge& charge : request->charges) bytes += charge.key.size() + charge.name.size();
  }
  // Nothing that is pointed to may move from here on.
  charges_.reserve(charges);
  limits_.reserve(charges);
  each_.resize(charges);
  seen_.assign(charges, SeenState{});
  holds_.reserve(holds);
  lists_.reserve(lists);
  text_.reserve(bytes);
  const auto keep = [&](std::string_view text) {
    const std::size_t begin = text_.size();
    text_ += text;
    return std::string_view(text_).substr(begin);
  };
  for (const Request* request : asked) {
    const std::size_t first = charges_.size();
    first_charge_.push_back(first);
    for (const Charge& charge : request->charges) {
      limits_.push_back(*charge.limit);
      Charge& copy = charges_.emplace_back(charge);
      copy.key = keep(charge.key);
      copy.name = keep(charge.name);
      copy.limit = &limits_.back();
      places_.push_back(cache.PlaceOf(copy));
    }
    const std::size_t size = request->charges.size();
    const std::span<Charge> copies(charges_.data() + first, size);
    // A single charge's numbers are those of the outcome.
    const std::span<Decision> each =
        size == 1 ? std::span<Decision>{} : std::span(each_).subspan(first, size);
    const std::span<SeenState> seen = cache.enabled() || !request->seen.empty()
                                          ? std::span(seen_).subspan(first, size)
                                          : std::span<SeenState>{};
    requests.push_back({.charges = copies,
                        .now = request->now,
                        .each = each,
                        .seen = seen,
                        .action = request->action});
    if (request->listed) {
      requests.back().listed = &lists_.emplace_back(HoldList{.only = keep(request->listed->only)});
    }
    if (!request->hold) continue;
    HoldTerms& terms = holds_.emplace_back(*request->hold);
    terms.id = keep(terms.id);
    terms.held = true;
    requests.back().hold = &terms;
  }
  local_units.assign(requests.size(), 0);
  refused.assign(requests.size(), false);
}

std::span<const Decision> StoreCall::EachOf(std::size_t i) const {
  const Request& request = requests[i];
  if (request.charges.size() == 1) return {&*request.outcome, 1};
  return request.each;
}

std::span<const DenyCache::Place> StoreCall::PlacesOf(std::size_t i) const {
  return std::span(places_).subspan(first_charge_[i], requests[i].charges.size());
}

void StoreCall::Clear() {
  constexpr std::size_t kChargesKept = 1'024;
  constexpr std::size_t kBytesKept = 65'536;
  if (charges_.capacity() > kChargesKept || text_.capacity() > kBytesKept) {
    Free(first_charge_, charges_, limits_, each_, seen_, places_, holds_, lists_, text_, asked,
         requests, settles, scarce_places, local_units, refused);
  }
  first_charge_.clear();
  charges_.clear();
  limits_.clear();
  places_.clear();
  holds_.clear();
  lists_.clear();
  text_.clear();
  asked.clear();
  requests.clear();
  settles.clear();
  scarce_places.clear();
  done = nullptr;
  own = false;
  decided = false;
}

void CallQueue::PushBack(StoreCall* call) {
  call->previous = last_;
  call->next = nullptr;
  (last_ ? last_->next : first_) = call;
  last_ = call;
}

void CallQueue::Remove(StoreCall* call) {
  (call->previous ? call->previous->next : first_) = call->next;
  (call->next ? call->next->previous : last_) = call->previous;
}

}  // namespace sluice::guard
