// SPDX-License-Identifier: Apache-2.0
#include "sluice/redis_store.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "redis/loop_thread.h"
#include "store/redis/announcement.h"
#include "store/redis/key_pattern.h"
#include "store/redis/redis_loop.h"
#include "store/redis/state_key.h"
#include "store/validate.h"

namespace sluice {
namespace {

using redis::Command;
using redis::Reply;
using redis::RespNode;
using redis::RespType;
using redis::Target;

using Steady = std::chrono::steady_clock;

constexpr std::uint16_t kAnySlot = 0;
constexpr std::int64_t kScanCount = 1000;

struct Page {
  std::string cursor;
  std::vector<std::string> keys;
};

Page ReadPage(std::span<const RespNode> reply) {
  Page page;
  if (reply.size() < 3) return page;
  page.cursor = reply[1].text;
  for (const RespNode& node : reply.subspan(3)) page.keys.emplace_back(node.text);
  return page;
}

// A future for what `start` passes to its argument.
template <typename T, typename Start>
std::future<Expected<T>> Begin(Start start) {
  const auto promise = std::make_shared<std::promise<Expected<T>>>();
  start([promise](Expected<T> value) { promise->set_value(std::move(value)); });
  return promise->get_future();
}

// The same, but waits.
template <typename T, typename Start>
Expected<T> Await(Start start) {
  return Begin<T>(std::move(start)).get();
}

// The commands that remove keys: one, or one per slot in a Cluster.
std::map<std::uint16_t, std::vector<std::string_view>> BySlot(const std::vector<std::string>& keys,
                                                              bool cluster) {
  std::map<std::uint16_t, std::vector<std::string_view>> commands;
  for (const std::string& key : keys) {
    auto& command = commands[cluster ? redis::SlotOf(key) : 0];
    if (command.empty()) command.emplace_back("UNLINK");
    command.push_back(key);
  }
  return commands;
}

}  // namespace

class RedisStore::Impl {
 public:
  Impl(redis::Endpoint endpoint, redis::RedisLoop::OnCall on_call)
      : loop_(std::make_shared<redis::RedisLoop>(thread_.executor(), std::move(endpoint),
                                                 std::move(on_call))) {
    thread_.Post([loop = loop_] { loop->Start(); });
  }

  void Stop() {
    thread_.Stop([this] { loop_->Stop(); });
  }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) {
    // The loop bounds what waits for Redis; this bounds what waits for the loop.
    const std::size_t waiting = on_the_way_.fetch_add(requests.size(), std::memory_order_relaxed);
    if (waiting >= loop_->endpoint().waiting_max) {
      on_the_way_.fetch_sub(requests.size(), std::memory_order_relaxed);
      loop_->RefuseAll(requests, waiting);
      return done();
    }
    thread_.Post([this, requests, done = std::move(done)]() mutable {
      on_the_way_.fetch_sub(requests.size(), std::memory_order_relaxed);
      loop_->Apply(requests, std::move(done));
    });
  }

  // Sends a command; `done` gets what `read` makes of the reply.
  template <typename T, typename Read>
  void Send(std::string command, Target target, Read read,
            std::move_only_function<void(Expected<T>)> done) {
    thread_.Post([loop = loop_, command = std::move(command), target = std::move(target),
                  handler = Reading<T>(std::move(read), std::move(done))]() mutable {
      loop->network().Send(std::move(command), std::move(target), std::move(handler));
    });
  }

  void Watch(OnRaised on_raised) {
    thread_.Post([loop = loop_, on_raised = std::move(on_raised)] { loop->Watch(on_raised); });
  }

  // Like Send, but waits.
  template <typename T, typename Read>
  Expected<T> Ask(std::string command, Target target, Read read) {
    return Await<T>([&](auto done) {
      Send<T>(std::move(command), std::move(target), std::move(read), std::move(done));
    });
  }

  // For commands that reply with a number.
  std::future<Expected<std::int64_t>> BeginNumber(std::string command, Target target) {
    const auto read = [](std::span<const RespNode> reply) { return reply.front().number; };
    return Begin<std::int64_t>([&](auto done) {
      Send<std::int64_t>(std::move(command), std::move(target), read, std::move(done));
    });
  }

  // The same, but waits.
  Expected<std::int64_t> AskNumber(std::string command, Target target) {
    return BeginNumber(std::move(command), std::move(target)).get();
  }

  using Masters = std::vector<redis::Address>;

  // Waits until one master is known: then all of them are.
  void FindMasters(std::move_only_function<void(Expected<Masters>)> done) {
    Send<Masters>(
        Command("PING"), kAnySlot, [loop = loop_](auto) { return loop->network().Masters(); },
        std::move(done));
  }

  Expected<Masters> AskMasters() {
    return Await<Masters>([this](auto done) { FindMasters(std::move(done)); });
  }

  // Pings all masters at once; the result is the slowest, unless one fails.
  void Ping(std::move_only_function<void(Expected<Micros>)> done) {
    FindMasters([loop = loop_, done = std::move(done)](Expected<Masters> masters) mutable {
      if (!masters) return done(std::unexpected(masters.error()));
      if (masters->empty()) return done(Micros{0});
      struct Pings {
        std::move_only_function<void(Expected<Micros>)> done;
        std::size_t open;
        Steady::time_point start;
        Expected<Micros> slowest;
      };
      const auto pings =
          std::make_shared<Pings>(std::move(done), masters->size(), Steady::now(), Micros{0});
      const auto pong = [pings](const Expected<bool>& answered) {
        if (!answered) {
          pings->slowest = std::unexpected(answered.error());
        } else if (pings->slowest) {
          pings->slowest = std::chrono::ceil<Micros>(Steady::now() - pings->start);
        }
        if (--pings->open == 0) pings->done(std::move(pings->slowest));
      };
      for (const redis::Address& master : *masters) {
        loop->network().Send(Command("PING"), master,
                             Reading<bool>([](auto) { return true; }, pong));
      }
    });
  }

  Expected<PurgeProgress> Purge(std::string_view pattern, bool dry_run,
                                std::move_only_function<void(const PurgeProgress&)> progress);

  const redis::RedisLoop& loop() const { return *loop_; }

 private:
  Expected<std::int64_t> Unlink(const std::vector<std::string>& keys);

  // A handler that passes to `done` what `read` makes of the reply; an error reply is an error.
  template <typename T, typename Read>
  static redis::Connection::Handler Reading(Read read,
                                            std::move_only_function<void(Expected<T>)> done) {
    return [read = std::move(read), done = std::move(done)](Reply reply) mutable {
      if (!reply) {
        done(std::unexpected(reply.error()));
      } else if (reply->front().type == RespType::kError) {
        done(std::unexpected(redis::ErrorOf(reply->front().text)));
      } else {
        done(read(*reply));
      }
    };
  }

  std::atomic<std::size_t> on_the_way_ = 0;  // Requests that the loop has not seen yet.
  redis::LoopThread thread_;
  const std::shared_ptr<redis::RedisLoop> loop_;
};

Expected<std::unique_ptr<RedisStore>> RedisStore::Create(const Options& options) {
  auto endpoint = redis::Endpoint::Parse(options.uri, options.timeout);
  if (!endpoint) return std::unexpected(endpoint.error());
  for (const std::string& part : {options.prefix, options.scratch}) {
    if (part.empty() || redis::IsPrefix(part)) continue;
    return std::unexpected(
        Error{ErrorCode::kInvalidInput,
              text::Cat("prefix ", text::Quote(part),
                        ": expected 1 to 64 characters of A-Z a-z 0-9 . _ - and :")});
  }
  if (!options.prefix.empty()) endpoint->prefix = options.prefix;
  if (!options.scratch.empty()) {
    endpoint->prefix = text::Cat(endpoint->prefix, ":", options.scratch);
    endpoint->announces = false;
  }
  return std::unique_ptr<RedisStore>(
      new RedisStore(std::make_unique<Impl>(*std::move(endpoint), options.on_call)));
}

RedisStore::RedisStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// Before anything is destroyed: callers that get their answers now may ask for more.
RedisStore::~RedisStore() { impl_->Stop(); }

void RedisStore::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  impl_->Apply(requests, std::move(done));
}

Expected<Decision> RedisStore::Check(const Charge& charge, std::optional<TimePoint> now) {
  return CheckAll({&charge, 1}, {}, now);
}

Expected<Decision> RedisStore::CheckAll(std::span<const Charge> charges, std::span<Decision> each,
                                        std::optional<TimePoint> now) {
  Request request{.charges = charges, .now = now, .each = each};
  ApplyAndWait(request);
  return std::move(request.outcome);
}

void RedisStore::ApplyAndWait(Request& request) {
  auto promise = std::make_shared<std::promise<void>>();
  auto answered = promise->get_future();
  Apply({&request, 1}, [promise] { promise->set_value(); });
  answered.wait();
}

Expected<bool> RedisStore::Reset(const Charge& charge) {
  Request request{.charges = {&charge, 1}, .action = Action::kReset};
  ApplyAndWait(request);
  if (!request.outcome) return std::unexpected(std::move(request.outcome.error()));
  return request.existed;
}

void RedisStore::Watch(OnRaised on_raised) { impl_->Watch(std::move(on_raised)); }

Expected<std::chrono::microseconds> RedisStore::Ping() {
  return Await<std::chrono::microseconds>([this](auto done) { Ping(std::move(done)); });
}

void RedisStore::Ping(std::move_only_function<void(Expected<std::chrono::microseconds>)> done) {
  impl_->Ping(std::move(done));
}

Expected<std::int64_t> RedisStore::CountKeys() {
  const auto masters = impl_->AskMasters();
  if (!masters) return std::unexpected(masters.error());
  std::int64_t sum = 0;
  for (const redis::Address& master : *masters) {
    const auto count = impl_->AskNumber(Command("DBSIZE"), master);
    if (!count) return count;
    sum += *count;
  }
  return sum;
}

// Returns how many existed. In a Cluster a command takes keys of one slot, and a page hardly ever
// has two of the same: all commands are sent at once.
Expected<std::int64_t> RedisStore::Impl::Unlink(const std::vector<std::string>& keys) {
  const bool cluster = loop().endpoint().mode == redis::Mode::kCluster;
  std::vector<std::future<Expected<std::int64_t>>> answers;
  for (const auto& [slot, arguments] : BySlot(keys, cluster)) {
    std::string command;
    redis::AppendCommand(command, arguments);
    answers.push_back(BeginNumber(std::move(command), slot));
  }
  Expected<std::int64_t> sum = 0;
  for (auto& answer : answers) {
    const auto removed = answer.get();
    if (!removed) {
      sum = removed;
    } else if (sum) {
      *sum += *removed;
    }
  }
  return sum;
}

Expected<RedisStore::PurgeProgress> RedisStore::Impl::Purge(
    std::string_view pattern, bool dry_run,
    std::move_only_function<void(const PurgeProgress&)> progress) {
  const redis::KeyPattern wanted(loop().endpoint().prefix, pattern);
  const std::string match = wanted.ScanPattern();
  const auto masters = AskMasters();
  if (!masters) return std::unexpected(masters.error());
  PurgeProgress sum;
  for (const redis::Address& master : *masters) {
    std::string cursor = "0";
    do {
      auto page =
          Ask<Page>(Command("SCAN", cursor, "MATCH", match, "COUNT", std::to_string(kScanCount)),
                    master, ReadPage);
      if (!page) return std::unexpected(page.error());
      cursor = page->cursor;
      sum.scanned += kScanCount;
      std::erase_if(page->keys, [&](const std::string& key) { return !wanted.Matches(key); });
      const auto matched =
          dry_run ? static_cast<std::int64_t>(page->keys.size()) : Unlink(page->keys);
      if (!matched) return std::unexpected(matched.error());
      sum.matched += *matched;
      if (progress) progress(sum);
    } while (cursor != "0" && !cursor.empty());
  }
  return sum;
}

Expected<RedisStore::PurgeProgress> RedisStore::Purge(
    std::string_view pattern, bool dry_run,
    std::move_only_function<void(const PurgeProgress&)> progress) {
  auto purged = impl_->Purge(pattern, dry_run, std::move(progress));
  const redis::Endpoint& endpoint = impl_->loop().endpoint();
  if (dry_run || !endpoint.announces) return purged;
  // Even if it did not finish: some states are gone.
  const auto heard = impl_->AskNumber(redis::AnnounceCommand(endpoint.prefix, nullptr), kAnySlot);
  if (purged && !heard) return std::unexpected(heard.error());
  return purged;
}

RedisStore::Stats RedisStore::GetStats() const {
  const auto& counters = impl_->loop().counters();
  return {.requests = counters.requests.load(std::memory_order_relaxed),
          .calls = counters.calls.load(std::memory_order_relaxed),
          .script_loads = counters.script_loads.load(std::memory_order_relaxed),
          .connects = impl_->loop().connects(),
          .unavailable = counters.unavailable.load(std::memory_order_relaxed),
          .unanswered = counters.unanswered.load(std::memory_order_relaxed),
          .refunds = counters.refunds.load(std::memory_order_relaxed),
          .refunds_lost = counters.refunds_lost.load(std::memory_order_relaxed),
          .listening = impl_->loop().listening() ? 1 : 0};
}

std::string RedisStore::Description() const { return impl_->loop().endpoint().ToString(); }

const std::vector<std::string>& RedisStore::Warnings() const {
  return impl_->loop().endpoint().warnings;
}

}  // namespace sluice
