// SPDX-License-Identifier: Apache-2.0
#include "support/h2_client.h"

#include <nghttp2/nghttp2.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::test {
namespace {

std::string Text(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

std::string Framed(std::string_view message, char compressed) {
  const auto size = static_cast<std::uint32_t>(message.size());
  std::string framed = {compressed, static_cast<char>(size >> 24U), static_cast<char>(size >> 16U),
                        static_cast<char>(size >> 8U), static_cast<char>(size)};
  return framed += message;
}

std::string Gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string H2Client::Stream::Field(std::string_view name) const {
  for (const Headers* fields : {&headers, &trailers}) {
    for (const auto& [key, value] : *fields) {
      if (key == name) return value;
    }
  }
  return {};
}

std::vector<std::string> H2Client::Stream::Messages() const {
  std::vector<std::string> messages;
  std::string_view rest = data;
  while (rest.size() >= 5) {
    std::size_t size = 0;
    for (const char c : rest.substr(1, 4)) size = size << 8U | static_cast<unsigned char>(c);
    messages.emplace_back(rest.substr(5, size));
    rest.remove_prefix(std::min(5 + size, rest.size()));
  }
  return messages;
}

struct H2Client::Callbacks {
  static H2Client& Self(void* user) { return *static_cast<H2Client*>(user); }

  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                      std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                      std::uint8_t, void* user) {
    Stream& stream = Self(user).streams_[frame->hd.stream_id];
    Headers& to = frame->headers.cat == NGHTTP2_HCAT_RESPONSE ? stream.headers : stream.trailers;
    to.emplace_back(Text(name, name_size), Text(value, value_size));
    return 0;
  }
  static int OnData(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* bytes,
                    std::size_t size, void* user) {
    Self(user).streams_[id].data += Text(bytes, size);
    return 0;
  }
  static int OnClose(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user) {
    Self(user).streams_[id].closed = true;
    Self(user).streams_[id].close_code = code;
    return 0;
  }
  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    H2Client& self = Self(user);
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      self.goaway_ = frame->goaway.error_code;
      self.goaway_last_stream_ = frame->goaway.last_stream_id;
    }
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) ++self.pongs_;
    return 0;
  }
  static ssize_t Read(nghttp2_session*, std::int32_t id, std::uint8_t* buffer, std::size_t size,
                      std::uint32_t* flags, nghttp2_data_source*, void* user) {
    Stream& stream = Self(user).streams_[id];
    const std::size_t count = std::min(size, stream.body.size() - stream.sent);
    std::memcpy(buffer, stream.body.data() + stream.sent, count);
    stream.sent += count;
    if (stream.sent == stream.body.size()) {
      if (stream.end) {
        *flags = NGHTTP2_DATA_FLAG_EOF;
      } else if (count == 0) {
        stream.waiting = true;
        return NGHTTP2_ERR_DEFERRED;
      }
    }
    return static_cast<ssize_t>(count);
  }
};

H2Client::H2Client(const Options& options) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::OnData);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::OnClose);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::OnFrame);
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_auto_window_update(option, options.auto_window_update ? 0 : 1);
  nghttp2_option_set_peer_max_concurrent_streams(option, 1'000'000);
  nghttp2_option_set_max_outbound_ack(option, 100'000);
  nghttp2_session_client_new2(&session_, callbacks, this, option);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options.window};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &window, 1);
}

H2Client::~H2Client() { nghttp2_session_del(session_); }

Headers H2Client::CallHeaders(std::string_view path) {
  return {{":method", "POST"},    {":scheme", "http"}, {":path", std::string(path)},
          {":authority", "test"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
}

std::int32_t H2Client::Start(const Headers& headers, std::string body, bool end) {
  std::vector<nghttp2_nv> fields;
  for (const auto& [name, value] : headers) {
    fields.push_back({.name = reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                      .value = reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())),
                      .namelen = name.size(),
                      .valuelen = value.size(),
                      .flags = NGHTTP2_NV_FLAG_NONE});
  }
  const nghttp2_data_provider provider = {.source = {}, .read_callback = Callbacks::Read};
  const bool empty = body.empty() && end;
  const std::int32_t id = nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(),
                                                 empty ? nullptr : &provider, nullptr);
  streams_[id].body = std::move(body);
  streams_[id].end = end;
  return id;
}

void H2Client::Send(std::int32_t id, std::string_view more, bool end) {
  Stream& stream = streams_[id];
  stream.body += more;
  stream.end = end;
  if (stream.waiting) nghttp2_session_resume_data(session_, id);
  stream.waiting = false;
}

void H2Client::Cancel(std::int32_t id) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
}

void H2Client::Ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

void H2Client::Consume(std::int32_t id, std::size_t bytes) {
  nghttp2_session_consume(session_, id, bytes);
}

std::string H2Client::Take() {
  std::string out;
  while (true) {
    const std::uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    if (size <= 0) return out;
    out += Text(bytes, static_cast<std::size_t>(size));
  }
}

void H2Client::Feed(std::string_view bytes) {
  nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(bytes.data()),
                           bytes.size());
}

}  // namespace sluice::test
