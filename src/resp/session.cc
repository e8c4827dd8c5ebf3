// SPDX-License-Identifier: Apache-2.0
// How bytes become commands. The commands are in *_commands.cc.
#include "resp/session.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sluice::resp {
namespace {

// The limit of Redis, whose wording this uses.
constexpr std::size_t kShownBytesMax = 128;

std::string UnknownCommand(std::span<const std::string_view> arguments) {
  std::string shown;
  for (const std::string_view argument : arguments.subspan(1)) {
    if (shown.size() >= kShownBytesMax) break;
    shown += text::Cat("'", argument.substr(0, kShownBytesMax - shown.size()), "' ");
  }
  return text::Cat("ERR unknown command '", arguments[0].substr(0, kShownBytesMax),
                   "', with args beginning with: ", shown);
}

// Sent by a browser when some page made it post to this port; what follows are not its user's
// commands. Redis closes the connection, too.
bool IsHttp(std::string_view command) {
  return text::EqualsIgnoreCase(command, "POST") || text::EqualsIgnoreCase(command, "Host:");
}

}  // namespace

Session::Session(Worker& worker, Peer peer, std::move_only_function<void()> ready)
    : worker_(worker),
      peer_(std::move(peer)),
      ready_(std::move(ready)),
      parser_(worker.options().bounds),
      access_(worker.options().access) {
  LogOut();
}

Session::~Session() = default;

Session::Progress Session::Consume(std::span<char> input, std::string& out) {
  const Bounds& bounds = worker_.options().bounds;
  if (guarded() && tokens_seen_ != access_->generation()) Recheck();
  batch_ = worker_.TakeBatch();
  progress_ = {.next = Next::kAgain, .consumed = 0};
  std::size_t commands = 0;
  while (progress_.next == Next::kAgain && commands < bounds.pipeline_max &&
         batch_->reply_bytes() < bounds.output_bytes_max) {
    const auto status = parser_.Parse(input.subspan(progress_.consumed), trusted_);
    if (status == RequestParser::Status::kIncomplete) {
      progress_.next = Next::kRead;
    } else if (status == RequestParser::Status::kError) {
      worker_.protocol_errors.Add();
      Writer().Error(parser_.error());
      batch_->Answered();
      progress_ = {.next = Next::kClose, .consumed = input.size()};
    } else {
      progress_.consumed += parser_.consumed();
      if (parser_.arguments().empty()) continue;
      ++commands;
      Dispatch(parser_.arguments());
    }
  }
  worker_.commands.Add(commands);
  return Advance(out);
}

Session::Progress Session::Resume(std::string& out) { return Advance(out); }

Session::Progress Session::Advance(std::string& out) {
  if (!batch_->Run(ready_)) return {.next = Next::kWait, .consumed = 0};
  batch_->Write(out, peer_.id);
  worker_.GiveBack(std::move(batch_));
  return progress_;
}

void Session::Dispatch(Arguments arguments) {
  const Command* const command = FindCommand(arguments[0]);
  ReplyWriter reply = Writer();
  if (!command && IsHttp(arguments[0])) {
    worker_.protocol_errors.Add();
    progress_.next = Next::kClose;
    return;
  }
  if (!command) {
    reply.Error(UnknownCommand(arguments));
  } else if (!command->TakesCount(arguments.size())) {
    reply.Error(text::Cat("ERR wrong number of arguments for '", command->name, "' command"));
  } else if (!trusted_ && !command->before_auth) {
    reply.Error("NOAUTH Authentication required.");
  } else if (!command->decides) {
    Answer(command->id, reply, arguments);
  } else if (const auto asked = Ask(command->id, arguments); !asked) {
    reply.Error(asked.error());
  } else {
    return;
  }
  batch_->Answered();
}

Expected<void> Session::Ask(CommandId command, Arguments arguments) {
  switch (command) {
    case CommandId::kClThrottle:
      return Throttle(arguments, Dialect::kCell);
    case CommandId::kThrottle:
      return Throttle(arguments, Dialect::kCrab);
    case CommandId::kSluiceCheck:
      return Check(arguments, Taking::kTake);
    case CommandId::kSluicePeek:
      return Check(arguments, Taking::kPeek);
    case CommandId::kSluiceReset:
      return Check(arguments, Taking::kReset);
    case CommandId::kSluiceHold:
      return Check(arguments, Taking::kHold);
    case CommandId::kSluiceGive:
      return Check(arguments, Taking::kGive);
    case CommandId::kSluiceSettle:
      return ChangeHold(arguments, HoldChange::kSettle);
    case CommandId::kSluiceExtend:
      return ChangeHold(arguments, HoldChange::kExtend);
    case CommandId::kSluiceRelease:
      return ChangeHold(arguments, HoldChange::kRelease);
    case CommandId::kDel:
    case CommandId::kUnlink:
      return ResetThrottle(arguments.subspan(1));
    default:
      std::unreachable();
  }
}

void Session::Answer(CommandId command, ReplyWriter reply, Arguments arguments) {
  switch (command) {
    case CommandId::kAcl:
      return Acl(reply, arguments);
    case CommandId::kAuth:
      return Auth(reply, arguments);
    case CommandId::kClient:
      return Client(reply, arguments);
    case CommandId::kCommand:
      return Describe(reply, arguments);
    case CommandId::kConfig:
      return Config(reply, arguments);
    case CommandId::kEcho:
      return reply.Bulk(arguments[1]);
    case CommandId::kHello:
      return Hello(reply, arguments);
    case CommandId::kInfo:
      return Info(reply, arguments);
    case CommandId::kPing:
      return Ping(reply, arguments);
    case CommandId::kQuit:
      progress_.next = Next::kClose;
      return reply.Ok();
    case CommandId::kReset:
      return Reset(reply);
    case CommandId::kSelect:
      return Select(reply, arguments);
    default:
      std::unreachable();
  }
}

}  // namespace sluice::resp
