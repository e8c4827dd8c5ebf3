// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace sluice::cli {

// sluice validate FILE...: reports all problems of configuration files, rule sets and files of
// envoyproxy/ratelimit.
class ValidateCommand {
 public:
  explicit ValidateCommand(CLI::App& app);
  const CLI::App* app() const { return app_; }
  int Run() const;

 private:
  CLI::App* app_;
  std::vector<std::string> paths_;
  bool rls_merge_domains_ = false;
};

}  // namespace sluice::cli
