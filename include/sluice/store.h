// SPDX-License-Identifier: Apache-2.0
// The seam between those who ask and those who keep the state. A store applies requests, each an
// all-or-nothing group of charges, and answers each with a decision or an error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

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

// What becomes of a charge when the store cannot decide. Stores that know no fallback report the
// error; see GuardedStore. A charge that says nothing is kFailClosed; in rules and at the doors of
// the service, where nobody may be there to handle an error, FAIL_OPEN is what is meant by nothing.
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
  kDenyCache,  // What is remembered of the store's denials.
  kLocal,      // This instance on its share, because the store failed.
  kOverload,   // This instance on its share, because the store could not keep up.
  kFailOpen,   // Nobody.
};

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

  // What becomes of it when the store answers but cannot keep up. None: as when it fails, but that
  // a guard does not let pass what is kFailOpen; see GuardedStore::Options::on_overload.
  std::optional<OnStoreFailure> on_overload = {};
};

enum class Action : std::uint8_t {
  kCheck,  // Decide, and take the costs if every charge allows it.

  // Take what was already granted elsewhere, such as by a fallback while this store was out of
  // reach: of each charge as much as is left, at most its cost. Never denies; all numbers are those
  // after the debit. A cost may exceed its limit.
  kDebit,

  // Give back, without saying which, up to its cost of what was taken from each charge's state: of
  // a window, what was taken last. A budget never has more than an untouched one. Never denies; all
  // numbers are those after it. A cost may exceed its limit.
  kGive,

  // Make each charge's budget untouched, whatever its cost. Never denies; all numbers are those
  // afterwards, and Request::existed says whether there was anything to forget. If it fails, some
  // charges may have been reset: it does no harm to reset again.
  kReset,
};

// A charge's state as a decision left it. Whoever keeps it can decide on the state again, for as
// long as nobody takes from it; what it holds is known to core/seen.h alone.
class SeenState {
 public:
  // When it was decided, by the store's clock; -1: the store does not tell.
  std::int64_t now_us() const { return now_us_; }

  friend bool operator==(const SeenState&, const SeenState&) = default;

 private:
  friend struct core::SeenNumbers;

  std::int64_t now_us_ = -1;
  std::array<std::int64_t, 3> numbers_ = {};
};

// What is asked, and room for the answers. Several charges of one state add up.
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

  // Out. Allowed if every charge is; the smallest remaining, the longest waits.
  Expected<Decision> outcome = Decision{};

  // Out, of kReset: whether any of the charges had state.
  bool existed = false;

  // Out. kStore unless a guard says otherwise: the least trustworthy source of any charge. If the
  // outcome is an error, kOverload says that the store answers but cannot keep up.
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

  // Someone, perhaps in another process, has made this charge's budget larger than what was taken
  // from it and the time say: whatever was known of it is void. Null: any state may be affected.
  using OnRaised = std::function<void(const Charge*)>;

  // Has `on_raised` called on a thread of the store from now on, as soon as the store learns of it.
  // It must be quick. Stores whose state is theirs alone have nothing to tell.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep it.
  virtual void Watch(OnRaised) {}

  // Whether Apply always calls `done` before it returns, without waiting for anything: then there
  // is no use in deadlines, nor in remembering what can be asked at once.
  virtual bool AnswersInline() const { return false; }

  // Apply without a callback, of stores that answer inline only: all is decided when it returns.
  virtual void ApplyInline(std::span<Request> requests) {
    Apply(requests, [] {});
  }
};

}  // namespace sluice
