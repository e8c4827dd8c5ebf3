// SPDX-License-Identifier: Apache-2.0
// The commands that are answered immediately: what client libraries ask a Redis server before and
// between the commands that matter. Errors use the wording of Redis 7, for libraries that check it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/glob.h"
#include "base/text.h"
#include "resp/session.h"

namespace sluice::resp {
namespace {

// Shown to clients that check versions.
constexpr std::string_view kRedisVersion = "7.0.0";
constexpr std::string_view kUser = "default";
constexpr std::size_t kNameBytesShown = 128;  // Of an argument, in an error; or of a library.

bool Is(std::string_view a, std::string_view b) { return text::EqualsIgnoreCase(a, b); }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return lower;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  }
  return upper;
}

// For a command whose first argument is a subcommand.
void OtherSubcommand(ReplyWriter& reply, Arguments arguments) {
  const std::string container = Upper(arguments[0]);
  if (!Is(arguments[1], "HELP")) {
    return reply.Error(text::Cat("ERR unknown subcommand '",
                                 arguments[1].substr(0, kNameBytesShown), "'. Try ", container,
                                 " HELP."));
  }
  const Command& command = *FindCommand(arguments[0]);
  reply.Array(2);
  reply.Simple(text::Cat(container, " ", command.syntax));
  reply.Simple(text::Cat("    ", command.summary));
}

void WrongArguments(ReplyWriter& reply, Arguments arguments) {
  reply.Error(text::Cat("ERR wrong number of arguments for '", Lower(arguments[0]), "|",
                        Lower(arguments[1].substr(0, kNameBytesShown)), "' command"));
}

// One word without blanks, as CLIENT LIST needs.
bool IsWord(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '!' && c <= '~'; });
}

bool Asks(Arguments patterns, std::string_view name) {
  return std::ranges::any_of(
      patterns, [&](std::string_view pattern) { return GlobMatch(Lower(pattern), name); });
}

void WriteKeys(ReplyWriter& reply, Arguments command_line) {
  const Command* const command = FindCommand(command_line[0]);
  if (!command) return reply.Error("ERR Invalid command specified");
  if (!command->TakesCount(command_line.size())) {
    return reply.Error("ERR Invalid number of arguments specified for command");
  }
  auto first = static_cast<std::size_t>(command->first_key);
  auto last =
      command->last_key < 0 ? command_line.size() - 1 : static_cast<std::size_t>(command->last_key);
  using enum CommandId;
  static constexpr std::array kNamesLimit = {kSluiceCheck, kSluiceGive, kSluiceHold, kSluicePeek,
                                             kSluiceReset};
  const bool names_limit = std::ranges::find(kNamesLimit, command->id) != kNamesLimit.end();
  if (names_limit && command_line.size() > 3 && Is(command_line[1], "LIMIT")) first = last = 3;
  if (first == 0) return reply.Error("ERR The command has no key arguments");
  reply.Array(last - first + 1);
  for (std::size_t i = first; i <= last; ++i) reply.Bulk(command_line[i]);
}

}  // namespace

bool Session::LogIn(std::string_view user, std::string_view token) {
  // Without tokens nothing can be wrong.
  if (!guarded()) return user == kUser;
  // Read before the tokens: if they change meanwhile, they are checked again.
  const std::uint64_t generation = access_->generation();
  const auto name = access_->Find(token);
  if (!name || (user != kUser && user != *name)) return false;
  trusted_ = true;
  tokens_seen_ = generation;
  user_ = name->empty() ? kUser : std::string_view(*name);
  token_ = token;
  return true;
}

void Session::LogOut() {
  trusted_ = !guarded() || peer_.certified;
  user_ = kUser;
  token_.clear();
}

void Session::Recheck() {
  tokens_seen_ = access_->generation();
  if (!token_.empty() && !access_->Knows(token_)) LogOut();
}

void Session::Auth(ReplyWriter reply, Arguments arguments) {
  if (arguments.size() > 3) return reply.Error("ERR syntax error");
  if (arguments.size() == 2 && !guarded()) {
    return reply.Error(
        "ERR AUTH <password> called without any password configured for the default user. Are you "
        "sure your configuration is correct?");
  }
  if (!LogIn(arguments.size() == 3 ? arguments[1] : kUser, arguments.back())) {
    return reply.Error("WRONGPASS invalid username-password pair or user is disabled.");
  }
  reply.Ok();
}

void Session::Hello(ReplyWriter reply, Arguments arguments) {
  Protocol protocol = protocol_;
  if (arguments.size() > 1) {
    const auto version = text::ParseInteger(arguments[1]);
    if (!version) return reply.Error("ERR Protocol version is not an integer or out of range");
    if (*version != 2 && *version != 3) return reply.Error("NOPROTO unsupported protocol version");
    protocol = *version == 3 ? Protocol::kResp3 : Protocol::kResp2;
  }
  // In order, like Redis: what came before a mistake takes effect.
  for (std::size_t i = 2; i < arguments.size();) {
    if (Is(arguments[i], "AUTH") && i + 2 < arguments.size()) {
      if (!LogIn(arguments[i + 1], arguments[i + 2])) {
        return reply.Error("WRONGPASS invalid username-password pair or user is disabled.");
      }
      i += 3;
    } else if (Is(arguments[i], "SETNAME") && i + 1 < arguments.size()) {
      if (!IsWord(arguments[i + 1])) {
        return reply.Error(
            "ERR Client names cannot contain spaces, newlines or special characters.");
      }
      name_ = arguments[i + 1];
      i += 2;
    } else {
      return reply.Error(text::Cat("ERR Syntax error in HELLO option '",
                                   arguments[i].substr(0, kNameBytesShown), "'"));
    }
  }
  if (!trusted_) {
    return reply.Error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "AUTH <user> <pass> option can be used to authenticate the client and select the "
        "RESP protocol version at the same time");
  }
  protocol_ = protocol;

  ReplyWriter hello = Writer();
  hello.Map(7);
  hello.Field("server", "redis");
  hello.Field("version", kRedisVersion);
  hello.Field("proto", static_cast<std::int64_t>(protocol_));
  hello.Field("id", peer_.id);
  hello.Field("mode", "standalone");
  hello.Field("role", "master");
  hello.Bulk("modules");
  hello.Array(0);
}

void Session::Client(ReplyWriter reply, Arguments arguments) {
  enum class What : std::uint8_t { kGetName, kId, kInfo, kReply, kSetInfo, kSetName, kSwitch };
  struct Subcommand {
    std::string_view name;
    std::size_t arguments;  // Including its name and CLIENT.
    What what;
  };
  static constexpr std::array kSubcommands = {
      Subcommand{"GETNAME", 2, What::kGetName}, Subcommand{"ID", 2, What::kId},
      Subcommand{"INFO", 2, What::kInfo},       Subcommand{"NO-EVICT", 3, What::kSwitch},
      Subcommand{"NO-TOUCH", 3, What::kSwitch}, Subcommand{"REPLY", 3, What::kReply},
      Subcommand{"SETINFO", 4, What::kSetInfo}, Subcommand{"SETNAME", 3, What::kSetName}};
  const auto* const found = std::ranges::find_if(
      kSubcommands, [&](const Subcommand& known) { return Is(known.name, arguments[1]); });
  if (found == kSubcommands.end()) return OtherSubcommand(reply, arguments);
  if (arguments.size() != found->arguments) return WrongArguments(reply, arguments);
  const auto is = [&](std::string_view word) { return Is(arguments[2], word); };
  switch (found->what) {
    case What::kGetName:
      return name_.empty() ? reply.Null() : reply.Bulk(name_);
    case What::kId:
      return reply.Integer(peer_.id);
    case What::kInfo:
      return reply.Verbatim(Description());
    case What::kReply:
      if (is("ON")) return reply.Ok();
      return reply.Error(is("OFF") || is("SKIP") ? "ERR every command is answered here"
                                                 : "ERR syntax error");
    case What::kSetInfo:
      return SetLibrary(reply, arguments[2], arguments[3]);
    case What::kSetName:
      return SetName(reply, arguments[2]);
    case What::kSwitch:
      return is("ON") || is("OFF") ? reply.Ok() : reply.Error("ERR syntax error");
  }
}

void Session::SetName(ReplyWriter reply, std::string_view name) {
  if (!IsWord(name)) {
    return reply.Error("ERR Client names cannot contain spaces, newlines or special characters.");
  }
  name_ = name;
  reply.Ok();
}

void Session::SetLibrary(ReplyWriter reply, std::string_view option, std::string_view value) {
  const bool is_name = Is(option, "LIB-NAME");
  if (!is_name && !Is(option, "LIB-VER")) {
    return reply.Error(
        text::Cat("ERR Unrecognized option '", option.substr(0, kNameBytesShown), "'"));
  }
  if (!IsWord(value) || value.size() > kNameBytesShown) {
    return reply.Error(text::Cat("ERR ", is_name ? "lib-name" : "lib-ver",
                                 " cannot contain spaces, newlines or special characters."));
  }
  (is_name ? library_name_ : library_version_) = value;
  reply.Ok();
}

std::string Session::Description() const {
  return text::Cat("id=", peer_.id, " addr=", peer_.address, " name=", name_, " db=0 user=", user_,
                   " resp=", static_cast<int>(protocol_), " lib-name=", library_name_,
                   " lib-ver=", library_version_, "\n");
}

void Session::Describe(ReplyWriter reply, Arguments arguments) {
  if (arguments.size() == 1) {
    reply.Array(Commands().size());
    for (const Command& command : Commands()) WriteInfo(reply, command);
    return;
  }
  const std::string_view what = arguments[1];
  const Arguments names = arguments.subspan(2);
  if (Is(what, "COUNT")) {
    if (!names.empty()) return WrongArguments(reply, arguments);
    return reply.Integer(static_cast<std::int64_t>(Commands().size()));
  }
  if (Is(what, "LIST")) {
    if (!names.empty()) return reply.Error("ERR syntax error");
    reply.Array(Commands().size());
    for (const Command& command : Commands()) reply.Bulk(command.name);
    return;
  }
  if (Is(what, "GETKEYS")) {
    return names.size() < 2 ? WrongArguments(reply, arguments) : WriteKeys(reply, names);
  }
  const bool docs = Is(what, "DOCS");
  if (!docs && !Is(what, "INFO")) return OtherSubcommand(reply, arguments);

  // DOCS omits unknown commands, and INFO replies null for them.
  std::vector<const Command*> chosen;
  for (const std::string_view name : names) chosen.push_back(FindCommand(name));
  if (names.empty()) {
    for (const Command& command : Commands()) chosen.push_back(&command);
  }
  if (docs) std::erase(chosen, nullptr);
  docs ? reply.Map(chosen.size()) : reply.Array(chosen.size());
  for (const Command* command : chosen) {
    if (!command) {
      reply.Null();
    } else {
      docs ? WriteDocs(reply, *command) : WriteInfo(reply, *command);
    }
  }
}

void Session::Config(ReplyWriter reply, Arguments arguments) {
  if (!Is(arguments[1], "GET")) return OtherSubcommand(reply, arguments);
  if (arguments.size() < 3) return WrongArguments(reply, arguments);
  const std::array<std::pair<std::string_view, std::string>, 5> settings = {{
      {"appendonly", "no"},
      {"databases", "1"},
      {"maxclients", std::to_string(worker_.info().connections_max)},
      {"proto-max-bulk-len", std::to_string(worker_.options().bounds.bulk_bytes_max)},
      {"save", ""},
  }};
  const Arguments patterns = arguments.subspan(2);
  const auto asked = [&](const auto& setting) { return Asks(patterns, setting.first); };
  reply.Map(static_cast<std::size_t>(std::ranges::count_if(settings, asked)));
  for (const auto& setting : settings) {
    if (asked(setting)) reply.Field(setting.first, setting.second);
  }
}

void Session::Info(ReplyWriter reply, Arguments arguments) {
  const ServerInfo info = worker_.info();
  const std::array<std::pair<std::string_view, std::string>, 4> sections = {{
      {"Server", text::Cat("redis_version:", kRedisVersion,
                           "\r\nredis_mode:standalone\r\nserver_name:sluice\r\nprocess_id:",
                           ::getpid(), "\r\ntcp_port:", info.port,
                           "\r\nuptime_in_seconds:", info.uptime.count(), "\r\n")},
      {"Clients", text::Cat("connected_clients:", info.connections,
                            "\r\nmaxclients:", info.connections_max, "\r\n")},
      {"Stats", text::Cat("total_connections_received:", info.connections_accepted,
                          "\r\ntotal_commands_processed:", info.commands,
                          "\r\nrejected_connections:", info.connections_refused,
                          "\r\nprotocol_errors:", info.protocol_errors, "\r\n")},
      {"Replication", "role:master\r\nconnected_slaves:0\r\n"},
  }};
  const Arguments wanted = arguments.subspan(1);
  const auto is_wanted = [&](std::string_view name) {
    return wanted.empty() || std::ranges::any_of(wanted, [&](std::string_view section) {
             return Is(section, name) || Is(section, "all") || Is(section, "default") ||
                    Is(section, "everything");
           });
  };
  std::string text;
  for (const auto& [name, lines] : sections) {
    if (!is_wanted(name)) continue;
    if (!text.empty()) text += "\r\n";
    text += text::Cat("# ", name, "\r\n", lines);
  }
  reply.Verbatim(text);
}

void Session::Ping(ReplyWriter reply, Arguments arguments) {
  if (arguments.size() > 2) {
    return reply.Error("ERR wrong number of arguments for 'ping' command");
  }
  arguments.size() == 2 ? reply.Bulk(arguments[1]) : reply.Simple("PONG");
}

void Session::Reset(ReplyWriter reply) {
  protocol_ = Protocol::kResp2;
  LogOut();
  name_.clear();
  reply.Simple("RESET");
}

void Session::Select(ReplyWriter reply, Arguments arguments) {
  const auto database = text::ParseInteger(arguments[1]);
  if (!database) return reply.Error("ERR value is not an integer or out of range");
  if (!std::in_range<std::int32_t>(*database)) {
    return reply.Error("ERR value is out of range, value must between -2147483648 and 2147483647");
  }
  *database == 0 ? reply.Ok() : reply.Error("ERR DB index is out of range");
}

void Session::Acl(ReplyWriter reply, Arguments arguments) {
  if (!Is(arguments[1], "WHOAMI")) return OtherSubcommand(reply, arguments);
  if (arguments.size() != 2) return WrongArguments(reply, arguments);
  reply.Bulk(user_);
}

}  // namespace sluice::resp
