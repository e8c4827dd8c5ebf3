// SPDX-License-Identifier: Apache-2.0
#include "resp/command_table.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace sluice::resp {
namespace {

constexpr std::array kCommands = {
    Command{CommandId::kAcl, "acl", -2, false, false, 0, 0, "WHOAMI", "Says who the client is."},
    Command{CommandId::kAuth, "auth", -2, true, false, 0, 0, "[username] password",
            "Authenticates the connection."},
    Command{CommandId::kClThrottle, "cl.throttle", -5, false, true, 1, 1,
            "key max_burst count period_seconds [quantity]",
            "Takes quantity from a bucket of max_burst + 1, like redis-cell."},
    Command{CommandId::kClient, "client", -2, false, false, 0, 0,
            "GETNAME | ID | INFO | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | REPLY ON | "
            "SETINFO LIB-NAME|LIB-VER value | SETNAME name",
            "Shows or sets what is known about this connection."},
    Command{CommandId::kCommand, "command", -1, false, false, 0, 0,
            "[COUNT | DOCS [name ...] | GETKEYS command [argument ...] | INFO [name ...] | LIST]",
            "Describes the commands."},
    Command{CommandId::kConfig, "config", -2, false, false, 0, 0, "GET pattern [pattern ...]",
            "Answers what clients ask about a Redis configuration."},
    Command{CommandId::kDel, "del", -2, false, true, 1, -1, "key [key ...]",
            "Resets the CL.THROTTLE buckets of these keys."},
    Command{CommandId::kEcho, "echo", 2, false, false, 0, 0, "message", "Returns the message."},
    Command{CommandId::kHello, "hello", -1, true, false, 0, 0,
            "[protover [AUTH username password] [SETNAME name]]",
            "Chooses the protocol, and optionally authenticates."},
    Command{CommandId::kInfo, "info", -1, false, false, 0, 0, "[section ...]",
            "Shows information about the server."},
    Command{CommandId::kPing, "ping", -1, false, false, 0, 0, "[message]", "Answers."},
    Command{CommandId::kQuit, "quit", -1, true, false, 0, 0, "", "Closes the connection."},
    Command{CommandId::kReset, "reset", 1, true, false, 0, 0, "", "Resets the connection."},
    Command{CommandId::kSelect, "select", 2, false, false, 0, 0, "0", "There is one database, 0."},
    Command{
        CommandId::kSluiceCheck, "sluice.check", -3, false, true, 0, 0,
        "LIMIT limit key [COST cost] | RULESET id [COST cost] [IP ip] [USER user] "
        "[APIKEY key] [METHOD method] [PATH path] [ATTR name value ...] [DETAIL]",
        "Takes the cost from the budget of a limit, or from all budgets of a rule set's rules."},
    Command{CommandId::kSluiceExtend, "sluice.extend", -2, false, true, 0, 0, "hold [TTL ttl]",
            "Lets a hold last for another ttl from now on."},
    Command{CommandId::kSluiceGive, "sluice.give", -3, false, true, 0, 0,
            "LIMIT limit key [COST cost] | RULESET id [COST cost] [IP ip] [USER user] "
            "[APIKEY key] [METHOD method] [PATH path] [ATTR name value ...]",
            "Gives back up to what SLUICE.CHECK would take."},
    Command{CommandId::kSluiceHold, "sluice.hold", -3, false, true, 0, 0,
            "LIMIT limit key [COST cost] [TTL ttl] [ID id] [ONEXPIRY CHARGE|RELEASE] | "
            "RULESET id [COST cost] [TTL ttl] [ID id] [ONEXPIRY CHARGE|RELEASE] [IP ip] "
            "[USER user] [APIKEY key] [METHOD method] [PATH path] [ATTR name value ...] [DETAIL]",
            "Takes what SLUICE.CHECK would, and keeps it on hold until it is settled."},
    Command{CommandId::kSluicePeek, "sluice.peek", -3, false, true, 0, 0,
            "LIMIT limit key | RULESET id [IP ip] [USER user] [APIKEY key] [METHOD method] "
            "[PATH path] [ATTR name value ...] [DETAIL]",
            "Looks at the budgets that SLUICE.CHECK would take from."},
    Command{CommandId::kSluiceRelease, "sluice.release", 2, false, true, 0, 0, "hold",
            "Ends a hold, and gives everything back."},
    Command{CommandId::kSluiceReset, "sluice.reset", -3, false, true, 0, 0,
            "LIMIT limit key | RULESET id [IP ip] [USER user] [APIKEY key] [METHOD method] "
            "[PATH path] [ATTR name value ...]",
            "Resets the budgets that SLUICE.CHECK would take from."},
    Command{CommandId::kSluiceSettle, "sluice.settle", -2, false, true, 0, 0,
            "hold [COST cost | RULE rule cost [RULE rule cost ...]]",
            "Ends a hold: it has cost this much, or else what was held."},
    Command{CommandId::kThrottle, "throttle", -5, false, true, 1, 1,
            "key max_burst count period_seconds [quantity]",
            "Takes quantity from a bucket of max_burst, like throttlecrab."},
    Command{CommandId::kUnlink, "unlink", -2, false, true, 1, -1, "key [key ...]", "Like DEL."},
};

constexpr const Command& kMostAsked = kCommands[static_cast<std::size_t>(CommandId::kClThrottle)];
static_assert(kMostAsked.id == CommandId::kClThrottle);

}  // namespace

std::span<const Command> Commands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  if (name == "CL.THROTTLE") return &kMostAsked;
  const auto found = std::ranges::find_if(kCommands, [&](const Command& command) {
    return text::EqualsIgnoreCase(command.name, name);
  });
  return found == kCommands.end() ? nullptr : &*found;
}

void WriteInfo(ReplyWriter& reply, const Command& command) {
  reply.Array(10);
  reply.Bulk(command.name);
  reply.Integer(command.arity);
  reply.Set(command.first_key > 0 ? 2 : 1);
  if (command.first_key > 0) reply.Simple("write");
  reply.Simple("fast");
  reply.Integer(command.first_key);
  reply.Integer(command.last_key);
  reply.Integer(command.first_key > 0 ? 1 : 0);
  // Categories, tips, key specifications and subcommands: none.
  reply.Set(0);
  reply.Array(0);
  reply.Array(0);
  reply.Array(0);
}

void WriteDocs(ReplyWriter& reply, const Command& command) {
  reply.Bulk(command.name);
  reply.Map(4);
  reply.Field("summary", command.summary);
  reply.Field("since", "0.1.0");
  reply.Field("group", command.first_key > 0 ? "generic" : "connection");
  reply.Field("syntax", command.syntax);
}

}  // namespace sluice::resp
