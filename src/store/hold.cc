// SPDX-License-Identifier: Apache-2.0
#include "sluice/hold.h"

#include <future>
#include <utility>
#include <vector>

#include "base/hex.h"
#include "store/hash.h"

namespace sluice {
namespace {

Expected<Decision> Await(Store& store, Request request) {
  std::promise<void> answered;
  store.Apply({&request, 1}, [&] { answered.set_value(); });
  answered.get_future().wait();
  return std::move(request.outcome);
}

}  // namespace

std::string NewHoldId() {
  std::string id;
  for (const std::uint64_t word : RandomSeed()) {
    for (int shift = 0; shift < 64; shift += 8) {
      text::AppendHex(id, static_cast<unsigned char>(word >> shift));
    }
  }
  return id;
}

Expected<Decision> Hold(Store& store, std::span<const Charge> charges, HoldTerms& terms) {
  return Await(store, {.charges = charges, .action = Action::kHold, .hold = &terms});
}

Expected<Decision> Settle(Store& store, std::span<const Charge> charges, HoldTerms& terms) {
  return Await(store, {.charges = charges, .action = Action::kSettle, .hold = &terms});
}

Expected<Decision> Release(Store& store, std::span<const Charge> charges, HoldTerms& terms) {
  std::vector<Charge> free(charges.begin(), charges.end());
  for (Charge& charge : free) charge.cost = 0;
  return Settle(store, free, terms);
}

Expected<Decision> Extend(Store& store, std::span<const Charge> charges, HoldTerms& terms) {
  return Await(store, {.charges = charges, .action = Action::kExtend, .hold = &terms});
}

Expected<Decision> Give(Store& store, std::span<const Charge> charges) {
  return Await(store, {.charges = charges, .action = Action::kGive});
}

// Copies of everything that a charge refers to.
struct ScopedHold::State {
  struct Part {
    std::string key;
    Limit limit;
    std::string name;
    OnStoreFailure on_store_failure;
    std::optional<OnStoreFailure> on_overload;
    std::int64_t cost;
  };

  Store& store;
  Options options;
  std::vector<Part> parts;
  bool held = false;
  bool undecided = false;  // It was allowed, and nothing is on hold; see HoldTerms::held.
  TimePoint expires{};
  std::int64_t at_end = 0;

  // `cost` of every part, or its own.
  Expected<Decision> Ask(Action action, Micros ttl, std::optional<std::int64_t> cost) {
    std::vector<Charge> charges;
    charges.reserve(parts.size());
    for (const Part& part : parts) {
      charges.push_back({.key = part.key,
                         .limit = &part.limit,
                         .name = part.name,
                         .cost = cost.value_or(part.cost),
                         .on_store_failure = part.on_store_failure,
                         .on_overload = part.on_overload});
    }
    HoldTerms terms{
        .id = options.id, .ttl = ttl, .on_expiry = options.on_expiry, .expires = expires};
    auto outcome = Await(store, {.charges = charges, .action = action, .hold = &terms});
    if (outcome) expires = terms.expires;
    if (action == Action::kHold) undecided = outcome && !terms.held;
    return outcome;
  }
};

ScopedHold::ScopedHold(std::unique_ptr<State> state, const Decision& decision)
    : state_(std::move(state)), decision_(decision) {}

Expected<ScopedHold> ScopedHold::Take(Store& store, std::span<const Charge> charges,
                                      const Options& options) {
  auto state = std::make_unique<State>(State{.store = store, .options = options, .parts = {}});
  if (options.id.empty()) state->options.id = NewHoldId();
  for (const Charge& charge : charges) {
    state->parts.push_back({.key = std::string(charge.key),
                            .limit = *charge.limit,
                            .name = std::string(charge.name),
                            .on_store_failure = charge.on_store_failure,
                            .on_overload = charge.on_overload,
                            .cost = charge.cost});
  }
  const auto decision = state->Ask(Action::kHold, options.ttl, std::nullopt);
  if (!decision) return std::unexpected(decision.error());
  state->held = decision->allowed && !state->undecided;
  return ScopedHold(std::move(state), *decision);
}

Expected<ScopedHold> ScopedHold::Take(Store& store, const Charge& charge, const Options& options) {
  return Take(store, {&charge, 1}, options);
}

ScopedHold::~ScopedHold() {
  if (state_ && state_->held) static_cast<void>(Settle(state_->at_end));
}

ScopedHold::ScopedHold(ScopedHold&&) noexcept = default;

ScopedHold& ScopedHold::operator=(ScopedHold&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(decision_, other.decision_);
  return *this;
}

const std::string& ScopedHold::id() const { return state_->options.id; }

Expected<Decision> ScopedHold::Extend(Micros ttl) {
  if (state_->undecided) return decision_;
  return state_->Ask(Action::kExtend, ttl > Micros{0} ? ttl : state_->options.ttl, std::nullopt);
}

Expected<Decision> ScopedHold::Settle(std::int64_t actual) {
  if (state_->undecided) return decision_;
  auto settled = state_->Ask(Action::kSettle, Micros{0}, actual);
  if (settled) state_->held = false;
  return settled;
}

void ScopedHold::SettleAtEnd(std::int64_t actual) { state_->at_end = actual; }

}  // namespace sluice
