// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::cli {

// Output that is held back until it is complete, in bounded memory: what does not fit goes to an
// unnamed temporary file.
class Spool {
 public:
  Expected<void> Append(std::string_view bytes);

  // Copies everything to `out` and flushes it.
  Expected<void> WriteTo(std::FILE* out);

 private:
  Expected<void> Spill();

  std::string buffer_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
};

// Writes all of it and flushes. Error: kIo.
Expected<void> WriteAll(std::FILE* out, std::string_view bytes);

}  // namespace sluice::cli
