// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "resp/options.h"

namespace sluice::resp {

// Parses what clients send to a Redis server: commands as arrays of bulk strings or, typed by hand,
// as lines of text. Refuses what Redis refuses, in its words, and what exceeds the bounds.
//
// Arguments are not copied. Work is proportional to the bytes, however they are split.
class RequestParser {
 public:
  enum class Status { kRequest, kIncomplete, kError };

  explicit RequestParser(const Bounds& bounds) : bounds_(bounds) {}

  // `bytes` starts where the current request starts, and holds at least what it held in the
  // previous call if that returned kIncomplete (it may have moved). Escapes in a line of text are
  // resolved in place. After kError the connection is unusable.
  //
  // An untrusted peer may send only a few short arguments.
  Status Parse(std::span<char> bytes, bool trusted);

  // After kRequest, until the next call. If there are no arguments, there is nothing to answer.
  std::span<const std::string_view> arguments() const { return arguments_; }
  std::size_t consumed() const { return consumed_; }

  // After kError: what to tell the peer.
  const std::string& error() const { return error_; }

 private:
  struct Piece {
    std::size_t offset;
    std::size_t size;
  };

  Status ParseArray(std::string_view bytes, bool trusted);
  Status ParseInline(std::span<char> bytes);
  Status Suspend(std::string_view bytes);
  void Resume(std::string_view bytes);
  Status Fail(std::string_view reason);

  const Bounds bounds_;
  std::vector<std::string_view> arguments_;
  std::vector<Piece> pieces_;  // The arguments of an incomplete request, whose bytes may move.
  std::size_t consumed_ = 0;   // Where the next part of the request starts.
  std::size_t due_ = 0;        // Arguments still to come; 0 between requests.
  std::size_t scanned_ = 0;    // No line of text ends before this.
  std::string error_;
};

}  // namespace sluice::resp
