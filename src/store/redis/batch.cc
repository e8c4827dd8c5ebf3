// SPDX-License-Identifier: Apache-2.0
#include "store/redis/batch.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/text.h"
#include "core/calendar.h"
#include "core/combine.h"
#include "core/seen.h"
#include "redis/error_reply.h"
#include "store/group.h"
#include "store/redis/announcement.h"
#include "store/redis/state_key.h"

namespace sluice::redis {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);
constexpr std::size_t kLookedThroughMax = 8;
constexpr std::array<std::string_view, 12> kStepNames = {"check",   "hold",    "debit",  "give",
                                                         "look",    "refund",  "reset",  "list",
                                                         "reserve", "foresee", "settle", "extend"};

bool IsSame(const Charge& a, const Charge& b) {
  return a.cost == b.cost && a.key == b.key && a.name == b.name && *a.limit == *b.limit;
}

std::string SignatureOf(const Limit& limit) {
  const char kind = core::VisitKernel(limit, [](auto kernel) { return kernel.kScriptKind; });
  const bool is_calendar = limit.algorithm() == Algorithm::kCalendar;
  return text::Cat(std::string_view(&kind, 1), ":", limit.amount(), ":", limit.unit(), ":",
                   is_calendar ? limit.refill() : limit.rate(), ":", limit.tick().count());
}

// The window of a calendar that contains this moment, and the next one; see the script.
std::string WindowsText(const Limit& limit, TimePoint now) {
  const auto window = core::Calendar::WindowAt(limit, core::Us(now));
  const auto next = core::Calendar::WindowAt(limit, window.end);
  return text::Cat(" ", window.start, " ", window.end, " ", next.end);
}

// How many numbers the script returns for a state.
std::size_t NumbersOf(const Limit& limit) {
  return core::VisitKernel(limit, []<typename Kernel>(Kernel) {
    return core::NumbersOf<typename Kernel::State>{}.size();
  });
}

std::unexpected<Error> UnexpectedReply() {
  return std::unexpected(Error{ErrorCode::kStoreError, "the script's reply is not as expected"});
}

// Reads the numbers that a text consists of, each but the last followed by a blank, and returns how
// many they are; nothing if it is anything else.
std::optional<std::size_t> ReadNumbers(std::string_view text, std::span<std::int64_t> numbers) {
  const char* at = text.data();
  const char* const end = at + text.size();
  std::size_t count = 0;
  while (at != end) {
    if (count == numbers.size()) return std::nullopt;
    const auto [stop, problem] = std::from_chars(at, end, numbers[count++]);
    if (problem != std::errc{} || (stop != end && *stop != ' ')) return std::nullopt;
    at = stop == end ? stop : stop + 1;
  }
  return count;
}

// In microseconds, from TIME's seconds and microseconds.
std::optional<std::int64_t> MomentOf(std::span<const std::int64_t, 2> time) {
  if (!core::InRange(time[0], kTimeMax.time_since_epoch().count() / 1'000'000) ||
      !core::InRange(time[1], 999'999)) {
    return std::nullopt;
  }
  return time[0] * 1'000'000 + time[1];
}

Error Disagreement() {
  return {ErrorCode::kStoreError, "the script and the library disagree on a decision"};
}

using Numbers = std::array<std::int64_t, 4>;
constexpr Numbers kUntouched = {0, -1};

// A state as the script returned it, advanced request by request.
class Budget {
 private:
  // Calls the function with the kernel and the state; null for an untouched budget.
  template <typename Function>
  auto Visit(const Function& function) const {
    return core::VisitKernel(limit_, [&]<typename Kernel>(Kernel kernel) {
      core::NumbersOf<typename Kernel::State> own;
      std::copy_n(numbers_.begin(), own.size(), own.begin());
      const auto state = core::FromNumbers<typename Kernel::State>(own);
      return function(kernel, numbers_ == kUntouched ? nullptr : &state);
    });
  }

 public:
  Budget(const Limit& limit, TimePoint now, std::span<const std::int64_t> numbers)
      : limit_(limit), now_(now) {
    std::ranges::copy(numbers, numbers_.begin());
  }

  // An untouched budget.
  Budget(const Limit& limit, TimePoint now) : limit_(limit), now_(now), numbers_(kUntouched) {}

  // Whether it is safe to pass it to the kernels.
  bool is_sound() const {
    return Visit([&]<typename Kernel>(Kernel, const typename Kernel::State* state) {
      return !state || Kernel::IsSound(limit_, *state, now_);
    });
  }

  Decision Look(std::int64_t cost) const {
    return Visit([&](auto kernel, const auto* state) {
      return kernel.Decide(limit_, state, now_, cost).decision;
    });
  }

  // Decides, and advances if the request was admitted.
  Decision Take(std::int64_t cost, bool admitted) {
    return Visit([&](auto kernel, const auto* state) {
      const auto step = kernel.Decide(limit_, state, now_, cost);
      if (admitted && cost > 0) std::ranges::copy(core::ToNumbers(step.next), numbers_.begin());
      return step.decision;
    });
  }

  // As it is now.
  SeenState See() const {
    return Visit([&]<typename Kernel>(Kernel, const typename Kernel::State* state) {
      return core::See<Kernel>(limit_, state, now_);
    });
  }

  // When the last request took its units; see Receipt.
  std::int64_t When() const {
    return Visit([&](auto kernel, const auto* state) {
      return std::max(now_.time_since_epoch().count(),
                      kernel.NewestTick(limit_, *state) * limit_.tick().count());
    });
  }

 private:
  const Limit& limit_;
  const TimePoint now_;
  Numbers numbers_ = {};
};

}  // namespace

std::size_t Batch::LimitNumber(const Limit& limit) {
  const auto found = std::ranges::find(limits_, limit);
  if (found == limits_.end()) {
    limits_.push_back(limit);
    signatures_.push_back(SignatureOf(limit));
    return limits_.size() - 1;
  }
  return static_cast<std::size_t>(found - limits_.begin());
}

Batch::Step Batch::StepOf(const Task& task) {
  switch (task.kind) {
    case Task::Kind::kApply:
      if (task.request->action == Action::kDebit) return Step::kDebit;
      if (task.request->action == Action::kGive) return Step::kGive;
      if (task.request->action == Action::kReset) return Step::kReset;
      if (task.request->action == Action::kHold) return Step::kReserve;
      if (task.request->action == Action::kSettle) return Step::kSettle;
      if (task.request->action == Action::kExtend) return Step::kExtend;
      if (task.request->action == Action::kListHolds) return Step::kList;
      return task.receipts ? Step::kHold : Step::kCheck;
    case Task::Kind::kLook:
      return task.request->action == Action::kHold ? Step::kForesee : Step::kLook;
    case Task::Kind::kRefund:
      return Step::kRefund;
  }
  std::unreachable();
}

// Kept up to date only if there are more operations than are faster looked through: most batches
// for a Cluster, or of a quiet service, have one.
void Batch::Index(std::size_t operation) {
  const Operation& own = operations_[operation];
  for (std::size_t i = 0; i < own.parts; ++i) {
    last_operation_.insert_or_assign(keys_[own.first_part + i], operation);
  }
}

std::size_t Batch::LastOperationOn(const std::string& key) const {
  if (operations_.size() > kLookedThroughMax) {
    const auto last = last_operation_.find(key);
    return last == last_operation_.end() ? kNone : last->second;
  }
  for (std::size_t i = operations_.size(); i > 0; --i) {
    const Operation& operation = operations_[i - 1];
    const auto keys = std::span(keys_).subspan(operation.first_part, operation.parts);
    if (std::ranges::find(keys, key) != keys.end()) return i - 1;
  }
  return kNone;
}

// Whether this batch resets the state last. While its slot moves, a script cannot touch a key again
// that it has removed, so whatever comes next on it goes in the next batch.
bool Batch::WasReset(const std::string& key) const {
  const std::size_t last = LastOperationOn(key);
  return last != kNone && operations_[last].step == Step::kReset;
}

// The operation that a single charge can join: the last one on its state, if it is the same. Giving
// back, resets and holds are reported for each request.
Batch::Operation* Batch::Foldable(std::size_t last, Step step, const Part& part) {
  if (!IsFolded(step) || last == kNone) return nullptr;
  Operation& operation = operations_[last];
  const bool same =
      operation.step == step && operation.parts == 1 && parts_[operation.first_part] == part;
  return same ? &operation : nullptr;
}

void Batch::Append(Operation& operation, const Task& task) {
  const std::size_t number = requests_.size();
  requests_.push_back({task, kNone});
  if (operation.times++ == 0) {
    operation.first_request = number;
  } else {
    requests_[operation.last_request].next = number;
  }
  operation.last_request = number;
}

void Batch::Push(const Task& task, std::span<const Part> parts, std::span<std::string> keys,
                 std::span<const std::uint8_t> part_of_charge, bool repeats) {
  now_ = task.request->now;
  Operation operation{.step = StepOf(task),
                      .first_part = parts_.size(),
                      .parts = parts.size(),
                      .first_charge = part_of_charge_.size(),
                      .repeats = repeats,
                      .times = 0,
                      .first_request = 0,
                      .last_request = 0};
  part_of_charge_.insert(part_of_charge_.end(), part_of_charge.begin(), part_of_charge.end());
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  std::ranges::move(keys, std::back_inserter(keys_));
  Append(operation, task);
  operations_.push_back(operation);
  NoteSlot();
  if (operations_.size() == kLookedThroughMax + 1) {
    for (std::size_t i = 0; i < operations_.size(); ++i) Index(i);
  } else if (operations_.size() > kLookedThroughMax) {
    Index(operations_.size() - 1);
  }
  previous_ = nullptr;
}

Batch::Added Batch::Add(const Task& task, std::string_view prefix, std::size_t operations_max) {
  Request& request = *task.request;
  if (!empty() && request.now != now_) return Added::kFull;
  const bool full = operations_.size() >= operations_max;
  if (task.kind == Task::Kind::kRefund) {
    return full || keys_.size() + task.receipts->size() > kKeysMax ? Added::kFull : AddRefund(task);
  }
  const auto charges = request.charges;
  if (const auto invalid = FirstInvalid(request)) {
    request.outcome = std::unexpected(*invalid);
    return Added::kAnswered;
  }
  if (charges.size() > 1) {
    return full || keys_.size() + charges.size() > kKeysMax ? Added::kFull : AddGroup(task, prefix);
  }

  const Charge& charge = charges.front();
  const Step step = StepOf(task);
  // A hot key comes many times in a row; its state need not be looked up each time.
  if (previous_ && IsFolded(step) && operations_.back().step == step &&
      IsSame(*previous_, charge)) {
    Append(operations_.back(), task);
    return Added::kTaken;
  }
  const Part part{.limit = LimitNumber(*charge.limit), .cost = CostOf(charge, request.action)};
  std::string key = StateKey(prefix, charge);
  const std::size_t last = LastOperationOn(key);
  if (last != kNone && operations_[last].step == Step::kReset) return Added::kFull;
  if (Operation* same = Foldable(last, step, part)) {
    Append(*same, task);
    return Added::kTaken;
  }
  if (full || keys_.size() == kKeysMax) return Added::kFull;
  constexpr std::uint8_t kFirstPart = 0;
  Push(task, {&part, 1}, {&key, 1}, {&kFirstPart, 1}, last != kNone);
  previous_ = &charge;
  return Added::kTaken;
}

Batch::Added Batch::AddGroup(const Task& task, std::string_view prefix) {
  Request& request = *task.request;
  const auto charges = request.charges;
  std::vector<std::string> keys;
  for (const Charge& charge : charges) keys.push_back(StateKey(prefix, charge));
  if (std::ranges::any_of(keys, [&](const auto& key) { return WasReset(key); })) {
    return Added::kFull;
  }
  const auto same = [&](std::size_t i, std::size_t j) { return keys[i] == keys[j]; };
  StateGroup group;
  if (auto invalid = AddUp(charges, request.action, same, group)) {
    request.outcome = std::unexpected(*std::move(invalid));
    return Added::kAnswered;
  }
  std::vector<Part> parts;
  std::vector<std::uint8_t> part_of_charge;
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const std::size_t first = group.first[i];
    if (first != i) {
      part_of_charge.push_back(part_of_charge[first]);
      continue;
    }
    const std::size_t part = parts.size();
    part_of_charge.push_back(static_cast<std::uint8_t>(part));
    parts.push_back({.limit = LimitNumber(*charges[i].limit), .cost = group.cost[i]});
    if (part != i) keys[part] = std::move(keys[i]);
  }
  keys.resize(parts.size());
  if (parts.size() == 1) {
    // They are all one state, after all. So no state occurs twice in a run of single charges.
    if (Operation* last = Foldable(LastOperationOn(keys.front()), StepOf(task), parts.front())) {
      Append(*last, task);
      return Added::kTaken;
    }
  }
  Push(task, parts, keys, part_of_charge);
  return Added::kTaken;
}

Batch::Added Batch::AddRefund(const Task& task) {
  std::vector<Part> parts;
  std::vector<std::string> keys;
  for (const Receipt& receipt : *task.receipts) {
    parts.push_back(
        {.limit = LimitNumber(receipt.limit), .cost = receipt.units, .when = receipt.when});
    keys.push_back(receipt.key);
  }
  Push(task, parts, keys, {});
  return Added::kTaken;
}

std::span<const Batch::Part> Batch::PartsOf(const Operation& operation) const {
  return std::span(parts_).subspan(operation.first_part, operation.parts);
}

// The first charge of this part.
const Charge& Batch::ChargeOf(const Operation& operation, const Task& task,
                              std::size_t part) const {
  const auto part_of = std::span(part_of_charge_).subspan(operation.first_charge);
  const auto charge = std::ranges::find(part_of, part) - part_of.begin();
  return task.request->charges[static_cast<std::size_t>(charge)];
}

const Charge* Batch::AnnouncedCharge(const Operation& operation, std::size_t part) const {
  const Task& task = requests_[operation.first_request].task;
  if (operation.step == Step::kRefund) return (*task.receipts)[part].charge;
  return &ChargeOf(operation, task, part);
}

// Whether the call is one check, which the script answers in a form of its own.
bool Batch::IsOneCheck() const {
  return operations_.size() == 1 && operations_.front().times == 1 && IsChecks();
}

// Whether the call is nothing but checks of one state each, for which there is a shorter form.
bool Batch::IsChecks() const {
  const auto is_check = [&](const Operation& operation) {
    const Part& part = parts_[operation.first_part];
    const Algorithm algorithm = limits_[part.limit].algorithm();
    return operation.step == Step::kCheck && operation.parts == 1 && part.cost > 0 &&
           algorithm != Algorithm::kCalendar &&
           (algorithm != Algorithm::kSlidingWindow || requests_.size() == 1);
  };
  return !now_ && std::ranges::all_of(operations_, is_check);
}

void Batch::AppendCommand(std::string& out, ProgramForm form, std::string_view announce_prefix,
                          TimePoint believed_now) const {
  const Program& program = ProgramAs(form);
  const bool checks = IsChecks();
  const auto put_arguments = [&](auto put) {
    if (checks) return PutChecks(put);
    are_slots_ ? PutSlots(put) : PutArguments(announce_prefix, now_.value_or(believed_now), put);
  };
  // Two passes over the same arguments, because the header has to say how many there are.
  std::size_t count = 3 + keys_.size();
  put_arguments([&](const auto&) { ++count; });
  AppendArrayHeader(out, count);
  AppendBulkString(out, program.command);
  AppendBulkString(out, program.name);
  AppendBulkString(out, text::Cat(keys_.size()));
  for (const std::string& key : keys_) AppendBulkString(out, key);
  put_arguments([&]<typename Argument>(const Argument& argument) {
    if constexpr (std::is_integral_v<Argument>) {
      std::array<char, 20> digits;
      const char* const end =
          std::to_chars(digits.data(), digits.data() + digits.size(), argument).ptr;
      AppendBulkString(out, std::string_view(digits.data(), end));
    } else {
      AppendBulkString(out, argument);
    }
  });
}

template <typename Put>
void Batch::PutChecks(Put put) const {
  const auto same_shape = [&](const Operation& a, const Operation& b) {
    return a.times == b.times && parts_[a.first_part] == parts_[b.first_part];
  };
  for (std::size_t begin = 0; begin < operations_.size();) {
    const Operation& operation = operations_[begin];
    std::size_t end = begin + 1;
    while (end < operations_.size() && same_shape(operation, operations_[end])) ++end;
    const Part& part = parts_[operation.first_part];
    put(text::Cat(signatures_[part.limit], " ", part.cost));
    if (end < operations_.size() || operation.times > 1) {
      put(end - begin);
      put(operation.times);
    }
    begin = end;
  }
}

// Adds the last operation to the arguments of a call that is nothing but slots taken and released.
void Batch::NoteSlot() {
  const Operation& operation = operations_.back();
  const Part& part = parts_[operation.first_part];
  const bool takes = operation.step == Step::kReserve;
  are_slots_ = are_slots_ && !now_ && operation.parts == 1 &&
               (takes || operation.step == Step::kSettle) && core::NeedsHold(limits_[part.limit]);
  if (!are_slots_) return;
  const HoldTerms& terms = *requests_[operation.first_request].task.request->hold;
  const SlotShape shape{.step = operation.step,
                        .limit = part.limit,
                        .cost = part.cost,
                        .ttl = takes ? TtlOf(terms, limits_[part.limit]) : Micros{0},
                        .id_size = terms.id.size()};
  auto found = std::ranges::find(slot_shapes_, shape);
  if (found == slot_shapes_.end()) {
    are_slots_ = slot_shapes_.size() < kSlotShapesMax;
    found = slot_shapes_.insert(slot_shapes_.end(), shape);
  }
  const auto number = static_cast<std::size_t>(found - slot_shapes_.begin());
  slots_ += static_cast<char>(0x80 + number + (operation.repeats ? kSlotShapesMax : 0));
  slots_ += '\2';
  slots_ += terms.id;
  slots_ += '\3';
}

// See slots.lua.
template <typename Put>
void Batch::PutSlots(Put put) const {
  put(std::string_view("slots"));
  put(slots_);
  for (const SlotShape& shape : slot_shapes_) {
    const std::string_view signature = signatures_[shape.limit];
    const std::size_t size = shape.id_size + 2;
    put(shape.step == Step::kReserve
            ? text::Cat("take ", signature, " ", shape.cost, " ", shape.ttl.count(), " ", size)
            : text::Cat("release ", signature, " ", shape.cost, " ", size));
  }
}

template <typename Put>
void Batch::PutArguments(std::string_view announce_prefix, TimePoint believed_now, Put put) const {
  const auto same_shape = [&](const Operation& a, const Operation& b) {
    return a.step == b.step && !Announces(a.step) && !HasHoldId(a.step) && a.times == b.times &&
           std::ranges::equal(PartsOf(a), PartsOf(b));
  };
  const std::string_view none;
  now_ ? put(now_->time_since_epoch().count()) : put(none);
  put(limits_.size());
  for (std::size_t i = 0; i < limits_.size(); ++i) {
    if (limits_[i].algorithm() == Algorithm::kCalendar) {
      put(text::Cat(signatures_[i], WindowsText(limits_[i], believed_now)));
    } else {
      put(signatures_[i]);
    }
  }
  for (std::size_t begin = 0; begin < operations_.size();) {
    const Operation& operation = operations_[begin];
    std::size_t end = begin + 1;
    while (end < operations_.size() && same_shape(operation, operations_[end])) ++end;
    const Step step = operation.step;
    put(kStepNames[static_cast<std::size_t>(step)]);
    put(end - begin);
    put(operation.parts);
    put(operation.times);
    for (std::size_t i = 0; i < operation.parts; ++i) {
      const Part& part = PartsOf(operation)[i];
      put(part.limit + 1);
      if (step != Step::kReset && step != Step::kExtend) put(part.cost);
      if (IsAboutHold(step)) PutHoldTerms(operation, i, put);
      if (step == Step::kRefund) put(part.when);
      if (!Announces(step)) continue;
      // Nobody remembers a denial of a limit that has only holds.
      const bool is_news = (step != Step::kGive || part.cost > 0) &&
                           (step != Step::kSettle || !core::NeedsHold(limits_[part.limit]));
      const bool announces = !announce_prefix.empty() && is_news;
      announces ? put(AnnouncementChannel(announce_prefix)) : put(none);
      announces ? put(AnnouncementOf(AnnouncedCharge(operation, i))) : put(none);
    }
    if (HasHoldId(step)) {
      const Request& request = *requests_[operation.first_request].task.request;
      put(request.hold ? request.hold->id : request.listed->only);
    }
    begin = end;
  }
}

Micros Batch::TtlOf(const HoldTerms& terms, const Limit& limit) {
  return terms.ttl > Micros{0} ? terms.ttl : limit.span();
}

template <typename Put>
void Batch::PutHoldTerms(const Operation& operation, std::size_t part, Put put) const {
  if (operation.step == Step::kSettle) return;
  const HoldTerms& terms = *requests_[operation.first_request].task.request->hold;
  const Limit& limit = limits_[PartsOf(operation)[part].limit];
  put(TtlOf(terms, limit).count());
  if (operation.step == Step::kExtend) return;
  const bool releases = core::NeedsHold(limit) || terms.on_expiry == OnExpiry::kRelease;
  put(releases ? std::string_view("r") : std::string_view("c"));
}

// "admitted seconds microseconds state…": what the script replies to one check, if there is nothing
// unusual about it.
Expected<void> Batch::DecodeOneCheck(std::string_view text) {
  std::array<std::int64_t, 7> numbers;
  const auto count = ReadNumbers(text, numbers);
  const std::size_t state = NumbersOf(limits_.front());
  if (!count || (*count != 3 && *count != 3 + state) || !core::InRange(numbers[0], 1)) {
    return UnexpectedReply();
  }
  const auto now_us = MomentOf(std::span(numbers).subspan<1, 2>());
  if (!now_us) return UnexpectedReply();
  if (*count == 3) std::ranges::copy(kUntouched, numbers.begin() + 3);
  Answer(operations_.front(), *now_us, numbers[0], std::span(numbers).subspan(3, state));
  return {};
}

// "seconds microseconds", and for each operation a line. Of a check "admitted state…", "-1",
// "!error" or, of a state with holds, "h admitted held;state…". Of a slot "held until" if it was
// taken or released, or else the same.
Expected<void> Batch::DecodeLines(std::string_view text) {
  const auto next_line = [&] {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
  };
  std::array<std::int64_t, 2> time;
  if (ReadNumbers(next_line(), time) != time.size()) return UnexpectedReply();
  const auto now_us = MomentOf(time);
  if (!now_us) return UnexpectedReply();
  struct Line {
    std::string_view error;
    std::string_view held;                // What is said about its holds.
    std::array<std::int64_t, 4> numbers;  // How many were admitted, and the state.
  };
  // Read all of it before the first outcome is set.
  std::vector<Line> lines;
  lines.reserve(operations_.size());
  for (const Operation& operation : operations_) {
    const std::string_view text_of_line = next_line();
    Line& line = lines.emplace_back();
    if (text_of_line.starts_with('!')) {
      line.error = text_of_line.substr(1);
      continue;
    }
    if (IsHoldStatus(text_of_line)) {
      const std::size_t end = std::min(text_of_line.find(';'), text_of_line.size() - 1);
      line.held = text_of_line.substr(0, end);
      const auto state = std::span(line.numbers).subspan(1);
      const auto count = ReadNumbers(text_of_line.substr(end + 1), state);
      if (count != NumbersOf(limits_[parts_[operation.first_part].limit])) return UnexpectedReply();
      continue;
    }
    const auto count = ReadNumbers(text_of_line, line.numbers);
    if (IsAboutHold(operation.step)) {
      const bool is_foreign = count == 1 && line.numbers[0] == -1;
      const bool is_done = count == 2 && core::InRange(line.numbers[0], core::kExactMax) &&
                           core::InRange(line.numbers[1], core::Us(kTimeMax));
      if (!is_foreign && !is_done) return UnexpectedReply();
      continue;
    }
    const std::int64_t admitted = count.value_or(0) > 0 ? line.numbers[0] : -2;
    if (admitted < -1 || admitted > static_cast<std::int64_t>(operation.times)) {
      return UnexpectedReply();
    }
    if (*count == 1) {
      std::copy_n(kUntouched.begin(), 3, line.numbers.begin() + 1);
    } else if (*count != 1 + NumbersOf(limits_[parts_[operation.first_part].limit])) {
      return UnexpectedReply();
    }
  }
  if (!text.empty()) return UnexpectedReply();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Operation& operation = operations_[i];
    const Line& line = lines[i];
    const std::size_t numbers = NumbersOf(limits_[parts_[operation.first_part].limit]);
    const auto state = std::span(line.numbers).subspan(1, numbers);
    if (!line.error.empty()) {
      FailOperation(operation, ErrorOf(line.error));
    } else if (!line.held.empty()) {
      AnswerHeld(operation, *now_us, line.held, state);
    } else if (line.numbers[0] < 0) {
      FailOperation(operation, Foreign(operation, 0));
    } else if (IsAboutHold(operation.step)) {
      AnswerSlot(operation, *now_us, line.numbers[0], line.numbers[1]);
    } else {
      Answer(operation, *now_us, line.numbers[0], state);
    }
  }
  return {};
}

Expected<void> Batch::Decode(std::span<const RespNode> reply) {
  if (reply.size() == 1 && reply.front().type == RespType::kBulkString &&
      (are_slots_ || IsChecks())) {
    return IsOneCheck() ? DecodeOneCheck(reply.front().text) : DecodeLines(reply.front().text);
  }
  const auto numbers_of = [&](const Operation& operation) {
    std::size_t numbers = 0;
    for (const Part& part : PartsOf(operation)) numbers += NumbersOf(limits_[part.limit]);
    return TellsStates(operation.step) ? numbers : 0;
  };
  std::size_t numbers = 1;
  for (const Operation& operation : operations_) numbers += 1 + numbers_of(operation);
  if (reply.size() != numbers + 1 || reply.front().type != RespType::kArray) {
    return UnexpectedReply();
  }
  reply = reply.subspan(1);
  const auto is_number = [](const RespNode& node) { return node.type == RespType::kInteger; };
  const std::int64_t now_us = reply.front().number;
  if (!is_number(reply.front()) || !core::InRange(now_us, kTimeMax.time_since_epoch().count())) {
    return UnexpectedReply();
  }
  // Check all of it before the first outcome is set.
  std::size_t at = 1;
  for (const Operation& operation : operations_) {
    const RespNode& status = reply[at];
    const std::size_t states = numbers_of(operation);
    const bool known = is_number(status)
                           ? status.number >= -static_cast<std::int64_t>(operation.parts)
                           : status.type == RespType::kBulkString;
    if (!known || !std::ranges::all_of(reply.subspan(at + 1, states), is_number)) {
      return UnexpectedReply();
    }
    at += 1 + states;
  }
  at = 1;
  std::vector<std::int64_t> numbers_of_states;
  for (const Operation& operation : operations_) {
    const RespNode& status = reply[at];
    const std::size_t states = numbers_of(operation);
    numbers_of_states.resize(states);
    std::ranges::transform(reply.subspan(at + 1, states), numbers_of_states.begin(),
                           &RespNode::number);
    if (!is_number(status) && IsHoldStatus(status.text)) {
      AnswerHeld(operation, now_us, status.text, numbers_of_states);
    } else if (!is_number(status)) {
      FailOperation(operation, ErrorOf(status.text));
    } else if (status.number < 0) {
      FailOperation(operation, Foreign(operation, static_cast<std::size_t>(-status.number - 1)));
    } else if (IsAboutHold(operation.step)) {
      FailOperation(operation, UnexpectedReply().error());
    } else {
      Answer(operation, now_us, status.number, numbers_of_states);
      if (operation.step == Step::kList) AnswerList(operation, {});
    }
    at += 1 + states;
  }
  return {};
}

// Something that the script, or the library after it, cannot read as a state.
Error Batch::Foreign(const Operation& operation, std::size_t part) const {
  return {ErrorCode::kForeignState,
          text::Cat("the Redis key ", text::Quote(keys_[operation.first_part + part]),
                    " holds something that is not Sluice's; remove it, or use another prefix")};
}

void Batch::FailOperation(const Operation& operation, const Error& error) {
  for (std::size_t number = operation.first_request; number != kNone;
       number = requests_[number].next) {
    requests_[number].task.request->outcome = std::unexpected(error);
  }
}

// Its budgets are now untouched.
void Batch::AnswerReset(const Operation& operation, TimePoint now, bool existed) {
  Request& request = *requests_[operation.first_request].task.request;
  std::array<Decision, kChargesMax> each;
  for (std::size_t i = 0; i < request.charges.size(); ++i) {
    const Budget budget(*request.charges[i].limit, now);
    each[i] = budget.Look(0);
    if (!request.seen.empty()) request.seen[i] = budget.See();
  }
  const auto all = std::span(each).first(request.charges.size());
  std::ranges::copy(all.first(request.each.size()), request.each.begin());
  request.existed = existed;
  request.outcome = core::Combine(all);
}

// States with holds.
void Batch::AnswerHeld(const Operation& operation, std::int64_t now_us, std::string_view text,
                       std::span<const std::int64_t> states) {
  const bool is_about_hold = IsAboutHold(operation.step);
  const bool lists = operation.step == Step::kList;
  const std::size_t end = lists ? std::min(text.find('\n'), text.size()) : text.size();
  const auto status = ReadHoldStatus(text.substr(0, end), is_about_hold, operation.parts);
  auto listed = lists ? ReadHoldList(text.substr(end)) : std::optional(HoldList{});
  if (!status || !listed || !TellsStates(operation.step)) {
    FailOperation(operation, UnexpectedReply().error());
  } else if (is_about_hold) {
    AnswerHold(operation, now_us, *status, states);
  } else {
    Answer(operation, now_us, status->admitted, states,
           std::span(status->held).first(operation.parts));
    if (lists) AnswerList(operation, *std::move(listed));
  }
}

// A slot that was taken or released, after which so many units are on hold until then.
void Batch::AnswerSlot(const Operation& operation, std::int64_t now_us, std::int64_t held,
                       std::int64_t until_us) {
  HoldStatus status;
  status.outcome = HoldStatus::Outcome::kDone;
  status.held[0] = held;
  if (operation.step == Step::kReserve) {
    const HoldTerms& terms = *requests_[operation.first_request].task.request->hold;
    const Limit& limit = limits_[parts_[operation.first_part].limit];
    status.expires_us = now_us + TtlOf(terms, limit).count();
  }
  const std::array<std::int64_t, 2> state = {held, until_us};
  AnswerHold(operation, now_us, status, state);
}

void Batch::AnswerList(const Operation& operation, HoldList listed) {
  Request& request = *requests_[operation.first_request].task.request;
  if (!request.outcome) return;
  request.listed->holds = std::move(listed.holds);
  request.listed->live = listed.live;
}

// A request about a hold. It is never folded.
void Batch::AnswerHold(const Operation& operation, std::int64_t now_us, const HoldStatus& status,
                       std::span<const std::int64_t> states) {
  using Outcome = HoldStatus::Outcome;
  const Task& task = requests_[operation.first_request].task;
  Request& request = *task.request;
  HoldTerms& terms = *request.hold;
  const auto fail = [&](const Error& error) { request.outcome = std::unexpected(error); };
  if (status.outcome == Outcome::kConflict) return fail(HoldConflict(terms.id));
  if (status.outcome == Outcome::kLost) return fail(HoldLost(terms.id));
  if (status.outcome == Outcome::kTooMany) {
    return fail(TooManyHolds(ChargeOf(operation, task, status.part - 1)));
  }
  const bool allowed = status.outcome != Outcome::kDenied;
  const bool decides = operation.step == Step::kReserve || operation.step == Step::kForesee;
  const bool takes = operation.step == Step::kReserve && status.outcome == Outcome::kDone;
  const TimePoint now{Micros{now_us}};
  std::array<Decision, kChargesMax> of_part;
  std::array<SeenState, kChargesMax> seen;
  std::size_t at = 0;
  for (std::size_t part = 0; part < operation.parts; ++part) {
    const auto& [number, cost, when] = parts_[operation.first_part + part];
    const Limit& limit = limits_[number];
    const std::size_t numbers = NumbersOf(limit);
    Budget budget(limit, now, states.subspan(at, numbers));
    at += numbers;
    if (!budget.is_sound()) return fail(Foreign(operation, part));
    // Concurrency limits report what they are after the hold: it adds to what is on hold.
    const bool is_taken = takes && !core::NeedsHold(limit);
    const bool asks = decides && (is_taken || !allowed);
    Decision& decision = of_part[part];
    decision = budget.Take(asks ? cost : 0, is_taken);
    if (!allowed) {
      if (decision.allowed) decision = budget.Look(0);
      if (!decision.allowed && status.fits[part] > 0) {
        decision.retry_after = Micros{status.fits[part]} - now.time_since_epoch();
      }
    }
    if (!allowed || operation.step == Step::kForesee) decision.delay = Micros{0};
    decision.held = status.held[part];
    seen[part] = budget.See();
  }
  const auto part_of = std::span(part_of_charge_).subspan(operation.first_charge);
  for (std::size_t i = 0; i < request.each.size(); ++i) request.each[i] = of_part[part_of[i]];
  for (std::size_t i = 0; i < request.seen.size(); ++i) request.seen[i] = seen[part_of[i]];
  request.outcome = core::Combine(std::span(of_part).first(operation.parts));
  if (request.outcome->allowed != allowed) return fail(Disagreement());
  if (task.existed) *task.existed = status.outcome == Outcome::kExists;
  if (operation.step == Step::kSettle) {
    terms.late = status.late;
    terms.overdrawn = status.overdrawn;
  } else if (allowed && operation.step != Step::kForesee) {
    terms.expires = TimePoint{Micros{status.expires_us}};
  }
}

void Batch::Answer(const Operation& operation, std::int64_t now_us, std::int64_t admitted,
                   std::span<const std::int64_t> states, std::span<const std::int64_t> held) {
  const TimePoint now{Micros{now_us}};
  auto next_budget = [&, at = std::size_t{0}](std::size_t part) mutable {
    const Limit& limit = limits_[parts_[operation.first_part + part].limit];
    const auto numbers = states.subspan(at, NumbersOf(limit));
    at += numbers.size();
    return Budget(limit, now, numbers);
  };
  const Step step = operation.step;
  const auto decide_without_holds = [&](Budget& budget, const Task& task, std::size_t part,
                                        bool allowed) {
    const std::int64_t cost = parts_[part].cost;
    if (step == Step::kDebit) return budget.Take(std::min(cost, budget.Look(0).remaining), true);
    if (step == Step::kGive) return budget.Look(0);  // The script returned the state after it.
    const bool takes = allowed && step != Step::kLook;
    Decision decision = budget.Take(cost, takes);
    if (takes && cost > 0 && task.receipts) {
      task.receipts->push_back({.key = keys_[part],
                                .limit = limits_[parts_[part].limit],
                                .units = cost,
                                .when = budget.When(),
                                .charge = &ChargeOf(operation, task, part - operation.first_part)});
    }
    if (takes) return decision;
    // Charges that would have passed are not charged either, and report that.
    if (decision.allowed) decision = budget.Look(0);
    decision.delay = Micros{0};
    return decision;
  };
  const auto decide = [&](Budget& budget, const Task& task, std::size_t part, bool allowed) {
    Decision decision = decide_without_holds(budget, task, part, allowed);
    if (!held.empty()) decision.held = held[part - operation.first_part];
    return decision;
  };
  const auto answer = [&](Request& request, const Decision& overall, bool allowed) {
    request.outcome = overall;
    if (overall.allowed != allowed) request.outcome = std::unexpected(Disagreement());
  };

  if (step == Step::kReset) return AnswerReset(operation, now, admitted > 0);
  if (step == Step::kRefund) {
    requests_[operation.first_request].task.request->outcome = Decision{.allowed = admitted > 0};
    return;
  }
  if (operation.parts == 1) {
    Budget budget = next_budget(0);
    if (!budget.is_sound()) return FailOperation(operation, Foreign(operation, 0));
    for (std::size_t number = operation.first_request; number != kNone;
         number = requests_[number].next) {
      const Task& task = requests_[number].task;
      const bool allowed = step == Step::kLook ? admitted > 0 : admitted-- > 0;
      const Decision decision = decide(budget, task, operation.first_part, allowed);
      std::ranges::fill(task.request->each, decision);
      if (!task.request->seen.empty()) std::ranges::fill(task.request->seen, budget.See());
      answer(*task.request, decision, allowed);
    }
    return;
  }

  // Requests over several states are not folded.
  const Task& task = requests_[operation.first_request].task;
  std::array<Decision, kChargesMax> of_part;
  std::array<SeenState, kChargesMax> seen;
  for (std::size_t part = 0; part < operation.parts; ++part) {
    Budget budget = next_budget(part);
    if (!budget.is_sound()) return FailOperation(operation, Foreign(operation, part));
    of_part[part] = decide(budget, task, operation.first_part + part, admitted > 0);
    seen[part] = budget.See();
  }
  const auto part_of = std::span(part_of_charge_).subspan(operation.first_charge);
  for (std::size_t i = 0; i < task.request->each.size(); ++i) {
    task.request->each[i] = of_part[part_of[i]];
  }
  for (std::size_t i = 0; i < task.request->seen.size(); ++i) {
    task.request->seen[i] = seen[part_of[i]];
  }
  answer(*task.request, core::Combine(std::span(of_part).first(operation.parts)), admitted > 0);
}

void Batch::Fail(const Error& error) {
  for (const Asked& asked : requests_) asked.task.request->outcome = std::unexpected(error);
}

}  // namespace sluice::redis
