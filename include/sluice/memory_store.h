// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "sluice/store.h"

namespace sluice {

// Keeps the state in this process: sharded and bounded. A state takes at most 48 bytes at any
// number of keys; under sliding_window, some 100 bytes more and 16 to 32 for each request
// remembered.
//
// Every method may be called from any thread at any time. A check takes one short lock and costs
// about as much as a look-up in a good hash map; it allocates only if the key is new or a
// sliding_window must remember more. State that has recovered to an untouched budget is dropped bit
// by bit by the checks that follow. If the clock is then set back, that budget is whole; see
// Options::recovered_kept_for.
//
// When `keys_max` states are live, none of them is dropped for a newcomer: a sketch then decides on
// new keys until room returns. It takes 192 bytes for each of `keys_max`, and 170 KB, for as long
// as it holds anything. It never grants a key more than its limit, and hardly ever less as long as
// no more than twenty times `keys_max` new keys are live; beyond that, keys share what they may
// use. A flood of fresh keys can therefore neither reset a live counter, nor grow the memory
// without bound, nor use up the budgets of others. Stats::overflow_decisions counts those
// decisions.
class MemoryStore final : public Store {
 public:
  struct Options {
    const Clock* clock = &SystemClock();  // Not owned; outlives the store.
    std::int64_t keys_max = 1 << 24;

    // Room for the requests that all sliding_window limits together remember, 16 bytes each. Past
    // it, keys that are known note a request together with their newest, which is then held for
    // longer, and the sketch decides on new ones.
    std::int64_t log_entries_max = 1 << 26;

    // How long state is kept after it recovered. Zero suits a clock that moves forward. If yours
    // may be set back, keep it as long as that: a budget that was forgotten is whole. A replay of
    // records that are out of order keeps all of it.
    Micros recovered_kept_for{0};
  };

  struct Stats {
    std::int64_t keys = 0;           // States held, one for each limit of a key.
    std::int64_t bytes = 0;          // Their memory, but for what the allocator adds.
    std::int64_t log_entries = 0;    // Room for requests held by sliding_window limits.
    std::int64_t dropped = 0;        // States dropped because they had recovered.
    std::int64_t dropped_ahead = 0;  // States of a snapshot that were not restored; see Restore.
    std::int64_t overflow_decisions = 0;  // Decided by the sketch because the store was full.
  };

  MemoryStore() : MemoryStore(Options{}) {}
  explicit MemoryStore(const Options& options);
  ~MemoryStore() override;
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  // Decides one charge. Errors: kInvalidKey, kInvalidCost, kCostExceedsLimit, kInvalidTime,
  // kInvalidRequest.
  Expected<Decision> Check(const Charge& charge, std::optional<TimePoint> now = {});

  // Decides all charges or none, atomically; no other thread sees a part of it. Errors as Check.
  Expected<Decision> CheckAll(std::span<const Charge> charges, std::span<Decision> each = {},
                              std::optional<TimePoint> now = {});

  // Decides at once, all as of one moment; `done` runs before this returns.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override;

  // Makes the budget of this key and name, or of this key and limit, whole. Says whether state was
  // held. The limit is needed in either case. One short lock. Error: kStoreFull if the sketch holds
  // what the key has used together with what others have, which must stay.
  Expected<bool> Reset(const Charge& charge);
  void Reset(const Charge& charge, std::move_only_function<void(Expected<bool>)> done) override;

  bool AnswersInline() const override { return true; }

  // Visits every shard in turn; costs microseconds.
  Stats GetStats() const;

  // Writes all state to `path`: a temporary file beside it, synced, then renamed, readable by its
  // owner alone. What the sketch holds is not written. Checks go on meanwhile; each waits at most
  // until one of 256 shards is copied, which takes about a millisecond at ten million keys, plus
  // the time to copy what its sliding_window limits remember. Returns how many states were written.
  // Error: kIo.
  Expected<std::int64_t> Save(const std::filesystem::path& path) const;

  // A store with the state of a snapshot, as it was, even if that is more than `keys_max`. States
  // that lie further ahead of the clock than their budget takes to be whole, and than a second, are
  // not restored: the clock was set back since. Takes about a second for ten million keys. Errors:
  // kNotFound; kIo; kSnapshotDamaged if the file is not exactly what Save wrote, in which case it
  // is renamed to `path` + ".damaged".
  static Expected<std::unique_ptr<MemoryStore>> Restore(const std::filesystem::path& path,
                                                        const Options& options);

  class Impl;

 private:
  explicit MemoryStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
