// SPDX-License-Identifier: Apache-2.0
#include "sluice/redis_store.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "core/text.h"
#include "store/redis/redis_loop.h"
#include "store/redis/state_key.h"
#include "store/validate.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
using redis::Command;
using redis::RespNode;
using redis::RespType;
using Reply = Expected<std::span<const RespNode>>;

// Patterns match escaped keys: * and ? keep their meaning, all else is literal.
std::string PurgePattern(std::string_view prefix, std::string_view pattern) {
  std::string out = text::Cat(prefix, ":{");
  for (const char c : pattern) {
    if (c == '*' || c == '?') {
      out += c;
      continue;
    }
    // Each byte is escaped as in a state key, and then as in a glob.
    const std::string key = redis::KeyPrefix("", std::string_view(&c, 1));
    for (const char escaped : std::string_view(key).substr(2, key.size() - 4)) {
      if (escaped == '[' || escaped == ']' || escaped == '\\' || escaped == '^') out += '\\';
      out += escaped;
    }
  }
  return out + "}:*";
}

}  // namespace

class RedisStore::Impl {
 public:
  Impl(const Options& options, redis::Endpoint endpoint)
      : loop_(std::make_shared<redis::RedisLoop>(
            context_.get_executor(),
            redis::RedisLoop::Options{.endpoint = std::move(endpoint),
                                      .batch_max = options.batch_max,
                                      .in_flight_max = options.in_flight_max,
                                      .waiting_max = options.waiting_max})),
        thread_([this] { context_.run(); }) {
    asio::post(context_, [loop = loop_] { loop->Start(); });
  }

  ~Impl() {
    asio::post(context_, [this] {
      loop_->Stop();
      context_.stop();
    });
    thread_.join();
  }

  void Apply(std::span<Request> requests, std::move_only_function<void()> done) {
    asio::post(context_, [loop = loop_, requests, done = std::move(done)]() mutable {
      loop->Apply(requests, std::move(done));
    });
  }

  // Sends a command; `done` gets what `read` makes of the reply.
  template <typename T, typename Read>
  void Send(std::string command, Read read, std::move_only_function<void(Expected<T>)> done) {
    asio::post(context_, [loop = loop_, read, command = std::move(command),
                          done = std::move(done)]() mutable {
      loop->Send(std::move(command), [read, done = std::move(done)](Reply reply) mutable {
        if (!reply) {
          done(std::unexpected(reply.error()));
        } else if (reply->front().type == RespType::kError) {
          done(std::unexpected(redis::ErrorOf(reply->front().text)));
        } else {
          done(read(*reply));
        }
      });
    });
  }

  // The same, and wait.
  template <typename T, typename Read>
  Expected<T> Ask(std::string command, Read read) {
    auto promise = std::make_shared<std::promise<Expected<T>>>();
    auto answer = promise->get_future();
    Send<T>(std::move(command), read,
            [promise](Expected<T> value) { promise->set_value(std::move(value)); });
    return answer.get();
  }

  const redis::RedisLoop& loop() const { return *loop_; }

 private:
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(context_);
  const std::shared_ptr<redis::RedisLoop> loop_;
  std::jthread thread_;
};

Expected<std::unique_ptr<RedisStore>> RedisStore::Create(const Options& options) {
  auto endpoint = redis::Endpoint::Parse(options.uri);
  if (!endpoint) return std::unexpected(endpoint.error());
  if (!options.prefix.empty()) endpoint->prefix = options.prefix;
  if (endpoint->mode == redis::Mode::kCluster) {
    return std::unexpected(Error{ErrorCode::kInvalidInput,
                                 "Redis Cluster is not supported yet; expected a standalone server "
                                 "or Sentinels"});
  }
  return std::unique_ptr<RedisStore>(
      new RedisStore(std::make_unique<Impl>(options, *std::move(endpoint))));
}

RedisStore::RedisStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RedisStore::~RedisStore() = default;

void RedisStore::Apply(std::span<Request> requests, std::move_only_function<void()> done) {
  impl_->Apply(requests, std::move(done));
}

Expected<Decision> RedisStore::Check(const Charge& charge, std::optional<TimePoint> now) {
  return CheckAll({&charge, 1}, {}, now);
}

Expected<Decision> RedisStore::CheckAll(std::span<const Charge> charges, std::span<Decision> each,
                                        std::optional<TimePoint> now) {
  Request request{.charges = charges, .now = now, .each = each};
  auto promise = std::make_shared<std::promise<void>>();
  auto answered = promise->get_future();
  Apply({&request, 1}, [promise] { promise->set_value(); });
  answered.wait();
  return std::move(request.outcome);
}

void RedisStore::Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done) {
  const Charge peek{.key = charge.key, .limit = charge.limit, .name = charge.name, .cost = 0};
  if (!IsValid(peek, TimePoint{})) return done(std::unexpected(Invalid(peek, TimePoint{})));
  impl_->Send<bool>(
      Command("DEL", redis::StateKey(impl_->loop().endpoint().prefix, charge)),
      [](std::span<const RespNode> reply) { return reply.front().number > 0; }, std::move(done));
}

Expected<bool> RedisStore::Reset(const Charge& charge) {
  std::promise<Expected<bool>> answer;
  Reset(charge, [&](Expected<bool> held) { answer.set_value(std::move(held)); });
  return answer.get_future().get();
}

Expected<std::chrono::microseconds> RedisStore::Ping() {
  const auto start = std::chrono::steady_clock::now();
  return impl_->Ask<std::chrono::microseconds>(Command("PING"), [start](auto) {
    return std::chrono::ceil<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  });
}

Expected<std::int64_t> RedisStore::CountKeys() {
  return impl_->Ask<std::int64_t>(
      Command("DBSIZE"), [](std::span<const RespNode> reply) { return reply.front().number; });
}

Expected<RedisStore::PurgeProgress> RedisStore::Purge(
    std::string_view pattern, bool dry_run,
    std::move_only_function<void(const PurgeProgress&)> progress) {
  constexpr std::string_view kScanCount = "1000";
  const std::string& prefix = impl_->loop().endpoint().prefix;
  const std::string match = PurgePattern(prefix, pattern);
  const std::string own = text::Cat(prefix, ":{");
  PurgeProgress sum;
  std::string cursor = "0";
  do {
    using Page = std::pair<std::string, std::vector<std::string>>;
    const auto page = impl_->Ask<Page>(Command("SCAN", cursor, "MATCH", match, "COUNT", kScanCount),
                                       [&own](std::span<const RespNode> reply) {
                                         Page found;
                                         if (reply.size() < 3) return found;
                                         found.first = reply[1].text;
                                         for (const RespNode& node : reply.subspan(3)) {
                                           if (node.text.starts_with(own))
                                             found.second.emplace_back(node.text);
                                         }
                                         return found;
                                       });
    if (!page) return std::unexpected(page.error());
    cursor = page->first;
    sum.scanned += 1000;
    if (!page->second.empty()) {
      std::int64_t matched = static_cast<std::int64_t>(page->second.size());
      if (!dry_run) {
        std::vector<std::string_view> arguments = {"UNLINK"};
        arguments.insert(arguments.end(), page->second.begin(), page->second.end());
        std::string command;
        redis::AppendCommand(command, arguments);
        const auto removed = impl_->Ask<std::int64_t>(
            std::move(command),
            [](std::span<const RespNode> reply) { return reply.front().number; });
        if (!removed) return std::unexpected(removed.error());
        matched = *removed;
      }
      sum.matched += matched;
    }
    if (progress) progress(sum);
  } while (cursor != "0" && !cursor.empty());
  return sum;
}

RedisStore::Stats RedisStore::GetStats() const {
  const auto& counters = impl_->loop().counters();
  return {.requests = counters.requests.load(std::memory_order_relaxed),
          .calls = counters.calls.load(std::memory_order_relaxed),
          .script_loads = counters.script_loads.load(std::memory_order_relaxed),
          .connects = counters.connects.load(std::memory_order_relaxed),
          .unavailable = counters.unavailable.load(std::memory_order_relaxed),
          .unanswered = counters.unanswered.load(std::memory_order_relaxed)};
}

std::string RedisStore::Description() const { return impl_->loop().endpoint().ToString(); }

}  // namespace sluice
