// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/store.h"

namespace sluice {

// Keeps the state in Redis, shared by everyone who uses the same server and prefix. Decides exactly
// as MemoryStore does, by one atomic script, with the server's time.
//
// Requests that arrive while a call is in flight are collected and sent together in the next one;
// an idle store sends at once. Equal requests on one state become one operation. Both are exact.
//
// In a Cluster, all limits of one key are decided atomically, as everywhere else. A request over
// keys of several slots first looks at all of them, then takes from all of them, and gives back if
// one denies after all. It never admits too much, but other requests may see it half done, and
// requests that are outstanding at the same time are decided in any order.
//
// Every method may be called from any thread at any time, with one exception: Check, CheckAll,
// Reset and Ping wait for the answer and must not be called from a `done` of Apply. The store must
// not be destroyed there either. The destructor answers all outstanding requests, and those that a
// `done` then makes, with an error. Callers that ask again after every error keep it from
// returning.
class RedisStore final : public Store {
 public:
  struct Options {
    // redis://[[user]:password@]host[:port][/database][?options], rediss:// for TLS,
    // redis://a:1,b:2,c:3 for a Cluster, redis-sentinel://host:port,host:port/master-name,
    // unix:///path. docs/reference/redis.md lists all of them, and the options: timeouts, how much
    // is sent at once and how much may wait, TLS.
    std::string uri = "redis://127.0.0.1:6379";

    // Prefix of state keys; empty: that of the URI. 1 to 64 letters, digits and . _ - :
    std::string prefix = {};

    // If not empty, the store uses a key space of its own below the prefix, `<prefix>:<scratch>`,
    // that no other store sees, for example for a trial. Nothing in it is announced. Same
    // characters as the prefix.
    std::string scratch = {};

    // How long a request may take, including waiting, unless the URI sets it; up to an hour.
    std::chrono::milliseconds timeout{500};

    // Runs on the store's own thread for each call of the script, with the time from sending it
    // until Redis answered or the store gave up. Does not run for a call that was not sent, or
    // whose connection broke. Must be quick.
    std::function<void(std::chrono::nanoseconds)> on_call = {};
  };

  struct Stats {
    std::int64_t requests = 0;
    std::int64_t calls = 0;         // Calls of the script that were sent and are over.
    std::int64_t script_loads = 0;  // How often the server did not know the script.
    std::int64_t connects = 0;
    std::int64_t unavailable = 0;  // Requests that failed and were provably not charged.
    std::int64_t unanswered = 0;   // Requests that failed and may have been charged.

    // Cluster: parts of requests over several slots that were given back, because another part
    // denied or failed, and those of them that could not be given back.
    std::int64_t refunds = 0;
    std::int64_t refunds_lost = 0;

    std::int64_t listening = 0;  // 1 while it hears what others announce; see Watch.
  };

  // Does not wait for the server: the store connects in the background, and retries with growing
  // pauses. Error: kInvalidInput, if an option is wrong.
  static Expected<std::unique_ptr<RedisStore>> Create(const Options& options);
  ~RedisStore() override;
  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;

  // Does not wait; `done` runs on the store's own thread. Errors, beyond those of MemoryStore:
  // kUnavailable, kOutcomeUnknown, kAccessDenied, kStoreFull (Redis is out of memory), kStoreError,
  // kForeignState.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override;

  // Like Apply, but wait for the answer.
  Expected<Decision> Check(const Charge& charge, std::optional<TimePoint> now = {});
  Expected<Decision> CheckAll(std::span<const Charge> charges, std::span<Decision> each = {},
                              std::optional<TimePoint> now = {});

  // Makes the budget of this key and limit (or name) whole, and announces that to all who watch.
  // Says whether state was held. An error may also mean that only the announcement failed: it does
  // no harm to reset again.
  Expected<bool> Reset(const Charge& charge);

  // Does not wait; `done` runs on the store's own thread, or at once if the charge is invalid.
  void Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done) override;

  // Listens to what the stores on this Redis and prefix announce: resets, purges, and what requests
  // over several slots of a Cluster give back. `on_raised(nullptr)` also runs each time the store
  // begins to listen, because announcements may have been missed before.
  void Watch(OnRaised on_raised) override;

  // Returns how long the server takes to answer; in a Cluster, the slowest master.
  Expected<std::chrono::microseconds> Ping();

  // Does not wait; `done` runs on the store's own thread.
  void Ping(std::move_only_function<void(Expected<std::chrono::microseconds>)> done);

  // Returns how many keys of any kind the database holds; in a Cluster, over all masters.
  Expected<std::int64_t> CountKeys();

  struct PurgeProgress {
    std::int64_t scanned = 0;  // Approximately: keys of any kind that were looked at.
    std::int64_t matched = 0;  // Removed, unless it is a dry run.
  };

  // Removes the states of all keys that match `pattern`, by SCAN and UNLINK in batches, on every
  // master. Never blocks the server, and never touches anything but states. * stands for any
  // characters, ? for one, everything else for itself. Keys that are stored as a hash because they
  // are long match only * and themselves. When the purge ends, with success or not, it is announced
  // to all who watch. `progress` runs now and then, on the caller's thread.
  Expected<PurgeProgress> Purge(std::string_view pattern, bool dry_run,
                                std::move_only_function<void(const PurgeProgress&)> progress = {});

  Stats GetStats() const;

  // Returns the URI without passwords.
  std::string Description() const;

  // Returns what is worth a log line about the URI, such as addresses that are not used.
  const std::vector<std::string>& Warnings() const;

 private:
  class Impl;
  explicit RedisStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
