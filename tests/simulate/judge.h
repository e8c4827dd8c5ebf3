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
  std::string id = {};  // Of the hold that it is about.
  HoldTerms terms = {};
  bool again = false;  // The same hold was asked for before.
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

  // The writes since then are lost on one of the servers.
  void Lost(std::int64_t since_us) { lost_.emplace_back(since_us, events_.now_us()); }

  // Nobody hears whether and when these states were reset.
  void DoubtSlots(std::span<const Charge> charges);

  // Units are conserved. `settled`: nothing is in flight, and nothing waits to be reported.
  void CheckUnits(int instance, const GuardedStore::Stats& stats, bool settled) const;

  // Nothing was charged without an answer, except for what was lost and counted.
  void CheckCharges(int instance, std::int64_t refunds_lost) const;

  // What an instance kept of holds has reached the store, except for what it counts as dropped.
  void CheckHolds(int instance, const GuardedStore::Stats& stats) const;

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
    std::set<std::string> held_here;   // Holds that it made on its shares.
    std::set<std::string> held_twice;  // Of these, those that the store may have made before.
    // Holds that must end in the store, by id and state; unless always, if they are there at all.
    struct End {
      std::string id;
      State key;
      bool always;
    };
    std::vector<End> must_end;
  };

  // What a client has on hold of a concurrency limit, by the store's word.
  struct Slots {
    std::int64_t units;
    std::int64_t expires_us;
    std::int64_t since_us;  // The store wrote it between these two moments.
    std::int64_t told_us;
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
  void ClaimError(const Request& answered) const;
  void EndedInStore(const Verdict& settle);
  void Refund(Account& account, const ScriptGroup& group);
  bool IsExcused(const Account& account, const State& state, bool store_can_be_asked) const;
  void CheckDenyCache(const ClientRequest& asked, bool store_can_be_asked,
                      std::span<const std::unique_ptr<Server>> servers);
  void CheckPolicy(const ClientRequest& asked) const;
  void CheckError(const ClientRequest& asked, bool by_store) const;
  void CheckShare(const ClientRequest& asked);
  void CheckHoldOnShare(const ClientRequest& asked,
                        const std::vector<model::Model::Charge>& charges);
  void ChangeHoldOnShare(const ClientRequest& asked);
  void GiveUpOnShare(Account& account, const Request& hold);
  model::Model::Charge ShareOf(const Charge& charge) const;
  void NoteHold(const ClientRequest& asked);
  void TakeSlots(const ClientRequest& asked);
  void LetGo(const ClientRequest& asked);
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
    HoldTerms terms;
  };
  std::map<const Request*, ByStore> by_store_;
  std::set<std::string> in_doubt_;  // Holds of which an instance said that it does not know.
  std::set<std::pair<std::string, State>> ended_;        // Ids that were settled in the store.
  std::map<State, std::map<std::string, Slots>> slots_;  // By id.
  std::set<std::string> let_go_;
  std::map<State, std::int64_t> reset_us_;
  std::set<State> doubtful_;  // Of which nobody knows when they were reset.
  std::vector<std::pair<std::int64_t, std::int64_t>> lost_;  // Since when, and when.
  std::int64_t upset_us_ = -1'000'000'000'000;
  std::array<std::int64_t, 6> answers_{};
};

}  // namespace sluice::simulate
