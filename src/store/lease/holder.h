// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/time.h"
#include "store/lease/demand.h"
#include "store/lease/message.h"
#include "store/lease/server_clock.h"

namespace sluice::lease {

// An instance's side of the lease of one state: grants from it, and says when to ask the store for
// more. A state machine: no clock, no lock, no I/O. `now` is the instance's own time, which never
// goes back; the server's is known from its ServerClock.
class Holder {
 public:
  struct Options {
    std::int64_t capacity = 0;  // Of all leases together; at least kCapacityMin.
    std::uint64_t seed = 0;     // Of ids and other chances.
  };

  enum class Verdict : std::uint8_t {
    kGranted,
    kDenied,    // Fewer units are left than may lie in leases, and this one's are used up for now.
    kAskStore,  // The store decides.
  };

  // Requires IsEligible(limit).
  Holder(const Limit& limit, const Options& options);

  // Someone asks for `cost` units. Takes them if they were granted.
  Verdict Take(std::int64_t cost, const ServerClock& server, TimePoint now);

  // The next thing to ask the store, if it is time. One Reply, Lose or Forget follows. Call it
  // after each Take, and every 20 ms while live().
  std::optional<Ask> NextAsk(const ServerClock& server, TimePoint now);

  // The store's answer to this ask, which was sent at `sent`; `server` knows of it.
  void OnReply(const Reply& reply, std::uint64_t id, std::int64_t seq, TimePoint sent,
               const ServerClock& server, TimePoint now);

  // There will be no answer to it, or nobody waits for it any longer.
  void OnLost(std::uint64_t id, std::int64_t seq, TimePoint now);

  // The state was reset, or its limit has changed, or the server's clock was set.
  void Forget();

  // The numbers of an answer, after a Take that did not return kAskStore.
  Decision Describe(bool allowed, std::int64_t cost, const ServerClock& server,
                    TimePoint now) const;

  // Whether there is a lease, or one was asked for.
  bool live() const { return id_ != 0; }
  std::uint64_t id() const { return id_; }

  // Whether this ask is still waited for.
  bool Awaits(std::uint64_t id, std::int64_t seq) const {
    return asked_ && id == id_ && seq == seq_;
  }

  // Units that could be granted now.
  std::int64_t Left(const ServerClock& server, TimePoint now);

  // Asks the store for nothing more, and gives back what is left: NextAsk returns the last ask.
  void Close() { closing_ = true; }

  // An ask is given up after this long.
  static constexpr Micros kTimeout{50'000};

 private:
  // One slot's.
  struct Flow {
    TimePoint slot{};
    std::int64_t units = 0;
    std::int64_t done = 0;  // Of these, how many became due or were dropped.
  };

  void Advance(const ServerClock& server, TimePoint now);
  bool IsStrict(const ServerClock& server, TimePoint now) const;
  void DropExcess(TimePoint high);
  static std::int64_t InUse(const Flow& flow, TimePoint high);
  std::int64_t FlowInUse(TimePoint high) const;
  const Flow* FlowAt(TimePoint at) const;
  std::int64_t Want() const;
  Micros Lead() const { return round_trip_ + 4 * variation_; }
  bool IsTime(std::int64_t want, const ServerClock& server, TimePoint now) const;
  bool IsFlowDue(const ServerClock& server, TimePoint now) const;
  bool IsShort(std::int64_t want) const;
  Ask MakeAsk(std::int64_t want, const ServerClock& server, TimePoint now);
  std::uint64_t Random();

  const Limit limit_;
  const bool has_flow_;
  const std::int64_t all_capacity_;
  std::uint64_t random_;

  Demand demand_;
  TimePoint last_taken_;
  Micros round_trip_{1'000};  // Smoothed, and how much it varies.
  Micros variation_{500};
  Micros jitter_{0};
  bool closing_ = false;

  // The lease. Without one, `id_` is 0.
  std::uint64_t id_ = 0;
  std::int64_t seq_ = 0;
  std::int64_t ack_ = 0;
  std::int64_t back_ = 0;
  std::int64_t spill_ = 0;
  std::int64_t spilled_ = 0;  // Of these, what the last ask told.
  std::int64_t left_ = 0;
  std::int64_t capacity_ = 0;  // What may be in use: units left, and flow that may be due.
  std::array<Flow, 2> flows_;
  TimePoint expiry_;
  TimePoint told_;  // When the store said this, by its clock:
  bool full_ = false;
  std::int64_t free_ = 0;
  std::int64_t more_ = 0;
  bool saturated_ = false;

  bool asked_ = false;
  TimePoint sent_;
  TimePoint answered_;
  TimePoint quiet_until_;  // Nothing is asked before, unless something changes.
};

}  // namespace sluice::lease
