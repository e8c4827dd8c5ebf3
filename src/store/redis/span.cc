// SPDX-License-Identifier: Apache-2.0
#include "store/redis/span.h"

#include <algorithm>
#include <array>

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
  }
}

bool Span::is_simple() const {
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
    const bool in_part =
        request_.action != Action::kCheck && some_done && error->code != ErrorCode::kForeignState;
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

}  // namespace sluice::redis
