// SPDX-License-Identifier: Apache-2.0
#include "replay/line_reader.h"

#include <cerrno>
#include <system_error>

namespace sluice::replay {

Expected<bool> LineReader::Fill() {
  constexpr std::size_t kChunk = 1 << 18;
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t have = buffer_.size();
  buffer_.resize(have + kChunk);
  const std::size_t got = std::fread(buffer_.data() + have, 1, kChunk, file_);
  buffer_.resize(have + got);
  bytes_read_ += static_cast<std::int64_t>(got);
  if (got == 0 && std::ferror(file_)) {
    return std::unexpected(Error{ErrorCode::kIo, std::generic_category().message(errno)});
  }
  at_end_ = got == 0;
  return got > 0;
}

Expected<LineReader::Status> LineReader::Next(std::string_view& line) {
  bool too_long = false;
  std::size_t searched = 0;  // No newline before this offset from begin_.
  while (true) {
    const auto newline = buffer_.find('\n', begin_ + searched);
    if (newline != std::string::npos) {
      line = std::string_view(buffer_).substr(begin_, newline - begin_);
      begin_ = newline + 1;
      break;
    }
    searched = buffer_.size() - begin_;
    if (searched > kLineBytesMax) {
      too_long = true;
      begin_ = buffer_.size();
      searched = 0;
    }
    const auto filled = Fill();
    if (!filled) return std::unexpected(filled.error());
    if (*filled) continue;
    if (begin_ == buffer_.size() && !too_long) return Status::kEnd;
    line = std::string_view(buffer_).substr(begin_);  // The last line needs no newline.
    begin_ = buffer_.size();
    break;
  }
  ++line_number_;
  return too_long || line.size() > kLineBytesMax ? Status::kTooLong : Status::kLine;
}

}  // namespace sluice::replay
