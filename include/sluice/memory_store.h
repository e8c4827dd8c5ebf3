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
// number of keys. Under sliding_window, it takes some 100 bytes more, and 16 to 32 for each request
// it remembers.
//
// Every method may be called from any thread at any time. A check takes one short lock and costs
// about as much as a look-up in a good hash map; it allocates only if the key is new or a
// sliding_window must remember more. Later checks gradually drop state that has recovered to an
// untouched budget. If the clock is then set back, that budget is full; see
// Options::recovered_kept_for.
//
// When `keys_max` states are live, none of them is dropped for a new key. A sketch then decides on
// new keys until there is room again. The sketch takes 192 bytes for each of `keys_max`, and 170
// KB, for as long as it holds anything. It never grants a key more than its limit, and hardly ever
// less as long as no more than twenty times `keys_max` new keys are live; beyond that, keys share
// what they may use. A flood of fresh keys can therefore not reset a live counter, grow the memory
// without bound, or use up the budgets of others. Stats::overflow_decisions counts these decisions.
class MemoryStore final : public Store {
 public:
  struct Options {
    const Clock* clock = &SystemClock();  // Not owned; outlives the store.
    std::int64_t keys_max = 1 << 24;

    // Room for the requests that all sliding_window limits together remember, 16 bytes each. When
    // it is used up, a known key adds a request to its newest entry, which is then kept for longer,
    // and the sketch decides on new keys.
    std::int64_t log_entries_max = 1 << 26;

    // How many holds are remembered, live ones and those that ended within a minute of their
    // expiry; some 300 bytes each. New ones beyond that are refused with kStoreFull.
    std::int64_t holds_max = 1 << 20;

    // How long state is kept after it has recovered. Zero suits a clock that moves forward. If
    // yours may be set back, keep it for as long as that, because a forgotten budget is full. A
    // replay of records that are out of order keeps all state.
    Micros recovered_kept_for{0};
  };

  struct Stats {
    std::int64_t keys = 0;           // States held, one for each limit of a key.
    std::int64_t bytes = 0;          // Their memory, without what the allocator adds.
    std::int64_t log_entries = 0;    // Room for requests held by sliding_window limits.
    std::int64_t holds = 0;          // Remembered, live or not.
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

  // Charges all or none, atomically; no other thread sees a part of it. Errors as for Check.
  Expected<Decision> CheckAll(std::span<const Charge> charges, std::span<Decision> each = {},
                              std::optional<TimePoint> now = {});

  // Decides at once, all as of one moment; `done` runs before this returns.
  void Apply(std::span<Request> requests, std::move_only_function<void()> done) override;
  void ApplyInline(std::span<Request> requests) override;

  // Action::kReset of one charge: returns whether there was any state. The limit is needed even if
  // the charge has a name. Error: kStoreFull if the sketch holds the key's usage in one cell with
  // that of others, which must stay.
  Expected<bool> Reset(const Charge& charge);

  bool AnswersInline() const override { return true; }

  // Visits every shard in turn; costs microseconds.
  Stats GetStats() const;

  // Writes all state to `path`: to a temporary file beside it, which is synced and then renamed,
  // and which only its owner can read. The content of the sketch is not written. Checks go on
  // meanwhile. Each waits at most until one of 256 shards is copied, which takes about a
  // millisecond at ten million keys, plus the time to copy what its sliding_window limits remember.
  // Returns how many states were written. Error: kIo.
  Expected<std::int64_t> Save(const std::filesystem::path& path) const;

  // Returns a store with the state of a snapshot, as it was, even if that is more than `keys_max`.
  // A state is not restored if it is further ahead of the clock than a second, and than its budget
  // takes to be full again: the clock was set back since. Takes about a second for ten million
  // keys. Errors: kNotFound; kIo; kSnapshotDamaged if the file is not exactly what Save wrote, in
  // which case it is renamed to `path` + ".damaged".
  static Expected<std::unique_ptr<MemoryStore>> Restore(const std::filesystem::path& path,
                                                        const Options& options);

  class Impl;

 private:
  explicit MemoryStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
