// SPDX-License-Identifier: Apache-2.0
#include "client/hold_shell.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <utility>

#include "base/duration.h"
#include "base/text.h"
#include "sluice/hold.h"

namespace sluice::client {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using text::Cat;

constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;
constexpr std::array kForwarded = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

void Say(const std::string& message) { std::fprintf(stderr, "sluice hold: %s\n", message.c_str()); }

// Those that are for the command, unless its caller ignores them (as nohup does), and SIGCHLD.
sigset_t SignalsToRead() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int number : kForwarded) {
    struct sigaction action{};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&signals, number);
    }
  }
  return signals;
}

// In the child.
[[noreturn]] void Become(const std::vector<char*>& words, const sigset_t& mask, bool ends_with_us,
                         pid_t parent, int report) {
  if (ends_with_us) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // It may have died before.
    if (::getppid() != parent) ::_exit(kExitSignalled + SIGTERM);
  }
  ::signal(SIGXFSZ, SIG_DFL);  // As it was before main.
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(words.front(), words.data());
  const int error = errno;
  static_cast<void>(!::write(report, &error, sizeof error));
  ::_exit(kExitNotFound);
}

class Shell {
 public:
  explicit Shell(HoldShellOptions options)
      : options_(std::move(options)),
        client_(context_.get_executor(), options_.server, options_.token),
        run_({.ttl = options_.wish.ttl,
              .wait = options_.wait,
              .on_lost = options_.on_lost,
              .random = [this] { return std::uniform_real_distribution(0.0, 1.0)(random_); }},
             Clock::now()) {}

  [[noreturn]] void Run() {
    ::signal(SIGCHLD, SIG_DFL);
    const sigset_t signals = SignalsToRead();
    sigset_t blocked = signals;
    // Nobody may read what it says any more; the hold must go on.
    sigaddset(&blocked, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
    const int fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd == -1) Fail("signalfd");
    signals_.assign(fd);
    ReadSignal();
    Do(run_.Begin());
    context_.run();
    std::abort();  // Do ends the process.
  }

 private:
  [[noreturn]] void Fail(const char* what) {
    Say(Cat(what, ": ", ErrorText(errno)));
    End(kExitRefused);
  }

  // Without destructors: a look-up of a name that hangs has a thread that would be waited for.
  [[noreturn]] static void End(int status) {
    std::fflush(stderr);
    std::_Exit(status);
  }

  static std::string ErrorText(int error) {
    return std::error_code(error, std::generic_category()).message();
  }

  void Do(const HoldRun::Step& step) {
    if (!step.message.empty()) Say(step.message);
    if (step.exit) End(*step.exit);
    if (step.new_id) id_ = NewHoldId();
    if (step.ask != HoldRun::Ask::kNothing) AskFor(step.ask);
    if (step.signal > 0 && child_ > 0) ::kill(child_, step.signal);
    SetAlarm();
    if (step.start) Start();
  }

  void SetAlarm() {
    const auto wake = run_.wake();
    if (!wake) {
      alarm_.cancel();
      return;
    }
    alarm_.expires_at(*wake);
    alarm_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Do(run_.OnTime(Clock::now()));
    });
  }

  void AskFor(HoldRun::Ask ask) {
    const std::uint64_t number = ++asked_;
    const auto answered = [this, number](const Answer& answer) {
      if (number != asked_) return;
      ++asked_;
      patience_.cancel();
      Do(run_.OnAnswer(answer, Clock::now()));
    };
    patience_.expires_after(run_.patience());
    patience_.async_wait([this, answered](const boost::system::error_code& error) {
      if (error) return;
      answered({.kind = Answer::Kind::kAway,
                .outcome = Answer::Outcome::kUnknown,
                .message = Cat("no answer within ", text::FormatDuration(run_.patience()))});
    });
    asio::co_spawn(
        context_,
        [this, ask, number, answered]() -> asio::awaitable<void> {
          const auto response = co_await client_.Ask(QuestionOf(ask), run_.patience());
          if (number != asked_) co_return;
          answered(response ? Read(ask, *response) : NoAnswer(response.error()));
        },
        asio::detached);
  }

  Question QuestionOf(HoldRun::Ask ask) const {
    const std::string holds = "/api/v1/holds";
    switch (ask) {
      case HoldRun::Ask::kExtend:
        return {.method = Method::kPost,
                .target = Cat(holds, "/", ticket_, "/extend"),
                .body = ExtendBody(options_.wish)};
      case HoldRun::Ask::kSettle:
        return {.method = Method::kPost, .target = Cat(holds, "/", ticket_, "/settle")};
      case HoldRun::Ask::kRelease:
        return {.method = Method::kDelete, .target = Cat(holds, "/", ticket_)};
      default:
        return {.method = Method::kPost, .target = holds, .body = MakeBody(options_.wish, id_)};
    }
  }

  static Answer NoAnswer(const Error& error) {
    const bool was_sent = error.code == ErrorCode::kOutcomeUnknown;
    return {.kind = Answer::Kind::kAway,
            .outcome = was_sent ? Answer::Outcome::kUnknown : Answer::Outcome::kNotMade,
            .message = error.message};
  }

  Answer Read(HoldRun::Ask ask, const Response& response) {
    if (ask != HoldRun::Ask::kMake) return ReadChanged(response);
    Made made = ReadMade(response);
    ticket_ = std::move(made.ticket);
    return made.answer;
  }

  void Start() {
    std::vector<char*> words;
    words.reserve(options_.command.size() + 1);
    for (std::string& word : options_.command) words.push_back(word.data());
    words.push_back(nullptr);
    std::array<int, 2> report{};
    if (::pipe2(report.data(), O_CLOEXEC) != 0) return NotStarted(errno);
    const pid_t parent = ::getpid();
    const bool ends_with_us = options_.on_lost == HoldRun::OnLost::kTerminate;
    const pid_t child = ::fork();
    if (child == 0) Become(words, mask_before_, ends_with_us, parent, report[1]);
    const int fork_error = errno;
    ::close(report[1]);
    int error = 0;
    // Nothing comes if the command runs: it has closed the other end.
    const bool failed = child > 0 && ::read(report[0], &error, sizeof error) > 0;
    ::close(report[0]);
    if (child < 0) return NotStarted(fork_error);
    if (failed) {
      ::waitpid(child, nullptr, 0);
      return NotStarted(error);
    }
    child_ = child;
  }

  void NotStarted(int error) {
    Say(Cat(text::Quote(options_.command.front()), ": ", ErrorText(error)));
    Do(run_.OnNotStarted(error == ENOENT ? kExitNotFound : kExitNotExecutable, Clock::now()));
  }

  void ReadSignal() {
    asio::async_read(signals_, asio::buffer(&signal_, sizeof signal_),
                     [this](const boost::system::error_code& error, std::size_t) {
                       if (error) Fail("reading signals");
                       OnSignal();
                       ReadSignal();
                     });
  }

  void OnSignal() {
    if (signal_.ssi_signo == SIGCHLD) return Reap();
    // The keys of a terminal reach the command as well, which is in the same group. When it hangs
    // up, only the leader of the session is told, and that may be this process.
    const bool by_key = signal_.ssi_code == SI_KERNEL && signal_.ssi_signo != SIGHUP;
    if (by_key && child_ > 0) return;
    Do(run_.OnSignal(static_cast<int>(signal_.ssi_signo)));
  }

  void Reap() {
    int status = 0;
    if (child_ <= 0 || ::waitpid(child_, &status, WNOHANG) != child_) return;
    child_ = 0;
    Do(run_.OnEnded(WIFSIGNALED(status) ? kExitSignalled + WTERMSIG(status) : WEXITSTATUS(status),
                    Clock::now()));
  }

  HoldShellOptions options_;
  asio::io_context context_{1};
  HttpClient client_;
  std::mt19937_64 random_{std::random_device{}()};
  HoldRun run_;
  asio::steady_timer alarm_{context_};
  asio::steady_timer patience_{context_};
  asio::posix::stream_descriptor signals_{context_};
  signalfd_siginfo signal_{};
  sigset_t mask_before_{};
  std::string id_;
  std::string ticket_;
  std::uint64_t asked_ = 0;  // Answers to earlier questions are ignored.
  pid_t child_ = 0;          // 0: not started yet, or ended.
};

}  // namespace

void RunWhileHeld(HoldShellOptions options) { Shell(std::move(options)).Run(); }

}  // namespace sluice::client
