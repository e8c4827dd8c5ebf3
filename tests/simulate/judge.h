// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/model.h"
#include "simulate/events.h"
#include "simulate/oracle.h"
#include "simulate/script_call.h"
#include "simulate/server.h"
#include "sluice/store.h"
#include "store/guard/guard.h"

namespace sluice::simulate {

inline constexpr std::int64_t kClientChargesMax = 4;  // In one request.

// A client's request and its answer. Its address does not change.
struct ClientRequest {
  std::int64_t number;
  int instance;
  std::vector<Charge> charges;
  std::vector<Decision> each;
  Request request;
  std::int64_t asked_us;
};

// Checks every answer when it is given: Redis's decisions against the oracle of its server, the
// guard's answers against those, and decisions without Redis against the policies and the shares of
// limits. Throws Failure.
class Judge {
 public:
  struct Options {
    std::string prefix;
    std::int64_t instances;
    Micros deadline;
    Micros deny_cache_trust;
    bool cluster;
    bool calm;  // Nothing fails in this history: only the store and its denials may answer.
  };

  Judge(Events& events, const Options& options) : events_(events), options_(options) {}

  // A new instance: nothing is known about it, and nothing is expected of its predecessor.
  void Restart(int instance);

  // An instance is gone: its clients are never answered.
  void Forget(int instance);

  // A call of the script ran. Returns the indices of the verdicts, for Delivered.
  std::vector<std::size_t> Ran(int instance, const Server::Executed& executed);
  // Their reply reached the instance in time.
  void Delivered(const std::vector<std::size_t>& places);

  // The Redis store has answered the guard.
  void StoreAnswered(int instance, const guard::StoreCall& call);

  // A client asks, and is answered.
  void Asked(const ClientRequest& asked);
  void Answered(const ClientRequest& asked, bool store_can_be_asked,
                std::span<const std::unique_ptr<Server>> servers);

  // Budgets have grown without an announcement, or a clock was set.
  void Upset() { upset_us_ = events_.now_us(); }

  // An announcement is on its way to an instance, or has arrived. Null: any state may be affected.
  void Told(int instance, const Charge* charge);
  void Heard(int instance, const Charge* charge);
  void StoppedListening(int instance);

  // Units are conserved. `settled`: nothing is in flight, and nothing waits to be reported.
  void CheckUnits(int instance, const GuardedStore::Stats& stats, bool settled) const;

  // Nothing was charged without an answer, except for what was lost and counted.
  void CheckCharges(int instance, std::int64_t refunds_lost) const;

  Micros deadline() const { return options_.deadline; }

  // By source, then errors.
  const std::array<std::int64_t, 6>& answers() const { return answers_; }

 private:
  using State = std::string;  // A key of Redis.

  // What is known about an instance.
  struct Account {
    std::set<std::size_t> charged;  // Verdicts that charged, without an answer yet.
    // Answers that leave the outcome open: by states, and for requests over several slots.
    std::map<std::vector<State>, std::int64_t> unknown;
    std::int64_t unknown_parts = 0;
    std::int64_t reported_units = 0;
    std::int64_t late_units = 0;
    std::map<State, std::int64_t> on_their_way;  // Announcements.
    std::int64_t all_on_their_way = 0;
    bool listening = false;
    model::Model shares;
  };

  // The charges of a request that one slot decides.
  struct Part {
    std::uint16_t slot;
    std::vector<State> keys = {};
    std::vector<std::int64_t> costs = {};
    std::vector<Decision> each = {};
  };

  State KeyOf(const Charge& charge) const;
  std::vector<Part> PartsOf(const Request& request, std::span<const Decision> each) const;
  void Claim(Account& account, const Request& answered, std::span<const Decision> each);
  bool ClaimPart(Account& account, const Request& answered, const Part& part, bool whole);
  void Refund(Account& account, const ScriptGroup& group);
  bool IsExcused(const Account& account, const State& state, bool store_can_be_asked) const;
  void CheckDenyCache(const ClientRequest& asked, bool store_can_be_asked,
                      std::span<const std::unique_ptr<Server>> servers);
  void CheckPolicy(const ClientRequest& asked) const;
  void CheckShare(const ClientRequest& asked);
  [[noreturn]] void Fail(const std::string& what) const;

  Events& events_;
  const Options options_;
  std::vector<Verdict> verdicts_;
  std::vector<std::size_t> recent_;  // Recently delivered ones, oldest first.
  std::vector<Account> accounts_;
  // The store's answers, until the guard passes them on.
  struct ByStore {
    int instance;
    Expected<Decision> outcome;
    std::vector<Decision> each;
  };
  std::map<const Request*, ByStore> by_store_;
  std::int64_t upset_us_ = -1'000'000'000'000;
  std::array<std::int64_t, 6> answers_{};
};

}  // namespace sluice::simulate
