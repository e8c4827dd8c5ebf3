// SPDX-License-Identifier: Apache-2.0
#include "store/validate.h"

#include "base/text.h"

namespace sluice {
namespace {

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
  if (charge.key.empty() || charge.key.size() > kKeyBytesMax) return InvalidKey(charge);
  if (charge.name.size() > kNameBytesMax) {
    return {ErrorCode::kInvalidRequest, text::Cat("a name of ", charge.name.size(),
                                                  " bytes; expected at most ", kNameBytesMax)};
  }
  const bool takes_nothing = action == Action::kReset;
  if ((charge.cost < 0 && !takes_nothing) ||
      (charge.cost > charge.limit->amount() && action == Action::kCheck)) {
    return InvalidCost(charge, charge.cost);
  }
  return InvalidTime(now);
}

Error InvalidShape(const Request& request) {
  const std::size_t size = request.charges.size();
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
    if (!IsValid(charge, now, request.action)) return Invalid(charge, now, request.action);
  }
  return std::nullopt;
}

Error TwoLimitsUnderOneName(const Charge& a, const Charge& b) {
  return {ErrorCode::kInvalidRequest,
          text::Cat("two limits under the name ", text::Quote(b.name), ": ", a.limit->ToString(),
                    " and ", b.limit->ToString())};
}

}  // namespace sluice
