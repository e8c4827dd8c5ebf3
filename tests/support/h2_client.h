// SPDX-License-Identifier: Apache-2.0
// The other side of a gRPC connection, without I/O, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct nghttp2_session;

namespace sluice::test {

using Headers = std::vector<std::pair<std::string, std::string>>;

// A gRPC message with its prefix.
std::string Framed(std::string_view message, char compressed = 0);
std::string Gzip(std::string_view text);

class H2Client {
 public:
  struct Stream {
    Headers headers;
    Headers trailers;
    std::string data;
    bool closed = false;
    std::uint32_t close_code = 0;

    // Of the headers or the trailers; empty if it is missing.
    std::string Field(std::string_view name) const;
    std::string grpc_status() const { return Field("grpc-status"); }
    std::string grpc_message() const { return Field("grpc-message"); }
    std::vector<std::string> Messages() const;

    // The request body.
    std::string body;
    std::size_t sent = 0;
    bool end = true;
    bool waiting = false;
  };

  struct Options {
    std::uint32_t window = 65'535;  // For what each stream receives.
    bool auto_window_update = true;
  };

  H2Client() : H2Client(Options{}) {}
  explicit H2Client(const Options& options);
  ~H2Client();
  H2Client(const H2Client&) = delete;
  H2Client& operator=(const H2Client&) = delete;

  static Headers CallHeaders(std::string_view path);

  // A call with these headers and bytes of body; stays open unless `end`.
  std::int32_t Start(const Headers& headers, std::string body, bool end = true);
  std::int32_t Call(std::string_view path, std::string_view message) {
    return Start(CallHeaders(path), Framed(message));
  }
  void Send(std::int32_t id, std::string_view more, bool end);
  void Cancel(std::int32_t id);
  void Ping();
  void Consume(std::int32_t id, std::size_t bytes);

  // Bytes to the server, and from it.
  std::string Take();
  void Feed(std::string_view bytes);

  const Stream& stream(std::int32_t id) { return streams_[id]; }
  std::optional<std::uint32_t> goaway() const { return goaway_; }
  std::int32_t goaway_last_stream() const { return goaway_last_stream_; }
  int pongs() const { return pongs_; }

 private:
  struct Callbacks;

  nghttp2_session* session_ = nullptr;
  std::map<std::int32_t, Stream> streams_;
  std::optional<std::uint32_t> goaway_;
  std::int32_t goaway_last_stream_ = 0;
  int pongs_ = 0;
};

}  // namespace sluice::test
