// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "replay/record.h"

namespace sluice::cli {

// `sluice replay`: what would these limits have done to this traffic?
class ReplayCommand {
 public:
  explicit ReplayCommand(CLI::App& app);

  // The exit status.
  int Run() const;

 private:
  std::vector<std::string> limits_;
  std::string store_ = "memory";
  std::string file_ = "-";
  std::string format_;
  bool decisions_ = false;
  bool json_ = false;
  bool skip_bad_ = false;
};

}  // namespace sluice::cli
