// SPDX-License-Identifier: Apache-2.0
// An upper bound of what keys without a place in the table have used, in bounded memory.
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

// An upper bound of what a key has used. It means the same under any limit, so that keys of
// different limits can share one: the larger of two holds for both.
struct Bound {
  static constexpr std::int64_t kPartsFull = (1 << 12) - 1;

  // What is used of a window, in kPartsFull-ths of the limit, stays used until `until_us`. What is
  // used of a bucket flows back all the time, so `until_us` alone describes it.
  static constexpr std::int64_t kFlowsBack = -1;

  std::int64_t until_us = 0;  // From then on the budget is full; 0 if it is untouched.
  std::int64_t parts = 0;

  friend bool operator==(const Bound&, const Bound&) = default;
};

// The larger in every respect.
Bound Larger(const Bound& a, const Bound& b);

// The decision on a budget with this bound. A cost that no cell could record is denied.
Decision Decide(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t cost);

// The bound after `units` were taken, as a cell stores it. It holds if they were granted.
Bound Take(const Limit& limit, const Bound& bound, TimePoint now, std::int64_t units);

// A state with at least this much used. If it is a log, the caller owns it.
Packed StateOf(const Limit& limit, const Bound& bound);

SeenState See(const Limit& limit, const Bound& bound, TimePoint now);

// A fixed number of cells, in lines of eight. Each identity has four lines, and its cell may be in
// any of them. If all cells there are in use, it shares one of them, always the same, with that
// cell's owner. A cell is free again when everything recorded in it has recovered by the horizon.
// See docs/adr/0012.
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

  // For `keys` keys that fit in a table: cells for ten times as many clients that do not, under two
  // limits each, filled to five sixths, plus some spare in case chance sends more of them to one
  // shard.
  static constexpr std::size_t LinesFor(std::int64_t keys) {
    constexpr std::int64_t kCellsPerKey = 24;
    constexpr std::int64_t kSpareLines = 8;
    constexpr std::int64_t kKeysMax = 1 << 24;  // Any more share the cells of this many.
    constexpr auto kCells = static_cast<std::int64_t>(kCellsPerLine);
    const std::int64_t cells = std::min(keys, kKeysMax) * kCellsPerKey;
    return static_cast<std::size_t>((cells + kCells - 1) / kCells + kSpareLines);
  }

  // What an identity may have used, as far as it is recorded here.
  Bound Noted(const Identity& identity, std::int64_t horizon_us) const {
    return Look(identity, horizon_us).bound;
  }

  // The same to decide on: if it could only be recorded in a stranger's cell, what is used there.
  Bound Find(const Identity& identity, std::int64_t horizon_us) const;

  // Records, where Find will see it, that at most this much is used.
  void Raise(const Identity& identity, const Bound& bound, std::int64_t horizon_us);

  enum class Forgot { kNothing, kAll, kShared };
  // kShared: others share the cell, so it stays.
  Forgot Forget(const Identity& identity, std::int64_t horizon_us);

  std::int64_t until_us() const { return until_us_; }  // When all of it has recovered.
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

  // Where an identity is or could be recorded; null if there is no such cell.
  struct Places {
    Cell* own = nullptr;   // In use, with its tag; `bound` covers all such cells.
    Cell* free = nullptr;  // In its emptiest line.
    Cell* home = nullptr;  // Shared if there is neither.
    Bound bound = {};
    bool shared = false;  // Whether any cell that it may be recorded in is shared.
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
