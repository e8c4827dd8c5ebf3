// SPDX-License-Identifier: Apache-2.0
// Instances with leases of one state, in virtual time: real holders around one store, over a
// network that is slow, loses and reorders, with clocks that drift and instances that die. Every
// grant is judged by an exact limit that sees it at the very moment at which it is made.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "conformance/traffic.h"
#include "simulate/events.h"
#include "sluice/limit.h"
#include "store/lease/holder.h"
#include "store/lease/message.h"
#include "store/lease/pool.h"
#include "store/lease/server_clock.h"

namespace sluice::lease {

// The limit as the requirements say it, without any of the code under test: what was granted must
// have been there.
class ExactLimit {
 public:
  explicit ExactLimit(const Limit& limit) : limit_(limit) {}

  // Whether `units` are there at this moment.
  bool Fits(std::int64_t units, std::int64_t at_us);
  void Take(std::int64_t units) { used_ += Whole(units); }

  // The store lost what it knew of so many units: they may be granted again.
  void Forgive(std::int64_t units) { forgiven_ += Whole(units); }

  // Nothing was ever taken.
  void Reset() { used_ = 0; }

 private:
  __int128 Whole(std::int64_t units) const {
    return static_cast<__int128>(units) * limit_.span().count();
  }

  const Limit limit_;
  std::int64_t at_us_ = 0;
  // In 1/span of a unit.
  __int128 used_ = 0;
  __int128 forgiven_ = 0;
};

struct History {
  Limit limit;
  std::int64_t capacity = 0;  // Of all leases together.
  std::size_t instances = 4;
  double demand = 1;  // Requests a second, all together, as a multiple of what the limit grants.

  // How the demand changes: its parts by instance are drawn anew each `shift`, and it pulses by
  // this factor, for a tenth of the time.
  Micros shift{1'000'000'000};
  std::vector<double> parts = {};  // Drawn if empty.
  double pulse = 1;

  std::int64_t cost_max = 1;
  Micros one_way_min{50};
  Micros one_way_max{1'000};
  double lost = 0;   // Of messages, in either direction.
  double late = 0;   // Of messages that take up to twenty times as long.
  Micros lives{0};   // Of an instance, on average; 0: forever.
  Micros fails{0};   // The store, on average; 0: never. It loses up to 50 ms of writes.
  Micros resets{0};  // Of the state, on average; 0: never.
  double drift = 0;  // Of clocks, at most.
  Micros lasts{2'000'000};
  std::uint64_t seed = 1;
};

struct Outcome {
  std::string over = {};  // What was granted that was not there; empty if nothing.
  std::int64_t lying_max = 0;
  std::int64_t requests = 0;
  std::int64_t admitted = 0;
  std::int64_t ideal = 0;                      // By one exact limiter, for the same arrivals.
  std::int64_t local = 0;                      // Decided without the store, either way.
  std::int64_t asks = 0;                       // Of the lease protocol.
  std::int64_t waited = 0;                     // Decided by the store,
  std::int64_t checks = 0;                     // in that many operations.
  std::vector<std::int64_t> admitted_by = {};  // Instance.

  double share() const {
    return static_cast<double>(admitted) / static_cast<double>(std::max<std::int64_t>(1, ideal));
  }
  double operations() const {
    return static_cast<double>(asks + checks) / static_cast<double>(requests);
  }
};

// The store's side, whoever implements it.
class StoreSide {
 public:
  virtual ~StoreSide() = default;
  virtual Reply Answer(const Ask& ask, TimePoint now) = 0;
  virtual bool Take(std::int64_t cost, TimePoint now) = 0;

  // Its replica has all writes until now.
  virtual void Replicate() {}
  // The replica takes its place. Returns how many units were taken by writes that are lost.
  virtual std::int64_t FailOver(TimePoint) { return 0; }
  virtual void Reset() {}
};

class PoolSide : public StoreSide {
 public:
  explicit PoolSide(const Limit& limit) : pool(limit), replica_(limit) {}
  Reply Answer(const Ask& ask, TimePoint now) override { return pool.Answer(ask, now); }
  bool Take(std::int64_t cost, TimePoint now) override { return pool.Take(cost, now); }
  void Replicate() override { replica_ = pool; }
  std::int64_t FailOver(TimePoint now) override {
    const std::int64_t lost = replica_.Free(now) - pool.Free(now);
    pool = replica_;
    return std::max<std::int64_t>(0, lost);
  }
  void Reset() override { pool = replica_ = Pool(pool.limit); }

  Pool pool;

 private:
  Pool replica_;
};

// What wrong versions do to the messages.
struct Tampering {
  std::function<void(Ask&)> ask = {};
  std::function<void(Reply&)> reply = {};
  Micros ahead{0};  // What holders believe the server's clock to be ahead.
};

class Fleet {
 public:
  Fleet(const History& history, StoreSide& store, const Tampering& tampering = {});

  Outcome Run();

 private:
  struct Instance {
    std::unique_ptr<Holder> holder;
    ServerClock server;
    std::int64_t life = 0;  // Counts restarts.
    double rate = 1;        // Of its clock.
    std::int64_t offset_us = 0;
    std::int64_t calls = 0;  // In flight.
    std::int64_t denied_until_us = 0;
  };

  TimePoint Own(const Instance& instance) const;
  double Chance() { return static_cast<double>(random_.Between(0, 999'999)) / 1e6; }
  std::int64_t OneWay();
  double RateNow() const;
  void Start(Instance& instance);
  void Shift();
  void Disturb();
  void Fail();
  void Reset();
  void Arrive();
  void Poll(std::size_t index);
  void Send(std::size_t index, Ask ask);
  void CheckByStore(std::size_t index, std::int64_t cost);
  void Grant(std::size_t index, std::int64_t cost, const char* by);

  const History history_;
  StoreSide& store_;
  const Tampering tampering_;
  Random random_;
  simulate::Events events_;
  std::vector<Instance> instances_;
  std::vector<double> parts_;
  double grants_a_second_ = 0;
  ExactLimit judge_;
  ExactLimit ideal_;
  Outcome outcome_;
};

// A history of a small bucket that is nearly full, and is then emptied at once, again and again.
History BrimfulHistory(std::uint64_t seed);

// One in which the store loses writes, and states are reset.
History LossyHistory(std::uint64_t seed);

// A history of any other kind.
History AnyHistory(std::uint64_t seed);

}  // namespace sluice::lease
