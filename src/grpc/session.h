// SPDX-License-Identifier: Apache-2.0
// The server's side of one HTTP/2 connection that carries gRPC calls, without I/O: received bytes
// go to Receive, bytes to write come from Produce.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grpc/counters.h"
#include "grpc/frame_filter.h"
#include "grpc/status.h"

struct nghttp2_session;

namespace sluice::grpc {

using StreamId = std::int32_t;
using SteadyTime = std::chrono::steady_clock::time_point;

struct Method {
  enum class Requests : std::uint8_t { kOne, kMany };

  enum class For : std::uint8_t { kAnyone, kCallers };

  std::string_view path;  // "/package.Service/Method"
  Requests requests;
  For who = For::kAnyone;  // kCallers: those that Handler::LetsIn accepts.
};

// Not thread-safe. Nothing that a client sends is our error: it is answered with a status, a stream
// error or GOAWAY, and every flood hits one of the limits below.
class Session {
 public:
  struct Limits {
    std::size_t message_bytes_max = std::size_t{4} << 20;  // The default of gRPC.
    // For compressed ones. Few bytes can cause much work, on a loop that others share.
    std::size_t unpacked_bytes_max = std::size_t{64} << 10;

    // Partial messages of all calls.
    std::size_t buffered_bytes_max = std::size_t{16} << 20;

    // Replies of all calls that the client has not read.
    std::size_t reply_bytes_max = std::size_t{1} << 20;

    std::uint32_t streams_max = 1024;
    std::size_t header_bytes_max = std::size_t{16} << 10;  // Per call, as HPACK counts them.

    // Per flood window; beyond, the connection ends with ENHANCE_YOUR_CALM. Resets are calls that
    // the client starts and gives up, loses by its own errors, or starts beyond streams_max; a
    // proxy whose deadlines pass while a store is slow sends some hundreds. Quiet frames ask for
    // nothing: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, CONTINUATION, empty DATA, and unknown ones.
    // Clients may send some to measure how fast replies come, and to make room for more: each
    // answered call makes up for some.
    std::uint32_t resets_max = 1000;
    std::uint32_t quiet_frames_max = 1000;
    std::uint32_t quiet_frames_a_call = 10;
    std::chrono::milliseconds flood_window{1000};

    // For a message: from the headers of its call, or from its own first byte if it is not the
    // first, to its end.
    std::chrono::milliseconds receive_timeout{30'000};
    // For the next message of a call with many.
    std::chrono::milliseconds next_message_timeout{300'000};
    // For the client to read all of a call's replies. A call whose client waits for replies, such
    // as a watch, has none of these timeouts.
    std::chrono::milliseconds send_timeout{30'000};
  };

  // Called by the session. It may send, reply and finish.
  class Handler {
   public:
    virtual ~Handler() = default;

    // Null: there is no such method. The method outlives the session.
    virtual const Method* FindMethod(std::string_view path) = 0;

    // Whether a call with this authorization, which may be empty, comes from a caller.
    virtual bool LetsIn(std::string_view /*authorization*/) { return true; }

    // Whether RequestIdOf will be called; ids are kept only then.
    virtual bool WantsRequestIds() { return false; }

    // A message has arrived, uncompressed. For a method with one request, the call is complete. The
    // text is valid until this returns.
    virtual void OnMessage(StreamId id, const Method& method, std::string_view message) = 0;

    // The client will send no more. Only for methods with many requests.
    virtual void OnHalfClose(StreamId id, const Method& method) = 0;

    // A call known from OnMessage or OnHalfClose has ended without Finish: cancelled, out of time
    // or over a limit. Not called when the session is destroyed.
    virtual void OnAbandoned(StreamId id, const Method& method) = 0;

    // A call is answered with this error, whoever found it: for counting answers.
    virtual void OnError(StatusCode /*code*/) {}
  };

  // The handler and the counters outlive the session.
  Session(Handler& handler, const Limits& limits, Counters& counters);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Receive(std::string_view bytes, SteadyTime now);

  // The client's id of an open call, from x-request-id or else traceparent; empty if there is none.
  std::string_view RequestIdOf(StreamId id);

  // Appends bytes to write, until `out` has `bytes_max` bytes or somewhat more.
  void Produce(std::string& out, std::size_t bytes_max);

  // All of these ignore calls that are over or unknown.
  void Reply(StreamId id, std::string_view message);
  void Finish(StreamId id, Status status);
  void ReplyAndFinish(StreamId id, std::string_view message);

  // Ends calls whose time is up.
  void Expire(SteadyTime now);
  // The earliest time at which Expire has something to do.
  std::optional<SteadyTime> NextExpiry() const;
  // Ends calls whose replies are not read, and returns whether there were any; call it now and
  // then.
  bool ExpireReplies(SteadyTime now);

  // No new calls: announces that at once, and enforces it once the client has seen it.
  void Drain();
  // Ends everything, after a final GOAWAY.
  void Terminate();
  // Checks that the client is alive.
  void Ping();

  // Nothing more will be read; close once everything from Produce is written.
  bool finished() const;
  // The client has sent its SETTINGS.
  bool greeted() const { return greeted_; }
  std::size_t open_calls() const { return open_.size(); }

  // About how many bytes it holds for the client: calls, partial messages, and messages to be sent.
  std::size_t held_bytes() const;
  // Frees what is kept for future calls.
  void DropSpare();

 private:
  struct Call;
  struct Callbacks;

  void Process(std::string_view bytes);
  Call* Find(StreamId id);
  void Open(StreamId id);
  void Close(Call& call);
  void OnHeader(Call& call, std::string_view name, std::string_view value);
  void OnHeadersEnd(Call& call);
  void OnData(Call& call, std::string_view bytes, bool last_frame);
  void OnRequestEnd(Call& call);
  void TakeMessages(Call& call);
  void TakeMessage(Call& call, std::string_view framed);
  void Refuse(Call& call, StatusCode code, std::string message);
  void SubmitStatus(Call& call, std::string_view http_status);
  void SubmitReplies(Call& call);
  void End(Call& call, Status status, std::string_view http_status = "200");
  void CountQuietFrame();
  void CountReset();
  void StartFloodWindow();
  void Flood();

  // Constant after construction.
  Handler& handler_;
  const Limits limits_;
  Counters& counters_;

  FrameFilter frame_filter_;
  nghttp2_session* session_ = nullptr;
  std::vector<std::unique_ptr<Call>> open_;  // Each knows its place.
  std::vector<std::unique_ptr<Call>> spare_;
  Call* last_found_ = nullptr;
  SteadyTime now_{};
  SteadyTime flood_window_start_{};
  std::uint32_t resets_in_window_ = 0;
  std::uint32_t quiet_frames_ = 0;
  std::size_t buffered_bytes_ = 0;
  std::size_t reply_bytes_ = 0;
  bool greeted_ = false;
  bool broken_ = false;
  bool flooded_ = false;
};

}  // namespace sluice::grpc
