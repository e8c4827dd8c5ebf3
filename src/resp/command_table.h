// SPDX-License-Identifier: Apache-2.0
// The commands, and what COMMAND says about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "resp/reply_writer.h"

namespace sluice::resp {

enum class CommandId : std::uint8_t {
  kAcl,
  kAuth,
  kClThrottle,
  kClient,
  kCommand,
  kConfig,
  kDel,
  kEcho,
  kHello,
  kInfo,
  kPing,
  kQuit,
  kReset,
  kSelect,
  kSluiceCheck,
  kSluiceExtend,
  kSluiceGive,
  kSluiceHold,
  kSluicePeek,
  kSluiceRelease,
  kSluiceReset,
  kSluiceSettle,
  kThrottle,
  kUnlink,
};

struct Command {
  CommandId id;
  std::string_view name;  // In lower case.

  // How many arguments it takes, including its name; negative: at least that many. As Redis counts.
  int arity;

  bool before_auth;  // Allowed before AUTH.
  bool decides;      // Asks the store; all others are answered immediately.

  // Positions of its keys; 0: it has none. A last of -1 is the last argument.
  int first_key;
  int last_key;

  std::string_view syntax;   // Its arguments.
  std::string_view summary;  // One sentence.

  bool TakesCount(std::size_t arguments) const {
    const auto count = static_cast<int>(arguments);
    return arity >= 0 ? count == arity : count >= -arity;
  }
};

std::span<const Command> Commands();

// Null if there is none. Names are not case-sensitive.
const Command* FindCommand(std::string_view name);

// Replies of COMMAND, COMMAND INFO and COMMAND DOCS about one command.
void WriteInfo(ReplyWriter& reply, const Command& command);
void WriteDocs(ReplyWriter& reply, const Command& command);

}  // namespace sluice::resp
