// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sluice/store.h"
#include "store/redis/batch.h"

namespace sluice::redis {

// A request whose states are in several slots of a Cluster, where no script reaches all of them. No
// I/O: tells what to ask each slot, and what the answers add up to.
//
//   look at all parts at once; if any would deny, that is the answer, and nothing was written
//   take from all parts at once; if any denies after all, because another request was faster,
//   give back what the others took
//
// Never admits more than all or nothing would: what is given back is at most what was taken.
//
// A hold is its own receipt: its parts are taken one after the other, and if one denies after all,
// or fails, those before it are released. If that fails, too, they last until they expire. The ids
// of released parts are remembered, so whoever tries again needs a new one.
class Span {
 public:
  struct Answers {
    std::vector<Decision> each;
    std::vector<SeenState> seen;
  };

  struct Part {
    std::uint16_t slot;
    std::vector<Charge> charges;
    std::vector<std::size_t> place;  // The index of each in the whole request.
    Answers now;
    Answers looked;
    Request request;  // Its answers go to `now`.
    std::vector<Receipt> receipts;

    // Of a request about a hold.
    HoldTerms terms;
    bool was_asked = false;
    bool existed = false;  // Before this request, which then does not release it.
    std::vector<Charge> released;
    Request release;  // Its answers go to `looked`.
  };

  // `slots` has one for each charge. The request must stay alive until it is answered.
  Span(Request& request, std::span<const std::uint16_t> slots);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  std::span<Part> parts() { return parts_; }

  // All but holds, and checks that take something, need only one step: each part is applied, and
  // then Answer is called.
  bool is_simple() const;
  bool is_hold() const { return request_.action == Action::kHold; }

  // After looking at the parts: whether to take. If not, the request is answered.
  bool MayTake();

  // After applying them: sets the outcome. Parts that have receipts now must be refunded.
  void Answer();

  // After the refund: whether all of it worked. If not, an error becomes kOutcomeUnknown.
  bool Refunded();

  // The part to hold next; null if one failed or denied, or if there are no more.
  Part* NextToHold();

  // After that: the parts to release, with `release`. If there are none, calls Released.
  std::vector<Part*> ToRelease();

  // Sets the outcome of a hold; returns whether nothing is on hold that should not be.
  bool Released();

 private:
  std::optional<Error> WorstError() const;
  void AnswerFrom(Answers Part::* answers);

  Request& request_;
  std::vector<Part> parts_;
};

}  // namespace sluice::redis
