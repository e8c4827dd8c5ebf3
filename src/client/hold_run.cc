// SPDX-License-Identifier: Apache-2.0
#include "client/hold_run.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/duration.h"
#include "base/text.h"

namespace sluice::client {
namespace {

using namespace std::chrono_literals;
using text::Cat;

constexpr Micros kBackoffMin = 100ms;
constexpr Micros kBackoffMax = 5s;
constexpr Micros kRetryMax = 1s;
constexpr Micros kPatienceMax = 5s;
constexpr Micros kEndingMax = 5s;

Moment After(Moment now, Micros wait) {
  const auto room = std::chrono::duration_cast<Micros>(Moment::max() - now);
  return wait < room ? now + wait : Moment::max();
}

}  // namespace

HoldRun::HoldRun(Options options, Moment now)
    : options_(std::move(options)), give_up_(After(now, options_.wait)), asked_at_(now) {}

Micros HoldRun::patience() const { return std::min(options_.ttl / 3, kPatienceMax); }

// From `from` to `to` times `of`: many that wait for one slot should not ask together.
Micros HoldRun::Part(Micros of, double from, double to) const {
  const double part = from + (to - from) * options_.random();
  return Micros{static_cast<std::int64_t>(static_cast<double>(of.count()) * part)};
}

Micros HoldRun::RetryPause() const {
  return Part(std::min(options_.ttl / 10, kRetryMax), 0.5, 1.0);
}

// Somebody who holds a slot may release it at any time: `retry_after` is then only the longest
// wait. Otherwise asking sooner would be in vain.
Micros HoldRun::PauseAfter(const Answer& denied) {
  if (!denied.may_pass_sooner && denied.retry_after > Micros{0}) {
    return denied.retry_after + Part(std::min(denied.retry_after / 10, kRetryMax), 0, 1);
  }
  backoff_ = std::clamp(2 * backoff_, kBackoffMin, kBackoffMax);
  const Micros longest = denied.retry_after > Micros{0} ? denied.retry_after : backoff_;
  return Part(std::min(backoff_, std::max(longest, kHoldTtlMin)), 0.5, 1.0);
}

HoldRun::Step HoldRun::AskFor(Ask ask, Moment now) {
  asked_ = ask;
  asked_at_ = now;
  return {.ask = ask};
}

HoldRun::Step HoldRun::Exit(int status, std::string message) {
  state_ = State::kEnded;
  asked_ = Ask::kNothing;
  return {.exit = status, .message = std::move(message)};
}

HoldRun::Step HoldRun::Begin() { return Make(asked_at_); }

// The same hold again, if it may be there already: that takes nothing. But what was made first must
// last until the answer, and then be renewed in time.
HoldRun::Step HoldRun::Make(Moment now) {
  if (unknown_since_ && now - *unknown_since_ >= options_.ttl / 2) unknown_since_.reset();
  Step step = AskFor(Ask::kMake, now);
  step.new_id = !unknown_since_;
  return step;
}

// Without a hold, as far as is known.
HoldRun::Step HoldRun::GiveUp(int status, const std::string& why) {
  if (!unknown_since_) return Exit(status, why);
  return Exit(status,
              Cat(why, why.empty() ? "" : "; ", "a hold may have been made: it expires within ",
                  text::FormatDuration(options_.ttl)));
}

HoldRun::Step HoldRun::OnAnswer(const Answer& answer, Moment now) {
  switch (std::exchange(asked_, Ask::kNothing)) {
    case Ask::kMake:
      return OnMade(answer, now);
    case Ask::kExtend:
      return OnExtended(answer, now);
    case Ask::kSettle:
    case Ask::kRelease:
      return OnGone(answer, now);
    case Ask::kNothing:
      break;
  }
  return {};
}

// The service counts from when it read the question, which was later.
void HoldRun::HoldFrom(Moment asked) {
  held_until_ = asked + options_.ttl;
  next_ask_ = asked + options_.ttl / 3;
}

HoldRun::Step HoldRun::OnMade(const Answer& answer, Moment now) {
  const bool is_first = !std::exchange(was_answered_, true);
  if (answer.outcome == Answer::Outcome::kGivenUp) unknown_since_.reset();
  if (answer.outcome == Answer::Outcome::kUnknown && !unknown_since_) unknown_since_ = asked_at_;
  if (answer.kind == Answer::Kind::kDone) {
    HoldFrom(unknown_since_.value_or(asked_at_));
    if (stop_signal_ > 0) return OnNotStarted(kExitSignalled + stop_signal_, now);
    state_ = State::kRunning;
    return {.start = true};
  }
  if (stop_signal_ > 0) return GiveUp(kExitSignalled + stop_signal_, {});
  switch (answer.kind) {
    case Answer::Kind::kDenied:
      return Wait(kExitDenied, answer.message, PauseAfter(answer), now);
    case Answer::Kind::kAway:
      // Not waited for if it was never there: the address may be wrong.
      if (is_first) return GiveUp(kExitAway, answer.message);
      return Wait(kExitAway, answer.message, RetryPause(), now);
    default:
      return GiveUp(kExitRefused, answer.message);
  }
}

HoldRun::Step HoldRun::Wait(int status, const std::string& why, Micros pause, Moment now) {
  if (now >= give_up_) return GiveUp(status, why);
  state_ = State::kWaiting;
  next_ask_ = std::min(After(now, pause), give_up_);
  if (std::exchange(waits_, true)) return {};
  return {.message = Cat(why, "; waiting")};
}

HoldRun::Step HoldRun::OnExtended(const Answer& answer, Moment now) {
  switch (answer.kind) {
    case Answer::Kind::kDone:
      HoldFrom(asked_at_);
      is_late_ = false;
      return {};
    case Answer::Kind::kLost:
      return Lose(answer.message);
    default:
      // Even if it is refused: tokens and rules may be put right before the hold is over.
      next_ask_ = now + RetryPause();
      if (std::exchange(is_late_, true)) return {};
      return {.message = Cat("the hold could not be renewed: ", answer.message,
                             "; trying again until it expires")};
  }
}

HoldRun::Step HoldRun::Lose(const std::string& why) {
  lost_ = true;
  asked_ = Ask::kNothing;
  const bool ends = options_.on_lost == OnLost::kTerminate;
  return {.signal = ends ? SIGTERM : 0,
          .message = Cat("the hold is lost: ", why,
                         ends ? "; ending the command" : "; the command runs on without it")};
}

HoldRun::Step HoldRun::OnSignal(int number) {
  switch (state_) {
    case State::kMaking:  // The hold may be there: it is released once that is known.
      stop_signal_ = number;
      return {};
    case State::kWaiting:
      return GiveUp(kExitSignalled + number, {});
    case State::kRunning:
      return {.signal = number};
    case State::kEnding:  // Which does not take long.
    case State::kEnded:
      return {};
  }
  std::unreachable();
}

HoldRun::Step HoldRun::OnEnded(int status, Moment now) { return EndBy(Ask::kSettle, status, now); }

HoldRun::Step HoldRun::OnNotStarted(int status, Moment now) {
  return EndBy(Ask::kRelease, status, now);
}

HoldRun::Step HoldRun::EndBy(Ask ask, int status, Moment now) {
  state_ = State::kEnding;
  status_ = status;
  end_by_ = ask;
  end_until_ = std::min(held_until_, now + kEndingMax);
  return AskFor(ask, now);
}

HoldRun::Step HoldRun::OnGone(const Answer& answer, Moment now) {
  if (answer.kind == Answer::Kind::kDone || answer.kind == Answer::Kind::kLost || lost_) {
    return Exit(status_);
  }
  const Moment next = now + RetryPause();
  if (answer.kind == Answer::Kind::kAway && next < end_until_) {
    next_ask_ = next;
    return {};
  }
  return Exit(status_, Cat("the hold could not be released: ", answer.message,
                           "; it expires within ", text::FormatDuration(options_.ttl)));
}

HoldRun::Step HoldRun::OnTime(Moment now) {
  const auto due = wake();
  if (!due || now < *due) return {};
  switch (state_) {
    case State::kWaiting:
      state_ = State::kMaking;
      return Make(now);
    case State::kRunning:
      if (now >= held_until_) return Lose("it could not be renewed in time");
      return AskFor(Ask::kExtend, now);
    case State::kEnding:
      return AskFor(end_by_, now);
    case State::kMaking:
    case State::kEnded:
      break;
  }
  return {};
}

std::optional<Moment> HoldRun::wake() const {
  switch (state_) {
    case State::kWaiting:
      return next_ask_;
    case State::kRunning:
      if (lost_) return std::nullopt;
      return asked_ == Ask::kNothing ? std::min(next_ask_, held_until_) : held_until_;
    case State::kEnding:
      if (asked_ == Ask::kNothing) return next_ask_;
      return std::nullopt;
    case State::kMaking:  // An answer comes, if only after `patience`.
    case State::kEnded:
      return std::nullopt;
  }
  std::unreachable();
}

}  // namespace sluice::client
