// SPDX-License-Identifier: Apache-2.0
#include "store/lease/holder.h"

#include <algorithm>
#include <cmath>

#include "core/arithmetic.h"

namespace sluice::lease {
namespace {

using core::CeilDiv;
using core::Us;

// A lease of less demand than this costs the store more than it saves.
constexpr double kBeginsAt = 100;  // Requests a second.
constexpr double kEndsAt = 50;
constexpr Micros kIdle{200'000};

// Renewed when so much of its life is over, and looked at for what is too much this often.
constexpr Micros kRenewAfter = kLife * 7 / 10;
constexpr Micros kReviewAfter{100'000};
constexpr Micros kSpillAfter{10'000};

// How long an answer without anything is believed.
constexpr Micros kQuiet{20'000};

// How long a state is not asked for again that is not leased.
constexpr Micros kRefusedFor{1'000'000};

// The time whose demand a lease has at hand. A window's lasts longer, since it has no flow.
constexpr Micros kFlowHorizon{100'000};
constexpr Micros kStockHorizon{300'000};

}  // namespace

Holder::Holder(const Limit& limit, const Options& options)
    : limit_(limit),
      has_flow_(HasFlow(limit)),
      all_capacity_(options.capacity),
      random_(options.seed) {}

// SplitMix64
std::uint64_t Holder::Random() {
  std::uint64_t bits = random_ += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

void Holder::Forget() {
  id_ = 0;
  seq_ = ack_ = back_ = spill_ = spilled_ = left_ = capacity_ = free_ = more_ = 0;
  flows_ = {};
  saturated_ = asked_ = false;
}

// Units of a flow that may be due and were not taken into account yet, and the one that is coming.
std::int64_t Holder::InUse(const Flow& flow, TimePoint high) {
  if (high <= flow.slot) return 0;
  const std::int64_t coming = std::min(flow.units, DueAfter(flow.units, high - flow.slot) + 1);
  return std::max<std::int64_t>(0, coming - flow.done);
}

std::int64_t Holder::FlowInUse(TimePoint high) const {
  return InUse(flows_[0], high) + InUse(flows_[1], high);
}

// What exceeds the capacity is lost, as in a full bucket. Units that are not due yet go first.
void Holder::DropExcess(TimePoint high) {
  spill_ = spilled_;
  std::int64_t excess = left_ + FlowInUse(high) - capacity_;
  for (Flow& flow : flows_) {
    if (excess <= 0) return;
    const std::int64_t dropped = std::min(excess, InUse(flow, high));
    flow.done += dropped;
    excess -= dropped;
  }
  if (excess > 0) left_ -= std::min(excess, left_);
}

// Whether the store might be so full that it has no room for flow of which this instance does not
// know yet that it is due.
bool Holder::IsStrict(const ServerClock& server, TimePoint now) const {
  const TimePoint high = server.High(now);
  return full_ || high - told_ > kTrusted || high - server.Low(now) > kTrusted;
}

// It is enough to do this when something is about to happen: while nothing is taken, what is in use
// only grows.
void Holder::Advance(const ServerClock& server, TimePoint now) {
  if (id_ == 0 || ack_ == 0) return;
  const TimePoint high = server.High(now);
  if (high >= expiry_) return Forget();
  if (!has_flow_) return;
  const TimePoint low = server.Low(now);
  if (IsStrict(server, now)) DropExcess(high);
  for (Flow& flow : flows_) {
    const std::int64_t due = DueAfter(flow.units, low - flow.slot);
    if (due <= flow.done) continue;
    const std::int64_t room = std::max<std::int64_t>(0, capacity_ - left_);
    const std::int64_t fits = std::min(room, due - flow.done);
    left_ += fits;
    spill_ += due - flow.done - fits;
    flow.done = due;
  }
}

std::int64_t Holder::Left(const ServerClock& server, TimePoint now) {
  Advance(server, now);
  return left_;
}

const Holder::Flow* Holder::FlowAt(TimePoint at) const {
  for (const Flow& flow : flows_) {
    if (flow.units > 0 && flow.slot == SlotOf(at)) return &flow;
  }
  return nullptr;
}

Holder::Verdict Holder::Take(std::int64_t cost, const ServerClock& server, TimePoint now) {
  demand_.Add(cost, now);
  last_taken_ = now;
  Advance(server, now);
  if (ack_ == 0) return Verdict::kAskStore;
  if (left_ >= cost) {
    left_ -= cost;
    return Verdict::kGranted;
  }
  const bool denies = saturated_ && now - answered_ <= kTrusted && FlowAt(server.Low(now));
  return denies ? Verdict::kDenied : Verdict::kAskStore;
}

std::int64_t Holder::Want() const {
  const Micros horizon = has_flow_ ? kFlowHorizon : kStockHorizon;
  const double units =
      std::ceil(demand_.units_a_second() * static_cast<double>(horizon.count()) / 1e6);
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::min(units, static_cast<double>(limit_.amount()))));
}

// Whether the flow of this slot, or of the next one, should be asked for.
bool Holder::IsFlowDue(const ServerClock& server, TimePoint now) const {
  const TimePoint high = server.High(now);
  if (!FlowAt(high) && !FlowAt(server.Low(now))) return true;
  const TimePoint end = SlotOf(high) + kSlot;
  return !FlowAt(end) && end - high <= std::max(std::min(Lead(), kAhead), jitter_);
}

// Whether what is left will be used up before an answer could come.
bool Holder::IsShort(std::int64_t want) const {
  if (saturated_) return left_ == 0 && more_ >= std::max<std::int64_t>(2, want / 16);
  double flows = 0;
  for (const Flow& flow : flows_) flows = std::max(flows, static_cast<double>(flow.units));
  const double rate = demand_.units_a_second();
  const double seconds = static_cast<double>(Lead().count()) / 1e6;
  const double lacks = std::max(0.0, rate - flows * 1e6 / kSlot.count());
  const double reserve = lacks * seconds + 3 * std::sqrt(rate * seconds) + 1;
  return static_cast<double>(left_) <= std::min(reserve, static_cast<double>(capacity_) / 2);
}

bool Holder::IsTime(std::int64_t want, const ServerClock& server, TimePoint now) const {
  const Micros since = now - answered_;
  if (since >= kRenewAfter) return true;
  if (since >= kReviewAfter && left_ > 2 * want) return true;
  if (since >= kSpillAfter && spill_ - spilled_ > capacity_ / 4) return true;
  if (now < quiet_until_) return false;
  return IsShort(want) || (has_flow_ && IsFlowDue(server, now));
}

Ask Holder::MakeAsk(std::int64_t want, const ServerClock& server, TimePoint now) {
  const std::int64_t surplus = std::max<std::int64_t>(0, left_ - want);
  left_ -= surplus;
  back_ += surplus;
  if (has_flow_ && ack_ > 0) {
    // Room for what becomes due until the answer comes; most of it is asked for at once.
    const TimePoint high = server.High(now);
    const std::int64_t coming = IsStrict(server, now) ? FlowInUse(high + round_trip_) : 0;
    capacity_ = std::min(capacity_, left_ + coming + 1);
  } else {
    capacity_ = left_;
  }
  spilled_ = spill_;
  asked_ = true;
  sent_ = now;
  jitter_ = Micros{static_cast<std::int64_t>(Random() % kAhead.count())};
  return {.id = id_,
          .seq = ++seq_,
          .ack = ack_,
          .back = back_,
          .spill = spill_,
          .keep = capacity_,
          .want = want,
          .capacity = all_capacity_,
          .dice = static_cast<std::int64_t>(Random() % Ask::kDice)};
}

std::optional<Ask> Holder::NextAsk(const ServerClock& server, TimePoint now) {
  if (asked_ && now - sent_ >= kTimeout) OnLost(id_, seq_, now);
  if (asked_) return std::nullopt;
  demand_.Update(now);
  Advance(server, now);
  const double rate = demand_.requests_a_second();
  const bool ends = closing_ || now - last_taken_ >= kIdle || rate < kEndsAt;
  if (live() && ends) {
    const Ask last = MakeAsk(0, server, now);
    // Whatever becomes of it: nothing is granted any more.
    Forget();
    return last;
  }
  if (ends) return std::nullopt;
  if (!live()) {
    if (rate < kBeginsAt || now < quiet_until_) return std::nullopt;
    id_ = Random() | 1;
  } else if (ack_ > 0 ? !IsTime(Want(), server, now) : now < quiet_until_) {
    return std::nullopt;
  }
  return MakeAsk(Want(), server, now);
}

void Holder::OnLost(std::uint64_t id, std::int64_t seq, TimePoint now) {
  if (!Awaits(id, seq)) return;
  asked_ = false;
  quiet_until_ = now + kQuiet;
}

void Holder::OnReply(const Reply& reply, std::uint64_t id, std::int64_t seq, TimePoint sent,
                     const ServerClock& server, TimePoint now) {
  if (!Awaits(id, seq)) return;
  asked_ = false;
  // Flow of which the answer's time shows that it is due has the room that the answer gives.
  if (ack_ > 0 && server.High(now) >= expiry_) return Forget();
  if (ack_ > 0 && has_flow_ && IsStrict(server, now)) DropExcess(server.High(now));
  if (reply.status != Reply::Status::kGranted) {
    Forget();
    if (reply.status == Reply::Status::kRefused) quiet_until_ = now + kRefusedFor;
    return;
  }
  const Micros took = now - sent;
  variation_ += (std::max(took - round_trip_, round_trip_ - took) - variation_) / 4;
  round_trip_ += (took - round_trip_) / 8;
  ack_ = seq;
  left_ += reply.stock;
  capacity_ = reply.capacity;
  if (reply.flow > 0) {
    Flow& flow = flows_[static_cast<std::size_t>(Us(reply.slot) / kSlot.count() % 2)];
    flow = {.slot = reply.slot,
            .units = reply.flow,
            .done = DueAfter(reply.flow, reply.now - reply.slot)};
  }
  expiry_ = reply.expiry;
  told_ = reply.now;
  full_ = reply.full;
  free_ = reply.free;
  more_ = reply.more;
  saturated_ = reply.saturated;
  answered_ = now;
  if (reply.stock == 0 && reply.flow == 0) quiet_until_ = now + kQuiet;
}

Decision Holder::Describe(bool allowed, std::int64_t cost, const ServerClock& server,
                          TimePoint now) const {
  const TimePoint low = server.Low(now);
  Decision decision;
  decision.allowed = allowed;
  decision.limit = limit_.amount();
  decision.remaining = std::min(limit_.amount(), saturated_ ? left_ : free_ + left_);
  if (limit_.rate() == 0) {
    decision.reset_after = Micros{limit_.unit() - Us(low) % limit_.unit()};
  } else {
    const std::int64_t missing = (limit_.amount() - decision.remaining) * limit_.unit();
    decision.reset_after = Micros{CeilDiv(missing, limit_.rate())};
  }
  if (allowed) return decision;
  // Until enough of the own flow is due, or else until its slot ends.
  decision.retry_after = SlotOf(low) + kSlot - low;
  if (const Flow* const flow = FlowAt(low)) {
    const std::int64_t nth = flow->done + cost - left_;
    if (nth <= flow->units) {
      const TimePoint due = flow->slot + Micros{CeilDiv(nth * kSlot.count(), flow->units)};
      decision.retry_after = std::max(Micros{1}, due - low);
    }
  }
  return decision;
}

}  // namespace sluice::lease
