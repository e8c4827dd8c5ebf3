// SPDX-License-Identifier: Apache-2.0
// The holds on one state. They lie beside the slots: most states have none.
#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/set.hpp>
#include <boost/intrusive/unordered_set.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "core/arithmetic.h"
#include "sluice/store.h"
#include "sluice/time.h"

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

  // How many units are taken on its account, unless it was settled.
  std::int64_t Charged() const {
    return status == Status::kLive || on_expiry == OnExpiry::kCharge ? units : 0;
  }
  std::int64_t ForgottenUs() const { return expires_us + kHoldRemembered.count(); }
};

// Live holds in the order of their expiry, and ended ones until their ids are forgotten. A hold is
// one block of memory, which is a node of all that finds and orders it.
class Holds {
  static constexpr auto kUnchecked = boost::intrusive::normal_link;
  using InIds = boost::intrusive::unordered_set_base_hook<boost::intrusive::link_mode<kUnchecked>,
                                                          boost::intrusive::store_hash<true>>;
  using InTime = boost::intrusive::set_base_hook<boost::intrusive::link_mode<kUnchecked>,
                                                 boost::intrusive::optimize_size<true>>;

 public:
  class Entry : public InIds, public InTime {
   public:
    Entry(std::string_view id, const HoldRecord& its_record)
        : record(its_record), id_bytes_(static_cast<std::uint8_t>(id.size())) {
      std::ranges::copy(id, id_.begin());
    }

    std::string_view id() const { return {id_.data(), id_bytes_}; }

    HoldRecord record;

   private:
    std::uint8_t id_bytes_;
    std::array<char, kHoldIdBytesMax> id_;
  };

  Holds() = default;
  ~Holds() { by_id_.clear_and_dispose(std::default_delete<Entry>()); }
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  bool empty() const { return by_id_.empty(); }
  std::size_t size() const { return by_id_.size(); }
  std::size_t live() const { return live_.size(); }
  std::int64_t units() const { return units_; }  // Of the live ones.
  // For one more live hold. What is on hold stays a number that the arithmetic can handle: units of
  // windows that are over may still be.
  bool HasRoom(std::int64_t units) const {
    return live_.size() < kLiveHoldsMax && units <= core::kExactMax - units_;
  }

  // Null if the id is not remembered.
  Entry* Find(std::string_view id);

  // Requires that the id is not remembered, and has at most kHoldIdBytesMax.
  Entry& Add(std::string_view id, const HoldRecord& record);

  void Extend(Entry& entry, std::int64_t expires_us);

  // The hold is not live any more.
  void End(Entry& entry, HoldRecord::Status status);

  // The live hold that expires first, if it has by then; else null.
  Entry* FirstExpired(std::int64_t now_us);

  // Forgets the ids whose time is over. Returns how many.
  std::size_t Forget(std::int64_t now_us);

  // When the last live hold expires; 0 if there is none.
  std::int64_t LastExpiry() const { return live_.empty() ? 0 : live_.rbegin()->record.expires_us; }

  // When at most `units` will be on hold, if nothing but time ends them.
  std::int64_t ExpiredDownTo(std::int64_t units) const;

  // The live ones, as HoldList says.
  void List(HoldList& list) const;

  // All units were taken at this moment instead. `release`: live holds are released at their
  // expiry.
  void Redate(std::int64_t taken_us, bool release);

  // Calls `function` with every Entry.
  template <typename Function>
  void ForEach(Function function) const {
    for (const Entry& entry : by_id_) function(entry);
  }

 private:
  struct IdOf {
    using type = std::string_view;
    type operator()(const Entry& entry) const { return entry.id(); }
  };
  // Keyed: nobody can find ids that collide.
  struct HashOfId {
    std::size_t operator()(std::string_view id) const;
  };
  using ById = boost::intrusive::unordered_set<
      Entry, boost::intrusive::base_hook<InIds>, boost::intrusive::key_of_value<IdOf>,
      boost::intrusive::hash<HashOfId>, boost::intrusive::equal<std::equal_to<std::string_view>>,
      boost::intrusive::power_2_buckets<true>>;

  // Ids are remembered equally long after the expiry: live holds and ended ones have one order.
  struct ExpiryOf {
    using type = std::int64_t;
    type operator()(const Entry& entry) const { return entry.record.expires_us; }
  };
  using ByTime = boost::intrusive::multiset<Entry, boost::intrusive::base_hook<InTime>,
                                            boost::intrusive::key_of_value<ExpiryOf>>;

  // Most states have few.
  std::array<ById::bucket_type, 4> few_buckets_;
  std::unique_ptr<ById::bucket_type[]> many_buckets_;
  ById by_id_{ById::bucket_traits(few_buckets_.data(), few_buckets_.size())};
  ByTime live_;
  ByTime ended_;
  std::int64_t units_ = 0;
};

}  // namespace sluice::memory
