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
// Requests that arrive while a call is on its way are gathered and go together in the next one;
// an idle store sends at once. Equal requests on one state become one operation. Both are exact.
//
// In a Cluster, all limits of one key are decided atomically, as everywhere else. A request over
// keys of several slots first looks at all of them, then takes from all of them, and gives back if
// one denies after all: it never admits too much, but other requests may see it half done, and
// those that are outstanding at the same time are decided in any order.
//
// Every method may be called from any thread at any time, except that Check, CheckAll, Reset and
// Ping wait for the answer and must not be called from a `done` of Apply, where the store must not
// be destroyed either. Destroying it answers all that is outstanding, and what is asked for by a
// `done` then, with an error; whoever asks again after every error keeps it from ending.
class RedisStore final : public Store {
 public:
  struct Options {
    // redis://[[user]:password@]host[:port][/database][?options], rediss:// for TLS,
    // redis://a:1,b:2,c:3 for a Cluster, redis-sentinel://host:port,host:port/master-name,
    // unix:///path. docs/reference/redis.md has all of them, and the options: timeouts, how much is
    // sent at once and how much may wait, TLS.
    std::string uri = "redis://127.0.0.1:6379";

    // What state keys start with; empty: what the URI says. 1 to 64 letters, digits and . _ - :
    std::string prefix = {};

    // Not empty: a key space of its own below the prefix, `<prefix>:<scratch>`, for what no other
    // store is to see, such as a trial. Nothing that is done there is announced. As a prefix.
    std::string scratch = {};

    // How long a request may take, waiting included, unless the URI says; up to an hour.
    std::chrono::milliseconds timeout{500};

    // Runs on the store's own thread for each call of the script: how long Redis took to answer it,
    // from when it was sent, or did not until it was given up. Of a call that was not sent, or
    // whose connection broke, there is nothing to tell. Must be quick.
    std::function<void(std::chrono::nanoseconds)> on_call = {};
  };

  struct Stats {
    std::int64_t requests = 0;
    std::int64_t calls = 0;         // Of the script, that were sent and are over.
    std::int64_t script_loads = 0;  // Because the server did not know it.
    std::int64_t connects = 0;
    std::int64_t unavailable = 0;  // Requests that failed and were provably not charged.
    std::int64_t unanswered = 0;   // Requests that failed and may have been charged.

    // Cluster: parts of requests over several slots that were given back, because another part
    // denied or failed, and those of them that could not be.
    std::int64_t refunds = 0;
    std::int64_t refunds_lost = 0;

    std::int64_t listening = 0;  // 1 while it hears what others announce, see Watch.
  };

  // Starts without the server: it connects in the background, again and again with growing pauses.
  // Error: kInvalidInput, if an option is wrong.
  static Expected<std::unique_ptr<RedisStore>> Create(const Options& options);
  ~RedisStore() override;
  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;

  // Does not wait; `done` runs on the store's own thread. Errors, beyond those of MemoryStore:
  // kUnavailable, kOutcomeUnknown, kAccessDenied, kStoreFull (Redis is out of memory), kStoreError,
  // kForeignState.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override;

  // As Apply, and wait.
  Expected<Decision> Check(const Charge& charge, std::optional<TimePoint> now = {});
  Expected<Decision> CheckAll(std::span<const Charge> charges, std::span<Decision> each = {},
                              std::optional<TimePoint> now = {});

  // Action::kReset of one charge, and wait: returns whether there was any state. All who watch are
  // told in the same step; if they cannot be, nothing is reset.
  Expected<bool> Reset(const Charge& charge);

  // Listens to what the stores on this Redis and prefix announce: resets, purges, and what requests
  // over several slots of a Cluster give back. `on_raised(nullptr)` also runs each time that it
  // begins to listen, because announcements may have been missed before.
  void Watch(OnRaised on_raised) override;

  // The time that the server takes to answer; in a Cluster, the slowest master.
  Expected<std::chrono::microseconds> Ping();

  // Does not wait; `done` runs on the store's own thread.
  void Ping(std::move_only_function<void(Expected<std::chrono::microseconds>)> done);

  // How many keys of any kind the database holds; in a Cluster, all masters.
  Expected<std::int64_t> CountKeys();

  struct PurgeProgress {
    std::int64_t scanned = 0;  // About: keys of any kind that were looked at.
    std::int64_t matched = 0;  // Removed, unless it is a dry run.
  };

  // Removes the states of all keys that match `pattern`, by SCAN and UNLINK in batches, on every
  // master; never blocks the server, and never touches anything but states. * stands for any
  // characters, ? for one, all else for itself; keys that are stored as a hash, being long, match
  // only * and themselves. Announced to all who watch when it ends, however it does. `progress`
  // runs now and then, on the caller's thread.
  Expected<PurgeProgress> Purge(std::string_view pattern, bool dry_run,
                                std::move_only_function<void(const PurgeProgress&)> progress = {});

  Stats GetStats() const;

  // The URI without passwords.
  std::string Description() const;

  // What is worth a log line about the URI, such as addresses that are not used.
  const std::vector<std::string>& Warnings() const;

 private:
  class Impl;
  explicit RedisStore(std::unique_ptr<Impl> impl);

  void ApplyAndWait(Request& request);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
