// SPDX-License-Identifier: Apache-2.0
#include "simulate/instance.h"

#include <algorithm>
#include <variant>

#include "base/text.h"
#include "redis/resp.h"
#include "store/redis/announcement.h"
#include "store/redis/script.h"

namespace sluice::simulate {
namespace {

constexpr int kPassesMax = 1'000;  // For one event: more is an endless loop.
constexpr std::int64_t kBackoffMaxUs = 1'000'000;
constexpr std::int64_t kGoodForUs = 1'000'000;

GuardedStore::Options WithClock(GuardedStore::Options options, const Clock& clock) {
  options.local.clock = &clock;
  return options;
}

// A command, for the trace.
std::string TextOf(std::span<const std::string> words) {
  if (!IsScriptCall(words)) return words[0];
  std::string text;
  for (const ScriptGroup& group : ReadScriptCall(words)) {
    text += text::Cat(text.empty() ? "" : "; ", group.action);
    if (group.times > 1) text += text::Cat(" ", group.times, " times");
    for (std::size_t i = 0; i < group.keys.size(); ++i) {
      text += text::Cat(" ", group.keys[i], "*", group.costs[i]);
    }
    if (!group.id.empty()) text += " as " + group.id;
  }
  return text;
}

Error Unknown() { return {ErrorCode::kOutcomeUnknown, "the connection broke"}; }
Error Unsent() { return {ErrorCode::kUnavailable, "the connection is closed"}; }

}  // namespace

redis::SlotMap Site::Map() const {
  redis::SlotMap map;
  for (const auto& server : servers) map.masters.push_back(server->address());
  for (std::size_t slot = 0; slot < redis::kSlots; ++slot) {
    const Server* const owner = owner_of(static_cast<std::uint16_t>(slot));
    const auto place =
        std::ranges::find_if(servers, [&](const auto& server) { return server.get() == owner; });
    map.owner[slot] = static_cast<std::uint16_t>(place - servers.begin());
  }
  return map;
}

Server* Site::At(const redis::Address& address) {
  const auto found = std::ranges::find_if(
      servers, [&](const auto& server) { return server->address() == address; });
  return found == servers.end() ? nullptr : found->get();
}

Instance::Instance(Events& events, Site& site, Random& random, int number,
                   const redis::Endpoint& endpoint, const GuardedStore::Options& options,
                   const Observer& observer, const Bug& bug)
    : events_(events),
      site_(site),
      random_(random),
      number_(number),
      endpoint_(endpoint),
      observer_(observer),
      bug_(bug),
      clock_(events),
      guard_(WithClock(options, clock_), false,
             Seed{static_cast<std::uint64_t>(random.Between(1, 1 << 30)), 7}),
      router_(
          {.endpoint = endpoint_, .seed = static_cast<std::uint32_t>(random.Between(1, 1 << 30))}),
      dispatcher_(router_) {
  if (!router_.cluster()) {
    links_[redis::Router::kOnlyNode] = {.node = redis::Router::kOnlyNode,
                                        .address = site.servers.front()->address()};
    Connect(redis::Router::kOnlyNode);
  }
  Listen();
  Run();
}

Instance::~Instance() { *alive_ = false; }

void Instance::After(std::int64_t micros, std::function<void()> what) {
  events_.After(micros, [alive = alive_, what = std::move(what)] {
    if (*alive) what();
  });
}

std::int64_t Instance::Latency() {
  return random_.Between(site_.latency_min_us, site_.latency_max_us);
}

// The guard.

void Instance::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  if (guard_.AnswerKnown(requests, Time())) return done();
  guard::Actions actions;
  guard::StoreCall* const call = guard_.Apply(requests, done, Time(), actions);
  PlanTimer();
  Do(actions);
  if (!call) return done();
  Send(call);
}

void Instance::Send(guard::StoreCall* call) {
  const Action action = call->requests.front().action;
  if (call->own && ((bug_.drops_debts && action == Action::kDebit) ||
                    (bug_.drops_settles && action == Action::kSettle))) {
    return After(0, [this, call] {
      guard::Actions actions;
      guard_.OnAnswer(call, Time(), actions);
      PlanTimer();
      Do(actions);
    });
  }
  dispatcher_.Apply(
      call->requests,
      [this, call] {
        observer_.on_store_answer(number_, *call);
        if (bug_.misjudges_late && call->decided) {
          for (Request& request : call->requests) {
            request.outcome = std::unexpected(Unsent());
          }
        }
        guard::Actions actions;
        guard::Guard::Done done = guard_.OnAnswer(call, Time(), actions);
        PlanTimer();
        Do(actions);
        if (done) done();
      },
      Now());
  // At the end of this turn.
  if (running_) {
    run_again_ = true;
  } else if (!std::exchange(run_planned_, true)) {
    After(0, [this] {
      run_planned_ = false;
      Run();
    });
  }
}

void Instance::Do(guard::Actions& actions) {
  for (const auto& transition : actions.transitions) {
    events_.Trace("i", number_, " breaker ", ToString(transition.from), " -> ",
                  ToString(transition.to), ", ", ToString(transition.reason));
  }
  for (const auto& change : actions.overload_changes) {
    events_.Trace("i", number_, change.begins ? " is overloaded" : " is no longer overloaded");
  }
  for (guard::StoreCall* call : actions.send) Send(call);
  for (auto& done : actions.done) done();
}

void Instance::PlanTimer() {
  const TimePoint next = guard_.NextWake();
  if (next == guard::Guard::kNever || bug_.never_wakes) return;
  const std::int64_t at_us = std::max(next.time_since_epoch().count(), events_.now_us());
  if (at_us >= timer_at_us_) return;
  timer_at_us_ = at_us;
  At(at_us, [this, at_us] {
    if (timer_at_us_ != at_us) return;
    timer_at_us_ = INT64_MAX;
    RunTimer();
  });
}

void Instance::RunTimer() {
  for (int pass = 0; guard_.NextWake() <= Time(); ++pass) {
    if (pass == kPassesMax) throw Failure("the guard's timer does not come to an end");
    guard::Actions actions;
    guard_.OnTimer(Time(), actions);
    Do(actions);
  }
  PlanTimer();
}

// The dispatcher and its network.

void Instance::Run() {
  run_again_ = true;
  if (std::exchange(running_, true)) return;
  Moment wake;
  for (int pass = 0; std::exchange(run_again_, false) || wake <= Now(); ++pass) {
    if (pass == kPassesMax) throw Failure("the dispatcher does not come to an end");
    dispatcher_.Advance(Now());
    for (auto& action : router_.TakeActions()) {
      std::visit([this](auto& what) { Do(what); }, action);
    }
    std::vector<redis::Dispatcher::Done> answered;
    dispatcher_.TakeAnswered(answered);
    for (auto& done : answered) done();
    wake = dispatcher_.NextWake();
  }
  running_ = false;
  if (wake == Moment::max()) return;
  const auto at_us =
      std::chrono::duration_cast<std::chrono::microseconds>(wake.time_since_epoch()).count();
  if (at_us >= wake_at_us_) return;
  wake_at_us_ = at_us;
  At(at_us, [this, at_us] {
    if (wake_at_us_ != at_us) return;
    wake_at_us_ = INT64_MAX;
    Run();
  });
}

void Instance::Do(redis::Router::Transmit& action) {
  redis::Exchange* const exchange = action.exchange;
  const auto found = links_.find(action.node);
  const bool up = found != links_.end() && found->second.up;
  if (!up || exchange->expired()) {
    run_again_ = true;
    if (!up) router_.OnLost(action.node, Now());
    return router_.OnReply(*exchange, std::unexpected(Unsent()), Now());
  }
  Link& link = found->second;
  if (site_.unwritten && random_.OneIn(50)) {
    events_.Trace("i", number_, " finds its connection to ", link.address.ToString(), " broken");
    run_again_ = true;
    Break(action.node, true);
    return router_.OnReply(*exchange, std::unexpected(Unsent()), Now());
  }
  std::string bytes;
  exchange->AppendTo(bytes);
  redis::RespParser parser;
  if (parser.Parse(bytes) != redis::RespParser::Status::kMessage) {
    throw Failure("a command that is not one");
  }
  const auto sent = std::make_shared<Sent>();
  sent->exchange = exchange;
  sent->asking = action.asking;
  sent->connected_us = link.since_us;
  for (const redis::RespNode& node : parser.nodes().subspan(1)) {
    sent->words.emplace_back(node.text);
  }
  link.outstanding.push_back(sent);
  link.last_arrival_us = std::max(link.last_arrival_us, events_.now_us() + Latency());
  // It arrives whatever happens to its sender.
  events_.At(link.last_arrival_us,
             [this, alive = alive_, node = action.node, generation = link.generation, sent,
              address = link.address, &site = site_, &observer = observer_] {
               if (*alive) return Arrive(node, generation, sent);
               Server* const server = site.At(address);
               if (!server->alive || sent->lost) return;
               const auto executed = server->Execute(sent->words, sent->asking, sent->connected_us);
               for (const std::string& message : executed.published) observer.on_published(message);
             });
}

void Instance::Do(redis::Router::Connect& action) {
  links_[action.node] = {.node = action.node, .address = action.address};
  Connect(action.node);
}

void Instance::Do(redis::Router::Reconnect& action) { Break(action.node, true); }

void Instance::Do(redis::Router::Leave& action) {
  if (!links_.contains(action.node)) return;
  Break(action.node, false);
  links_.erase(action.node);
}

void Instance::Do(redis::Router::AskSlots&) {
  After(2 * Latency(), [this] {
    const bool reachable = std::ranges::any_of(
        site_.servers, [](const auto& server) { return server->alive && !server->loading; });
    if (reachable) {
      router_.OnSlots(site_.Map(), Now());
    } else {
      router_.OnSlots(std::unexpected(Error{ErrorCode::kUnavailable, "no node answers"}), Now());
    }
    Run();
  });
}

// Links and connections.

void Instance::Connect(NodeId node) {
  After(2 * Latency(), [this, node] {
    const auto found = links_.find(node);
    if (found == links_.end() || found->second.up) return;
    Link& link = found->second;
    Server* const server = site_.At(link.address);
    if (!server->alive || server->loading) return Pause(node);
    const std::string load[] = {"SCRIPT", "LOAD",
                                redis::ProgramAs(redis::ProgramForm::kScript).source};
    server->redis().Execute(load, server->clock_us());
    link.up = true;
    link.since_us = events_.now_us();
    ++link.generation;
    events_.Trace("i", number_, " connects to ", link.address.ToString());
    router_.OnUp(node, link.address, Now());
    Run();
  });
}

void Instance::Pause(NodeId node) {
  Link& link = links_.at(node);
  router_.OnDown(node, Unsent(), Now());
  After(link.backoff_us * random_.Between(50, 100) / 100, [this, node] {
    const auto found = links_.find(node);
    if (found == links_.end()) return;
    router_.OnConnecting(node);
    Connect(node);
  });
  link.backoff_us = std::min(2 * link.backoff_us, kBackoffMaxUs);
  Run();
}

void Instance::Break(NodeId node, bool again) {
  Link& link = links_.at(node);
  if (!link.up) return;
  link.up = false;
  ++link.generation;
  const auto outstanding = std::exchange(link.outstanding, {});
  const bool good = events_.now_us() - link.since_us >= kGoodForUs;
  if (again) router_.OnLost(node, Now());
  for (const auto& sent : outstanding) {
    // What was in flight may still arrive.
    sent->lost = sent->lost || random_.OneIn(2);
    if (bug_.sends_again && !sent->lost && again) {
      const auto copy = std::make_shared<Sent>(*sent);
      copy->ran = false;
      if (Server* const server = site_.At(link.address)) {
        After(Latency(), [this, server, copy] {
          if (!server->alive) return;
          const auto executed = server->Execute(copy->words, copy->asking, events_.now_us());
          if (executed.ran) observer_.on_call(number_, executed);
        });
      }
    }
    router_.OnReply(*sent->exchange, std::unexpected(Unknown()), Now());
  }
  if (!again) return;
  link.backoff_us = 50'000;
  good ? Connect(node) : Pause(node);
  Run();
}

void Instance::CutOne() {
  std::vector<NodeId> up;
  for (const auto& [node, link] : links_) {
    if (link.up) up.push_back(node);
  }
  if (up.empty()) return;
  const auto pick = random_.Between(0, static_cast<std::int64_t>(up.size()) - 1);
  events_.Trace("i", number_, " loses a connection");
  Break(up[static_cast<std::size_t>(pick)], true);
}

void Instance::Cut(const Server& server) {
  std::vector<NodeId> nodes;
  for (const auto& [node, link] : links_) {
    if (link.address == server.address()) nodes.push_back(node);
  }
  for (const NodeId node : nodes) {
    if (links_.contains(node)) Break(node, true);
  }
  if (!listening_) return;
  listening_ = false;
  observer_.on_deaf(number_);
  Listen();
}

void Instance::Arrive(NodeId node, std::uint64_t generation, const std::shared_ptr<Sent>& sent) {
  const auto link = links_.find(node);
  Server* const server = link == links_.end() ? nullptr : site_.At(link->second.address);
  if (sent->lost || !server || !server->alive) return;
  const std::int64_t start_us = std::max(events_.now_us(), server->busy_until_us);
  server->busy_until_us = start_us + server->command_us;
  At(start_us, [this, node, generation, sent, server] {
    if (server->alive && !sent->lost) Execute(node, generation, sent, *server);
  });
}

void Instance::Execute(NodeId node, std::uint64_t generation, const std::shared_ptr<Sent>& sent,
                       Server& server) {
  Server::Executed executed = server.Execute(sent->words, sent->asking, sent->connected_us);
  if (events_.traces()) {
    std::string reply = executed.reply;
    std::erase(reply, '\r');
    std::ranges::replace(reply, '\n', ' ');
    events_.Trace(server.address().host, " runs ", TextOf(sent->words), " of i", number_, " -> ",
                  reply);
  }
  if (executed.ran && std::exchange(sent->ran, true)) {
    throw Failure("a call ran twice");
  }
  std::vector<std::size_t> verdicts;
  if (executed.ran) {
    verdicts = observer_.on_call(number_, executed);
  }
  for (const std::string& message : executed.published) observer_.on_published(message);
  const auto found = links_.find(node);
  if (found == links_.end() || found->second.generation != generation) return;
  Link& link = found->second;
  link.last_reply_us =
      std::max(link.last_reply_us, events_.now_us() + server.command_us + Latency());
  At(link.last_reply_us, [this, node, generation, sent, reply = std::move(executed.reply),
                          verdicts] { Deliver(node, generation, sent, reply, verdicts); });
}

void Instance::Deliver(NodeId node, std::uint64_t generation, const std::shared_ptr<Sent>& sent,
                       const std::string& reply, const std::vector<std::size_t>& verdicts) {
  const auto found = links_.find(node);
  if (found == links_.end() || found->second.generation != generation) return;
  Link& link = found->second;
  if (link.outstanding.empty() || link.outstanding.front() != sent) {
    throw Failure("a reply out of order");
  }
  link.outstanding.pop_front();
  redis::RespParser parser;
  if (parser.Parse(reply) != redis::RespParser::Status::kMessage) throw Failure("a broken reply");
  if (!sent->exchange->expired()) observer_.on_delivered(verdicts);
  router_.OnReply(*sent->exchange, parser.nodes(), Now());
  Run();
}

// Subscribes to announcements. Any state may have been announced meanwhile.
void Instance::Listen() {
  After(3 * Latency(), [this] {
    if (listening_) return;
    const bool reachable =
        std::ranges::any_of(site_.servers, [](const auto& server) { return server->alive; });
    if (!reachable) return After(100'000, [this] { Listen(); });
    listening_ = true;
    Hear(nullptr);
  });
}

void Instance::Publish(const std::string& message) {
  if (!listening_) return;
  redis::ReadAnnouncement(message,
                          [this](const Charge* charge) { observer_.on_told(number_, charge); });
  After(Latency(), [this, message] {
    if (!listening_) return;  // Lost with the connection.
    redis::ReadAnnouncement(message, [this](const Charge* charge) { Hear(charge); });
  });
}

void Instance::Hear(const Charge* charge) {
  if (!bug_.ignores_news || !charge) {
    guard_.ForgetDenials(charge);
    guard_.ForgetLastSeen(charge);
  }
  observer_.on_heard(number_, charge);
}

bool Instance::asks_store() const {
  const auto status = guard_.GetStatus();
  return connected() && status.breaker == GuardedStore::BreakerState::kClosed && !status.overloaded;
}

bool Instance::connected() const {
  return !links_.empty() &&
         std::ranges::all_of(links_, [](const auto& entry) { return entry.second.up; });
}

}  // namespace sluice::simulate
