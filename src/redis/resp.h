// SPDX-License-Identifier: Apache-2.0
// The Redis protocol, RESP2 and RESP3, without I/O: a parser that takes bytes as they come, and
// functions that write commands and replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::redis {

enum class RespType : std::uint8_t {
  kSimpleString,  // +OK
  kError,         // -ERR message; also RESP3's bulk error
  kInteger,       // :1
  kBulkString,    // $3 foo; also RESP3's verbatim string, without its three-letter format
  kNull,          // $-1, *-1 or _
  kBoolean,       // #t
  kDouble,        // ,1.5
  kBigNumber,     // (123
  kArray,         // *2 ...
  kSet,           // ~2 ...
  kMap,           // %1 ...; counts keys and values
  kPush,          // >2 ...; out of band
};

// One node of a message. Nodes come in the order in which they are written: an aggregate is
// followed by its elements, and these by theirs.
struct RespNode {
  RespType type = RespType::kNull;

  // kInteger: the value. kBoolean: 0 or 1. Aggregates: the number of direct elements.
  std::int64_t number = 0;

  // Texts, errors, doubles and big numbers: as written. Points into the parsed bytes.
  std::string_view text;
};

// Bounds on what a peer may send, checked as soon as a length is read and before anything is
// allocated for it.
struct RespLimits {
  std::size_t text_bytes_max = 64 << 20;      // One string.
  std::size_t message_bytes_max = 128 << 20;  // Everything kept of an incomplete message.
  std::size_t nodes_max = 1 << 20;            // All of one message.
  std::size_t depth_max = 16;                 // Aggregates within aggregates.
};

// Parses one message after another from a buffer that grows at its end.
//
//   while (parser.Parse(unread bytes) == kMessage) { use parser.nodes(); drop parser.consumed(); }
//
// Work is proportional to the bytes, however they are split: an incomplete message is resumed where
// it stopped.
class RespParser {
 public:
  enum class Status { kMessage, kIncomplete, kError };

  explicit RespParser(const RespLimits& limits = {}) : limits_(limits) {}

  // `bytes` starts where the current message starts, and holds at least what it held in the call
  // before if that returned kIncomplete (it may have moved). After kMessage, pass the bytes after
  // the consumed ones. After kError, the connection is useless.
  Status Parse(std::string_view bytes);

  // After kMessage, until the next call: its nodes, which point into `bytes`, and its length. There
  // is at least one node. RESP3 attributes are skipped.
  std::span<const RespNode> nodes() const { return nodes_; }
  std::size_t consumed() const { return consumed_; }

  // After kError: what is wrong, without any of the peer's bytes.
  const std::string& error() const { return error_; }

 private:
  // An aggregate with elements still missing. The first represents the message itself.
  struct Open {
    std::size_t due;
    bool dropped;  // An attribute, or something within one.
  };

  // The text of a node. The bytes may move until the message is complete, so views are made then.
  struct Text {
    std::size_t node;
    std::size_t offset;
    std::size_t size;
  };

  // Each reads a complete value and moves consumed_ past it (ReadIntegers: as many as there are),
  // or reads nothing and returns false: more bytes are needed or, if error_ is set, it is refused.
  bool ReadValue(std::string_view bytes);
  bool ReadIntegers(std::string_view bytes);
  bool ReadScalar(std::string_view bytes);
  bool ReadString(std::string_view bytes);
  bool ReadAggregate(std::string_view bytes);

  // The text between the type and the line end, if that is within size_max.
  std::optional<std::string_view> ReadLine(std::string_view bytes, std::size_t size_max);
  std::optional<std::size_t> ReadLength(std::string_view line);

  void Add(RespType type, std::int64_t number);
  void AddText(RespType type, std::size_t offset, std::size_t size);
  bool Fail(std::string_view reason);

  RespLimits limits_;
  std::vector<RespNode> nodes_;
  std::vector<Text> texts_;
  std::vector<Open> open_;      // Empty between messages.
  std::size_t consumed_ = 0;    // Where the next value starts.
  std::size_t scanned_ = 0;     // No line ends before this.
  std::size_t nodes_left_ = 0;  // Left of nodes_max after everything announced.
  std::string error_;
};

// Appends a command as an array of bulk strings.
void AppendCommand(std::string& out, std::span<const std::string_view> arguments);

// A command from its arguments.
template <typename... Arguments>
std::string Command(const Arguments&... arguments) {
  const std::string_view all[] = {arguments...};
  std::string command;
  AppendCommand(command, all);
  return command;
}

// Appends parts of commands and replies. Aggregate headers announce how many elements follow.
void AppendArrayHeader(std::string& out, std::size_t elements);
void AppendMapHeader(std::string& out, std::size_t pairs);     // RESP3.
void AppendSetHeader(std::string& out, std::size_t elements);  // RESP3.
void AppendBulkString(std::string& out, std::string_view text);
void AppendVerbatimString(std::string& out, std::string_view text);  // RESP3, as "txt".
void AppendInteger(std::string& out, std::int64_t number);
void AppendSimpleString(std::string& out, std::string_view text);

// Line breaks, which would end the reply early, become blanks.
void AppendError(std::string& out, std::string_view message);

}  // namespace sluice::redis
