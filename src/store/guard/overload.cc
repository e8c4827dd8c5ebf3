// SPDX-License-Identifier: Apache-2.0
#include "store/guard/overload.h"

namespace sluice::guard {

void Overload::Asked(TimePoint now) {
  if (out_++ == 0) waiting_from_ = now;
}

void Overload::Answered(TimePoint now) {
  --out_;
  waited_ = Micros{0};
  waiting_from_ = now;
}

void Overload::Failed(TimePoint now) {
  if (--out_ == 0) waited_ += now - waiting_from_;
}

Micros Overload::SilentFor(TimePoint now) const {
  return waited_ + (out_ > 0 ? now - waiting_from_ : Micros{0});
}

Cause Overload::Judge(bool failing, std::int64_t requests, TimePoint now) {
  if (failing || SilentFor(now) >= options_.silence) return Cause::kOutage;
  if (!active_ && now - last_ >= options_.calm_after) decisions_ = 0;
  if (decisions_ == 0) began_ = now;
  last_ = now;
  decisions_ += requests;
  if (!active_ && decisions_ >= options_.begins_with) {
    active_ = true;
    ++changes_;
    last_change_ = Change{.begins = true, .number = ++overloads_};
  }
  return Cause::kOverload;
}

void Overload::EndIfCalm(TimePoint now) {
  if (!active_ || now - last_ < options_.calm_after) return;
  active_ = false;
  ++changes_;
  last_change_ = Change{
      .begins = false, .number = overloads_, .decisions = decisions_, .lasted = last_ - began_};
  decisions_ = 0;
}

}  // namespace sluice::guard
