// SPDX-License-Identifier: Apache-2.0
#include "cli/spool.h"

#include <cerrno>
#include <system_error>

#include "base/text.h"

namespace sluice::cli {
namespace {

constexpr std::size_t kBufferBytes = 16 << 20;

std::unexpected<Error> IoError(std::string_view what) {
  return std::unexpected(
      Error{ErrorCode::kIo, text::Cat(what, ": ", std::generic_category().message(errno))});
}

}  // namespace

Expected<void> WriteAll(std::FILE* out, std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), out) != bytes.size() || std::fflush(out) != 0) {
    return IoError("cannot write the output");
  }
  return {};
}

Expected<void> Spool::Append(std::string_view bytes) {
  buffer_ += bytes;
  return buffer_.size() < kBufferBytes ? Expected<void>{} : Spill();
}

Expected<void> Spool::Spill() {
  if (!file_) file_.reset(std::tmpfile());
  if (!file_ || std::fwrite(buffer_.data(), 1, buffer_.size(), file_.get()) != buffer_.size()) {
    return IoError("cannot write a temporary file");
  }
  buffer_.clear();
  return {};
}

Expected<void> Spool::WriteTo(std::FILE* out) {
  if (file_) {
    if (auto spilled = Spill(); !spilled) return spilled;
    if (std::fseek(file_.get(), 0, SEEK_SET) != 0) return IoError("cannot write a temporary file");
    std::string piece(kBufferBytes, '\0');
    while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), file_.get())) {
      if (auto written = WriteAll(out, {piece.data(), got}); !written) return written;
    }
    if (std::ferror(file_.get())) return IoError("cannot read a temporary file");
  }
  return WriteAll(out, buffer_);
}

}  // namespace sluice::cli
