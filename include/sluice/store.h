// SPDX-License-Identifier: Apache-2.0
// The seam between callers and those who keep the state. A store applies requests, each an
// all-or-nothing group of charges, and answers each with a decision or an error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/decision.h"
#include "sluice/error.h"
#include "sluice/limit.h"
#include "sluice/time.h"

namespace sluice {

namespace core {
struct SeenNumbers;
}

inline constexpr std::size_t kKeyBytesMax = 1024;
inline constexpr std::size_t kNameBytesMax = 256;
inline constexpr std::size_t kChargesMax = 64;  // In one request.
inline constexpr std::size_t kHoldIdBytesMax = 64;
inline constexpr std::size_t kLiveHoldsMax = 4096;   // On one state.
inline constexpr std::size_t kListedHoldsMax = 100;  // In one Request::listed.

// How long the id of a hold is remembered after its expiry.
inline constexpr Micros kHoldRemembered{std::chrono::minutes{1}};

// What happens to a charge when the store cannot decide. Stores without a fallback report the
// error; see GuardedStore. A charge defaults to kFailClosed. Rules and the service's endpoints
// default to FAIL_OPEN, because nobody may be there to handle an error.
enum class OnStoreFailure : std::uint8_t {
  kFailClosed,  // The request fails with the store's error.
  kFailOpen,    // The charge allows.
  kLocal,       // A store in this process decides, on this instance's share of the limit.
};

// "FAIL_CLOSED" and so on, as rules, settings and metrics spell it.
constexpr std::string_view ToString(OnStoreFailure on_store_failure) {
  switch (on_store_failure) {
    case OnStoreFailure::kFailClosed:
      return "FAIL_CLOSED";
    case OnStoreFailure::kFailOpen:
      return "FAIL_OPEN";
    case OnStoreFailure::kLocal:
      return "LOCAL";
  }
  std::unreachable();
}

// Who decided, the most trustworthy first.
enum class Source : std::uint8_t {
  kStore,
  kDenyCache,  // A remembered denial of the store.
  kLocal,      // This instance on its share, because the store failed.
  kOverload,   // This instance on its share, because the store could not keep up.
  kFailOpen,   // Nobody.
};

// "store", "deny-cache" and so on, as answers and logs spell it.
constexpr std::string_view ToString(Source source) {
  switch (source) {
    case Source::kStore:
      return "store";
    case Source::kDenyCache:
      return "deny-cache";
    case Source::kLocal:
      return "local";
    case Source::kOverload:
      return "overload";
    case Source::kFailOpen:
      return "fail-open";
  }
  std::unreachable();
}

// One limit applied to one key. Nothing is owned: what it points to outlives the call.
struct Charge {
  std::string_view key;  // Any bytes, 1 .. kKeyBytesMax.
  const Limit* limit;

  // Which of the key's states this is, at most kNameBytesMax bytes. State stays with its name when
  // the limit's numbers change: what was used stays used, a raised limit takes effect at once and a
  // lowered one never grants more. Without a name the limit's own numbers serve, so that different
  // limits never share state.
  std::string_view name = {};

  std::int64_t cost = 1;  // 0 looks without taking.

  OnStoreFailure on_store_failure = OnStoreFailure::kFailClosed;

  // What happens to it when the store answers but cannot keep up. None: the same as when the store
  // fails, except that a guard does not let kFailOpen charges pass; see
  // GuardedStore::Options::on_overload.
  std::optional<OnStoreFailure> on_overload = {};
};

enum class Action : std::uint8_t {
  kCheck,  // Decide, and take the costs if every charge allows it.

  // Take what was already granted elsewhere, such as by a fallback while this store was out of
  // reach. Takes what is left of each charge's budget, up to its cost. Never denies; all numbers
  // are those after the debit. A cost may exceed its limit.
  kDebit,

  // Give back up to its cost of what was taken from each charge's state, without saying which
  // units: from a window, those taken last. A budget never gets more than an untouched one has.
  // Never denies; all numbers are those afterwards. A cost may exceed its limit.
  kGive,

  // Make each charge's budget untouched, whatever its cost. Never denies; all numbers are those
  // afterwards, and Request::existed tells whether there was any state. If it fails, some charges
  // may have been reset; resetting again does no harm.
  kReset,

  // Decide as a check does. If allowed, the costs are taken, and are on hold under Request::hold
  // until its ttl is over. The same hold again, while it is live, is allowed and takes nothing.
  // Errors: kHoldConflict, kTooManyHolds.
  kHold,

  // End the hold: each charge has cost `cost` instead of what was held. The rest is given back as
  // if it had never been taken; what is more is taken now, even if it is not there. A hold that has
  // expired or that nobody knows is settled late: what its expiry did is corrected, or the whole
  // cost is taken. Never denies. Settling again changes nothing. A cost may exceed its limit. A
  // cost of 0 releases the hold. Concurrency limits are released whatever the cost.
  kSettle,

  // The hold lasts for another ttl from now on. Never denies. Error: kHoldLost.
  kExtend,

  // Look at the state of one charge, whatever its cost, and list its live holds in Request::listed.
  // Takes nothing, and never denies.
  kListHolds,
};

// What happens to units on hold when their hold expires.
enum class OnExpiry : std::uint8_t {
  kCharge,   // They stay taken.
  kRelease,  // They are given back. Always, for concurrency limits.
};

// "CHARGE" and "RELEASE", as rules and the APIs spell it.
constexpr std::string_view ToString(OnExpiry on_expiry) {
  switch (on_expiry) {
    case OnExpiry::kCharge:
      return "CHARGE";
    case OnExpiry::kRelease:
      return "RELEASE";
  }
  std::unreachable();
}

// The hold that a kHold, kSettle or kExtend is about. Whoever knows the id of a live hold may end
// it. Each state of a request remembers the id until a minute after the hold's expiry.
struct HoldTerms {
  std::string_view id;  // 1 .. kHoldIdBytesMax printable ASCII characters.

  // kHoldTtlMin .. kHoldTtlMax. Zero: that of the concurrency limit, if the request has no other
  // limits.
  Micros ttl{0};

  OnExpiry on_expiry = OnExpiry::kCharge;

  // Out, of kHold and kExtend: when it expires. In, of kSettle: the same, if it is known; a guard
  // may then tell the store later, for as long as the store remembers the id.
  TimePoint expires{};

  // Out, of kHold: whether any units are on hold if it was allowed. Not if a guard let all charges
  // pass undecided; then there is nothing to settle.
  bool held = true;

  // Out, of kSettle: whether it had expired or was not known, on any of the states, and whether
  // more was taken than was on hold.
  bool late = false;
  bool overdrawn = false;

  void CopyAnswer(const HoldTerms& other) {
    expires = other.expires;
    held = other.held;
    late = other.late;
    overdrawn = other.overdrawn;
  }
};

// The live holds of a state.
struct HoldList {
  struct Hold {
    std::string id;
    std::int64_t units = 0;
    TimePoint taken{};  // When its units were taken; later, if the limit has changed since.
    TimePoint expires{};
    OnExpiry on_expiry = OnExpiry::kCharge;

    friend bool operator==(const Hold&, const Hold&) = default;
  };

  std::string_view only = {};  // In: list the hold of this id, or all if it is empty.

  // Out: those that expire first, at most kListedHoldsMax, in the order of their expiry and id.
  std::vector<Hold> holds = {};
  std::size_t live = 0;  // Out: how many there are, listed or not.
};

// A charge's state as a decision left it. Whoever keeps it can decide on the state again, for as
// long as nobody takes from it. Only core/seen.h knows what is inside.
class SeenState {
 public:
  // When it was decided, by the store's clock; -1 if the store does not report it.
  std::int64_t now_us() const { return now_us_; }

  friend bool operator==(const SeenState&, const SeenState&) = default;

 private:
  friend struct core::SeenNumbers;

  std::int64_t now_us_ = -1;
  std::array<std::int64_t, 3> numbers_ = {};
};

// A question, and room for the answers. Several charges of one state add up.
struct Request {
  std::span<const Charge> charges;  // 1 .. kChargesMax.

  // For tests and replay: decide as of this moment instead of the store's own time.
  std::optional<TimePoint> now = {};

  // Out, optional: each charge's own numbers; either empty or as long as `charges`. In a denied
  // request, the charges with allowed == false are those that denied it; nothing was charged.
  std::span<Decision> each = {};

  // Out, optional, likewise: each charge's state. Left as it is if the outcome is an error.
  std::span<SeenState> seen = {};

  Action action = Action::kCheck;

  // Of kHold, kSettle and kExtend.
  HoldTerms* hold = nullptr;

  // Of kListHolds. Left as it is if the outcome is an error.
  HoldList* listed = nullptr;

  // Out. Allowed if every charge is; the smallest remaining, the longest waits.
  Expected<Decision> outcome = Decision{};

  // Out, of kReset: whether any of the charges had state.
  bool existed = false;

  // Out. kStore unless a guard sets it: the least trustworthy source of any charge. If the outcome
  // is an error, kOverload means that the store answers but cannot keep up.
  Source source = Source::kStore;
};

// Implementations are safe to use from any thread.
class Store {
 public:
  virtual ~Store() = default;

  // Decides every request, in order where they touch the same state, and then calls `done` exactly
  // once, perhaps before it returns. The requests and all they point to stay alive until then. A
  // store that cannot decide sets an error: a denial always comes from a limit.
  virtual void Apply(std::span<Request> requests, std::move_only_function<void()> done) = 0;

  // Someone, perhaps in another process, has made this charge's budget larger than time and use
  // explain: whatever was known of it is void. Null: any state may be affected.
  using OnRaised = std::function<void(const Charge*)>;

  // From now on, calls `on_raised` on a thread of the store as soon as the store learns of such a
  // change. It must be quick. Stores that share their state with nobody never call it.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep it.
  virtual void Watch(OnRaised) {}

  // Whether Apply always calls `done` before it returns, without waiting for anything. Then there
  // is no use for deadlines, or for remembering what can be asked at once.
  virtual bool AnswersInline() const { return false; }

  // Like Apply without a callback, only for stores that answer inline: all is decided on return.
  virtual void ApplyInline(std::span<Request> requests) {
    Apply(requests, [] {});
  }
};

}  // namespace sluice
