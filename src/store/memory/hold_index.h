// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/intrusive/set.hpp>
#include <boost/intrusive/unordered_set.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "store/memory/hold_record.h"

namespace sluice::memory {

// Many holds on one state, found by id, and live and ended ones by expiry: ids are remembered
// equally long after it. A hold is one block of memory, which is a node of all that finds and
// orders it.
class HoldIndex {
 public:
  HoldIndex() = default;
  ~HoldIndex() { by_id_.clear_and_dispose(std::default_delete<Node>()); }
  HoldIndex(const HoldIndex&) = delete;
  HoldIndex& operator=(const HoldIndex&) = delete;

  // As those of Holds. Records are those that Add has returned.
  HoldRecord* Find(std::string_view id);
  HoldRecord& Add(std::string_view id, const HoldRecord& record);
  void Extend(HoldRecord& hold, std::int64_t expires_us);
  void End(HoldRecord& hold, HoldRecord::Status status);
  HoldRecord* FirstExpired(std::int64_t now_us);
  std::size_t Forget(std::int64_t now_us);
  std::int64_t LastExpiry() const { return live_.empty() ? 0 : live_.rbegin()->expires_us; }

  // When time changes any of them next. Requires that there is one.
  std::int64_t DueUs() const;

  // Calls `function` with every id and its record.
  template <typename Function>
  void ForEach(Function function) {
    for (Node& node : by_id_) function(node.id(), node);
  }

  // The same for live ones, in the order of expiry, for as long as `function` returns true.
  template <typename Function>
  void ForEachLive(Function function) const {
    for (const Node& node : live_) {
      if (!function(node.id(), node)) return;
    }
  }

 private:
  static constexpr auto kUnchecked = boost::intrusive::normal_link;
  using InIds = boost::intrusive::unordered_set_base_hook<boost::intrusive::link_mode<kUnchecked>,
                                                          boost::intrusive::store_hash<true>>;
  using InTime = boost::intrusive::set_base_hook<boost::intrusive::link_mode<kUnchecked>,
                                                 boost::intrusive::optimize_size<true>>;
  struct Node : InIds, InTime, IdentifiedHold<kHoldIdBytesMax> {
    using IdentifiedHold::IdentifiedHold;
  };

  struct IdOf {
    using type = std::string_view;
    type operator()(const Node& node) const { return node.id(); }
  };
  // Keyed: nobody can find ids that collide.
  struct HashOfId {
    std::size_t operator()(std::string_view id) const;
  };
  using ById = boost::intrusive::unordered_set<
      Node, boost::intrusive::base_hook<InIds>, boost::intrusive::key_of_value<IdOf>,
      boost::intrusive::hash<HashOfId>, boost::intrusive::equal<std::equal_to<std::string_view>>,
      boost::intrusive::power_2_buckets<true>>;

  struct ExpiryOf {
    using type = std::int64_t;
    type operator()(const Node& node) const { return node.expires_us; }
  };
  using ByTime = boost::intrusive::multiset<Node, boost::intrusive::base_hook<InTime>,
                                            boost::intrusive::key_of_value<ExpiryOf>>;

  static constexpr std::size_t kBucketsMin = 16;

  std::unique_ptr<ById::bucket_type[]> buckets_ =
      std::make_unique<ById::bucket_type[]>(kBucketsMin);
  ById by_id_{ById::bucket_traits(buckets_.get(), kBucketsMin)};
  ByTime live_;
  ByTime ended_;
};

}  // namespace sluice::memory
