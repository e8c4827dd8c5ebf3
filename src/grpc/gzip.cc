// SPDX-License-Identifier: Apache-2.0
#include "grpc/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sluice::grpc {
namespace {

constexpr std::size_t kFirstBytes = 4096;  // Of output, at first.
constexpr int kGzipOnly = 16 + MAX_WBITS;

// Frees what zlib allocated on every path.
class Inflater {
 public:
  Inflater() : ready_(inflateInit2(&stream_, kGzipOnly) == Z_OK) {}
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool ready() const { return ready_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
  bool ready_;
};

}  // namespace

Expected<std::string> Gunzip(std::string_view compressed, std::size_t bytes_max) {
  Inflater inflater;
  if (!inflater.ready()) {
    return std::unexpected(Error{ErrorCode::kTooLarge, "no memory to decompress a message"});
  }
  z_stream& stream = inflater.stream();
  // zlib's type is not const, but zlib does not write there.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());

  std::string out;
  int result = Z_OK;
  while (result == Z_OK) {
    // One byte more than allowed, to notice a stream that is too long.
    const std::size_t room = std::min(std::max(out.size() * 2, kFirstBytes), bytes_max + 1);
    const std::size_t filled = out.size();
    out.resize(room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(room - filled);
    result = inflate(&stream, Z_NO_FLUSH);
    out.resize(room - stream.avail_out);
    if (out.size() > bytes_max) {
      return std::unexpected(
          Error{ErrorCode::kTooLarge,
                text::Cat("a compressed message holds more than ", bytes_max, " bytes")});
    }
    // There is always room for output, so no progress means that the input has ended.
    if (result == Z_OK && stream.avail_in == 0 && stream.avail_out > 0) break;
  }
  if (result != Z_STREAM_END || stream.avail_in != 0) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput, "a compressed message is not one whole gzip stream"});
  }
  return out;
}

}  // namespace sluice::grpc
