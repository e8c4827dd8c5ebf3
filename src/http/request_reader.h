// SPDX-License-Identifier: Apache-2.0
// Reads requests from the bytes of a connection, without I/O.
//
// Strict, because a server that guesses where a request ends can be made to disagree with the proxy
// before it (request smuggling): whatever RFC 9112 lets a server refuse is refused, with the one
// exception of an empty line before a request. A refusal is final: its sender cannot be trusted
// about where the next request starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/limits.h"
#include "http/message.h"

namespace sluice::http {

// Why a request is not served.
struct Refusal {
  int status = 0;
  std::string_view code;  // For programs, e.g. "BAD_REQUEST". Static.
  std::string message;    // For people.
};

class RequestReader {
 public:
  enum class Status : std::uint8_t { kIncomplete, kRequest, kRefused };
  enum class Phase : std::uint8_t { kIdle, kHead, kBody };  // What has arrived of the next one.

  // The limits outlive the reader.
  explicit RequestReader(const Limits& limits) : limits_(limits) {}

  // Returns room for more bytes, never none; call Commit with how many were read. Invalidates what
  // the last request points to.
  std::span<char> Prepare();
  void Commit(std::size_t bytes) { end_ += bytes; }

  // The next request among the bytes that have arrived. It points into the reader.
  Status Next(Request& request);
  const Refusal& refusal() const { return refusal_; }

  // After kIncomplete.
  Phase phase() const {
    return head_size_ > 0 ? Phase::kBody : buffered() > 0 ? Phase::kHead : Phase::kIdle;
  }
  // Whether the client waits for "100 Continue" before it sends the body. True once per request.
  bool TakeExpectation();

  // Bytes that do not belong to a returned request.
  std::size_t buffered() const { return end_ - begin_; }
  // The memory for them, and for more to come.
  std::size_t capacity() const { return capacity_; }

 private:
  // What the head says about the whole request.
  struct Framing {
    bool has_host = false;
    bool has_length = false;
    bool chunked = false;
    bool close = false;
    bool keep_alive = false;
    bool expects_continue = false;
    std::size_t length = 0;
  };
  enum class ChunkPart : std::uint8_t { kSize, kData, kDataEnd, kTrailers, kDone };

  // Those that return bool return whether to go on; if not, there is a refusal.
  bool Refuse(int status, std::string_view code, std::string message);
  bool BadRequest(std::string message) { return Refuse(400, "BAD_REQUEST", std::move(message)); }
  bool RefuseTarget();
  bool RefuseHead(std::string_view what);
  bool RefuseBody();

  bool FindHead();
  bool CheckStart(std::string_view line);
  bool ReadHead(Request& request, Framing& framing);
  bool ReadRequestLine(const char*& at, Request& request);
  bool ReadTarget(Request& request);
  bool ReadField(const char*& at, const char* end, Header& header);
  bool ReadFraming(const Header& header, Request& request, Framing& framing);
  bool ReadHost(std::string_view value, Request& request, Framing& framing);
  bool ReadLength(std::string_view value, Framing& framing);
  bool ReadCoding(std::string_view value, const Request& request, Framing& framing);
  bool CheckFraming(Request& request, const Framing& framing);

  bool ReadChunks();
  bool TakeChunkData();
  bool ReadChunkEnd();
  bool ReadChunkLine();
  bool ReadChunkSize(std::string_view line);
  bool ReadTrailer(std::string_view line);
  bool AddOverhead(std::size_t bytes);
  void CloseGap();

  const Limits& limits_;
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;  // Start of the bytes of no returned request.
  std::size_t end_ = 0;    // End of the bytes that have arrived.
  std::vector<Header> headers_;
  Refusal refusal_;

  // Of the next request; offsets count from begin_.
  std::size_t line_ = 0;       // The first incomplete line of the head.
  std::size_t scanned_ = 0;    // No further end of a line up to here.
  std::size_t lines_ = 0;      // Complete ones.
  bool skipped_line_ = false;  // An empty one before the request.
  std::size_t head_size_ = 0;  // 0 until the head is complete.
  bool chunked_ = false;
  bool expects_continue_ = false;
  std::size_t body_size_ = 0;  // As announced, or as decoded from chunks so far.
  // Chunks are joined in place, after the head.
  ChunkPart chunk_part_ = ChunkPart::kSize;
  std::size_t chunk_left_ = 0;
  std::size_t raw_ = 0;       // Where encoded bytes start.
  std::size_t overhead_ = 0;  // Bytes of chunk extensions and trailers.
};

}  // namespace sluice::http
