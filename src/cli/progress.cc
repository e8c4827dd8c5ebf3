// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace sluice::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kQuietFor = 1s;
constexpr auto kRedrawEvery = 100ms;
constexpr std::int64_t kBarWidth = 40;

}  // namespace

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_draw_(Clock::now() + kQuietFor) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::Update(std::int64_t done) {
  if (!terminal_ || Clock::now() < next_draw_) return;
  next_draw_ = Clock::now() + kRedrawEvery;
  drawn_ = true;
  if (total_ == 0) {
    std::fprintf(stderr, "\r%s: %lld MB read", label_.c_str(),
                 static_cast<long long>(done / 1'000'000));
    return;
  }
  const std::int64_t share = std::min(done, total_) * kBarWidth / total_;
  const std::string bar = std::string(static_cast<std::size_t>(share), '#') +
                          std::string(static_cast<std::size_t>(kBarWidth - share), '.');
  std::fprintf(stderr, "\r%s: [%s] %3lld %%", label_.c_str(), bar.c_str(),
               static_cast<long long>(std::min(done, total_) * 100 / total_));
}

}  // namespace sluice::cli
