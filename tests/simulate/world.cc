// SPDX-License-Identifier: Apache-2.0
#include "simulate/world.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "conformance/model_spec.h"
#include "conformance/traffic.h"
#include "core/algorithms.h"
#include "simulate/events.h"
#include "simulate/instance.h"
#include "simulate/judge.h"
#include "simulate/server.h"
#include "store/redis/state_key.h"

namespace sluice::simulate {
namespace {

constexpr std::int64_t kMs = 1'000;
constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kTraffic = 10 * kSecond;  // How long clients ask, and faults happen.
constexpr std::int64_t kHealsWithin = 30 * kSecond;

// A limit and its policies for when Redis fails.
struct Rule {
  std::string name;
  Limit limit;
  OnStoreFailure on_store_failure;
  std::optional<OnStoreFailure> on_overload;
};

class World {
 public:
  World(std::uint64_t seed, const Bug& bug, bool traces);
  Summary Run();

 private:
  // Drawing.
  template <typename T>
  const T& OneOf(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(
        random_.Between(0, static_cast<std::int64_t>(all.size()) - 1))];
  }
  OnStoreFailure AnyPolicy();
  Limit AnyLimit();
  GuardedStore::Options GuardOptions();

  // Servers and instances.
  void MakeSite();
  void StartInstance(int number);
  model::Model::Charge ChargeOf(const std::string& state) const;

  // Clients.
  void PlanClient();
  void Ask(int instance, std::size_t key, std::int64_t count);
  std::unique_ptr<ClientRequest> NewRequest(int instance, Action action);
  std::unique_ptr<ClientRequest> MakeRequest(int instance, std::size_t key);
  void Send(std::unique_ptr<ClientRequest> asked);
  void Answer(std::int64_t number);

  // Holders.
  void GoOn(const ClientRequest& answered);
  void Later(const ClientRequest& about, Action action);
  void LookAtExpiry(const ClientRequest& held);
  int AnyInstance();

  // Faults.
  void PlanFault();
  void DoFault();
  void During(std::int64_t micros, const std::function<void()>& begin,
              const std::function<void()>& end);
  void Kill(Server& server);
  void FailOver(Server& server);
  void MoveSlot();
  void CutAll(const Server& server);

  // Checks.
  void CheckEachStep();
  bool IsSettled(const Instance& instance) const;
  void CheckEnd();

  Random random_;
  const Bug& bug_;
  Events events_;
  Site site_;
  std::vector<Server*> owner_;  // Of each slot.
  std::map<std::uint16_t, Server::Moving> moving_;
  redis::Endpoint endpoint_;
  bool calm_ = false;
  bool holds_ = false;  // There are holders, and nobody sets a clock.
  std::vector<Rule> rules_;
  std::vector<std::string> keys_;
  std::map<std::string, const Rule*> rule_of_;  // By the state's key in Redis.
  GuardedStore::Options options_;
  std::optional<Judge> judge_;
  Instance::Observer observer_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::map<std::int64_t, std::unique_ptr<ClientRequest>> open_;
  std::int64_t next_number_ = 1;
  std::int64_t interval_us_ = 0;
  std::int64_t fault_every_us_ = 0;
  std::int64_t latency_us_ = 500;  // At most, unless the network is slow.
  Summary summary_;
};

World::World(std::uint64_t seed, const Bug& bug, bool traces)
    : random_(seed), bug_(bug), events_(Events::kEpochUs + 123'456, traces) {
  calm_ = random_.OneIn(5);
  holds_ = !random_.OneIn(3);
  const auto count = random_.Between(1, 4);
  for (std::int64_t i = random_.Between(2, 5); i > 0; --i) {
    rules_.push_back({.name = "r" + std::to_string(i),
                      .limit = AnyLimit(),
                      .on_store_failure = AnyPolicy(),
                      .on_overload = random_.OneIn(3) ? std::optional(AnyPolicy()) : std::nullopt});
  }
  for (std::int64_t i = random_.Between(2, 8); i > 0; --i) keys_.push_back("k" + std::to_string(i));
  MakeSite();
  for (const Rule& rule : rules_) {
    for (const std::string& key : keys_) {
      const Charge charge{.key = key, .limit = &rule.limit, .name = rule.name};
      rule_of_[redis::StateKey(endpoint_.prefix, charge)] = &rule;
    }
  }
  options_ = GuardOptions();
  options_.instances = count;
  judge_.emplace(events_, Judge::Options{.prefix = endpoint_.prefix,
                                         .instances = count,
                                         .deadline = options_.deadline,
                                         .deny_cache_trust = options_.deny_cache_trust,
                                         .cluster = endpoint_.mode == redis::Mode::kCluster,
                                         .calm = calm_});
  if (bug_.guard) bug_.guard(options_);
  observer_ = {
      .on_call = [this](
                     int instance,
                     const Server::Executed& executed) { return judge_->Ran(instance, executed); },
      .on_delivered = [this](const auto& places) { judge_->Delivered(places); },
      .on_store_answer =
          [this](int instance, const guard::StoreCall& call) {
            judge_->StoreAnswered(instance, call);
          },
      .on_published =
          [this](const std::string& message) {
            for (const auto& instance : instances_) instance->Publish(message);
          },
      .on_told = [this](int instance, const Charge* charge) { judge_->Told(instance, charge); },
      .on_heard = [this](int instance, const Charge* charge) { judge_->Heard(instance, charge); },
      .on_deaf = [this](int instance) { judge_->StoppedListening(instance); }};
  instances_.resize(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) StartInstance(i);
  interval_us_ = random_.Between(4, 20) * kMs;
  fault_every_us_ = random_.Between(300, 2'000) * kMs;
  if (holds_ && random_.OneIn(3)) latency_us_ = site_.latency_min_us;  // See LookAtExpiry.
  site_.latency_max_us = latency_us_;
  events_.Trace(count, " instances, ", endpoint_.ToString(), calm_ ? ", nothing fails" : "");
  for (const Rule& rule : rules_) {
    events_.Trace(rule.name, ": ", rule.limit.ToString(), " ", ToString(rule.on_store_failure));
  }
}

OnStoreFailure World::AnyPolicy() {
  return OneOf(
      std::vector{OnStoreFailure::kFailClosed, OnStoreFailure::kFailOpen, OnStoreFailure::kLocal});
}

// Realistic limits, but short ones: histories are short.
Limit World::AnyLimit() {
  const std::int64_t span_us =
      OneOf(std::vector{10 * kMs, 100 * kMs, kSecond, 3 * kSecond, 20 * kSecond}) *
      random_.Between(1, 3);
  if (holds_ && random_.OneIn(3)) {
    return *Limit::Concurrency({.limit = random_.Between(1, 6), .ttl = Micros{span_us}});
  }
  const Algorithm algorithm = RandomAlgorithm(random_);
  if (algorithm == Algorithm::kCalendar) {
    // Days that end within the history, 5 s after its beginning, and days that do not.
    return *Limit::Calendar({.limit = random_.Between(1, 20),
                             .every = Every::kDay,
                             .anchor = random_.OneIn(2) ? "22:14" : "00:00"});
  }
  return *Limit::Make(algorithm, random_.Between(1, 20), random_.Between(1, 20), Micros{span_us});
}

GuardedStore::Options World::GuardOptions() {
  GuardedStore::Options options;
  options.deadline = Micros{random_.Between(5, 20) * kMs};
  options.breaker.probe_deadline = options.deadline;
  options.in_flight_max = OneOf(std::vector<std::size_t>{8, 64, 4'096});
  if (calm_) options.in_flight_max = 4'096;
  options.deny_cache_entries = OneOf(std::vector<std::size_t>{0, 64, 1'024});
  options.deny_cache_trust = Micros{random_.Between(100, 3'000) * kMs};
  return options;
}

void World::MakeSite() {
  const bool cluster = random_.OneIn(2);
  const auto count = cluster ? random_.Between(2, 3) : 1;
  const Oracle::ChargeOf charge_of = [this](const std::string& state) { return ChargeOf(state); };
  std::string uri = "redis://";
  for (int i = 0; i < count; ++i) {
    site_.servers.push_back(std::make_unique<Server>(events_, i, bug_.script, charge_of));
    uri += text::Cat(i > 0 ? "," : "", "n", i, ":1");
  }
  owner_.resize(redis::kSlots);
  for (std::size_t slot = 0; slot < owner_.size(); ++slot) {
    owner_[slot] = site_.servers[slot % site_.servers.size()].get();
  }
  site_.owner_of = [this](std::uint16_t slot) { return owner_[slot]; };
  if (cluster) {
    for (const auto& server : site_.servers) {
      server->owner_of = site_.owner_of;
      server->moving = [this](std::uint16_t slot) -> std::optional<Server::Moving> {
        const auto found = moving_.find(slot);
        if (found == moving_.end()) return std::nullopt;
        return found->second;
      };
    }
  }
  uri += text::Cat("?timeout=", random_.Between(20, 200),
                   "ms&batch=", calm_ ? 128 : OneOf(std::vector{1, 2, 8, 128}),
                   "&in_flight=", random_.Between(1, 3));
  endpoint_ = *redis::Endpoint::Parse(uri);
}

void World::StartInstance(int number) {
  judge_->Restart(number);
  instances_[static_cast<std::size_t>(number)] = std::make_unique<Instance>(
      events_, site_, random_, number, endpoint_, options_, observer_, bug_);
}

// The guard's own probe is the only state without a rule.
model::Model::Charge World::ChargeOf(const std::string& state) const {
  const auto rule = rule_of_.find(state);
  if (rule != rule_of_.end()) return {state, "", SpecOf(rule->second->limit), 1};
  return {state, "", {model::Kind::kFixedWindow, 1, 0, kSecond}, 1};
}

// Clients.

void World::PlanClient() {
  events_.After(random_.Between(0, 2 * interval_us_), [this] {
    if (events_.now_us() >= Events::kEpochUs + kTraffic) return;
    const int instance = AnyInstance();
    // The first keys are the busiest; now and then many ask for one at once.
    const auto most = static_cast<std::int64_t>(keys_.size()) - 1;
    const auto key =
        static_cast<std::size_t>(std::min(random_.Between(0, most), random_.Between(0, most)));
    Ask(instance, key, random_.OneIn(20) ? random_.Between(5, 30) : random_.Between(1, 2));
    PlanClient();
  });
}

int World::AnyInstance() {
  return static_cast<int>(random_.Between(0, static_cast<std::int64_t>(instances_.size()) - 1));
}

std::unique_ptr<ClientRequest> World::NewRequest(int instance, Action action) {
  auto asked = std::make_unique<ClientRequest>();
  asked->number = next_number_++;
  asked->instance = instance;
  asked->asked_us = events_.now_us();
  asked->request.action = action;
  return asked;
}

std::unique_ptr<ClientRequest> World::MakeRequest(int instance, std::size_t key) {
  const Action action = random_.OneIn(25)            ? Action::kReset
                        : random_.OneIn(25)          ? Action::kGive
                        : holds_ && random_.OneIn(4) ? Action::kHold
                                                     : Action::kCheck;
  auto asked = NewRequest(instance, action);
  if (action == Action::kHold) {
    asked->id = "h" + std::to_string(asked->number);
    asked->terms.ttl = Micros{kMs + random_.AnySize(5 * kSecond)};
    asked->terms.on_expiry = random_.OneIn(2) ? OnExpiry::kCharge : OnExpiry::kRelease;
  }
  const std::int64_t charges = random_.OneIn(4) ? random_.Between(2, kClientChargesMax) : 1;
  for (std::int64_t i = 0; i < charges; ++i) {
    const Rule& rule = OneOf(rules_);
    const std::string& of = i == 0 || random_.OneIn(2) ? keys_[key] : OneOf(keys_);
    const bool is_there = std::ranges::any_of(asked->charges, [&](const Charge& charge) {
      return charge.key == of && charge.name == rule.name;
    });
    if (is_there) continue;
    // Holds over several slots that differ only in looks could not be told apart by their refunds.
    const bool may_look = charges == 1 || endpoint_.mode != redis::Mode::kCluster;
    const bool only_held = core::NeedsHold(rule.limit) && action != Action::kHold;
    if (only_held && (action == Action::kGive || !may_look)) continue;
    const bool looks = only_held || (may_look && action != Action::kHold && random_.OneIn(15));
    const std::int64_t cost =
        looks ? 0 : random_.Between(1, std::min<std::int64_t>(3, rule.limit.amount()));
    asked->charges.push_back({.key = of,
                              .limit = &rule.limit,
                              .name = rule.name,
                              .cost = cost,
                              .on_store_failure = rule.on_store_failure,
                              .on_overload = rule.on_overload});
  }
  if (asked->charges.empty()) return MakeRequest(instance, key);
  return asked;
}

void World::Send(std::unique_ptr<ClientRequest> asked) {
  ClientRequest& it = *asked;
  const std::int64_t number = it.number;
  it.each.assign(it.charges.size(), Decision{});
  it.request.charges = it.charges;
  it.request.each = it.each;
  if (!it.id.empty()) {
    it.terms.id = it.id;
    it.request.hold = &it.terms;
  }
  open_[number] = std::move(asked);
  ++summary_.requests;
  judge_->Asked(it);
  if (bug_.ignores_policies) {
    for (Charge& charge : it.charges) {
      charge.on_store_failure = OnStoreFailure::kFailOpen;
      charge.on_overload = OnStoreFailure::kFailOpen;
    }
  }
  instances_[static_cast<std::size_t>(it.instance)]->Apply({&it.request, 1},
                                                           [this, number] { Answer(number); });
}

// `count` requests that arrive together, in one call or each in its own.
void World::Ask(int instance, std::size_t key, std::int64_t count) {
  std::vector<Charge> same;
  for (std::int64_t i = 0; i < count; ++i) {
    auto asked = MakeRequest(instance, key);
    if (!same.empty() && random_.OneIn(2)) {
      // Equal requests are folded, if the store has many of them.
      asked = NewRequest(instance, Action::kCheck);
      asked->charges = same;
    }
    if (asked->request.action == Action::kCheck) same = asked->charges;
    Send(std::move(asked));
  }
}

void World::Answer(std::int64_t number) {
  const auto node = open_.extract(number);
  if (node.empty()) throw Failure(text::Cat("request ", number, " was answered twice"));
  ClientRequest& asked = *node.mapped();
  if (bug_.ignores_policies) {  // Restores the rules' own.
    for (Charge& charge : asked.charges) {
      const Rule& rule = *rule_of_.at(redis::StateKey(endpoint_.prefix, charge));
      charge.on_store_failure = rule.on_store_failure;
      charge.on_overload = rule.on_overload;
    }
  }
  const Request& request = asked.request;
  events_.Trace("i", asked.instance, " answers ", number, ": ",
                !request.outcome           ? request.outcome.error().message
                : request.outcome->allowed ? "allowed"
                                           : "denied",
                ", source ", static_cast<int>(request.source));
  const auto& instance = instances_[static_cast<std::size_t>(asked.instance)];
  judge_->Answered(asked, instance->asks_store(), site_.servers);
  if (request.hold) GoOn(asked);
}

// Holders.

// What a holder does next, if it does not die.
void World::GoOn(const ClientRequest& answered) {
  const Request& request = answered.request;
  const bool done = request.outcome && request.outcome->allowed;
  const bool by_store = done && request.source == Source::kStore;
  switch (request.action) {
    case Action::kHold: {
      if (done) ++summary_.holds;
      const bool was_refused = !request.outcome && request.outcome.error().outage();
      // What a policy has decided may still be ended in the store; and so may a part of a hold over
      // several slots that was refused.
      const bool may_repeat = by_store || (was_refused && answered.charges.size() == 1);
      if (may_repeat && random_.OneIn(4)) Later(answered, Action::kHold);
      if (!done || !answered.terms.held || random_.OneIn(5)) return;
      if (by_store && random_.OneIn(4)) LookAtExpiry(answered);
      return Later(answered, random_.OneIn(4) ? Action::kExtend : Action::kSettle);
    }
    case Action::kExtend:
      if (random_.OneIn(5)) return;
      return Later(answered, random_.OneIn(4) ? Action::kExtend : Action::kSettle);
    default:
      ++summary_.settles;
      summary_.late_settles += answered.terms.late ? 1 : 0;
      if (random_.OneIn(3)) Later(answered, Action::kSettle);
  }
}

// Mostly before the hold expires, and on the same instance.
void World::Later(const ClientRequest& about, Action action) {
  const int instance = random_.OneIn(3) ? AnyInstance() : about.instance;
  const std::int64_t ttl_us = about.terms.ttl.count();
  events_.After(
      random_.Between(0, ttl_us + ttl_us / 4),
      [this, instance, action, id = about.id, charges = about.charges, ttl = about.terms.ttl,
       on_expiry = about.terms.on_expiry, expires = about.terms.expires] {
        if (events_.now_us() >= Events::kEpochUs + kTraffic) return;
        auto asked = NewRequest(instance, action);
        asked->id = id;
        asked->terms.ttl = ttl;
        asked->terms.on_expiry = on_expiry;
        asked->charges = charges;
        if (action == Action::kSettle) {
          asked->terms.expires = expires;
          const bool releases = random_.OneIn(3);
          for (Charge& charge : asked->charges) {
            charge.cost = releases ? 0 : random_.Between(0, 2 * charge.cost);
          }
        } else if (action == Action::kHold) {
          asked->again = true;
          Charge& first = asked->charges.front();  // Now and then, it is another one.
          if (random_.OneIn(3)) first.cost = std::max<std::int64_t>(1, first.cost - 1);
        }
        Send(std::move(asked));
      });
}

// Asks so that the store looks at the very microsecond, unless it is busy.
void World::LookAtExpiry(const ClientRequest& held) {
  events_.At(held.terms.expires.time_since_epoch().count() - site_.latency_min_us,
             [this, instance = held.instance, charge = held.charges.front()] {
               auto asked = NewRequest(instance, Action::kCheck);
               asked->charges = {charge};
               asked->charges.front().cost = 0;
               Send(std::move(asked));
             });
}

// Faults.

void World::PlanFault() {
  if (calm_) return;
  events_.After(random_.Between(0, 2 * fault_every_us_), [this] {
    if (events_.now_us() >= Events::kEpochUs + kTraffic) return;
    ++summary_.faults;
    DoFault();
    PlanFault();
  });
}

void World::During(std::int64_t micros, const std::function<void()>& begin,
                   const std::function<void()>& end) {
  begin();
  events_.After(micros, end);
}

void World::CutAll(const Server& server) {
  for (const auto& instance : instances_) instance->Cut(server);
}

void World::DoFault() {
  Server& server = *OneOf(site_.servers);
  const std::int64_t lasts = random_.AnySize(2 * kSecond);
  const int instance = AnyInstance();
  switch (random_.Between(0, 11)) {
    case 0:
      return instances_[static_cast<std::size_t>(instance)]->CutOne();
    case 1:
      events_.Trace("the network is slow for ", lasts, " us");
      return During(
          lasts, [this] { site_.latency_max_us = random_.Between(1, 60) * kMs; },
          [this] { site_.latency_max_us = latency_us_; });
    case 2:
      events_.Trace(server.address().host, " is slow for ", lasts, " us");
      return During(
          lasts, [&] { server.command_us = random_.Between(1, 20) * kMs; },
          [&] { server.command_us = 20; });
    case 3:
      events_.Trace(server.address().host, " hangs for ", lasts, " us");
      server.busy_until_us = std::max(server.busy_until_us, events_.now_us() + lasts);
      return;
    case 4:
      return Kill(server);
    case 5:
      return FailOver(server);
    case 6:
      events_.Trace(server.address().host, " flushes its scripts");
      return server.redis().FlushScripts();
    case 7: {
      if (holds_) return instances_[static_cast<std::size_t>(instance)]->CutOne();
      const std::int64_t step = random_.AnySize(20 * kSecond) * (random_.OneIn(2) ? 1 : -1);
      events_.Trace("the clock of ", server.address().host, " jumps by ", step, " us");
      server.clock_offset_us += step;
      return judge_->Upset();
    }
    case 8: {
      events_.Trace("i", instance, " dies");
      for (const auto& [_, asked] : open_) {
        if (asked->instance == instance && asked->request.action == Action::kReset) {
          judge_->DoubtSlots(asked->charges);
        }
      }
      std::erase_if(open_, [&](const auto& entry) { return entry.second->instance == instance; });
      judge_->Forget(instance);
      summary_.calls += instances_[static_cast<std::size_t>(instance)]->counters().calls.load();
      return StartInstance(instance);
    }
    case 9:
      events_.Trace(server.address().host, " is full for ", lasts, " us");
      return During(
          lasts, [&] { server.redis().set_full(true); }, [&] { server.redis().set_full(false); });
    case 10:
      if (site_.servers.size() > 1) return MoveSlot();
      [[fallthrough]];
    default:
      events_.Trace("connections turn out to be broken for ", lasts, " us");
      return During(lasts, [this] { site_.unwritten = true; }, [this] { site_.unwritten = false; });
  }
}

void World::Kill(Server& server) {
  if (!server.alive) return;
  const std::int64_t lost_us = random_.OneIn(2) ? 0 : random_.AnySize(5 * kSecond);
  events_.Trace(server.address().host, " is killed, and loses the writes of ", lost_us, " us");
  server.alive = false;
  server.Lose(lost_us);
  judge_->Lost(events_.now_us() - lost_us);
  judge_->Upset();
  CutAll(server);
  events_.After(random_.AnySize(2 * kSecond), [this, &server] {
    events_.Trace(server.address().host, " is back");
    server.alive = true;
    judge_->Upset();
    if (!random_.OneIn(2)) return;
    During(
        random_.AnySize(100 * kMs), [&] { server.loading = true; },
        [&] { server.loading = false; });
  });
}

// A replica that is behind takes over; connections to the former master stay for a while.
void World::FailOver(Server& server) {
  if (!server.alive) return;
  const std::int64_t lag_us = random_.AnySize(kSecond);
  events_.Trace(server.address().host, " fails over to a replica that is ", lag_us, " us behind");
  server.Lose(lag_us);
  judge_->Lost(events_.now_us() - lag_us);
  server.promoted_us = events_.now_us();
  judge_->Upset();
}

void World::MoveSlot() {
  const std::string& state =
      std::next(rule_of_.begin(),
                random_.Between(0, static_cast<std::int64_t>(rule_of_.size()) - 1))
          ->first;
  const std::uint16_t slot = redis::SlotOf(state);
  Server* const from = owner_[slot];
  Server* const to = OneOf(site_.servers).get();
  if (from == to || moving_.contains(slot) || !from->alive || !to->alive) return;
  events_.Trace("slot ", slot, " moves from ", from->address().host, " to ", to->address().host);
  moving_[slot] = {from, to};
  std::int64_t at_us = 0;
  for (const auto& [name, _] : rule_of_) {
    if (redis::SlotOf(name) != slot) continue;
    at_us += random_.AnySize(50 * kMs);
    events_.After(at_us, [this, from, to, name] {
      from->MoveKey(name, *to);
      judge_->Upset();  // Their clocks may differ.
    });
  }
  events_.After(at_us + random_.AnySize(50 * kMs), [this, slot, from, to] {
    // Keys created meanwhile, by requests from before the slot began to move.
    for (const auto& [name, _] : rule_of_) {
      if (redis::SlotOf(name) == slot) from->MoveKey(name, *to);
    }
    judge_->Upset();
    owner_[slot] = to;
    moving_.erase(slot);
    events_.Trace("slot ", slot, " has moved");
  });
}

// Checks.

bool World::IsSettled(const Instance& instance) const {
  return instance.idle() && instance.guard().GetStats().states_to_report == 0;
}

void World::CheckEachStep() {
  for (const auto& instance : instances_) {
    const auto stats = instance->guard().GetStats();
    judge_->CheckUnits(instance->number(), stats, IsSettled(*instance));
    if (stats.in_flight > static_cast<std::int64_t>(options_.in_flight_max) + 1'024) {
      throw Failure("more is in flight than may be");
    }
  }
  if (!open_.empty()) {
    const ClientRequest& oldest = *open_.begin()->second;
    if (events_.now_us() - oldest.asked_us > judge_->deadline().count()) {
      throw Failure(text::Cat("request ", oldest.number, " is not answered within its deadline"));
    }
  }
}

void World::CheckEnd() {
  if (!open_.empty()) throw Failure("a request was never answered");
  for (const auto& instance : instances_) {
    const std::string name = "i" + std::to_string(instance->number());
    if (!instance->idle()) throw Failure(name + " still waits for the store");
    if (!instance->connected()) throw Failure(name + " does not connect again");
    const auto status = instance->guard().GetStatus();
    if (status.breaker != GuardedStore::BreakerState::kClosed) {
      throw Failure(name + ": the breaker does not close");
    }
    if (status.overloaded) throw Failure(name + ": the overload does not end");
    if (instance->guard().GetStats().states_to_report > 0) {
      throw Failure(name + " does not report what it granted by itself");
    }
    judge_->CheckCharges(instance->number(), instance->counters().refunds_lost.load());
    judge_->CheckHolds(instance->number(), instance->guard().GetStats());
  }
}

Summary World::Run() {
  for (std::int64_t i = random_.Between(1, 2); i > 0; --i) PlanClient();
  PlanFault();
  const std::int64_t end_us = Events::kEpochUs + kTraffic + kHealsWithin;
  std::int64_t check_at_us = events_.now_us();
  while (events_.Step(end_us)) {
    if (events_.now_us() < check_at_us) continue;
    CheckEachStep();
    check_at_us = events_.now_us() + kMs;
  }
  CheckEachStep();
  CheckEnd();
  for (const auto& instance : instances_) summary_.calls += instance->counters().calls.load();
  summary_.simulated_us = end_us - Events::kEpochUs;
  summary_.answers = judge_->answers();
  return summary_;
}

}  // namespace

Summary RunHistory(std::uint64_t seed, const Bug& bug, bool traces) {
  return World(seed, bug, traces).Run();
}

}  // namespace sluice::simulate
