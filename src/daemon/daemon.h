// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <memory>
#include <string>

#include "base/problem.h"
#include "config/settings.h"

namespace sluice::daemon {

// The whole service: the one place that names every part.
class Daemon {
 public:
  // Starts everything; the doors are open when it returns. Reports everything that keeps it from
  // starting, one problem each. The warnings are logged once it has started.
  static std::expected<std::unique_ptr<Daemon>, Problems> Start(const config::Settings& settings,
                                                                const std::string& config_path,
                                                                const Problems& warnings);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Serves until SIGTERM or SIGINT.
  void Run();

 private:
  class Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::daemon
