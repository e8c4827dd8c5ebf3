// SPDX-License-Identifier: Apache-2.0
// The server's side of one HTTP/2 connection that carries gRPC calls, without any I/O: bytes that
// came in go to Receive, bytes to write come out of Produce.
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
  For who = For::kAnyone;  // kCallers: those whom Handler::LetsIn takes.
};

// Not thread-safe. Nothing that a client sends is an error of ours: it is answered with a status, a
// stream error or GOAWAY, and every flood runs into one of the maxima below.
class Session {
 public:
  struct Limits {
    std::size_t message_bytes_max = std::size_t{4} << 20;  // As gRPC has it.
    // Of one that comes compressed. Few bytes can ask for much work, on a loop that others share.
    std::size_t unpacked_bytes_max = std::size_t{64} << 10;

    // Messages of all calls that have arrived in part.
    std::size_t buffered_bytes_max = std::size_t{16} << 20;

    // Replies of all calls that the client does not take.
    std::size_t reply_bytes_max = std::size_t{1} << 20;

    std::uint32_t streams_max = 1024;
    std::size_t header_bytes_max = std::size_t{16} << 10;  // Of a call, as HPACK counts them.

    // In a flood window; beyond, the connection ends with ENHANCE_YOUR_CALM. Resets are calls that
    // the client starts and gives up, gets reset by errors of its own, or starts beyond
    // streams_max; a proxy whose deadlines pass while a store is slow sends some hundreds. Quiet
    // frames are those that ask for nothing: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, CONTINUATION,
    // empty DATA, and all that are unknown. Clients that get replies may measure how fast they
    // come, and make room for more of them: each call that was answered makes up for some.
    std::uint32_t resets_max = 1000;
    std::uint32_t quiet_frames_max = 1000;
    std::uint32_t quiet_frames_a_call = 10;
    std::chrono::milliseconds flood_window{1000};

    // For a message: from the headers of its call, or its own first byte if it is not the first, to
    // its end.
    std::chrono::milliseconds receive_timeout{30'000};
    // For the next message of a call that brings many.
    std::chrono::milliseconds next_message_timeout{300'000};
    // For the client to take all of a call's replies. A call whose client waits for replies, as one
    // that watches does, has none of these timeouts.
    std::chrono::milliseconds send_timeout{30'000};
  };

  // What is called. Sending, replying and finishing are allowed inside.
  class Handler {
   public:
    virtual ~Handler() = default;

    // Null: there is no such method. The method outlives the session.
    virtual const Method* FindMethod(std::string_view path) = 0;

    // Whether a call with this authorization, which may be empty, is that of a caller.
    virtual bool LetsIn(std::string_view /*authorization*/) { return true; }

    // Whether RequestIdOf will be asked; only then are they kept.
    virtual bool WantsRequestIds() { return false; }

    // A message has come, not compressed any more. Of a method with one request: the call is
    // complete. The text lives until this returns.
    virtual void OnMessage(StreamId id, const Method& method, std::string_view message) = 0;

    // The client will send no more. Only for methods with many requests.
    virtual void OnHalfClose(StreamId id, const Method& method) = 0;

    // A call that OnMessage or OnHalfClose knows has ended without Finish: cancelled, out of time
    // or against a maximum. Not said when the session is destroyed.
    virtual void OnAbandoned(StreamId id, const Method& method) = 0;

    // A call is answered with this error, whoever found it: for those who count answers.
    virtual void OnError(StatusCode /*code*/) {}
  };

  // The handler and the counters outlive the session.
  Session(Handler& handler, const Limits& limits, Counters& counters);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void Receive(std::string_view bytes, SteadyTime now);

  // What an open call's client calls it, in x-request-id or else traceparent; empty if it does not.
  std::string_view RequestIdOf(StreamId id);

  // Appends what is to be written, until `out` is `bytes_max` long or somewhat longer.
  void Produce(std::string& out, std::size_t bytes_max);

  // Calls that are over or unknown are passed over in all of these.
  void Reply(StreamId id, std::string_view message);
  void Finish(StreamId id, Status status);
  void ReplyAndFinish(StreamId id, std::string_view message);

  // Ends calls whose time has come.
  void Expire(SteadyTime now);
  // When Expire has something to do at the earliest.
  std::optional<SteadyTime> NextExpiry() const;
  // Ends calls whose replies are not taken, and returns whether there were any; to be called now
  // and then.
  bool ExpireReplies(SteadyTime now);

  // No new calls: says so at once, and means it when the client has heard it.
  void Drain();
  // Nothing more of anything, but for a last word.
  void Terminate();
  // Asks the client for a sign of life.
  void Ping();

  // Nothing more will be read; close when all that Produce gave is written.
  bool finished() const;
  // The client has said who it is.
  bool greeted() const { return greeted_; }
  std::size_t open_calls() const { return open_.size(); }

  // About how many bytes it holds for the client: calls, and messages that wait for the rest of
  // them or to be sent.
  std::size_t held_bytes() const;
  // Lets go of what is kept for calls to come.
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
