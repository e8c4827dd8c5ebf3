// SPDX-License-Identifier: Apache-2.0
// What `sluice hold` does when: a command runs while a slot is held. No I/O, no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sluice/time.h"

namespace sluice::client {

// By a clock that only moves forward.
using Moment = std::chrono::steady_clock::time_point;

// What came of asking the service for something.
struct Answer {
  enum class Kind : std::uint8_t {
    kDone,
    kDenied,
    kLost,     // The hold is not live any more.
    kAway,     // No answer, or one that may be another next time. It may have been done.
    kRefused,  // Asking again would not help.
  };

  // Of a question for a hold, unless kDone.
  enum class Outcome : std::uint8_t {
    kNotMade,
    kUnknown,  // It may have been made, or may be yet.
    kGivenUp,  // Not made, and the service may release what becomes of its id after all.
  };

  Kind kind = Kind::kDone;
  Outcome outcome = Outcome::kNotMade;
  Micros retry_after{0};  // Of kDenied.
  // Of kDenied: whether units are on hold, which may be released before `retry_after` is over.
  bool may_pass_sooner = false;
  std::string message = {};  // Of all but kDone: a sentence for people.
};

// The end of a command, as shells and sysexits.h have it.
inline constexpr int kExitRefused = 2;
inline constexpr int kExitAway = 69;    // EX_UNAVAILABLE
inline constexpr int kExitDenied = 75;  // EX_TEMPFAIL
inline constexpr int kExitSignalled = 128;

class HoldRun {
 public:
  enum class OnLost : std::uint8_t { kTerminate, kContinue };

  struct Options {
    Micros ttl;
    // How long to wait for a slot. Micros::max(): for as long as it takes.
    Micros wait{0};
    OnLost on_lost = OnLost::kTerminate;
    // In [0, 1).
    std::function<double()> random = {};
  };

  enum class Ask : std::uint8_t {
    kNothing,
    kMake,
    kExtend,
    kSettle,   // The command ran: slots are free, and what was taken of rates stays so.
    kRelease,  // It did not.
  };

  // What to do now. What was asked before is then without interest.
  struct Step {
    Ask ask = Ask::kNothing;
    bool new_id = false;  // For kMake: not the id that was asked for before.
    bool start = false;   // The command.
    int signal = 0;       // For the command; 0 is none.
    std::optional<int> exit = {};
    std::string message = {};  // For people, if not empty.
  };

  HoldRun(Options options, Moment now);

  Step Begin();
  // Of what was asked last.
  Step OnAnswer(const Answer& answer, Moment now);
  // Somebody wants this process to end.
  Step OnSignal(int number);
  // The command has ended, or could not be started. `status` is what to exit with.
  Step OnEnded(int status, Moment now);
  Step OnNotStarted(int status, Moment now);
  // At `wake` or later.
  Step OnTime(Moment now);

  // When to call OnTime; it changes with every call.
  std::optional<Moment> wake() const;

  // How long one question may take: some fit between a renewal and the end of the hold.
  Micros patience() const;

 private:
  enum class State : std::uint8_t { kMaking, kWaiting, kRunning, kEnding, kEnded };

  Step AskFor(Ask ask, Moment now);
  Step Make(Moment now);
  Step GiveUp(int status, const std::string& why);
  Step Exit(int status, std::string message = {});
  Step OnMade(const Answer& answer, Moment now);
  Step OnExtended(const Answer& answer, Moment now);
  Step OnGone(const Answer& answer, Moment now);
  Step Wait(int status, const std::string& why, Micros pause, Moment now);
  Step Lose(const std::string& why);
  Step EndBy(Ask ask, int status, Moment now);
  void HoldFrom(Moment asked);
  Micros PauseAfter(const Answer& denied);
  Micros RetryPause() const;
  Micros Part(Micros of, double from, double to) const;

  const Options options_;
  const Moment give_up_;  // On making a hold.
  State state_ = State::kMaking;
  Ask asked_ = Ask::kNothing;
  Moment asked_at_;
  // When a hold under this id was first asked for, if it may have been made then.
  std::optional<Moment> unknown_since_;
  Moment next_ask_;    // If nothing is asked now.
  Moment held_until_;  // By this clock, at least.
  Ask end_by_ = Ask::kNothing;
  Moment end_until_;           // When to stop trying.
  Micros backoff_{0};          // Between questions for a slot that may be released at any time.
  bool was_answered_ = false;  // The service was there.
  bool waits_ = false;         // And said so.
  bool is_late_ = false;       // A renewal has failed, and said so.
  bool lost_ = false;
  int stop_signal_ = 0;  // Came before the command was started.
  int status_ = 0;       // The command's.
};

}  // namespace sluice::client
