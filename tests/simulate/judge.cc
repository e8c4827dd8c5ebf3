// SPDX-License-Identifier: Apache-2.0
#include "simulate/judge.h"

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "conformance/model_spec.h"
#include "core/algorithms.h"
#include "redis/slots.h"
#include "store/redis/state_key.h"

namespace sluice::simulate {
namespace {

constexpr std::size_t kRecentMax = 4'096;

std::string TextOf(const Decision& decision) {
  return text::Cat(decision.allowed ? "allowed" : "denied", " limit=", decision.limit,
                   " remaining=", decision.remaining, " retry_after=", decision.retry_after.count(),
                   " reset_after=", decision.reset_after.count(), " delay=", decision.delay.count(),
                   " held=", decision.held);
}

std::string_view NameOf(Action action) {
  switch (action) {
    case Action::kCheck:
      return "check";
    case Action::kDebit:
      return "debit";
    case Action::kGive:
      return "give";
    case Action::kReset:
      return "reset";
    case Action::kHold:
      return "hold";
    case Action::kSettle:
      return "settle";
    case Action::kExtend:
      return "extend";
    case Action::kListHolds:
      return "list holds";
  }
  std::unreachable();
}

std::string TextOf(const Request& request) {
  std::string text(NameOf(request.action));
  for (const Charge& charge : request.charges) {
    text += text::Cat(" ", charge.key, "/", charge.name, "*", charge.cost);
  }
  if (request.hold) text += text::Cat(" as ", request.hold->id);
  return text;
}

// Under overload, on_overload applies; without it, FAIL_OPEN becomes LOCAL.
OnStoreFailure PolicyOf(const Charge& charge, bool overload) {
  if (!overload) return charge.on_store_failure;
  if (charge.on_overload) return *charge.on_overload;
  return charge.on_store_failure == OnStoreFailure::kFailOpen ? OnStoreFailure::kLocal
                                                              : charge.on_store_failure;
}

bool AnyOf(std::span<const Charge> charges, bool overload, OnStoreFailure policy) {
  return std::ranges::any_of(
      charges, [&](const Charge& charge) { return PolicyOf(charge, overload) == policy; });
}

bool HasCharged(const Request& request) {
  return request.outcome && request.outcome->allowed && request.action == Action::kCheck &&
         std::ranges::any_of(request.charges, [](const Charge& c) { return c.cost > 0; });
}

model::OnExpiry OnExpiryOf(const HoldTerms& terms) {
  return terms.on_expiry == OnExpiry::kRelease ? model::OnExpiry::kRelease
                                               : model::OnExpiry::kCharge;
}

bool AreEqual(const HoldTerms& a, const HoldTerms& b) {
  return a.expires == b.expires && a.held == b.held && a.late == b.late &&
         a.overdrawn == b.overdrawn;
}

// Whether this refunds all that was taken.
bool IsRefundOf(const ScriptGroup& group, const Verdict& verdict) {
  return verdict.action == "hold" && verdict.keys == group.keys && verdict.costs == group.costs &&
         verdict.moments == group.whens;
}

// What any store may say of a hold.
bool IsOfHold(const Error& error) {
  return error.code == ErrorCode::kHoldConflict || error.code == ErrorCode::kHoldLost ||
         error.code == ErrorCode::kTooManyHolds;
}

// Whether the terms of a request that was answered, or of a part of it, are those of the verdict.
bool TermsFit(const Verdict& verdict, const Request& answered, bool whole) {
  if (!answered.hold) return true;
  const HoldTerms& terms = *answered.hold;
  const std::int64_t expires_us = terms.expires.time_since_epoch().count();
  if (verdict.id != terms.id) return false;
  if (!answered.outcome->allowed) return true;
  if (answered.action != Action::kSettle) {
    return whole ? verdict.expires_us == expires_us : verdict.expires_us >= expires_us;
  }
  if (whole) return verdict.late == terms.late && verdict.overdrawn == terms.overdrawn;
  return verdict.late <= terms.late && verdict.overdrawn <= terms.overdrawn;
}

// What one of this many instances may grant by itself.
model::Spec SpecOfShare(const Limit& limit, std::int64_t instances) {
  model::Spec spec = SpecOf(limit);
  spec.amount = std::max<std::int64_t>(1, spec.amount / instances);
  if (model::internal::IsBucket(spec.kind)) spec.span_us *= instances;
  return spec;
}

}  // namespace

void Judge::Fail(const std::string& what) const { throw Failure(what); }

void Judge::Restart(int instance) {
  const auto index = static_cast<std::size_t>(instance);
  if (accounts_.size() <= index) accounts_.resize(index + 1);
  accounts_[index] = {};
}

void Judge::Forget(int instance) {
  std::erase_if(by_store_, [&](const auto& entry) { return entry.second.instance == instance; });
}

Judge::State Judge::KeyOf(const Charge& charge) const {
  return redis::StateKey(options_.prefix, charge);
}

std::vector<Judge::Part> Judge::PartsOf(const Request& request,
                                        std::span<const Decision> each) const {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < request.charges.size(); ++i) {
    State key = KeyOf(request.charges[i]);
    const std::uint16_t slot = options_.cluster ? redis::SlotOf(key) : std::uint16_t{0};
    auto part = std::ranges::find(parts, slot, &Part::slot);
    if (part == parts.end()) part = parts.insert(parts.end(), Part{.slot = slot});
    part->keys.push_back(std::move(key));
    const Charge& charge = request.charges[i];
    const bool has_costs = request.action != Action::kReset && request.action != Action::kExtend;
    const bool is_debit = request.action == Action::kDebit;  // There is never more to take.
    part->costs.push_back(!has_costs ? 0
                          : is_debit ? std::min(charge.cost, charge.limit->amount())
                                     : charge.cost);
    if (!each.empty()) part->each.push_back(each[i]);
  }
  return parts;
}

std::vector<std::size_t> Judge::Ran(int instance, const Server::Executed& executed) {
  Account& account = accounts_[static_cast<std::size_t>(instance)];
  std::vector<std::size_t> places;
  for (const Verdict& verdict : executed.verdicts) {
    places.push_back(verdicts_.size());
    if (verdict.charges()) account.charged.insert(verdicts_.size());
    verdicts_.push_back(verdict);
    if (verdict.action == "settle") EndedInStore(verdict);
    if (verdict.action != "reset") continue;
    for (const State& key : verdict.keys) reset_us_[key] = events_.now_us();
  }
  for (const ScriptGroup& group : executed.groups) {
    if (group.action != "refund") continue;
    Refund(account, group);
  }
  return places;
}

// Somebody knows of the hold.
void Judge::EndedInStore(const Verdict& settle) {
  for (const State& key : settle.keys) ended_.emplace(settle.id, key);
  for (Account& account : accounts_) {
    std::erase_if(account.charged, [&](std::size_t place) {
      return verdicts_[place].id == settle.id && verdicts_[place].keys == settle.keys;
    });
  }
}

// Finds the hold that is refunded. Of two that look the same, it may find the other one.
void Judge::Refund(Account& account, const ScriptGroup& group) {
  const auto held = std::ranges::find_if(account.charged, [&](std::size_t place) {
    const Verdict& told = verdicts_[place];
    return told.action == "hold" &&
           std::any_of(verdicts_.rbegin(), verdicts_.rend(), [&](const Verdict& taken) {
             return IsRefundOf(group, taken) && told.keys == taken.keys &&
                    told.costs == taken.costs && told.each == taken.each;
           });
  });
  if (held == account.charged.end())
    Fail("something was given back that was granted, or not even taken");
  account.charged.erase(held);
}

void Judge::Delivered(const std::vector<std::size_t>& places) {
  // Independent of the instance: a verdict belongs to the one whose call it was, and is looked up
  // among those delivered to all.
  recent_.insert(recent_.end(), places.begin(), places.end());
  if (recent_.size() > 2 * kRecentMax) {
    recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(kRecentMax));
  }
}

void Judge::StoreAnswered(int instance, const guard::StoreCall& call) {
  Account& account = accounts_[static_cast<std::size_t>(instance)];
  for (std::size_t i = 0; i < call.requests.size(); ++i) {
    const Request& answered = call.requests[i];
    const auto each = answered.outcome ? call.EachOf(i) : std::span<const Decision>();
    Claim(account, answered, each);
    if (call.own) {
      const bool reports = answered.action == Action::kDebit && answered.outcome;
      if (reports) account.reported_units += answered.charges.front().cost;
    } else if (call.decided) {
      if (HasCharged(answered)) account.late_units += call.local_units[i];
      if (answered.action == Action::kHold && answered.outcome && answered.outcome->allowed) {
        GiveUpOnShare(account, answered);
      }
    } else {
      by_store_[call.asked[i]] = {instance,
                                  answered.outcome,
                                  {each.begin(), each.end()},
                                  answered.hold ? *answered.hold : HoldTerms{}};
    }
  }
}

// The store's answer must match the oracle's verdict on a call that ran, and each such verdict
// answers one request.
void Judge::Claim(Account& account, const Request& answered, std::span<const Decision> each) {
  const auto parts = PartsOf(answered, each);
  if (!answered.outcome) {
    if (IsOfHold(answered.outcome.error())) return ClaimError(answered);
    if (answered.outcome.error().code != ErrorCode::kOutcomeUnknown) return;
    if (answered.hold) in_doubt_.emplace(answered.hold->id);
    if (parts.size() == 1) {
      ++account.unknown[parts.front().keys];
    } else {
      account.unknown_parts += static_cast<std::int64_t>(parts.size());
    }
    return;
  }
  for (const Part& part : parts) {
    if (ClaimPart(account, answered, part, parts.size() == 1)) continue;
    std::string said;
    for (std::size_t i = 0; i < part.keys.size(); ++i) {
      said += text::Cat("\n    ", part.keys[i], ": ", TextOf(part.each[i]));
    }
    for (auto place = recent_.rbegin(); place != recent_.rend(); ++place) {
      const Verdict& verdict = verdicts_[*place];
      if (verdict.keys != part.keys) continue;
      said += text::Cat("\n  the last to be expected, of a ", verdict.action, " at ",
                        verdict.moments.front());
      for (const Decision& decision : verdict.each) said += "\n    " + TextOf(decision);
      break;
    }
    Fail(text::Cat("the store's answer to ", TextOf(answered), " is none to be expected:", said));
  }
}

// One of its parts must have been refused for this reason.
void Judge::ClaimError(const Request& answered) const {
  const auto fits = [&](std::size_t place) {
    const Verdict& verdict = verdicts_[place];
    return verdict.id == answered.hold->id && verdict.error == answered.outcome.error().code;
  };
  if (std::ranges::none_of(recent_, fits)) {
    Fail(text::Cat("the store's answer to ", TextOf(answered),
                   " is none to be expected: ", answered.outcome.error().message));
  }
}

bool Judge::ClaimPart(Account& account, const Request& answered, const Part& part, bool whole) {
  const bool spans = !whole && answered.action == Action::kCheck;
  // A hold over several slots that was denied in the end has perhaps been released in some.
  const bool denied = answered.action == Action::kHold && !answered.outcome->allowed;
  for (auto place = recent_.rbegin(); place != recent_.rend(); ++place) {
    const Verdict& verdict = verdicts_[*place];
    if (verdict.keys != part.keys) continue;
    const bool released = !whole && denied && verdict.action == "settle";
    if (verdict.costs != part.costs && !released) continue;
    std::vector<Decision> each = verdict.each;
    for (Decision& decision : each) {
      if (!whole && denied) decision.delay = Micros{0};
    }
    if (each != part.each) continue;
    if (!TermsFit(verdict, answered, whole)) continue;
    if (whole && verdict.overall != *answered.outcome) continue;
    const bool holds = verdict.action == "reserve" || released ||
                       (verdict.action == "foresee" && !whole && denied);
    const bool fits = spans ? verdict.action == "hold" || verdict.action == "check" ||
                                  (verdict.action == "look" && !answered.outcome->allowed)
                      : answered.action == Action::kHold
                          ? holds
                          : verdict.action == NameOf(answered.action);
    if (!fits) continue;
    // What was taken for a denied request is refunded: Ran checks that.
    if (!answered.outcome->allowed) return true;
    if (answered.action == Action::kHold) {  // Whoever knows that it exists knows that it was made.
      std::erase_if(account.charged,
                    [&](std::size_t made) { return verdicts_[made].id == verdict.id; });
      return true;
    }
    if (!verdict.charges()) return true;
    if (account.charged.erase(*place) > 0) return true;
  }
  return false;
}

void Judge::Asked(const ClientRequest& asked) {
  if (asked.request.action == Action::kSettle) LetGo(asked);
  if (asked.request.action != Action::kReset) return;
  Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  for (const Charge& charge : asked.charges) account.shares.Reset(KeyOf(charge), "");
}

void Judge::Answered(const ClientRequest& asked, bool store_can_be_asked,
                     std::span<const std::unique_ptr<Server>> servers) {
  const Request& request = asked.request;
  const std::int64_t took_us = events_.now_us() - asked.asked_us;
  if (events_.traces()) events_.Trace("  to ", TextOf(request), ", after ", took_us, " us");
  if (took_us > options_.deadline.count()) {
    Fail(text::Cat("request ", asked.number, " was answered after ", took_us, " us"));
  }
  ++answers_[request.outcome ? static_cast<std::size_t>(request.source) : 5];
  const auto by_store = by_store_.extract(&request);
  if (!request.outcome) return CheckError(asked, !by_store.empty());
  NoteHold(asked);
  switch (request.source) {
    case Source::kStore:
      if (by_store.empty() || !by_store.mapped().outcome ||
          *by_store.mapped().outcome != *request.outcome || by_store.mapped().each != asked.each) {
        Fail(text::Cat("request ", asked.number, " got an answer that the store has not given"));
      }
      if (request.hold && !AreEqual(asked.terms, by_store.mapped().terms)) {
        Fail(text::Cat("request ", asked.number, " got terms that the store has not given"));
      }
      return TakeSlots(asked);
    case Source::kDenyCache:
      return CheckDenyCache(asked, store_can_be_asked, servers);
    case Source::kLocal:
    case Source::kOverload:
    case Source::kFailOpen:
      CheckPolicy(asked);
      return CheckShare(asked);
  }
}

// The store or this instance may know the hold better than the client; and in an outage, policies
// may let a request fail. A settle is always taken.
void Judge::CheckError(const ClientRequest& asked, bool by_store) const {
  const Error& error = asked.request.outcome.error();
  const Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  if (IsOfHold(error) && (by_store || account.held_here.contains(asked.id))) return;
  if (!error.outage() || asked.request.action == Action::kSettle) {
    Fail(text::Cat("request ", asked.number, " (", TextOf(asked.request), "): ", error.message));
  }
  CheckPolicy(asked);
}

// A remembered denial must be one that the store would give, unless something changed that the
// instance could not know yet.
void Judge::CheckDenyCache(const ClientRequest& asked, bool store_can_be_asked,
                           std::span<const std::unique_ptr<Server>> servers) {
  if (asked.request.outcome->allowed) Fail("a remembered denial that allows");
  const Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  for (std::size_t i = 0; i < asked.charges.size(); ++i) {
    if (asked.each[i].allowed) continue;
    const State key = KeyOf(asked.charges[i]);
    const bool right = std::ranges::any_of(servers, [&](const auto& server) {
      return !server->oracle().WouldAllow(key, asked.charges[i].cost, server->clock_us());
    });
    if (right || IsExcused(account, key, store_can_be_asked)) return;
  }
  Fail(text::Cat("request ", asked.number, " (", TextOf(asked.request),
                 ") was denied from memory, but the store would have allowed it"));
}

bool Judge::IsExcused(const Account& account, const State& state, bool store_can_be_asked) const {
  if (!account.listening || account.all_on_their_way > 0) return true;
  if (const auto news = account.on_their_way.find(state);
      news != account.on_their_way.end() && news->second > 0) {
    return true;
  }
  return !store_can_be_asked ||
         events_.now_us() - upset_us_ <= options_.deny_cache_trust.count() + 1'000'000;
}

// The policies of its charges must allow such an answer, in an outage or under overload.
void Judge::CheckPolicy(const ClientRequest& asked) const {
  const Request& request = asked.request;
  if (options_.calm) {
    Fail(text::Cat("request ", asked.number, " (", TextOf(request),
                   ") was not decided by the store ", "although nothing failed: ",
                   request.outcome ? "source " + std::to_string(static_cast<int>(request.source))
                                   : request.outcome.error().message));
  }
  const auto allows = [&](bool overload) {
    using enum OnStoreFailure;
    const bool closed = AnyOf(asked.charges, overload, kFailClosed);
    const bool open = AnyOf(asked.charges, overload, kFailOpen);
    const bool local = AnyOf(asked.charges, overload, kLocal);
    if (!request.outcome) {
      return closed || (local && std::ranges::any_of(asked.charges, [&](const Charge& charge) {
                          return charge.cost > ShareOf(charge).spec.amount;
                        }));
    }
    if (closed) return false;
    switch (request.source) {
      case Source::kLocal:
        return !overload && local && !open;
      case Source::kOverload:
        return overload && local && !open;
      default:
        return open;
    }
  };
  // Settles are kept; and who holds here settles and extends here.
  if (request.action == Action::kSettle && request.source == Source::kLocal) return;
  const Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  if (request.action == Action::kExtend &&
      (!request.outcome || account.held_here.contains(asked.id))) {
    return;
  }
  const bool corrects = request.action == Action::kReset || request.action == Action::kGive;
  if (corrects && (!request.outcome || request.action == Action::kGive)) return;
  if (!corrects && (allows(false) || allows(true))) return;
  Fail(text::Cat("request ", asked.number, " (", TextOf(request),
                 ") got an answer that no policy allows: ",
                 request.outcome ? TextOf(*request.outcome) : request.outcome.error().message,
                 ", source ", static_cast<int>(request.source)));
}

model::Model::Charge Judge::ShareOf(const Charge& charge) const {
  return {KeyOf(charge), "", SpecOfShare(*charge.limit, options_.instances), charge.cost};
}

// Local grants must stay within this instance's share of each limit.
void Judge::CheckShare(const ClientRequest& asked) {
  const Request& request = asked.request;
  if (request.action == Action::kSettle || request.action == Action::kExtend) {
    return ChangeHoldOnShare(asked);
  }
  const bool holds = request.action == Action::kHold;
  if (!request.outcome->allowed || (request.action != Action::kCheck && !holds)) return;
  Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  std::vector<model::Model::Charge> held;
  for (const Charge& charge : asked.charges) {
    const auto is_local = [&](bool overload) {
      return PolicyOf(charge, overload) == OnStoreFailure::kLocal;
    };
    // If the cause is unknown, only what is local for both counts.
    const bool local = request.source == Source::kLocal      ? is_local(false)
                       : request.source == Source::kOverload ? is_local(true)
                                                             : is_local(false) && is_local(true);
    if (!local || charge.cost == 0) continue;
    const model::Model::Charge share = ShareOf(charge);
    if (holds) {
      held.push_back(share);
      continue;
    }
    if (!account.shares.Look({share}, events_.now_us()).overall.allowed) {
      Fail(text::Cat("request ", asked.number, " got more of ", share.key,
                     " than this instance's share"));
    }
    account.shares.Take(share, events_.now_us());
  }
  if (!held.empty()) CheckHoldOnShare(asked, held);
}

void Judge::CheckHoldOnShare(const ClientRequest& asked,
                             const std::vector<model::Model::Charge>& charges) {
  Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  const auto held = account.shares.Hold(charges, asked.id, asked.terms.ttl.count(),
                                        OnExpiryOf(asked.terms), events_.now_us());
  if (held.status == model::Status::kOk && held.overall.allowed) return;
  Fail(text::Cat("request ", asked.number, " (", TextOf(asked.request),
                 ") holds more than this instance's share"));
}

// What is asked about a hold on shares is decided at once. Otherwise it was asked before that hold
// was made, and a settle is kept.
void Judge::ChangeHoldOnShare(const ClientRequest& asked) {
  if (asked.asked_us < events_.now_us()) return;
  model::Model& shares = accounts_[static_cast<std::size_t>(asked.instance)].shares;
  for (const Charge& charge : asked.charges) {
    const model::Model::Charge share = ShareOf(charge);
    if (!shares.Remembers(share, asked.id, events_.now_us())) continue;
    if (asked.request.action == Action::kSettle) {
      shares.Settle({share}, asked.id, events_.now_us());
    } else {
      shares.Extend({share}, asked.id, asked.terms.ttl.count(), events_.now_us());
    }
  }
}

// The store has made a hold that is on this instance's shares, too. It lives in the store from now
// on.
void Judge::GiveUpOnShare(Account& account, const Request& hold) {
  for (const Charge& charge : hold.charges) {
    model::Model::Charge share = ShareOf(charge);
    share.cost = 0;
    const std::string id(hold.hold->id);
    if (!account.shares.Remembers(share, id, events_.now_us())) continue;
    account.shares.Settle({share}, id, events_.now_us());
  }
}

// What an instance decided about a hold by itself, it must tell the store: whatever the store may
// have made nevertheless ends, unless a client has it; and a settle reaches the store.
void Judge::NoteHold(const ClientRequest& asked) {
  const Request& request = asked.request;
  if (!request.hold || request.source == Source::kStore) return;
  Account& account = accounts_[static_cast<std::size_t>(asked.instance)];
  if (request.action == Action::kExtend) return;
  if (request.action == Action::kHold) LetGo(asked);
  if (request.action == Action::kHold && request.outcome->allowed && asked.terms.held) {
    account.held_here.insert(asked.id);
    if (asked.again) account.held_twice.insert(asked.id);
    return;
  }
  // The client itself may have ended one of the two, or may know of the other.
  if (asked.again || account.held_twice.contains(asked.id)) return;
  const bool is_kept = request.action == Action::kSettle && !account.held_here.contains(asked.id);
  for (const Charge& charge : asked.charges) {
    account.must_end.push_back({asked.id, KeyOf(charge), is_kept});
  }
}

// No more slots may be in use than there are, unless the store has lost writes or was told to
// forget them.
void Judge::TakeSlots(const ClientRequest& asked) {
  const Request& request = asked.request;
  const bool holds = request.action == Action::kHold && request.outcome->allowed;
  if (!holds && request.action != Action::kExtend) return;
  if (let_go_.contains(asked.id)) return;
  const std::int64_t now_us = events_.now_us();
  const std::int64_t expires_us = asked.terms.expires.time_since_epoch().count();
  for (const Charge& charge : asked.charges) {
    const State key = KeyOf(charge);
    if (!core::NeedsHold(*charge.limit) || doubtful_.contains(key)) continue;
    std::map<std::string, Slots>& slots = slots_[key];
    // A hold over several limits may last longer under some of them, but its client does not know.
    const auto known = slots.find(asked.id);
    if (!holds && known == slots.end()) continue;  // Its client does not know what it holds.
    slots[asked.id] = {.units = holds ? charge.cost : known->second.units,
                       .expires_us = expires_us,
                       .since_us = expires_us - asked.terms.ttl.count(),
                       .told_us = now_us};
    std::erase_if(slots, [&](const auto& entry) {
      const Slots& held = entry.second;
      const auto is_lost = [&](const auto& lost) {
        return lost.first <= held.told_us && held.since_us <= lost.second;
      };
      const auto reset = reset_us_.find(key);
      return held.expires_us <= now_us || std::ranges::any_of(lost_, is_lost) ||
             (reset != reset_us_.end() && held.since_us <= reset->second);
    });
    std::int64_t units = 0;
    for (const auto& [_, held] : slots) units += held.units;
    if (units <= charge.limit->amount()) continue;
    Fail(text::Cat(units, " slots of ", key, " are in use"));
  }
}

// Its client uses its slots no more.
void Judge::LetGo(const ClientRequest& asked) {
  let_go_.insert(asked.id);
  for (const Charge& charge : asked.charges) slots_[KeyOf(charge)].erase(asked.id);
}

void Judge::DoubtSlots(std::span<const Charge> charges) {
  for (const Charge& charge : charges) doubtful_.insert(KeyOf(charge));
}

void Judge::Told(int instance, const Charge* charge) {
  Account& account = accounts_[static_cast<std::size_t>(instance)];
  ++(charge ? account.on_their_way[KeyOf(*charge)] : account.all_on_their_way);
}

void Judge::Heard(int instance, const Charge* charge) {
  Account& account = accounts_[static_cast<std::size_t>(instance)];
  account.listening = true;
  std::int64_t& count = charge ? account.on_their_way[KeyOf(*charge)] : account.all_on_their_way;
  count = std::max<std::int64_t>(0, count - 1);
}

void Judge::StoppedListening(int instance) {
  Account& account = accounts_[static_cast<std::size_t>(instance)];
  account.listening = false;
  account.on_their_way.clear();
  account.all_on_their_way = 0;
}

void Judge::CheckUnits(int instance, const GuardedStore::Stats& stats, bool settled) const {
  const Account& account = accounts_[static_cast<std::size_t>(instance)];
  const std::int64_t ended =
      stats.reported_units + stats.charged_units + stats.recovered_units + stats.dropped_units;
  if (ended > stats.local_units || (settled && ended != stats.local_units)) {
    Fail(text::Cat("i", instance, ": ", stats.local_units, " units were taken locally, but ",
                   stats.reported_units, " reported, ", stats.charged_units, " charged, ",
                   stats.recovered_units, " recovered and ", stats.dropped_units, " dropped"));
  }
  if (stats.reported_units != account.reported_units) {
    Fail(text::Cat("i", instance, " counts ", stats.reported_units,
                   " units as reported, but the store took ", account.reported_units));
  }
  if (stats.charged_units != account.late_units) {
    Fail(text::Cat("i", instance, " counts ", stats.charged_units,
                   " local units as charged late, but there were ", account.late_units));
  }
}

void Judge::CheckCharges(int instance, std::int64_t refunds_lost) const {
  const Account& account = accounts_[static_cast<std::size_t>(instance)];
  std::map<std::vector<State>, std::int64_t> untold;
  std::int64_t held = 0;
  std::string holds;
  for (const std::size_t place : account.charged) {
    const Verdict& verdict = verdicts_[place];
    if (verdict.action == "reserve") {
      // Its client, or a part of the dispatcher that lost its release, knows that it may exist.
      if (in_doubt_.contains(verdict.id) || refunds_lost > 0) continue;
      Fail(text::Cat("i", instance, ": nobody knows of the hold ", verdict.id, " on ",
                     verdict.keys.front()));
    } else if (verdict.action == "hold") {
      ++held;
      holds += text::Cat("\n    ", verdict.keys.front(), " at ", verdict.moments.front());
    } else {
      ++untold[verdict.keys];
    }
  }
  for (const auto& [keys, count] : untold) {
    const auto unknown = account.unknown.find(keys);
    const std::int64_t excused = unknown == account.unknown.end() ? 0 : unknown->second;
    if (count > excused) {
      Fail(text::Cat("i", instance, ": ", count, " requests on ", keys.front(),
                     " were charged without an answer, but only ", excused,
                     " were told that their outcome is unknown"));
    }
  }
  // Lost refunds are counted by request, and all its parts may be lost.
  if (held > account.unknown_parts + refunds_lost * kClientChargesMax) {
    Fail(text::Cat("i", instance, ": ", held,
                   " holds were neither granted nor given back, but only ", refunds_lost,
                   " are counted as lost and ", account.unknown_parts, " as unknown:", holds));
  }
}

void Judge::CheckHolds(int instance, const GuardedStore::Stats& stats) const {
  if (stats.settles_dropped > 0) return;
  const Account& account = accounts_[static_cast<std::size_t>(instance)];
  for (const Account::End& end : account.must_end) {
    if (ended_.contains({end.id, end.key})) continue;
    const bool is_made = std::ranges::any_of(verdicts_, [&](const Verdict& verdict) {
      return verdict.is_new && verdict.id == end.id &&
             std::ranges::find(verdict.keys, end.key) != verdict.keys.end();
    });
    if (!end.always && !is_made) continue;
    Fail(text::Cat("i", instance, " has not told the store to end the hold ", end.id, " on ",
                   end.key));
  }
}

}  // namespace sluice::simulate
