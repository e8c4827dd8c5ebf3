// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "redis/resp.h"
#include "sluice/store.h"
#include "store/redis/hold_status.h"
#include "store/redis/script.h"

namespace sluice::redis {

// What a request took from one state, so that it can be given back.
struct Receipt {
  std::string key;
  Limit limit;
  std::int64_t units;
  std::int64_t when;               // The moment, in microseconds; see the script.
  const Charge* charge = nullptr;  // Of the request, to be announced. Null: any state.
};

// What to do with a request.
struct Task {
  enum class Kind : std::uint8_t {
    kApply,  // The request's action; a check that takes units leaves receipts, if there is room.
    kLook,   // Take nothing, and answer as a denial would: each charge's own numbers as they are.
    // Give the receipts back. Only `now`, `outcome` and the charges that the receipts point to are
    // used of the request. The outcome is "allowed" if nothing stays taken.
    kRefund,
  };

  Request* request;
  Kind kind = Kind::kApply;
  std::vector<Receipt>* receipts = nullptr;
  bool* existed = nullptr;  // Out, optional, of a hold: whether it was there already.
};

// Requests in one call of the script: what to send, and what the reply means. No I/O. Equal
// requests on one state are folded into one operation. The number admitted is dealt out in the
// order of arrival.
class Batch {
 public:
  static constexpr std::size_t kKeysMax = 1024;

  // Takes the request unless it is invalid, in which case its outcome is set and it counts as
  // answered.
  enum class Added { kTaken, kAnswered, kFull };

  // The request must stay alive until it is answered. kFull: nothing was taken, because the batch
  // has no room, or decides as of a different moment.
  Added Add(const Task& task, std::string_view prefix, std::size_t operations_max);

  bool empty() const { return operations_.empty(); }
  std::size_t operations() const { return operations_.size(); }
  std::size_t requests() const { return requests_.size(); }

  // In the order of arrival.
  const Task& task(std::size_t number) const { return requests_[number].task; }

  // The command that calls the script in this form. Resets and giving back are announced to the
  // stores of this prefix, unless it is empty. Calendars are sent with the window in which the
  // server's time is believed to be, and the next one.
  void AppendCommand(std::string& out, ProgramForm form, std::string_view announce_prefix = {},
                     TimePoint believed_now = {}) const;

  // Sets the outcome of every request from the script's reply. An operation that fails does not
  // affect the others. Error: kStoreError if the reply is not what the script returns, in which
  // case no outcome is set.
  Expected<void> Decode(std::span<const RespNode> reply);

  // Sets every outcome to this error.
  void Fail(const Error& error);

 private:
  enum class Step : std::uint8_t {
    kCheck,
    kHold,
    kDebit,
    kGive,
    kLook,
    kRefund,
    kReset,
    // See holds.lua. The first of them lists holds; the others are about one.
    kList,
    kReserve,
    kForesee,
    kSettle,
    kExtend
  };

  // One state that an operation takes from.
  struct Part {
    std::size_t limit;  // In limits_.
    std::int64_t cost;
    std::int64_t when = 0;  // Of a receipt.

    friend bool operator==(const Part&, const Part&) = default;
  };

  // What slots that are taken or released have in common; see slots.lua.
  struct SlotShape {
    Step step;
    std::size_t limit;  // In limits_.
    std::int64_t cost;
    Micros ttl;
    std::size_t id_size;

    friend bool operator==(const SlotShape&, const SlotShape&) = default;
  };
  static constexpr std::size_t kSlotShapesMax = 64;

  // Consecutive in parts_ and keys_ from `first_part`; its requests from `first_request` by `next`.
  struct Operation {
    Step step;
    std::size_t first_part;
    std::size_t parts;
    std::size_t first_charge;  // In part_of_charge_.
    bool repeats = false;      // Whether one before it is on the same state, if it has one part.
    std::size_t times = 0;     // Requests folded into it.
    std::size_t first_request;
    std::size_t last_request;
  };

  struct Asked {
    Task task;
    std::size_t next;  // The next request of the same operation.
  };

  static Step StepOf(const Task& task);
  std::span<const Part> PartsOf(const Operation& operation) const;
  std::size_t LimitNumber(const Limit& limit);
  static bool TellsStates(Step step) { return step != Step::kRefund && step != Step::kReset; }
  static bool Announces(Step step) {
    return step == Step::kGive || step == Step::kSettle || !TellsStates(step);
  }
  static bool IsAboutHold(Step step) { return step >= Step::kReserve; }
  static bool HasHoldId(Step step) { return step >= Step::kList; }
  static bool IsFolded(Step step) {
    return step != Step::kGive && step != Step::kReset && !HasHoldId(step);
  }
  const Charge& ChargeOf(const Operation& operation, const Task& task, std::size_t part) const;
  const Charge* AnnouncedCharge(const Operation& operation, std::size_t part) const;
  static Micros TtlOf(const HoldTerms& terms, const Limit& limit);
  std::size_t LastOperationOn(const std::string& key) const;
  void NoteSlot();
  void Index(std::size_t operation);
  bool WasReset(const std::string& key) const;
  Operation* Foldable(std::size_t last, Step step, const Part& part);
  void Append(Operation& operation, const Task& task);
  void Push(const Task& task, std::span<const Part> parts, std::span<std::string> keys,
            std::span<const std::uint8_t> part_of_charge, bool repeats = false);
  Added AddGroup(const Task& task, std::string_view prefix);
  Added AddRefund(const Task& task);
  template <typename Put>
  void PutArguments(std::string_view announce_prefix, TimePoint believed_now, Put put) const;
  template <typename Put>
  void PutChecks(Put put) const;
  bool IsOneCheck() const;
  bool IsChecks() const;
  template <typename Put>
  void PutSlots(Put put) const;
  Expected<void> DecodeOneCheck(std::string_view text);
  Expected<void> DecodeLines(std::string_view text);
  Error Foreign(const Operation& operation, std::size_t part) const;
  void FailOperation(const Operation& operation, const Error& error);
  void AnswerReset(const Operation& operation, TimePoint now, bool existed);
  // `held` has what is on hold of each part, or is empty.
  void Answer(const Operation& operation, std::int64_t now_us, std::int64_t admitted,
              std::span<const std::int64_t> states, std::span<const std::int64_t> held = {});
  void AnswerHeld(const Operation& operation, std::int64_t now_us, std::string_view status,
                  std::span<const std::int64_t> states);
  void AnswerHold(const Operation& operation, std::int64_t now_us, const HoldStatus& status,
                  std::span<const std::int64_t> states);
  void AnswerSlot(const Operation& operation, std::int64_t now_us, std::int64_t held,
                  std::int64_t until_us);
  void AnswerList(const Operation& operation, HoldList listed);
  template <typename Put>
  void PutHoldTerms(const Operation& operation, std::size_t part, Put put) const;

  std::optional<TimePoint> now_;
  std::vector<Limit> limits_;
  std::vector<std::string> signatures_;
  std::vector<Part> parts_;
  std::vector<std::string> keys_;             // One for each part.
  std::vector<std::uint8_t> part_of_charge_;  // Charges of one state share a part.
  std::vector<Operation> operations_;
  std::vector<Asked> requests_;
  bool are_slots_ = true;  // Whether all operations are slots, which these then describe.
  std::vector<SlotShape> slot_shapes_;
  std::string slots_;
  std::unordered_map<std::string, std::size_t> last_operation_;  // On each state; see Index.
  const Charge* previous_ = nullptr;  // Of the last operation, if that is a single charge.
};

}  // namespace sluice::redis
