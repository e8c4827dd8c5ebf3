// SPDX-License-Identifier: Apache-2.0
#include "store/validate.h"

#include <cstring>

#include "base/duration.h"
#include "base/text.h"

namespace sluice {
namespace {

// In each byte.
constexpr std::uint64_t kOnes = 0x0101'0101'0101'0101;
constexpr std::uint64_t kSpaces = kOnes * ' ';
constexpr std::uint64_t kTopBits = kOnes << 7;

Error InvalidKey(const Charge& charge) {
  return {ErrorCode::kInvalidKey,
          text::Cat("a key of ", charge.key.size(), " bytes; expected 1 to ", kKeyBytesMax)};
}

Error InvalidTime(TimePoint now) {
  return {ErrorCode::kInvalidTime,
          text::Cat("time ", now.time_since_epoch().count(), "us; expected 0 to ",
                    kTimeMax.time_since_epoch().count())};
}

}  // namespace

Error InvalidCost(const Charge& charge, std::int64_t cost) {
  if (cost < 0) {
    return {ErrorCode::kInvalidCost, text::Cat("cost ", cost, "; expected 0 or more")};
  }
  const std::string name =
      charge.name.empty() ? "" : text::Cat("\"", text::Escape(charge.name), "\", ");
  return {ErrorCode::kCostExceedsLimit,
          text::Cat("cost ", cost, " can never be granted: ", name, charge.limit->ToString(),
                    ", holds ", charge.limit->amount(), " at most")};
}

Error Invalid(const Charge& charge, TimePoint now, Action action) {
  if (auto not_offered = NotOffered(charge, action)) return *std::move(not_offered);
  if (charge.key.empty() || charge.key.size() > kKeyBytesMax) return InvalidKey(charge);
  if (charge.name.size() > kNameBytesMax) {
    return {ErrorCode::kInvalidRequest, text::Cat("a name of ", charge.name.size(),
                                                  " bytes; expected at most ", kNameBytesMax)};
  }
  if ((charge.cost < 0 && !IgnoresCost(action)) ||
      (charge.cost > charge.limit->amount() && !MayExceed(action))) {
    return InvalidCost(charge, charge.cost);
  }
  return InvalidTime(now);
}

Error NeedsHold(const Charge& charge) {
  return {ErrorCode::kNeedsHold,
          text::Cat("a limit of what is in use at a time, ", charge.limit->ToString(),
                    ", cannot be checked; expected a hold")};
}

Error HoldLost(std::string_view id) {
  return {ErrorCode::kHoldLost, text::Cat("the hold ", text::Quote(id), " is not live any more")};
}

Error HoldConflict(std::string_view id) {
  return {ErrorCode::kHoldConflict,
          text::Cat("the hold ", text::Quote(id),
                    " exists with other costs, or has ended; expected a new id")};
}

Error TooManyHolds(const Charge& charge) {
  return {ErrorCode::kTooManyHolds,
          text::Cat("the key ", text::Quote(charge.key), " has ", kLiveHoldsMax,
                    " holds, or 2^53 units on hold with this one; no state can have more")};
}

bool IsHoldId(std::string_view id) {
  if (id.empty() || id.size() > kHoldIdBytesMax) return false;
  // Eight bytes at once: one by one this would take as long as half a check. The last eight may
  // overlap those before them.
  std::uint64_t other = 0;
  const auto look = [&](const char* bytes, std::size_t size) {
    std::uint64_t word = kSpaces;
    std::memcpy(&word, bytes, size);
    const std::uint64_t low = word & ~kTopBits;
    other |= word | ~(low + (kTopBits - kSpaces)) | (low + kOnes);
  };
  if (id.size() < 8) {
    look(id.data(), id.size());
  } else {
    for (std::size_t at = 0; at < id.size() - 8; at += 8) look(id.data() + at, 8);
    look(id.data() + id.size() - 8, 8);
  }
  return (other & kTopBits) == 0;
}

std::optional<Error> InvalidTerms(const Request& request) {
  const auto invalid = [](std::string message) {
    return Error{ErrorCode::kInvalidRequest, std::move(message)};
  };
  const auto invalid_id = [&](std::string_view id) {
    return invalid(text::Cat("the hold's id ", text::Quote(id), "; expected 1 to ", kHoldIdBytesMax,
                             " printable ASCII characters"));
  };
  if (request.listed && !request.listed->only.empty() && !IsHoldId(request.listed->only)) {
    return invalid_id(request.listed->only);
  }
  if (!request.hold) return std::nullopt;
  const HoldTerms& terms = *request.hold;
  if (!IsHoldId(terms.id)) return invalid_id(terms.id);
  if (request.action == Action::kSettle) return std::nullopt;
  const auto has_ttl = [](const Charge& charge) { return core::NeedsHold(*charge.limit); };
  if (terms.ttl == Micros{0} && std::ranges::all_of(request.charges, has_ttl)) return std::nullopt;
  if (terms.ttl >= kHoldTtlMin && terms.ttl <= kHoldTtlMax) return std::nullopt;
  const std::string what = terms.ttl == Micros{0}
                               ? "a hold without a ttl"
                               : text::Cat("the hold's ttl of ", text::FormatDuration(terms.ttl));
  return invalid(text::Cat(what, "; expected ", text::FormatDuration(kHoldTtlMin), " to ",
                           text::FormatDuration(kHoldTtlMax)));
}

Error InvalidShape(const Request& request) {
  const std::size_t size = request.charges.size();
  if (IsAboutHold(request.action) != (request.hold != nullptr)) {
    return {ErrorCode::kInvalidRequest,
            "expected the terms of a hold where there is one, and "
            "nowhere else"};
  }
  if ((request.action == Action::kListHolds) != (request.listed != nullptr)) {
    return {ErrorCode::kInvalidRequest,
            "expected room for a list of holds where one is asked for, and nowhere else"};
  }
  if (request.listed && size > 1) {
    return {ErrorCode::kInvalidRequest,
            text::Cat("a list of the holds on ", size, " limits; expected 1")};
  }
  if (size == 0 || size > kChargesMax) {
    return {ErrorCode::kInvalidRequest,
            text::Cat(size, " limits in one request; expected 1 to ", kChargesMax)};
  }
  const bool decisions = !request.each.empty() && request.each.size() != size;
  return {
      ErrorCode::kInvalidRequest,
      text::Cat("room for ", decisions ? request.each.size() : request.seen.size(),
                decisions ? " decisions" : " states", " on ", size, " limits; expected as many")};
}

std::optional<Error> FirstInvalid(const Request& request) {
  if (!HasValidShape(request)) return InvalidShape(request);
  const TimePoint now = request.now.value_or(TimePoint{});
  for (const Charge& charge : request.charges) {
    if (auto invalid = NotOffered(charge, request.action)) return invalid;
  }
  for (const Charge& charge : request.charges) {
    if (!IsValid(charge, now, request.action)) return Invalid(charge, now, request.action);
  }
  return InvalidTerms(request);
}

Error TwoLimitsUnderOneName(const Charge& a, const Charge& b) {
  return {ErrorCode::kInvalidRequest,
          text::Cat("two limits under the name ", text::Quote(b.name), ": ", a.limit->ToString(),
                    " and ", b.limit->ToString())};
}

}  // namespace sluice
