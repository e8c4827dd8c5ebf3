// SPDX-License-Identifier: Apache-2.0
#include "simulate/server.h"

#include <algorithm>
#include <cstdlib>

#include "redis/resp.h"
#include "simulate/script_call.h"

namespace sluice::simulate {
namespace {

std::string ErrorReply(const std::string& text) {
  std::string reply;
  redis::AppendError(reply, text);
  return reply;
}

// How many numbers the script returns for a state.
std::size_t NumbersOf(model::Kind kind) {
  switch (kind) {
    case model::Kind::kSlidingWindowCounter:
    case model::Kind::kCalendar:
      return 3;
    case model::Kind::kSlidingWindow:
      return 4;
    default:
      return 2;
  }
}

}  // namespace

Server::Server(Events& events, int number, const LuaRedis::Edit& edit,
               const Oracle::ChargeOf& charge_of)
    : events_(events),
      address_{.host = "n" + std::to_string(number), .port = 1},
      charge_of_(charge_of),
      redis_(edit),
      oracle_(charge_of) {}

Server::Executed Server::Execute(std::span<const std::string> words, bool asking,
                                 std::int64_t connected_us) {
  if (connected_us < promoted_us) {
    return {.reply = ErrorReply("READONLY You can't write against a read only replica.")};
  }
  if (loading) return {.reply = ErrorReply("LOADING Redis is loading the dataset in memory")};
  if (!IsScriptCall(words)) return {.reply = redis_.Execute(words, clock_us())};
  const auto count = static_cast<std::size_t>(std::strtoll(words[2].c_str(), nullptr, 10));
  const auto keys = words.subspan(3, count);
  if (auto redirect = Redirect(keys, asking)) return {.reply = ErrorReply(*redirect)};
  for (const std::string& key : keys) {
    oracle_.BeforeCall(key, redis_.Has(key, clock_us()), clock_us());
  }
  const Position before{events_.now_us(), redis_.position(), oracle_.position()};
  Executed executed{.reply = redis_.Execute(words, clock_us())};
  executed.published = redis_.TakePublished();
  if (executed.reply.starts_with("-")) {
    if (redis_.position() != before.redis) throw Failure("an error after a write");
    return executed;
  }
  positions_.push_back(before);
  executed.ran = true;
  auto groups = ReadScriptCall(words);
  const auto failed = FailedGroups(groups, executed.reply);
  const auto decided = WithoutWhatFailed(groups, failed, executed.published);
  executed.verdicts = oracle_.OnCall(decided, clock_us());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!failed[i]) executed.groups.push_back(groups[i]);
  }
  // What has expired in a state with holds is perhaps written by whoever notices it.
  const bool may_write =
      std::ranges::any_of(groups,
                          [](const ScriptGroup& group) {
                            return group.action == "refund" || group.action == "reset" ||
                                   group.action == "give" || group.action == "settle";
                          }) ||
      std::ranges::any_of(executed.verdicts, &Verdict::charges) ||
      std::ranges::any_of(keys, [&](const std::string& key) { return oracle_.HasHolds(key); });
  if (!may_write && redis_.position() != before.redis) throw Failure("a denial wrote something");
  if (const auto immortals = redis_.Immortals(); !immortals.empty()) {
    throw Failure("the key " + immortals.front() + " never expires");
  }
  return executed;
}

// All groups except those that failed. A failed refund keeps the keys that were refunded
// nevertheless, as their announcements tell.
std::vector<ScriptGroup> Server::WithoutWhatFailed(std::span<const ScriptGroup> groups,
                                                   const std::vector<bool>& failed,
                                                   std::span<const std::string> published) {
  std::vector<ScriptGroup> decided;
  auto message = published.begin();
  const auto is_told = [&](const std::string& text) {
    const auto found = std::find(message, published.end(), text);
    if (found == published.end()) return false;
    message = found + 1;
    return true;
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const ScriptGroup& group = groups[i];
    if (!failed[i]) decided.push_back(group);
    if (group.action != "refund") {  // It may have told the same.
      std::ranges::for_each(group.messages, is_told);
      continue;
    }
    ScriptGroup given{.action = group.action};
    for (std::size_t key = 0; key < group.keys.size(); ++key) {
      if (!is_told(group.messages[key])) continue;
      given.keys.push_back(group.keys[key]);
      given.costs.push_back(group.costs[key]);
      given.whens.push_back(group.whens[key]);
    }
    if (failed[i]) decided.push_back(std::move(given));
  }
  return decided;
}

// The reply has the time and, for each group, a number, a text about holds or the text of an error,
// and its states. Or it is one text: of one check, or with a line for the time and for each check.
std::vector<bool> Server::FailedGroups(std::span<const ScriptGroup> groups,
                                       const std::string& reply) {
  redis::RespParser parser;
  if (parser.Parse(reply) != redis::RespParser::Status::kMessage) throw Failure("a broken reply");
  const auto nodes = parser.nodes();
  std::vector<bool> failed;
  if (nodes.size() == 1) {
    const std::string_view text = nodes.front().text;
    if (!text.contains('\n')) return {false};
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', end + 1)) {
      const std::string_view line = text.substr(end + 1);
      if (line.starts_with('-')) throw Failure("a state is called foreign");
      failed.push_back(line.starts_with('!'));
    }
    if (failed.size() != groups.size()) throw Failure("a reply has another length");
    return failed;
  }
  std::size_t at = 2;
  for (const ScriptGroup& group : groups) {
    if (at >= nodes.size()) throw Failure("a reply is too short");
    const bool tells_holds = nodes[at].text.starts_with("h ");
    failed.push_back(nodes[at].type != redis::RespType::kInteger && !tells_holds);
    if (!failed.back() && nodes[at].number < 0) throw Failure("a state is called foreign");
    if (group.action == "refund" && !failed.back()) failed.back() = nodes[at].number == 0;
    ++at;
    if (group.action == "refund" || group.action == "reset") continue;
    for (const std::string& key : group.keys) at += NumbersOf(charge_of_(key).spec.kind);
  }
  return failed;
}

// In a Cluster: where the keys are, if not here.
std::optional<std::string> Server::Redirect(std::span<const std::string> keys, bool asking) {
  if (!owner_of || keys.empty()) return std::nullopt;
  const std::uint16_t slot = redis::SlotOf(keys.front());
  for (const std::string& key : keys) {
    if (redis::SlotOf(key) != slot) throw Failure("a call has keys of several slots");
  }
  const auto points_to = [&](const char* word, const Server& server) {
    return std::string(word) + " " + std::to_string(slot) + " " + server.address().ToString();
  };
  const auto missing = static_cast<std::size_t>(std::ranges::count_if(
      keys, [&](const std::string& key) { return !redis_.Has(key, clock_us()); }));
  const auto move = moving(slot);
  if (move && move->to == this && asking) {
    if (missing > 0 && keys.size() > 1) return "TRYAGAIN Multiple keys request during rehashing";
    return std::nullopt;
  }
  Server* const owner = owner_of(slot);
  if (owner != this) return points_to("MOVED", *owner);
  if (!move || missing == 0) return std::nullopt;
  if (missing < keys.size()) return "TRYAGAIN Multiple keys request during rehashing";
  return points_to("ASK", *move->to);
}

void Server::Lose(std::int64_t lost_us) {
  redis_.FlushScripts();
  const auto lost = std::ranges::find_if(positions_, [&](const Position& position) {
    return position.time_us >= events_.now_us() - lost_us;
  });
  if (lost == positions_.end()) return;
  redis_.RollBack(lost->redis);
  oracle_.RollBack(lost->oracle);
  positions_.erase(lost, positions_.end());
}

void Server::MoveKey(const std::string& key, Server& to) {
  const bool exists = redis_.Has(key, clock_us());
  oracle_.BeforeCall(key, exists, clock_us());
  if (!exists) return;
  redis_.Move(key, to.redis_);
  oracle_.Move(key, to.oracle_);
  positions_.clear();
  to.positions_.clear();
}

}  // namespace sluice::simulate
