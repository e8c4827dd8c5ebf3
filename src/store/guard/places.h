// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::guard {

// The places in flight, and who may have one. While at most a quarter is taken, anybody may. Beyond
// that:
// - fresh keys, which the store has not answered for lately, get another quarter together, so that
//   a flood of them leaves half of all places to known keys;
// - a limit gets at most twice the number that are free, of those for fresh keys and of all. Alone,
//   that is two thirds of them, and less the more others want, so that there are always some left
//   for the next;
// - a client gets an eighth of all.
// A few places are not worth sharing: fewer than kSharedFrom go to anybody.
class Places {
 public:
  static constexpr std::size_t kSharedFrom = 32;

  // Who asks. Those with the same number are treated as one.
  struct Requester {
    std::uint64_t limit;
    std::uint64_t client;
    bool known;
  };

  // How a place that was taken while places were scarce is counted.
  struct ScarcePlace {
    std::uint16_t limit;
    std::uint16_t client;
    bool known;
  };

  explicit Places(std::size_t max);

  enum class Taken : std::uint8_t { kNo, kYes, kScarce };

  // Takes one. `requester` is called, and `place` set, only while places are scarce.
  template <typename RequesterOf>
  Taken Take(const RequesterOf& requester, ScarcePlace& place) {
    const bool plenty = taken_ < plenty_;
    if (!plenty && (taken_ >= max_ || !Share(requester(), max_ - taken_, place))) return Taken::kNo;
    ++taken_;
    return plenty ? Taken::kYes : Taken::kScarce;
  }

  // Takes one for anybody, up to `more` beyond the maximum.
  bool TakeBeyond(std::size_t more);

  // Gives back `count` places, including those of `scarce_places`.
  void Release(std::size_t count, std::span<const ScarcePlace> scarce_places);

  std::size_t taken() const { return taken_; }

 private:
  static constexpr std::size_t kLimits = 256;
  static constexpr std::size_t kClients = 4'096;
  using Count = std::uint32_t;

  bool Share(const Requester& requester, std::size_t free, ScarcePlace& place);
  bool ShareFresh(std::size_t limit);
  void ReleaseLimit(const ScarcePlace& place);

  // Constant after construction.
  const std::size_t max_;
  const std::size_t plenty_;
  const std::uint32_t fresh_max_;
  const std::uint32_t client_max_;

  std::size_t taken_ = 0;
  // Only places that were taken while they were scarce.
  Count fresh_ = 0;
  std::array<Count, kLimits> fresh_of_{};  // By limit.
  std::array<Count, kLimits> known_of_{};
  std::array<Count, kClients> clients_{};
};

}  // namespace sluice::guard
