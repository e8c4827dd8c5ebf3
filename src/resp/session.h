// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/access.h"
#include "resp/arguments.h"
#include "resp/batch.h"
#include "resp/check_words.h"
#include "resp/command_table.h"
#include "resp/request_parser.h"
#include "resp/worker.h"

namespace sluice::resp {

// One client's conversation, without I/O: bytes in, replies out.
//
// Lives on the worker's loop; every method is called there.
class Session {
 public:
  enum class Next : std::uint8_t {
    kRead,   // All complete commands are answered: wait for more bytes.
    kAgain,  // Send the replies, then Consume the rest.
    kWait,   // The store is deciding: `ready` will be called; then call Resume.
    kClose,  // Send the replies, then close.
  };
  struct Progress {
    Next next;
    std::size_t consumed;  // Bytes that are done; after kWait, Resume returns the number.
  };

  struct Peer {
    std::int64_t id = 0;       // Unique among all connections of the server.
    std::string address = {};  // For CLIENT INFO.
    bool certified = false;    // See net::Stream::certified.
  };

  // `ready` is called when it is time for Resume, or calls it itself. The session lives until then.
  Session(Worker& worker, Peer peer, std::move_only_function<void()> ready);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Takes all complete commands that fit into one round, decides them together, and appends their
  // replies to `out` in order. `input` starts after what was consumed before. It is modified if a
  // command is a line of text and, after kWait, must not change.
  Progress Consume(std::span<char> input, std::string& out);
  Progress Resume(std::string& out);

 private:
  Progress Advance(std::string& out);
  void Dispatch(Arguments arguments);

  // For immediate replies.
  ReplyWriter Writer() { return {batch_->text(), protocol_, worker_.engine().metrics()}; }

  // Commands that the store decides. An error is answered immediately.
  Expected<void> Ask(CommandId command, Arguments arguments);
  Expected<void> Throttle(Arguments arguments, Dialect dialect);
  Expected<void> Check(Arguments arguments, Taking taking);
  Expected<void> CheckLimit(Arguments arguments, Taking taking);
  Expected<void> CheckRules(Arguments arguments, Taking taking);
  Expected<void> ChangeHold(Arguments arguments, HoldChange change);
  Expected<void> ResetThrottle(Arguments keys);

  // Commands that are answered immediately.
  void Answer(CommandId command, ReplyWriter reply, Arguments arguments);
  void Acl(ReplyWriter reply, Arguments arguments);
  void Auth(ReplyWriter reply, Arguments arguments);
  void Client(ReplyWriter reply, Arguments arguments);
  void Config(ReplyWriter reply, Arguments arguments);
  void Describe(ReplyWriter reply, Arguments arguments);
  void Hello(ReplyWriter reply, Arguments arguments);
  void Info(ReplyWriter reply, Arguments arguments);
  void Ping(ReplyWriter reply, Arguments arguments);
  void Reset(ReplyWriter reply);
  void Select(ReplyWriter reply, Arguments arguments);
  void SetLibrary(ReplyWriter reply, std::string_view option, std::string_view value);
  void SetName(ReplyWriter reply, std::string_view name);

  // Whether AUTH needs a token.
  bool guarded() const { return access_ != nullptr && !access_->open(); }
  bool LogIn(std::string_view user, std::string_view token);
  void LogOut();
  // After the tokens have changed: checks whether this client's token is still valid.
  void Recheck();
  std::string Description() const;

  Worker& worker_;
  const Peer peer_;
  std::move_only_function<void()> ready_;
  RequestParser parser_;
  std::unique_ptr<Batch> batch_;                              // During a round.
  Progress progress_ = {.next = Next::kRead, .consumed = 0};  // Of that round.

  Protocol protocol_ = Protocol::kResp2;
  const net::Access* const access_;
  bool trusted_ = false;
  std::uint64_t tokens_seen_ = 0;  // The generation of the tokens when it was trusted.
  std::string user_;
  std::string token_;  // Of its login; empty if it needed none.
  std::string name_;
  std::string library_name_;
  std::string library_version_;
};

}  // namespace sluice::resp
