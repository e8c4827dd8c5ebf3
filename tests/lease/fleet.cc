// SPDX-License-Identifier: Apache-2.0
#include "lease/fleet.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace sluice::lease {
namespace {

bool IsWindow(const Limit& limit) { return limit.algorithm() == Algorithm::kFixedWindow; }

}  // namespace

bool ExactLimit::Fits(std::int64_t units, std::int64_t at_us) {
  const std::int64_t span = limit_.span().count();
  if (IsWindow(limit_)) {
    if (at_us / span != at_us_ / span) used_ = 0;
  } else {
    const __int128 refilled = static_cast<__int128>(at_us - at_us_) * limit_.refill();
    used_ = at_us_ == 0 || refilled >= used_ ? 0 : used_ - refilled;
  }
  at_us_ = at_us;
  const __int128 over = used_ + Whole(units) - Whole(limit_.amount());
  if (over <= 0) return true;
  if (over > forgiven_) return false;
  forgiven_ -= over;
  used_ -= over;
  return true;
}

Fleet::Fleet(const History& history, StoreSide& store, const Tampering& tampering)
    : history_(history),
      store_(store),
      tampering_(tampering),
      random_(history.seed),
      events_(kStartUs, false),
      instances_(history.instances),
      judge_(history.limit),
      ideal_(history.limit) {
  const Limit& limit = history.limit;
  grants_a_second_ = static_cast<double>(IsWindow(limit) ? limit.amount() : limit.refill()) * 1e6 /
                     static_cast<double>(limit.span().count());
  outcome_.admitted_by.resize(history.instances);
}

TimePoint Fleet::Own(const Instance& instance) const {
  const auto elapsed = static_cast<double>(events_.now_us() - kStartUs);
  return TimePoint{Micros{instance.offset_us + static_cast<std::int64_t>(elapsed * instance.rate)}};
}

std::int64_t Fleet::OneWay() {
  const std::int64_t most = history_.late > 0 && Chance() < history_.late ? 20 : 1;
  return random_.Between(history_.one_way_min.count(), most * history_.one_way_max.count());
}

// Pulses are a tenth of each second.
double Fleet::RateNow() const {
  const bool pulses = events_.now_us() / 100'000 % 10 == 3;
  return grants_a_second_ * history_.demand * (pulses ? history_.pulse : 1);
}

void Fleet::Start(Instance& instance) {
  ++instance.life;
  instance.server = {};
  instance.rate = 1 + history_.drift * (2 * Chance() - 1);
  instance.offset_us = random_.Between(1, 1'000'000'000'000);
  instance.denied_until_us = 0;
  instance.holder = std::make_unique<Holder>(
      history_.limit,
      Holder::Options{.capacity = history_.capacity,
                      .seed = static_cast<std::uint64_t>(random_.Between(1, 1LL << 60))});
}

// Who gets how much of the demand from now on.
void Fleet::Shift() {
  if (parts_.empty() && !history_.parts.empty()) {
    parts_ = history_.parts;
  } else if (!history_.parts.empty()) {
    std::ranges::rotate(parts_, parts_.begin() + 1);
  } else {
    parts_.resize(instances_.size());
    for (double& part : parts_) part = std::pow(Chance(), 3) + 0.001;
  }
  const double sum = std::accumulate(parts_.begin(), parts_.end(), 0.0);
  for (double& part : parts_) part /= sum;
  events_.After(history_.shift.count(), [this] { Shift(); });
}

// Once in a while; see History.
void Fleet::Disturb() {
  const auto happens = [&](Micros each) {
    return each > Micros{0} && Chance() < 10'000.0 / static_cast<double>(each.count());
  };
  if (happens(history_.fails)) Fail();
  if (happens(history_.resets)) Reset();
  if (random_.OneIn(3)) store_.Replicate();
  events_.After(10'000, [this] { Disturb(); });
}

// What was taken by writes that are lost may be granted again, and from then on what lies in leases
// and comes to them.
void Fleet::Fail() {
  const auto in_leases = static_cast<std::int64_t>(grants_a_second_ / 10) + history_.capacity;
  judge_.Forgive(store_.FailOver(TimePoint{Micros{events_.now_us()}}) + in_leases);
}

// It is announced to all instances.
void Fleet::Reset() {
  store_.Reset();
  judge_.Reset();
  judge_.Forgive(static_cast<std::int64_t>(grants_a_second_ / 10) + history_.capacity);
  for (Instance& instance : instances_) {
    events_.After(OneWay(), [&instance] { instance.holder->Forget(); });
  }
}

void Fleet::Grant(std::size_t index, std::int64_t cost, const char* by) {
  if (!judge_.Fits(cost, events_.now_us()) && outcome_.over.empty()) {
    outcome_.over = text::Cat(cost, " granted ", by, " after ", events_.now_us() - kStartUs, " us");
  }
  judge_.Take(cost);
  outcome_.admitted += cost;
  outcome_.admitted_by[index] += cost;
}

void Fleet::CheckByStore(std::size_t index, std::int64_t cost) {
  // Two calls are in flight at most; what arrives meanwhile goes together in the next one.
  constexpr std::int64_t kCallsMax = 2;
  Instance& from = instances_[index];
  ++outcome_.waited;
  if (from.calls < kCallsMax) ++outcome_.checks;
  ++from.calls;
  const std::int64_t way = OneWay();
  events_.After(2 * way, [&from] { --from.calls; });
  if (Chance() < history_.lost) return;
  events_.After(way, [this, index, cost] {
    if (store_.Take(cost, TimePoint{Micros{events_.now_us()}})) {
      return Grant(index, cost, "by the store");
    }
    if (cost > 1) return;
    // A guard remembers a denial; it can know of the next unit only.
    const Limit& limit = history_.limit;
    const std::int64_t wait = IsWindow(limit) ? 100'000 : limit.unit() / limit.rate();
    instances_[index].denied_until_us = events_.now_us() + std::min<std::int64_t>(wait, 100'000);
  });
}

void Fleet::Send(std::size_t index, Ask ask) {
  ++outcome_.asks;
  Instance& instance = instances_[index];
  const TimePoint sent = Own(instance);
  const std::int64_t life = instance.life;
  const std::int64_t seq = ask.seq;
  const bool is_last = ask.want == 0;
  if (tampering_.ask) tampering_.ask(ask);
  if (Chance() < history_.lost) return;
  events_.After(OneWay(), [=, this] {
    Reply reply = store_.Answer(ask, TimePoint{Micros{events_.now_us()}});
    if (tampering_.reply) tampering_.reply(reply);
    if (Chance() < history_.lost) return;
    events_.After(OneWay(), [=, this] {
      Instance& own = instances_[index];
      if (own.life != life) return;
      const TimePoint now = Own(own);
      if (!own.server.Learn(reply.now + tampering_.ahead, sent, now)) own.holder->Forget();
      if (!is_last) own.holder->OnReply(reply, ask.id, seq, sent, own.server, now);
    });
  });
}

void Fleet::Poll(std::size_t index) {
  Instance& instance = instances_[index];
  if (auto ask = instance.holder->NextAsk(instance.server, Own(instance))) Send(index, *ask);
}

void Fleet::Arrive() {
  double chance = Chance();
  std::size_t index = 0;
  while (index + 1 < parts_.size() && chance >= parts_[index]) chance -= parts_[index++];
  const std::int64_t cost =
      history_.cost_max == 1 || !random_.OneIn(4) ? 1 : random_.Between(1, history_.cost_max);
  ++outcome_.requests;
  if (ideal_.Fits(cost, events_.now_us())) {
    ideal_.Take(cost);
    outcome_.ideal += cost;
  }
  Instance& instance = instances_[index];
  switch (instance.holder->Take(cost, instance.server, Own(instance))) {
    case Holder::Verdict::kGranted:
      Grant(index, cost, "by a lease");
      ++outcome_.local;
      break;
    case Holder::Verdict::kDenied:
      ++outcome_.local;
      break;
    case Holder::Verdict::kAskStore:
      if (events_.now_us() < instance.denied_until_us && cost == 1) {
        ++outcome_.local;
      } else {
        CheckByStore(index, cost);
      }
      break;
  }
  Poll(index);
  if (outcome_.requests % 16 != 0) return;
  std::int64_t lying = 0;
  for (const Instance& each : instances_) lying += each.holder->Left(each.server, Own(each));
  outcome_.lying_max = std::max(outcome_.lying_max, lying);
}

Outcome Fleet::Run() {
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    Start(instances_[i]);
    // A timer, and perhaps an end.
    const auto tick = std::make_shared<std::function<void()>>();
    *tick = [this, i, again = std::weak_ptr(tick)] {
      const double dies = 20'000.0 / static_cast<double>(history_.lives.count());
      if (history_.lives > Micros{0} && Chance() < dies) Start(instances_[i]);
      Poll(i);
      events_.After(20'000, [next = again.lock()] { (*next)(); });
    };
    events_.After(random_.Between(0, 20'000), [tick] { (*tick)(); });
  }
  Shift();
  if (history_.fails > Micros{0} || history_.resets > Micros{0}) Disturb();
  const std::int64_t end_us = kStartUs + history_.lasts.count();
  double next = static_cast<double>(kStartUs % 1'000'000'000);
  const std::int64_t base = kStartUs - kStartUs % 1'000'000'000;
  while (true) {
    next += -std::log(1 - Chance()) * 1e6 / RateNow();
    const std::int64_t at = base + static_cast<std::int64_t>(next);
    if (at >= end_us) break;
    while (events_.Step(at)) {
    }
    events_.At(at, [this] { Arrive(); });
    events_.Step(at);
  }
  return outcome_;
}

History BrimfulHistory(std::uint64_t seed) {
  Random random(seed);
  const std::int64_t rate = random.Between(10'000, 20'000);
  const std::int64_t amount = rate * random.Between(50, 200) / 1'000;
  return {.limit = *Limit::TokenBucket(
              {.capacity = amount, .refill = rate, .period = Micros{1'000'000}}),
          .capacity = amount / random.Between(2, 4),
          .instances = static_cast<std::size_t>(random.Between(2, 8)),
          .demand = static_cast<double>(random.Between(50, 95)) / 100,
          .pulse = static_cast<double>(random.Between(20, 60)),
          .one_way_max = Micros{random.Between(1'000, 10'000)},
          .lasts = Micros{1'500'000},
          .seed = seed};
}

History LossyHistory(std::uint64_t seed) {
  Random random(seed);
  History history = AnyHistory(seed);
  history.fails = Micros{random.Between(200'000, 2'000'000)};
  if (random.OneIn(2)) history.resets = Micros{random.Between(200'000, 2'000'000)};
  return history;
}

History AnyHistory(std::uint64_t seed) {
  if (seed % 4 == 0) return BrimfulHistory(seed);
  Random random(seed);
  const auto one_of = [&]<typename T>(std::initializer_list<T> values) {
    return values.begin()[random.Between(0, static_cast<std::int64_t>(values.size()) - 1)];
  };
  const std::int64_t rate = random.Between(500, 20'000);  // Units a second.
  // Of a bucket, small ones too: they are full, and then empty, within a pulse.
  const std::int64_t amount =
      std::max<std::int64_t>(2 * kCapacityMin, rate * random.Between(20, 2'000) / 1'000);
  const auto span = Micros{random.Between(1, 20) * 100'000 + one_of({0, 1})};
  const std::int64_t refill = std::max<std::int64_t>(1, rate * span.count() / 1'000'000);
  const Limit limit =
      random.OneIn(3)
          ? *Limit::FixedWindow({.limit = amount, .window = std::max(span, Micros{300'000})})
          : *Limit::TokenBucket({.capacity = amount, .refill = refill, .period = span});
  const double demand = one_of({0.3, 0.8, 0.95, 1.1, 1.5, 5.0});
  return {.limit = limit,
          .capacity = std::max(kCapacityMin, amount / random.Between(2, 100)),
          .instances = static_cast<std::size_t>(random.Between(1, random.OneIn(4) ? 50 : 8)),
          .demand = demand,
          .shift = Micros{random.Between(100'000, 2'000'000)},
          .pulse = random.OneIn(2) || demand > 1.2 ? 1.0 : static_cast<double>(one_of({3, 10, 60})),
          .cost_max = random.OneIn(2) ? 1 : random.Between(2, 20),
          .one_way_min = Micros{random.Between(10, 100)},
          .one_way_max = Micros{random.Between(100, random.OneIn(4) ? 20'000 : 2'000)},
          .lost = one_of({0.0, 0.03}),
          .late = one_of({0.0, 0.02}),
          .lives = one_of({Micros{0}, Micros{random.Between(200'000, 2'000'000)}}),
          .drift = one_of({0.0, 0.01}),
          .lasts = Micros{1'500'000},
          .seed = seed};
}

}  // namespace sluice::lease
