// SPDX-License-Identifier: Apache-2.0
#include "store/redis/span.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/text.h"
#include "core/combine.h"

namespace sluice::redis {

Span::Span(Request& request, std::span<const std::uint16_t> slots) : request_(request) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    auto part = std::ranges::find(parts_, slots[i], &Part::slot);
    if (part == parts_.end()) {
      parts_.emplace_back().slot = slots[i];
      part = parts_.end() - 1;
    }
    part->charges.push_back(request.charges[i]);
    part->place.push_back(i);
  }
  for (Part& part : parts_) {
    part.now.each.resize(part.charges.size());
    part.now.seen.resize(request.seen.empty() ? 0 : part.charges.size());
    part.request = {.charges = part.charges,
                    .now = request.now,
                    .each = part.now.each,
                    .seen = part.now.seen,
                    .action = request.action};
    if (!request.hold) continue;
    part.terms = {.id = request.hold->id,
                  .ttl = request.hold->ttl,
                  .on_expiry = request.hold->on_expiry,
                  .expires = kTimeMax};
    part.request.hold = &part.terms;
  }
}

bool Span::is_simple() const {
  if (is_hold()) return false;
  return request_.action != Action::kCheck ||
         std::ranges::all_of(request_.charges,
                             [](const Charge& charge) { return charge.cost == 0; });
}

// The one that tells the least about what was charged.
std::optional<Error> Span::WorstError() const {
  std::optional<Error> worst;
  for (const Part& part : parts_) {
    if (part.request.outcome) continue;
    const Error& error = part.request.outcome.error();
    if (!worst || error.code == ErrorCode::kOutcomeUnknown) worst = error;
  }
  return worst;
}

void Span::AnswerFrom(Answers Part::* answers) {
  std::array<Decision, kChargesMax> each;
  for (const Part& part : parts_) {
    const Answers& own = part.*answers;
    for (std::size_t i = 0; i < part.place.size(); ++i) {
      each[part.place[i]] = own.each[i];
      if (!request_.seen.empty()) request_.seen[part.place[i]] = own.seen[i];
    }
  }
  const auto all = std::span(each).first(request_.charges.size());
  std::ranges::copy(all.first(request_.each.size()), request_.each.begin());
  request_.existed =
      std::ranges::any_of(parts_, [](const Part& part) { return part.request.existed; });
  request_.outcome = core::Combine(all);
  if (!request_.hold) return;
  HoldTerms& terms = *request_.hold;
  if (request_.action == Action::kSettle) {
    terms.late = std::ranges::any_of(parts_, [](const Part& part) { return part.terms.late; });
    terms.overdrawn =
        std::ranges::any_of(parts_, [](const Part& part) { return part.terms.overdrawn; });
  } else if (answers == &Part::now) {
    terms.expires = std::ranges::min_element(parts_, {}, [](const Part& part) {
                      return part.terms.expires;
                    })->terms.expires;
  }
}

bool Span::MayTake() {
  if (const auto error = WorstError()) {
    // Nothing was charged, even if the answer was lost.
    const bool unknown = error->code == ErrorCode::kOutcomeUnknown;
    request_.outcome =
        std::unexpected(Error{unknown ? ErrorCode::kUnavailable : error->code, error->message});
    return false;
  }
  for (Part& part : parts_) part.looked = part.now;
  AnswerFrom(&Part::looked);
  return request_.outcome->allowed;
}

void Span::Answer() {
  const bool simple = is_simple();
  const bool some_done = std::ranges::any_of(
      parts_, [](const Part& part) { return part.request.outcome.has_value(); });
  if (const auto error = WorstError()) {
    const bool in_part = request_.action != Action::kCheck && some_done &&
                         error->code != ErrorCode::kForeignState &&
                         error->code != ErrorCode::kHoldLost;
    request_.outcome =
        std::unexpected(Error{in_part ? ErrorCode::kOutcomeUnknown : error->code, error->message});
    return;
  }
  const bool allowed =
      std::ranges::all_of(parts_, [](const Part& part) { return part.request.outcome->allowed; });
  if (simple || allowed) {
    for (Part& part : parts_) part.receipts.clear();
    return AnswerFrom(&Part::now);
  }
  // The parts that took are as they were before; only the answers of the others are new.
  for (Part& part : parts_) {
    if (!part.request.outcome->allowed) part.looked = part.now;
  }
  AnswerFrom(&Part::looked);
}

bool Span::Refunded() {
  const bool all = std::ranges::all_of(parts_, [](const Part& part) {
    const auto& outcome = part.request.outcome;
    return part.receipts.empty() || (outcome && outcome->allowed);
  });
  if (!all && !request_.outcome) {
    request_.outcome =
        std::unexpected(Error{ErrorCode::kOutcomeUnknown, request_.outcome.error().message});
  }
  return all;
}

Span::Part* Span::NextToHold() {
  const auto next = std::ranges::find(parts_, false, &Part::was_asked);
  if (next == parts_.end()) return nullptr;
  if (next != parts_.begin()) {
    const auto& outcome = std::prev(next)->request.outcome;
    if (!outcome || !outcome->allowed) return nullptr;
  }
  next->was_asked = true;
  return &*next;
}

std::vector<Span::Part*> Span::ToRelease() {
  std::vector<Part*> parts;
  const auto is_done = [](const Part& part) {
    return part.was_asked && part.request.outcome && part.request.outcome->allowed;
  };
  if (std::ranges::all_of(parts_, is_done)) {
    Released();
    return parts;
  }
  for (Part& part : parts_) {
    const auto& outcome = part.request.outcome;
    const bool is_unknown = !outcome && outcome.error().code == ErrorCode::kOutcomeUnknown;
    if (!part.was_asked) continue;
    if (outcome && !outcome->allowed) part.looked = part.now;
    if (part.existed || !(is_done(part) || is_unknown)) continue;
    part.released = part.charges;
    for (Charge& charge : part.released) charge.cost = 0;
    part.release = {.charges = part.released,
                    .now = request_.now,
                    .each = part.looked.each,
                    .seen = part.looked.seen,
                    .action = Action::kSettle,
                    .hold = &part.terms};
    parts.push_back(&part);
  }
  if (parts.empty()) Released();
  return parts;
}

bool Span::Released() {
  std::optional<Error> lost;
  std::optional<Error> failed;
  bool all_held = true;
  for (const Part& part : parts_) {
    all_held = all_held && part.was_asked && part.request.outcome && part.request.outcome->allowed;
    if (part.release.hold && !part.release.outcome) lost = part.release.outcome.error();
    if (part.was_asked && !part.request.outcome) failed = part.request.outcome.error();
  }
  if (all_held) {
    AnswerFrom(&Part::now);
  } else if (!failed) {
    for (Part& part : parts_) {
      for (Decision& decision : part.looked.each) decision.delay = Micros{0};
    }
    AnswerFrom(&Part::looked);
  } else if (!lost) {
    // Nothing is on hold, even if the answer was lost.
    const bool unknown = failed->code == ErrorCode::kOutcomeUnknown;
    request_.outcome =
        std::unexpected(Error{unknown ? ErrorCode::kUnavailable : failed->code, failed->message});
  } else {
    request_.outcome = std::unexpected(Error{
        ErrorCode::kOutcomeUnknown,
        text::Cat(failed->message, "; what other slots have on hold stays so until it expires")});
  }
  return !lost;
}

}  // namespace sluice::redis
