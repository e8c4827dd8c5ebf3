// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace sluice::cli {

// A progress bar on standard error, if that is a terminal and the work takes longer than a moment.
class Progress {
 public:
  // `total` is 0 if it is not known.
  Progress(std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap enough to be called every few thousand steps.
  void Update(std::int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string label_;
  const std::int64_t total_;
  const bool terminal_;
  Clock::time_point next_draw_;
  bool drawn_ = false;
};

}  // namespace sluice::cli
