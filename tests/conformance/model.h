// SPDX-License-Identifier: Apache-2.0
//
// The reference model of section 2 of the requirements: slow, and meant to be checked by reading.
//
// It was written from the requirement text alone and shares nothing with the implementation: that
// the two agree is evidence, not an echo. Three choices keep it independent:
//  - Nothing is reduced to lowest terms or counted in ticks. A bucket's level is kept in units of
//    1/period_us of a token and time stays in microseconds, rounded down to the tick, in 128 bits.
//  - No wait has a closed formula. Each is a binary search for the smallest d for which the
//    definition itself, evaluated again at now + d with the state untouched, holds. That is sound
//    because with nothing else happening a budget only ever grows: each search predicate goes from
//    false to true at most once.
//  - State never expires. The text lets state go only once it equals an untouched budget, so while
//    time moves forward, forgetting and remembering cannot be told apart. (Where a test moves the
//    clock back to before such a moment, they can, and the text allows both.)

#ifndef SLUICE_TESTS_CONFORMANCE_MODEL_H_
#define SLUICE_TESTS_CONFORMANCE_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sluice::model {

// GCRA is a token bucket of burst + 1, so it has no kind of its own.
enum class Kind {
  kTokenBucket,
  kLeakyBucket,
  kFixedWindow,
  kSlidingWindow,
  kSlidingWindowCounter,
};

struct Spec {
  Kind kind = Kind::kTokenBucket;
  std::int64_t amount = 0;   // capacity of a bucket, limit of a window
  std::int64_t refill = 0;   // buckets only: units per span
  std::int64_t span_us = 0;  // period of a bucket, length of a window

  friend bool operator==(const Spec&, const Spec&) = default;
};

struct Answer {
  bool allowed = false;
  std::int64_t limit = 0;
  std::int64_t remaining = 0;
  std::int64_t retry_after_us = 0;
  std::int64_t reset_after_us = 0;
  std::int64_t delay_us = 0;

  friend bool operator==(const Answer&, const Answer&) = default;
};

namespace internal {

// __extension__ keeps -Wpedantic quiet about a type that ISO C++ does not have. The largest value
// that occurs is elapsed * refill < 2^64 * 2^53, far inside 127 bits.
__extension__ typedef __int128 Int128;

inline constexpr std::int64_t kMaxWaitUs = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t kEndOfTimeUs = std::int64_t{1} << 52;  // now_us is below this
inline constexpr std::int64_t kMaxSpanUs = std::int64_t{1} << 52;    // a span may equal this
inline constexpr std::int64_t kExactBound = std::int64_t{1} << 53;   // products stay below this

inline bool IsBucket(Kind kind) { return kind == Kind::kTokenBucket || kind == Kind::kLeakyBucket; }

inline Int128 GreatestCommonDivisor(Int128 a, Int128 b) {
  return b == 0 ? a : GreatestCommonDivisor(b, a % b);
}

// The smallest d >= 0 for which holds(now + d), saturated at kMaxWaitUs. `holds` must not turn
// false again once it is true.
template <typename Predicate>
std::int64_t SmallestWait(Int128 now_us, Predicate holds) {
  if (holds(now_us)) return 0;
  if (!holds(now_us + kMaxWaitUs)) return kMaxWaitUs;
  std::int64_t too_short = 0;
  std::int64_t enough = kMaxWaitUs;
  while (enough - too_short > 1) {
    const std::int64_t middle = too_short + (enough - too_short) / 2;
    (holds(now_us + middle) ? enough : too_short) = middle;
  }
  return enough;
}

// The state of one limit for one key. Every `at_us` handed in is at least NewestUs().
class Budget {
 public:
  Budget(const Spec& spec, std::int64_t tick_us) : spec_(spec), tick_us_(tick_us) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  virtual ~Budget() = default;

  const Spec& spec() const { return spec_; }

  // The newest time in the state; 0, the beginning of time, while the budget is untouched.
  virtual Int128 NewestUs() const = 0;
  // Would a request of this cost (above 0) be allowed at that time?
  virtual bool Grants(Int128 at_us, std::int64_t cost) const = 0;
  // Units left at that time; may come out negative where time moved back inside a window.
  virtual Int128 Remaining(Int128 at_us) const = 0;
  // Seen from now_us, has the budget become full by at_us?
  virtual bool IsWhole(Int128 now_us, Int128 at_us) const = 0;
  // Charges the budget. Only called for a cost above 0 that Grants() allows at at_us.
  virtual void Take(Int128 at_us, std::int64_t cost) = 0;
  // Gives back up to so many units of what was taken and still counts at at_us. If that is none,
  // nothing changes.
  virtual void Give(Int128 at_us, std::int64_t units) = 0;
  // Of a log: gives back up to so many units of what was taken at that very moment.
  virtual void Untake(Int128 /*when_us*/, std::int64_t /*units*/) {}

 protected:
  // Time as this limit sees it: it stands still between two ticks.
  Int128 OnTick(Int128 at_us) const { return at_us / tick_us_ * tick_us_; }

 private:
  const Spec spec_;
  const std::int64_t tick_us_;
};

// Token bucket, leaky bucket and GCRA. A token is spec().span_us parts, so one microsecond brings
// exactly spec().refill parts and no fraction is ever lost.
class Bucket final : public Budget {
 public:
  Bucket(const Spec& spec, std::int64_t tick_us) : Budget(spec, tick_us), parts_(FullParts()) {}

  Int128 NewestUs() const override { return time_us_; }

  bool Grants(Int128 at_us, std::int64_t cost) const override {
    return PartsAt(at_us) >= Int128{cost} * spec().span_us;
  }

  Int128 Remaining(Int128 at_us) const override { return PartsAt(at_us) / spec().span_us; }

  bool IsWhole(Int128 /*now_us*/, Int128 at_us) const override {
    return PartsAt(at_us) == FullParts();
  }

  void Take(Int128 at_us, std::int64_t cost) override {
    parts_ = PartsAt(at_us) - Int128{cost} * spec().span_us;
    time_us_ = OnTick(at_us);
  }

  void Give(Int128 at_us, std::int64_t units) override {
    if (units == 0 || IsWhole(at_us, at_us)) return;
    parts_ = std::min(FullParts(), PartsAt(at_us) + Int128{units} * spec().span_us);
    time_us_ = OnTick(at_us);
  }

 private:
  Int128 FullParts() const { return Int128{spec().amount} * spec().span_us; }

  Int128 PartsAt(Int128 at_us) const {
    return std::min(FullParts(), parts_ + (OnTick(at_us) - time_us_) * spec().refill);
  }

  Int128 parts_;
  Int128 time_us_ = 0;
};

// Counts per epoch-aligned window, shared by the two algorithms that count windows. Every window
// ever used is kept: a count that has lost its influence is simply never asked for.
class WindowCounts {
 public:
  std::int64_t In(Int128 window) const {
    const auto it = counts_.find(window);
    return it == counts_.end() ? 0 : it->second;
  }

  void Add(Int128 window, std::int64_t cost) { counts_[window] += cost; }

  // Removes up to so many, and returns how many. A window that was used stays known.
  std::int64_t Remove(Int128 window, std::int64_t units) {
    const std::int64_t removed = std::min(units, In(window));
    if (removed > 0) counts_[window] -= removed;
    return removed;
  }

  Int128 Newest() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }

 private:
  std::map<Int128, std::int64_t> counts_;
};

class FixedWindow final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return counts_.Newest() * spec().span_us; }

  bool Grants(Int128 at_us, std::int64_t cost) const override {
    return Int128{counts_.In(WindowAt(at_us))} + cost <= spec().amount;
  }

  Int128 Remaining(Int128 at_us) const override {
    return Int128{spec().amount} - counts_.In(WindowAt(at_us));
  }

  // The window's end, whether or not anything was counted in it.
  bool IsWhole(Int128 now_us, Int128 at_us) const override {
    return WindowAt(at_us) > WindowAt(now_us);
  }

  void Take(Int128 at_us, std::int64_t cost) override { counts_.Add(WindowAt(at_us), cost); }

  void Give(Int128 at_us, std::int64_t units) override { counts_.Remove(WindowAt(at_us), units); }

 private:
  Int128 WindowAt(Int128 at_us) const { return at_us / spec().span_us; }

  WindowCounts counts_;
};

class SlidingWindowCounter final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return counts_.Newest() * spec().span_us; }

  bool Grants(Int128 at_us, std::int64_t cost) const override {
    return WeightedAt(at_us) + Int128{cost} * spec().span_us <=
           Int128{spec().amount} * spec().span_us;
  }

  // Rounds towards zero, which is not the floor below zero; Decide() reports 0 there either way.
  Int128 Remaining(Int128 at_us) const override {
    return (Int128{spec().amount} * spec().span_us - WeightedAt(at_us)) / spec().span_us;
  }

  bool IsWhole(Int128 /*now_us*/, Int128 at_us) const override { return WeightedAt(at_us) == 0; }

  void Take(Int128 at_us, std::int64_t cost) override { counts_.Add(WindowAt(at_us), cost); }

  void Give(Int128 at_us, std::int64_t units) override {
    const Int128 window = WindowAt(at_us);
    const std::int64_t of_current = counts_.Remove(window, units);
    const std::int64_t of_previous = counts_.Remove(window - 1, units - of_current);
    // It was written now, as when something is taken.
    if (of_previous > 0) counts_.Add(window, 0);
  }

 private:
  // A window is a whole number of ticks, so a tick never straddles two windows.
  Int128 WindowAt(Int128 at_us) const { return OnTick(at_us) / spec().span_us; }

  // In units of 1/span_us of a request. The ratio to amount * span_us does not depend on the tick.
  Int128 WeightedAt(Int128 at_us) const {
    const Int128 window = WindowAt(at_us);
    const Int128 elapsed_us = OnTick(at_us) - window * spec().span_us;
    return Int128{counts_.In(window - 1)} * (spec().span_us - elapsed_us) +
           Int128{counts_.In(window)} * spec().span_us;
  }

  WindowCounts counts_;
};

class SlidingWindow final : public Budget {
 public:
  using Budget::Budget;

  Int128 NewestUs() const override { return log_.empty() ? 0 : log_.back().first; }

  bool Grants(Int128 at_us, std::int64_t cost) const override {
    return SumAt(at_us) + cost <= spec().amount;
  }

  Int128 Remaining(Int128 at_us) const override { return spec().amount - SumAt(at_us); }

  bool IsWhole(Int128 /*now_us*/, Int128 at_us) const override { return SumAt(at_us) == 0; }

  // No later request is seen before this newest time, so what has left by now is gone for good and
  // is dropped to keep long test runs quick.
  void Take(Int128 at_us, std::int64_t cost) override {
    std::erase_if(log_, [&](const auto& entry) { return !CountsAt(entry.first, at_us); });
    log_.emplace_back(at_us, cost);
  }

  // As when something is taken, what has left by now is gone for good.
  void Give(Int128 at_us, std::int64_t units) override {
    if (units == 0 || SumAt(at_us) == 0) return;
    std::erase_if(log_, [&](const auto& entry) { return !CountsAt(entry.first, at_us); });
    while (units > 0 && !log_.empty()) {
      const std::int64_t taken = std::min(units, log_.back().second);
      log_.back().second -= taken;
      units -= taken;
      if (log_.back().second == 0) log_.pop_back();
    }
  }

  void Untake(Int128 when_us, std::int64_t units) override {
    for (auto& [entry_us, taken] : log_) {
      if (entry_us != when_us) continue;
      const std::int64_t given = std::min(units, taken);
      taken -= given;
      units -= given;
    }
    std::erase_if(log_, [](const auto& entry) { return entry.second == 0; });
  }

 private:
  // A request at t counts during [t, t + W).
  bool CountsAt(Int128 entry_us, Int128 at_us) const {
    return entry_us <= at_us && at_us < entry_us + spec().span_us;
  }

  Int128 SumAt(Int128 at_us) const {
    Int128 sum = 0;
    for (const auto& [entry_us, units] : log_) {
      if (CountsAt(entry_us, at_us)) sum += units;
    }
    return sum;
  }

  std::vector<std::pair<Int128, std::int64_t>> log_;  // (time, units), oldest first, not merged
};

}  // namespace internal

// The finest tick in which all products of the limit stay below 2^53: 1, 1000 or 1000000. 0 when
// there is none, or when a number is outside the domain: such a limit must be refused.
inline std::int64_t TickUs(const Spec& spec) {
  using internal::Int128;
  using internal::kExactBound;
  if (spec.amount < 1 || spec.amount >= kExactBound) return 0;
  if (spec.span_us < 1 || spec.span_us > internal::kMaxSpanUs) return 0;
  if (internal::IsBucket(spec.kind) && (spec.refill < 1 || spec.refill >= kExactBound)) return 0;
  // These two multiply nothing: they compare counts and add times.
  if (spec.kind == Kind::kFixedWindow || spec.kind == Kind::kSlidingWindow) return 1;
  for (const std::int64_t tick_us : {1, 1'000, 1'000'000}) {
    if (internal::IsBucket(spec.kind)) {
      // r/p: tokens per tick, in lowest terms.
      const Int128 numerator = Int128{spec.refill} * tick_us;
      const Int128 divisor = internal::GreatestCommonDivisor(numerator, spec.span_us);
      const Int128 r = numerator / divisor;
      const Int128 p = spec.span_us / divisor;
      if (spec.amount * p < kExactBound && r < kExactBound) return tick_us;
    } else if (spec.span_us % tick_us == 0) {
      if (Int128{spec.amount} * (spec.span_us / tick_us) < kExactBound) return tick_us;
    }
  }
  return 0;
}

// All keys of any number of limits. A state is identified by its key and the name of its limit.
//
// Throws std::invalid_argument where the requirements define no answer: a refused limit, a negative
// cost, a time outside the domain, one state twice in a group, or a state whose limit has changed.
class Model {
 public:
  struct Charge {
    std::string key;
    std::string name;
    Spec spec;
    std::int64_t cost = 1;
  };

  struct Group {
    // COST_EXCEEDS_LIMIT: nothing was decided, and `overall` and `each` hold nothing.
    bool cost_exceeds = false;
    Answer overall;
    std::vector<Answer> each;  // in the order of the charges
  };

  // All or nothing: if any limit denies, none is charged.
  Group Decide(const std::vector<Charge>& charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    Group group;
    for (const Charge& charge : charges) {
      if (charge.cost > charge.spec.amount) group.cost_exceeds = true;
    }
    if (group.cost_exceeds) return group;

    std::vector<Pending> pending;
    bool all_allowed = true;
    for (const Charge& charge : charges) {
      pending.push_back(PendingOf(charge, now_us));
      all_allowed = all_allowed && pending.back().allowed;
    }
    for (const Pending& one : pending) group.each.push_back(Settle(one, all_allowed));
    group.overall = Combine(group.each, all_allowed);
    return group;
  }

  // Takes what was granted elsewhere: as much of each cost as is left. Never denies.
  Group Debit(std::vector<Charge> charges, std::int64_t now_us) {
    for (Charge& charge : charges) {
      const internal::Budget& budget = BudgetOf(charge);
      const internal::Int128 at_us = std::max<internal::Int128>(now_us, budget.NewestUs());
      // The largest cost that a check would grant.
      std::int64_t granted = 0;
      std::int64_t refused = std::min(charge.cost, charge.spec.amount) + 1;
      while (refused - granted > 1) {
        const std::int64_t middle = granted + (refused - granted) / 2;
        (budget.Grants(at_us, middle) ? granted : refused) = middle;
      }
      charge.cost = granted;
    }
    return Decide(charges, now_us);
  }

  // Gives back up to each cost of what was taken. Never denies.
  Group Give(std::vector<Charge> charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    for (Charge& charge : charges) {
      internal::Budget& budget = BudgetOf(charge);
      budget.Give(std::max<internal::Int128>(now_us, budget.NewestUs()), charge.cost);
      charge.cost = 0;
    }
    return Decide(charges, now_us);
  }

  // What Decide would answer to a request that is denied for another reason: takes nothing.
  // `overall` is denied only if one of these limits denies.
  Group Look(const std::vector<Charge>& charges, std::int64_t now_us) {
    CheckDomain(charges, now_us);
    Group group;
    bool all_allowed = true;
    for (const Charge& charge : charges) {
      const Pending one = PendingOf(charge, now_us);
      all_allowed = all_allowed && one.allowed;
      group.each.push_back(Settle(one, false));
    }
    group.overall = Combine(group.each, all_allowed);
    return group;
  }

  // Takes at a moment that is not before the state's newest, without asking: what was decided then.
  void Take(const Charge& charge, std::int64_t at_us) { BudgetOf(charge).Take(at_us, charge.cost); }

  // See Budget::Untake.
  void Untake(const Charge& charge, std::int64_t when_us) {
    BudgetOf(charge).Untake(when_us, charge.cost);
  }

  // Missing state is an untouched budget.
  void Reset(const std::string& key, const std::string& name) { budgets_.erase({key, name}); }

  // Whether forgetting the state at this moment changes nothing from then on.
  bool IsUntouched(const Charge& charge, std::int64_t now_us) {
    internal::Budget& budget = BudgetOf(charge);
    if (budget.NewestUs() > now_us) return false;
    if (charge.spec.kind == Kind::kFixedWindow) {
      return budget.Remaining(now_us) == charge.spec.amount;
    }
    return budget.IsWhole(now_us, now_us);
  }

  // The newest time in the state.
  std::int64_t NewestUs(const Charge& charge) {
    return static_cast<std::int64_t>(BudgetOf(charge).NewestUs());
  }

 private:
  using Id = std::pair<std::string, std::string>;  // key, name

  struct Pending {
    internal::Budget* budget;
    std::int64_t cost;
    internal::Int128 at_us;
    bool allowed;
  };

  Pending PendingOf(const Charge& charge, std::int64_t now_us) {
    internal::Budget& budget = BudgetOf(charge);
    // Each state holds back its own clock; the injected time is the same for all.
    const internal::Int128 at_us = std::max<internal::Int128>(now_us, budget.NewestUs());
    return {&budget, charge.cost, at_us, charge.cost == 0 || budget.Grants(at_us, charge.cost)};
  }

  static void CheckDomain(const std::vector<Charge>& charges, std::int64_t now_us) {
    if (now_us < 0 || now_us >= internal::kEndOfTimeUs) {
      throw std::invalid_argument("now_us is outside the domain");
    }
    std::set<Id> seen;
    for (const Charge& charge : charges) {
      if (charge.cost < 0) throw std::invalid_argument("negative cost");
      if (TickUs(charge.spec) == 0) throw std::invalid_argument("the limit must be refused");
      if (!seen.insert({charge.key, charge.name}).second) {
        throw std::invalid_argument("one state twice in a group");
      }
    }
  }

  internal::Budget& BudgetOf(const Charge& charge) {
    std::unique_ptr<internal::Budget>& budget = budgets_[{charge.key, charge.name}];
    if (budget == nullptr) budget = Untouched(charge.spec);
    if (budget->spec() != charge.spec) {
      throw std::invalid_argument("the state belongs to another limit; reset it first");
    }
    return *budget;
  }

  static std::unique_ptr<internal::Budget> Untouched(const Spec& spec) {
    const std::int64_t tick_us = TickUs(spec);
    switch (spec.kind) {
      case Kind::kTokenBucket:
      case Kind::kLeakyBucket:
        return std::make_unique<internal::Bucket>(spec, tick_us);
      case Kind::kFixedWindow:
        return std::make_unique<internal::FixedWindow>(spec, tick_us);
      case Kind::kSlidingWindow:
        return std::make_unique<internal::SlidingWindow>(spec, tick_us);
      case Kind::kSlidingWindowCounter:
        return std::make_unique<internal::SlidingWindowCounter>(spec, tick_us);
    }
    throw std::invalid_argument("unknown kind");
  }

  static std::int64_t ResetAfterUs(const Pending& one) {
    return internal::SmallestWait(
        one.at_us, [&](internal::Int128 at_us) { return one.budget->IsWhole(one.at_us, at_us); });
  }

  // Charges the limit if the whole group is allowed, and reports its numbers after that.
  static Answer Settle(const Pending& one, bool all_allowed) {
    internal::Budget& budget = *one.budget;
    Answer answer;
    answer.allowed = one.allowed;
    answer.limit = budget.spec().amount;
    if (all_allowed) {
      // What is in the bucket before this request has drained when the bucket would be full again
      // had the request never come. A denied request is never emitted, so it has no delay.
      if (budget.spec().kind == Kind::kLeakyBucket) answer.delay_us = ResetAfterUs(one);
      if (one.cost > 0) budget.Take(one.at_us, one.cost);
    }
    if (!one.allowed) {
      answer.retry_after_us = internal::SmallestWait(
          one.at_us, [&](internal::Int128 at_us) { return budget.Grants(at_us, one.cost); });
    }
    answer.remaining =
        static_cast<std::int64_t>(std::max<internal::Int128>(0, budget.Remaining(one.at_us)));
    answer.reset_after_us = ResetAfterUs(one);
    return answer;
  }

  // retry_after is 0 for a limit that allows, so the largest of all is the largest of the denying;
  // delay is 0 for every limit of a denied group. `limit` goes with `remaining`: the text does not
  // say which to name, and a pair from two different limits would mean nothing.
  static Answer Combine(const std::vector<Answer>& each, bool all_allowed) {
    Answer overall;
    overall.allowed = all_allowed;
    for (std::size_t i = 0; i < each.size(); ++i) {
      if (i == 0 || each[i].remaining < overall.remaining) {
        overall.limit = each[i].limit;
        overall.remaining = each[i].remaining;
      }
      overall.retry_after_us = std::max(overall.retry_after_us, each[i].retry_after_us);
      overall.reset_after_us = std::max(overall.reset_after_us, each[i].reset_after_us);
      overall.delay_us = std::max(overall.delay_us, each[i].delay_us);
    }
    return overall;
  }

  std::map<Id, std::unique_ptr<internal::Budget>> budgets_;
};

}  // namespace sluice::model

#endif  // SLUICE_TESTS_CONFORMANCE_MODEL_H_
