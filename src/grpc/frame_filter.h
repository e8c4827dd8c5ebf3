// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::grpc {

// Sees every frame that an HTTP/2 client sends, including those that nghttp2 does not report.
//
// Leaves out the resets of streams that the client never opened. gRPC's C core sends those when a
// call is cancelled between being numbered and being written. RFC 9113 5.1 makes them an error of
// the whole connection, which would fail every other call on it.
//
// Reports quiet frames, which ask for nothing: all but HEADERS, DATA that is not empty or ends a
// request, and RST_STREAM. Unknown types of frames are quiet.
class FrameFilter {
 public:
  // Calls `pass` with all bytes except those left out, in as few pieces as the gaps allow,
  // `leave_out` for each reset, and `on_quiet` for each quiet frame. Keeps a partial frame header
  // until the rest arrives.
  void Filter(std::string_view bytes, std::invocable<std::string_view> auto pass,
              std::invocable auto leave_out, std::invocable auto on_quiet) {
    if (held_ > 0) {
      const std::size_t taken = Hold(bytes);
      bytes.remove_prefix(taken);
      if (held_ < kHeaderBytes) return;
      held_ = 0;
      const std::string_view header(header_.data(), header_.size());
      Begin(header);
      if (idle_) {
        leave_out();
      } else {
        pass(header);
      }
      if (quiet_) on_quiet();
    }
    std::size_t from = 0;  // Start of the bytes not passed yet.
    std::size_t at = 0;
    while (true) {
      const std::size_t payload = std::min(payload_left_, bytes.size() - at);
      payload_left_ -= payload;
      at += payload;
      if (idle_) from = at;
      if (bytes.size() - at < kHeaderBytes) break;
      Begin(bytes.substr(at, kHeaderBytes));
      if (idle_) {
        if (from < at) pass(bytes.substr(from, at - from));
        leave_out();
      }
      if (quiet_) on_quiet();
      at += kHeaderBytes;
    }
    if (from < at) pass(bytes.substr(from, at - from));
    Hold(bytes.substr(at));
  }

 private:
  static constexpr std::size_t kPrefaceBytes = 24;
  static constexpr std::size_t kHeaderBytes = 9;

  // Returns how many of the bytes belong to the header.
  std::size_t Hold(std::string_view bytes) {
    const std::size_t count = std::min(bytes.size(), kHeaderBytes - held_);
    std::copy_n(bytes.data(), count, header_.data() + held_);
    held_ += count;
    return count;
  }

  void Begin(std::string_view header) {
    const auto byte = [&](std::size_t i) {
      return std::uint32_t{static_cast<unsigned char>(header[i])};
    };
    const std::uint32_t size = byte(0) << 16U | byte(1) << 8U | byte(2);
    const std::uint32_t stream = (byte(5) & 127U) << 24U | byte(6) << 16U | byte(7) << 8U | byte(8);
    static constexpr std::uint32_t kData = 0;
    static constexpr std::uint32_t kHeaders = 1;
    static constexpr std::uint32_t kRstStream = 3;
    static constexpr std::uint32_t kRstStreamBytes = 4;
    static constexpr std::uint32_t kEndStream = 1;
    const std::uint32_t type = byte(3);
    const bool from_client = stream % 2 == 1;
    const bool data = type == kData && (size > 0 || (byte(4) & kEndStream) != 0);
    payload_left_ = size;
    idle_ = type == kRstStream && size == kRstStreamBytes && from_client && stream > opened_;
    quiet_ = !data && type != kHeaders && type != kRstStream;
    if (type == kHeaders && from_client) opened_ = std::max(opened_, stream);
  }

  std::array<char, kHeaderBytes> header_{};
  std::size_t held_ = 0;                      // Bytes of the header.
  std::size_t payload_left_ = kPrefaceBytes;  // Bytes of the frame.
  bool idle_ = false;                         // The frame is left out.
  bool quiet_ = false;                        // The frame asks for nothing.
  std::uint32_t opened_ = 0;                  // The last stream that was opened.
};

}  // namespace sluice::grpc
