// SPDX-License-Identifier: Apache-2.0
#include "grpc/session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "base/text.h"
#include "grpc/gzip.h"
#include "grpc/metadata.h"

namespace sluice::grpc {
namespace {

constexpr std::size_t kPrefixBytes = 5;  // Whether it is compressed, and its length.
constexpr std::int32_t kConnectionWindow = 1 << 20;
constexpr std::size_t kSpareCallsMax = 128;
constexpr std::size_t kSpareBufferBytesMax = 1024;
// The memory of a call without messages, including nghttp2's; a little more than measured.
constexpr std::size_t kCallBytes = 1024;
constexpr std::array<std::uint8_t, 8> kDrainPing = {'s', 'l', 'u', 'i', 'c', 'e', ' ', 'd'};

std::string_view View(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// Names and values that live until the frame is sent are not copied.
nghttp2_nv Field(std::string_view name, std::string_view value, int flags) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  return {.name = bytes(name),
          .value = bytes(value),
          .namelen = name.size(),
          .valuelen = value.size(),
          .flags = static_cast<std::uint8_t>(NGHTTP2_NV_FLAG_NO_COPY_NAME | flags)};
}
nghttp2_nv StaticField(std::string_view name, std::string_view value) {
  return Field(name, value, NGHTTP2_NV_FLAG_NO_COPY_VALUE);
}
nghttp2_nv CopiedField(std::string_view name, std::string_view value) {
  return Field(name, value, NGHTTP2_NV_FLAG_NONE);
}

std::uint32_t LengthIn(std::string_view prefix) {
  const auto byte = [&](std::size_t i) {
    return std::uint32_t{static_cast<unsigned char>(prefix[i])};
  };
  return byte(1) << 24U | byte(2) << 16U | byte(3) << 8U | byte(4);
}

void AppendFramed(std::string& out, std::string_view message) {
  const auto size = static_cast<std::uint32_t>(message.size());
  const auto byte = [&](unsigned shift) { return static_cast<char>(size >> shift & 255U); };
  const std::array<char, kPrefixBytes> prefix = {'\0', byte(24), byte(16), byte(8), byte(0)};
  out.append(prefix.data(), prefix.size());
  out += message;
}

void Clear(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kSpareBufferBytesMax) buffer.shrink_to_fit();
}

}  // namespace

struct Session::Call {
  enum class Encoding : std::uint8_t { kIdentity, kGzip, kUnknown };

  StreamId id = 0;
  std::size_t place = 0;  // In open_.

  // From the headers.
  const Method* method = nullptr;
  std::string unknown_path;
  std::string request_id;
  std::size_t header_bytes = 0;
  bool post = false;
  bool content_type = false;
  bool timeout_malformed = false;
  bool let_in = false;
  Encoding encoding = Encoding::kIdentity;
  std::optional<SteadyTime> deadline;
  std::optional<SteadyTime> receive_by;  // For the next message.

  std::string in;              // Partial messages.
  bool request_ended = false;  // The client sends no more.
  bool known = false;          // To the handler.

  std::string out;  // Framed replies.
  std::size_t sent = 0;
  std::optional<SteadyTime> send_by;  // For all of them, once they were seen waiting.

  bool ended = false;      // `status` is final.
  bool submitted = false;  // The reply's headers.
  bool waiting = false;    // For something to send.
  Status status;

  // As new, but keeps its memory.
  void Reset() {
    method = nullptr;
    Clear(unknown_path);
    Clear(request_id);
    header_bytes = 0;
    post = content_type = timeout_malformed = let_in = false;
    encoding = Encoding::kIdentity;
    deadline.reset();
    receive_by.reset();
    Clear(in);
    request_ended = known = false;
    Clear(out);
    sent = 0;
    send_by.reset();
    ended = submitted = waiting = false;
    status.message.clear();
  }

  // The nearer of the two.
  std::optional<SteadyTime> expiry() const {
    if (ended) return std::nullopt;
    if (!receive_by || !deadline) return receive_by ? receive_by : deadline;
    return std::min(*receive_by, *deadline);
  }
};

// Callbacks of nghttp2. Returning anything but zero would end the session.
struct Session::Callbacks {
  static Session& Self(void* user) { return *static_cast<Session*>(user); }

  static int OnBeginHeaders(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) Self(user).Open(frame->hd.stream_id);
    return 0;
  }

  static int OnHeader(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                      const std::uint8_t* name, std::size_t name_size, const std::uint8_t* value,
                      std::size_t value_size, std::uint8_t /*flags*/, void* user) {
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Session& self = Self(user);
    Call* call = self.Find(frame->hd.stream_id);
    if (call) self.OnHeader(*call, View(name, name_size), View(value, value_size));
    return 0;
  }

  static int OnData(nghttp2_session* /*session*/, std::uint8_t flags, std::int32_t id,
                    const std::uint8_t* bytes, std::size_t size, void* user) {
    Session& self = Self(user);
    Call* call = self.Find(id);
    if (call) self.OnData(*call, View(bytes, size), (flags & NGHTTP2_FLAG_END_STREAM) != 0);
    return 0;
  }

  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    Session& self = Self(user);
    const bool end_stream = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: {
        // Only padding; the filter has counted empty frames without padding.
        if (frame->hd.type == NGHTTP2_DATA && frame->data.padlen > 0 &&
            frame->hd.length == frame->data.padlen && !end_stream) {
          self.CountQuietFrame();
        }
        Call* call = self.Find(frame->hd.stream_id);
        if (!call) return 0;
        if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
          self.OnHeadersEnd(*call);
        }
        if (end_stream) self.OnRequestEnd(*call);
        return 0;
      }
      case NGHTTP2_RST_STREAM:
        self.CountReset();
        return 0;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 &&
            std::memcmp(frame->ping.opaque_data, kDrainPing.data(), kDrainPing.size()) == 0) {
          const std::int32_t last = nghttp2_session_get_last_proc_stream_id(session);
          nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, nullptr, 0);
        }
        return 0;
      case NGHTTP2_SETTINGS:
        self.greeted_ = true;
        return 0;
      default:
        return 0;
    }
  }

  static int OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    Session& self = Self(user);
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
      // Resets that a client causes by its own errors count like its own. So do streams beyond the
      // maximum, though it may not know the maximum yet: a client that never acknowledges it could
      // open them forever.
      if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR) self.CountReset();
      return 0;
    }
    if (frame->hd.type != NGHTTP2_HEADERS) return 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    self.quiet_frames_ -= std::min(self.quiet_frames_, self.limits_.quiet_frames_a_call);
    const Call* call = self.Find(frame->hd.stream_id);
    if (call && !call->request_ended) {
      // The answer is complete; whatever the client still sends is useless.
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static int OnStreamClose(nghttp2_session* /*session*/, std::int32_t id, std::uint32_t /*code*/,
                           void* user) {
    Session& self = Self(user);
    Call* call = self.Find(id);
    if (call) self.Close(*call);
    return 0;
  }

  static ssize_t ReadReplies(nghttp2_session* session, std::int32_t id, std::uint8_t* buffer,
                             std::size_t size, std::uint32_t* flags, nghttp2_data_source* source,
                             void* user) {
    Call& call = *static_cast<Call*>(source->ptr);
    const std::size_t count = std::min(size, call.out.size() - call.sent);
    std::copy_n(call.out.data() + call.sent, count, buffer);
    call.sent += count;
    if (call.sent < call.out.size()) {
      // Does not wait until all is sent, which may be never: replies may come faster than read.
      if (call.sent >= call.out.size() / 2) {
        Self(user).reply_bytes_ -= call.sent;
        call.out.erase(0, std::exchange(call.sent, 0));
      }
      return static_cast<ssize_t>(count);
    }
    Self(user).reply_bytes_ -= call.out.size();
    Clear(call.out);
    call.sent = 0;
    call.send_by.reset();
    if (!call.ended) {
      if (count > 0) return static_cast<ssize_t>(count);
      call.waiting = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const std::string message = PercentEncode(call.status.message);
    const std::array fields = {StaticField("grpc-status", ToText(call.status.code)),
                               CopiedField("grpc-message", message)};
    nghttp2_submit_trailer(session, id, fields.data(), message.empty() ? 1 : 2);
    return static_cast<ssize_t>(count);
  }
};

Session::Session(Handler& handler, const Limits& limits, Counters& counters)
    : handler_(handler), limits_(limits), counters_(counters) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Callbacks::OnBeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::OnData);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::OnFrame);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Callbacks::OnFrameSent);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::OnStreamClose);

  nghttp2_option* options = nullptr;
  nghttp2_option_new(&options);
  nghttp2_option_set_no_closed_streams(options, 1);
  // Our limit comes first, and says why.
  const std::uint64_t resets_max = std::uint64_t{limits.resets_max} * 2;
  nghttp2_option_set_stream_reset_rate_limit(options, resets_max, resets_max);

  nghttp2_session_server_new2(&session_, callbacks, this, options);
  nghttp2_option_del(options);
  nghttp2_session_callbacks_del(callbacks);

  const std::array<nghttp2_settings_entry, 3> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.streams_max},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(limits.header_bytes_max)},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  }};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Session::~Session() { nghttp2_session_del(session_); }

void Session::Receive(std::string_view bytes, SteadyTime now) {
  now_ = now;
  frame_filter_.Filter(
      bytes, [&](std::string_view rest) { Process(rest); }, [&] { CountReset(); },
      [&] { CountQuietFrame(); });
}

void Session::Process(std::string_view bytes) {
  if (broken_) return;
  const ssize_t result = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (result >= 0) return;
  // A client that does not speak HTTP/2 would not understand a GOAWAY, either.
  if (result == NGHTTP2_ERR_FLOODED) {
    Flood();
  } else if (result != NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
    nghttp2_session_terminate_session(session_, NGHTTP2_INTERNAL_ERROR);
  }
  broken_ = true;
}

std::string_view Session::RequestIdOf(StreamId id) {
  const Call* const call = Find(id);
  return call ? std::string_view(call->request_id) : std::string_view();
}

void Session::Produce(std::string& out, std::size_t bytes_max) {
  while (out.size() < bytes_max) {
    const std::uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size < 0) broken_ = true;
    if (size <= 0) return;
    out += View(bytes, static_cast<std::size_t>(size));
  }
}

void Session::Reply(StreamId id, std::string_view message) {
  Call* call = Find(id);
  if (!call || call->ended) return;
  if (reply_bytes_ + message.size() > limits_.reply_bytes_max) {
    Refuse(*call, StatusCode::kResourceExhausted,
           text::Cat("more than ", limits_.reply_bytes_max, " bytes of replies not taken"));
    return;
  }
  const std::size_t before = call->out.size();
  AppendFramed(call->out, message);
  reply_bytes_ += call->out.size() - before;
  SubmitReplies(*call);
}

void Session::Finish(StreamId id, Status status) {
  Call* call = Find(id);
  if (call && !call->ended) End(*call, std::move(status));
}

void Session::ReplyAndFinish(StreamId id, std::string_view message) {
  Reply(id, message);
  Finish(id, {});
}

void Session::Expire(SteadyTime now) {
  now_ = now;
  for (const auto& call : open_) {
    const auto expiry = call->expiry();
    if (!expiry || *expiry > now) continue;
    counters_.deadlines_exceeded.Add();
    if (call->known) handler_.OnAbandoned(call->id, *call->method);
    End(*call, {StatusCode::kDeadlineExceeded, "the call took longer than it may"});
  }
}

std::optional<SteadyTime> Session::NextExpiry() const {
  std::optional<SteadyTime> next;
  for (const auto& call : open_) {
    const auto expiry = call->expiry();
    if (expiry && (!next || *expiry < *next)) next = expiry;
  }
  return next;
}

bool Session::ExpireReplies(SteadyTime now) {
  if (reply_bytes_ == 0) return false;
  bool any = false;
  for (const auto& call : open_) {
    if (call->out.empty()) continue;
    if (!call->send_by) call->send_by = now + limits_.send_timeout;
    if (*call->send_by > now) continue;
    any = true;
    call->send_by = SteadyTime::max();
    counters_.deadlines_exceeded.Add();
    if (!call->ended) {
      if (call->known) handler_.OnAbandoned(call->id, *call->method);
      call->status = {StatusCode::kDeadlineExceeded, {}};
      call->ended = true;
      handler_.OnError(call->status.code);
    }
    // A status would have to wait behind the replies.
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL);
  }
  return any;
}

void Session::DropSpare() {
  spare_.clear();
  spare_.shrink_to_fit();
}

std::size_t Session::held_bytes() const {
  return open_.size() * kCallBytes + buffered_bytes_ + reply_bytes_;
}

void Session::Drain() {
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kDrainPing.data());
}

void Session::Terminate() { nghttp2_session_terminate_session(session_, NGHTTP2_NO_ERROR); }

void Session::Ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

bool Session::finished() const { return broken_ || nghttp2_session_want_read(session_) == 0; }

Session::Call* Session::Find(StreamId id) {
  // Nearly always the one that was last looked up.
  if (!last_found_ || last_found_->id != id) {
    last_found_ = static_cast<Call*>(nghttp2_session_get_stream_user_data(session_, id));
  }
  return last_found_;
}

void Session::Open(StreamId id) {
  counters_.calls.Add();
  if (spare_.empty()) spare_.push_back(std::make_unique<Call>());
  std::unique_ptr<Call> call = std::move(spare_.back());
  spare_.pop_back();
  call->id = id;
  call->place = open_.size();
  nghttp2_session_set_stream_user_data(session_, id, call.get());
  open_.push_back(std::move(call));
}

void Session::Close(Call& call) {
  nghttp2_session_set_stream_user_data(session_, call.id, nullptr);
  last_found_ = nullptr;
  if (call.known && !call.ended) handler_.OnAbandoned(call.id, *call.method);
  buffered_bytes_ -= call.in.size();
  reply_bytes_ -= call.out.size();

  const std::size_t place = call.place;
  std::unique_ptr<Call> own = std::move(open_[place]);
  if (place + 1 != open_.size()) {
    open_[place] = std::move(open_.back());
    open_[place]->place = place;
  }
  open_.pop_back();
  if (spare_.size() >= kSpareCallsMax) return;
  call.Reset();
  spare_.push_back(std::move(own));
}

void Session::OnHeader(Call& call, std::string_view name, std::string_view value) {
  static constexpr std::size_t kFieldOverhead = 32;  // As HPACK counts it.
  call.header_bytes += name.size() + value.size() + kFieldOverhead;
  if (call.header_bytes > limits_.header_bytes_max) return;
  if (name == ":path") {
    call.method = handler_.FindMethod(value);
    if (!call.method) call.unknown_path = value;
  } else if (name == ":method") {
    call.post = value == "POST";
  } else if (name == "content-type") {
    call.content_type = IsGrpcContentType(value);
  } else if (name == "grpc-timeout") {
    const auto timeout = ParseTimeout(value);
    call.timeout_malformed = !timeout;
    if (timeout) call.deadline = now_ + *timeout;
  } else if (name == "grpc-encoding") {
    call.encoding = value == "identity" ? Call::Encoding::kIdentity
                    : value == "gzip"   ? Call::Encoding::kGzip
                                        : Call::Encoding::kUnknown;
  } else if (name == "authorization") {
    call.let_in = handler_.LetsIn(value);
  } else if (name == "x-request-id" || (name == "traceparent" && call.request_id.empty())) {
    if (handler_.WantsRequestIds()) call.request_id = value;
  }
}

void Session::OnHeadersEnd(Call& call) {
  std::string_view http_status = "200";
  Status status;
  if (call.header_bytes > limits_.header_bytes_max) {
    status = {StatusCode::kResourceExhausted,
              text::Cat("more than ", limits_.header_bytes_max, " bytes of headers")};
  } else if (!call.post) {
    http_status = "405";
    status = {StatusCode::kInternal, "expected the HTTP method POST"};
  } else if (!call.content_type) {
    http_status = "415";
    status = {StatusCode::kInternal, "expected the content type application/grpc"};
  } else if (!call.method) {
    status = {StatusCode::kUnimplemented,
              text::Cat("unknown method ", text::Quote(call.unknown_path))};
  } else if (call.method->who == Method::For::kCallers && !call.let_in && !handler_.LetsIn({})) {
    status = {StatusCode::kUnauthenticated, "expected a token: authorization: Bearer …"};
  } else if (call.timeout_malformed) {
    status = {StatusCode::kInternal, "malformed grpc-timeout; expected digits and one of HMSmun"};
  } else if (call.encoding == Call::Encoding::kUnknown) {
    status = {StatusCode::kUnimplemented, "unknown grpc-encoding; expected identity or gzip"};
  }
  if (!status.ok()) {
    counters_.refused.Add();
    End(call, std::move(status), http_status);
    return;
  }
  call.receive_by = now_ + limits_.receive_timeout;
}

void Session::OnData(Call& call, std::string_view bytes, bool last_frame) {
  if (call.ended || !call.method) return;
  const bool one = call.method->requests == Method::Requests::kOne;
  if (one && call.known) return;
  // The usual call arrives in one piece, and need not be copied.
  if (one && last_frame && call.in.empty() && bytes.size() >= kPrefixBytes &&
      LengthIn(bytes) == bytes.size() - kPrefixBytes) {
    call.request_ended = true;
    TakeMessage(call, bytes);
    return;
  }
  if (buffered_bytes_ + bytes.size() > limits_.buffered_bytes_max) {
    Refuse(call, StatusCode::kResourceExhausted,
           text::Cat("more than ", limits_.buffered_bytes_max,
                     " bytes of unfinished messages on one connection"));
    return;
  }
  if (call.known && call.in.empty()) call.receive_by = now_ + limits_.receive_timeout;
  buffered_bytes_ += bytes.size();
  call.in += bytes;
  TakeMessages(call);
}

// Takes every complete message; for a method with one, only once the client has ended.
void Session::TakeMessages(Call& call) {
  const bool one = call.method->requests == Method::Requests::kOne;
  std::size_t taken = 0;
  while (!call.ended && call.in.size() - taken >= kPrefixBytes) {
    const std::string_view rest = std::string_view(call.in).substr(taken);
    const std::size_t size = LengthIn(rest);
    if (size > limits_.message_bytes_max) {
      Refuse(
          call, StatusCode::kResourceExhausted,
          text::Cat("a message of ", size, " bytes; expected at most ", limits_.message_bytes_max));
    } else if (one && rest.size() > kPrefixBytes + size) {
      Refuse(call, StatusCode::kUnimplemented, "more than the one message expected");
    } else if (rest.size() < kPrefixBytes + size || (one && !call.request_ended)) {
      break;
    } else {
      TakeMessage(call, rest.substr(0, kPrefixBytes + size));
      taken += kPrefixBytes + size;
    }
  }
  if (call.ended) taken = call.in.size();
  buffered_bytes_ -= taken;
  if (taken == call.in.size()) {
    Clear(call.in);
  } else {
    call.in.erase(0, taken);
  }
  if (taken == 0 || one) return;
  call.receive_by =
      now_ + (call.in.empty() ? limits_.next_message_timeout : limits_.receive_timeout);
}

void Session::TakeMessage(Call& call, std::string_view framed) {
  static constexpr char kPlain = 0;
  static constexpr char kCompressed = 1;
  const std::string_view body = framed.substr(kPrefixBytes);
  if (body.size() > limits_.message_bytes_max) {
    Refuse(call, StatusCode::kResourceExhausted,
           text::Cat("a message of ", body.size(), " bytes; expected at most ",
                     limits_.message_bytes_max));
    return;
  }
  if (call.deadline && *call.deadline <= now_) {
    counters_.deadlines_exceeded.Add();
    End(call, {StatusCode::kDeadlineExceeded, "the deadline passed before the message came"});
    return;
  }
  std::string unpacked;
  std::string_view message = body;
  if (framed.front() == kCompressed && call.encoding == Call::Encoding::kGzip) {
    auto result = Gunzip(body, limits_.unpacked_bytes_max);
    if (!result) {
      const bool large = result.error().code == ErrorCode::kTooLarge;
      Refuse(call, large ? StatusCode::kResourceExhausted : StatusCode::kInternal,
             std::move(result.error().message));
      return;
    }
    unpacked = *std::move(result);
    message = unpacked;
  } else if (framed.front() != kPlain) {
    Refuse(call, StatusCode::kInternal,
           "a message is marked as compressed without a grpc-encoding");
    return;
  }
  call.receive_by.reset();
  call.known = true;
  handler_.OnMessage(call.id, *call.method, message);
}

void Session::OnRequestEnd(Call& call) {
  call.request_ended = true;
  if (call.ended || !call.method) return;
  const bool one = call.method->requests == Method::Requests::kOne;
  if (one && call.known) return;
  TakeMessages(call);
  if (call.ended) return;
  if (!call.in.empty()) {
    Refuse(call, StatusCode::kInternal, "the last message is cut off");
  } else if (!one) {
    call.receive_by.reset();
    call.known = true;
    handler_.OnHalfClose(call.id, *call.method);
  } else if (!call.known) {
    Refuse(call, StatusCode::kUnimplemented, "no message where one was expected");
  }
}

void Session::Refuse(Call& call, StatusCode code, std::string message) {
  counters_.refused.Add();
  if (call.known) handler_.OnAbandoned(call.id, *call.method);
  End(call, {code, std::move(message)});
}

void Session::End(Call& call, Status status, std::string_view http_status) {
  if (!status.ok()) handler_.OnError(status.code);
  call.ended = true;
  call.status = std::move(status);
  if (call.submitted || !call.out.empty()) {
    SubmitReplies(call);
  } else {
    SubmitStatus(call, http_status);
  }
}

// Answers with just a status, in one frame.
void Session::SubmitStatus(Call& call, std::string_view http_status) {
  const std::string message = PercentEncode(call.status.message);
  std::array<nghttp2_nv, 5> fields{};
  std::size_t count = 0;
  const auto add = [&](const nghttp2_nv& field) { fields[count++] = field; };
  add(StaticField(":status", http_status));
  add(StaticField("content-type", "application/grpc"));
  add(StaticField("grpc-status", ToText(call.status.code)));
  if (!message.empty()) add(CopiedField("grpc-message", message));
  if (call.encoding == Call::Encoding::kUnknown) {
    add(StaticField("grpc-accept-encoding", "identity,gzip"));
  }
  call.submitted = true;
  nghttp2_submit_response(session_, call.id, fields.data(), count, nullptr);
}

void Session::SubmitReplies(Call& call) {
  if (call.waiting) {
    call.waiting = false;
    nghttp2_session_resume_data(session_, call.id);
  }
  if (std::exchange(call.submitted, true)) return;
  static const std::array fields = {StaticField(":status", "200"),
                                    StaticField("content-type", "application/grpc")};
  const nghttp2_data_provider replies = {.source = {.ptr = &call},
                                         .read_callback = Callbacks::ReadReplies};
  nghttp2_submit_response(session_, call.id, fields.data(), fields.size(), &replies);
}

void Session::CountQuietFrame() {
  StartFloodWindow();
  if (++quiet_frames_ > limits_.quiet_frames_max) Flood();
}

void Session::CountReset() {
  counters_.resets.Add();
  StartFloodWindow();
  if (++resets_in_window_ > limits_.resets_max) Flood();
}

void Session::StartFloodWindow() {
  if (now_ - flood_window_start_ < limits_.flood_window) return;
  flood_window_start_ = now_;
  resets_in_window_ = 0;
  quiet_frames_ = 0;
}

void Session::Flood() {
  if (std::exchange(flooded_, true)) return;
  counters_.floods.Add();
  nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

}  // namespace sluice::grpc
