// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::replay {

// Lines of a file or a pipe, one at a time, in bounded memory.
class LineReader {
 public:
  static constexpr std::size_t kLineBytesMax = 1 << 20;

  // Does not own the file.
  explicit LineReader(std::FILE* file) : file_(file) {}

  enum class Status { kLine, kTooLong, kEnd };

  // Returns the next line without its newline, valid until the next call. A line that is too long
  // is skipped as a whole and reported once. Error: kIo.
  Expected<Status> Next(std::string_view& line);

  std::int64_t line_number() const { return line_number_; }
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  Expected<bool> Fill();

  std::FILE* const file_;
  std::string buffer_;
  std::size_t begin_ = 0;  // Start of the next line in the buffer.
  std::int64_t line_number_ = 0;
  std::int64_t bytes_read_ = 0;
  bool at_end_ = false;
};

}  // namespace sluice::replay
