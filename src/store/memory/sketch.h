// SPDX-License-Identifier: Apache-2.0
// What keys have used that found no room in the table: an upper bound of it, in bounded memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/decision.h"
#include "sluice/limit.h"
#include "sluice/store.h"
#include "sluice/time.h"
#include "store/memory/slot.h"

namespace sluice::memory {

// At most what a key has used. It means the same whatever the limit is, so that keys of different
// limits can share one bound: of two, the larger holds for both.
struct Bound {
  static constexpr std::int64_t kPartsWhole = (1 << 12) - 1;

  // What is used of a window, in kPartsWhole-ths of the limit, stays used until `until_us`. What is
  // used of a bucket flows back all the time, so that `until_us` says it all.
  static constexpr std::int64_t kFlowsBack = -1;

  std::int64_t until_us = 0;  // From then on the budget is whole; 0 if it is untouched.
  std::int64_t parts = 0;

  friend bool operator==(const Bound&, const Bound&) = default;
};

// The larger in every respect.
Bound Larger(const Bound& a, const Bound& b);

// The decision on a budget of which that much is used. A cost that no cell could remember is
// denied.
Decision Decide(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t cost);

// The bound after `units` were taken, as a cell keeps it. If they were granted, that is what holds.
Bound Take(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t units);

// A state of which no less is used. The log, if it is one, is the caller's.
Packed StateOf(const Limit& limit, const Bound& bound);

SeenState See(const Limit& limit, const Bound& bound, TimePoint now);

// A fixed number of cells, in lines of eight. Each identity has four lines, and its cell in any of
// them. Should all cells there be in use, it shares a certain one with that one's owner. A cell is
// free again when all that is noted in it has recovered by the horizon. See docs/adr/0012.
//
// Not thread-safe; the shard's lock guards it.
class Sketch {
 public:
  static constexpr std::size_t kCellsPerLine = 8;
  static constexpr std::size_t kRows = 4;

  explicit Sketch(std::size_t lines);
  ~Sketch();
  Sketch(const Sketch&) = delete;
  Sketch& operator=(const Sketch&) = delete;

  // For `keys` keys that have their place in a table: cells for ten times as many clients that have
  // not, under two limits each, filled to five sixths, and some for the chance that more of them
  // come to one shard.
  static constexpr std::size_t LinesFor(std::int64_t keys) {
    constexpr std::int64_t kCellsPerKey = 24;
    constexpr std::int64_t kSpareLines = 8;
    constexpr std::int64_t kKeysMax = 1 << 24;  // Any more share the cells of so many.
    constexpr auto kCells = static_cast<std::int64_t>(kCellsPerLine);
    const std::int64_t cells = std::min(keys, kKeysMax) * kCellsPerKey;
    return static_cast<std::size_t>((cells + kCells - 1) / kCells + kSpareLines);
  }

  // What an identity may have used as far as it is noted here.
  Bound Noted(const Identity& identity, std::int64_t horizon_us) const {
    return Look(identity, horizon_us).bound;
  }

  // The same to decide on: if it could not be noted but with a stranger, what that one has used.
  Bound Find(const Identity& identity, std::int64_t horizon_us) const;

  // Notes that no more than this is used, where Find will see it.
  void Raise(const Identity& identity, const Bound& bound, std::int64_t horizon_us);

  enum class Forgot { kNothing, kAll, kShared };
  // kShared: others have used of the same cell, so that it stays.
  Forgot Forget(const Identity& identity, std::int64_t horizon_us);

  std::int64_t until_us() const { return until_us_; }  // From then on all of it is recovered.
  std::size_t bytes() const { return lines_ * sizeof(Line); }

 private:
  class Cell {
   public:
    Cell() = default;
    Cell(std::uint64_t tag, const Bound& bound);

    Bound bound() const;
    std::uint64_t tag() const { return bits_ >> kValueBits & kTagMask; }
    bool shared() const { return (bits_ & kShared) != 0; }
    void Share() { bits_ |= kShared; }
    bool Free(std::int64_t horizon_us) const { return bound().until_us <= horizon_us; }

   private:
    std::uint64_t bits_ = 0;
  };
  using Line = std::array<Cell, kCellsPerLine>;
  static_assert(sizeof(Line) == 64);

  // Where an identity is, or could be, noted; null if there is no such cell.
  struct Places {
    Cell* own = nullptr;   // In use, and has its tag; `bound` is of all that do.
    Cell* free = nullptr;  // In the emptiest of its lines.
    Cell* home = nullptr;  // To be shared if there is neither.
    Bound bound = {};
    bool shared = false;  // Whether any that it may be noted in is.
  };
  Places Look(const Identity& identity, std::int64_t horizon_us) const;

  static constexpr int kValueBits = 48;
  static constexpr int kTagBits = 14;
  static constexpr std::uint64_t kTagMask = (1 << kTagBits) - 1;
  static constexpr std::uint64_t kShared = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 63;

  const std::size_t lines_;
  Line* const cells_;
  std::int64_t until_us_ = 0;
};

}  // namespace sluice::memory
