// SPDX-License-Identifier: Apache-2.0
#include "redis/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "redis/await.h"
#include "redis/lookup.h"

namespace sluice::redis {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using boost::system::error_code;

constexpr std::size_t kFlushAtOnce = 16 * 1024;  // As much as Redis reads at once.
constexpr std::size_t kReadChunk = 64 * 1024;
constexpr auto kLookAgainAfter = 1ms;  // Poll for the result of a lookup.

constexpr std::string_view kPlainHint = "if this port does not speak TLS, use redis://";
constexpr std::string_view kTlsHint = "if this port speaks TLS, use rediss://";

// Whether a handshake failed the way it does with a server that does not speak TLS: the server
// sends something else, or hangs up. A server that sends an alert or a certificate does speak it.
bool SpeaksNoTls(const error_code& failure) {
  return failure.category() != asio::error::get_ssl_category() ||
         ERR_GET_REASON(static_cast<unsigned long>(failure.value())) == SSL_R_WRONG_VERSION_NUMBER;
}

std::unexpected<Error> Fail(Error error) { return std::unexpected(std::move(error)); }

}  // namespace

Connection::Connection(asio::any_io_executor executor, Options options)
    : executor_(std::move(executor)), options_(std::move(options)) {}

Connection::~Connection() = default;

Connection::Socket& Connection::socket() { return tls_ ? tls_->next_layer() : *plain_; }

Error Connection::Unreachable(std::string_view what) const {
  return {ErrorCode::kUnavailable, text::Cat("Redis at ", options_.address.ToString(), ": ", what)};
}

// A server that accepts no more clients reports that and hangs up.
Error Connection::UnexpectedReply(const RespNode& reply) const {
  return reply.type == RespType::kError ? ErrorOf(reply.text)
                                        : Unreachable("a reply to no command");
}

// A server that hangs up on our first bytes may have expected TLS.
Error Connection::HangUpError(const error_code& error) const {
  const bool may_speak_tls = !heard_ && !options_.tls.enabled && !options_.address.unix_socket;
  return Unreachable(
      text::Cat(error.message(), may_speak_tls ? "; " : "", may_speak_tls ? kTlsHint : ""));
}

Error Connection::TooLate() const {
  return {ErrorCode::kOutcomeUnknown,
          text::Cat("Redis at ", options_.address.ToString(), ": no answer within ",
                    options_.connect_timeout.count(), " ms")};
}

// A server that does not know AUTH repeats what it was sent. So unless an error is one that Redis
// returns for AUTH, it is not shown.
Error Connection::WithoutEcho(const Error& error) const {
  if (error.code != ErrorCode::kStoreError) return error;
  return {ErrorCode::kAccessDenied,
          text::Cat("Redis at ", options_.address.ToString(),
                    ": AUTH failed with an error that is not shown, as it may hold the password")};
}

// Waits for the addresses, or until the connection is closed, which the connect timeout does, too.
asio::awaitable<Expected<Connection::IpAddresses>> Connection::FindAddresses() {
  error_code is_name;
  const auto literal = asio::ip::make_address(options_.address.host, is_name);
  if (!is_name) co_return IpAddresses{literal};
  taking_long_ = "its name is still being looked up";
  const auto lookup = Lookup::Of(options_.address.host);
  asio::steady_timer timer(executor_);
  while (!lookup->done() && !closed_) {
    timer.expires_after(kLookAgainAfter);
    co_await timer.async_wait(kAwait);
  }
  taking_long_.clear();
  if (closed_) co_return Fail(close_reason_);
  if (lookup->error()) co_return Fail(Unreachable(lookup->error().message()));
  co_return lookup->addresses();
}

asio::awaitable<Expected<void>> Connection::ConnectSocket() {
  plain_.emplace(executor_);
  if (options_.address.unix_socket) {
    const asio::local::stream_protocol::endpoint endpoint(options_.address.host);
    const auto [error] = co_await plain_->async_connect(endpoint, kAwait);
    if (error) co_return Fail(Unreachable(error.message()));
    co_return Expected<void>{};
  }
  const auto addresses = co_await FindAddresses();
  if (!addresses) co_return Fail(addresses.error());
  error_code last = asio::error::host_not_found;
  for (const asio::ip::address& address : *addresses) {
    plain_.emplace(executor_);
    const asio::generic::stream_protocol::endpoint endpoint(
        asio::ip::tcp::endpoint(address, options_.address.port));
    const auto [error] = co_await plain_->async_connect(endpoint, kAwait);
    if (!error) {
      // Commands are small and already batched; waiting for more would only add delay.
      error_code ignored;
      plain_->set_option(asio::ip::tcp::no_delay(true), ignored);
      co_return Expected<void>{};
    }
    if (closed_) break;
    last = error;
  }
  co_return Fail(Unreachable(last.message()));
}

asio::awaitable<Expected<void>> Connection::StartTls() {
  const Tls& tls = options_.tls;
  for (const std::string& file : {tls.ca_file, tls.cert_file, tls.key_file}) {
    // OpenSSL would block on a pipe, and this loop with it.
    std::error_code ignored;
    if (std::filesystem::is_other(std::filesystem::status(file, ignored))) {
      co_return Fail(Unreachable(text::Cat("TLS: ", file, ": expected a regular file")));
    }
  }
  error_code error;
  tls_context_.emplace(asio::ssl::context::tls_client);
  const auto configure = [&](auto&& step, std::string_view what) -> Expected<void> {
    step();
    if (!error) return {};
    return Fail(Unreachable(text::Cat("TLS: ", what, ": ", error.message())));
  };
  Expected<void> done;
  if (tls.ca_file.empty()) {
    done = configure([&] { tls_context_->set_default_verify_paths(error); }, "system certificates");
  } else {
    done = configure([&] { tls_context_->load_verify_file(tls.ca_file, error); }, tls.ca_file);
  }
  if (done && !tls.cert_file.empty()) {
    done = configure([&] { tls_context_->use_certificate_chain_file(tls.cert_file, error); },
                     tls.cert_file);
  }
  if (done && !tls.key_file.empty()) {
    done = configure(
        [&] { tls_context_->use_private_key_file(tls.key_file, asio::ssl::context::pem, error); },
        tls.key_file);
  }
  if (!done) co_return done;

  const std::string& name = tls.server_name.empty() ? options_.address.host : tls.server_name;
  tls_.emplace(std::move(*plain_), *tls_context_);
  plain_.reset();
  SSL_set_tlsext_host_name(tls_->native_handle(), name.c_str());
  if (tls.verify) {
    tls_->set_verify_mode(asio::ssl::verify_peer, error);
    tls_->set_verify_callback(asio::ssl::host_name_verification(name), error);
  } else {
    tls_->set_verify_mode(asio::ssl::verify_none, error);
  }
  // Redis waits for the end of a line, which a handshake need not contain.
  taking_long_ = text::Cat("TLS: the handshake is not answered; ", kPlainHint);
  const auto [failed] = co_await tls_->async_handshake(asio::ssl::stream_base::client, kAwait);
  taking_long_.clear();
  if (!failed) co_return Expected<void>{};
  co_return Fail(Unreachable(text::Cat("TLS: ", failed.message(), SpeaksNoTls(failed) ? "; " : "",
                                       SpeaksNoTls(failed) ? kPlainHint : "")));
}

// Introduces us, and selects the database. A server that does not know CLIENT SETNAME, or forbids
// it, is fine.
asio::awaitable<Expected<void>> Connection::Introduce() {
  // Commands get a name before they are awaited: GCC 12 destroys such temporaries twice.
  const Credentials& credentials = options_.credentials;
  if (!credentials.empty()) {
    std::string auth = Command("AUTH", credentials.password);
    if (!credentials.user.empty()) auth = Command("AUTH", credentials.user, credentials.password);
    const auto reply = co_await Ask(auth);
    if (!reply) co_return Fail(WithoutEcho(reply.error()));
  }
  if (options_.database != 0) {
    const std::string select = Command("SELECT", std::to_string(options_.database));
    const auto reply = co_await Ask(select);
    if (!reply) co_return Fail(reply.error());
  }
  if (!options_.client_name.empty()) {
    const std::string name = Command("CLIENT", "SETNAME", options_.client_name);
    const auto reply = co_await Ask(name);
    if (!reply && reply.error().code != ErrorCode::kAccessDenied &&
        reply.error().code != ErrorCode::kStoreError) {
      co_return Fail(reply.error());
    }
  }
  // Any command reveals a wrong or missing password.
  const std::string ping = Command("PING");
  const auto pong = co_await Ask(ping);
  if (!pong) co_return Fail(pong.error());
  co_return Expected<void>{};
}

asio::awaitable<Expected<void>> Connection::Connect() {
  Expected<void> done = co_await ConnectSocket();
  if (done && options_.tls.enabled) done = co_await StartTls();
  if (!done || closed_) co_return done;
  Read();
  co_return co_await Introduce();
}

asio::awaitable<Expected<void>> Connection::Open() {
  const auto self = shared_from_this();
  asio::steady_timer timer(executor_, options_.connect_timeout);
  timer.async_wait([self](error_code error) {
    if (!error && !self->open_) {
      self->Close(self->Unreachable(
          text::Cat("no connection within ", self->options_.connect_timeout.count(), " ms",
                    self->taking_long_.empty() ? "" : "; ", self->taking_long_)));
    }
  });
  Expected<void> done = co_await Connect();
  if (closed_) done = Fail(close_reason_);
  if (done) {
    open_ = true;
  } else {
    Close(done.error());
  }
  co_return done;
}

asio::awaitable<Expected<std::vector<std::string>>> Connection::Ask(const std::string& command) {
  using Texts = std::vector<std::string>;
  const Reader<Texts> read = [](std::span<const RespNode> reply) -> Expected<Texts> {
    Texts texts;
    for (const RespNode& node : reply) {
      if (node.type >= RespType::kArray || node.type == RespType::kNull) continue;
      texts.push_back(node.type == RespType::kInteger ? std::to_string(node.number)
                                                      : std::string(node.text));
    }
    return texts;
  };
  co_return co_await AskFor<Texts>(command, read);
}

void Connection::Send(std::string_view command, Handler handler) {
  Write([command](std::string& out) { out += command; }, std::move(handler));
  if (writing_ || closed_ || std::exchange(flush_posted_, true)) return;
  asio::post(executor_, [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->Flush();
  });
}

// Expects the reply to the command that was just appended.
void Connection::Expect(Handler handler) {
  if (closed_) return handler(Fail(Unreachable("the connection is closed")));
  ++unsent_commands_;
  handlers_.push_back(std::move(handler));
  // Large amounts go at once, so that the server has work while we read its earlier replies.
  if (unsent_.size() >= kFlushAtOnce) Flush();
}

void Connection::Flush() {
  if (writing_ || unsent_.empty() || closed_) return;
  writing_ = true;
  in_write_.clear();
  in_write_.swap(unsent_);
  unsent_commands_ = 0;
  const auto written = [self = shared_from_this()](error_code error, std::size_t) {
    self->writing_ = false;
    if (error) {
      self->Close(self->HangUpError(error));
    } else {
      self->Flush();
    }
  };
  if (tls_) {
    asio::async_write(*tls_, asio::buffer(in_write_), written);
  } else {
    asio::async_write(*plain_, asio::buffer(in_write_), written);
  }
}

void Connection::Read() {
  // Not into received_ directly: a string zeroes the space it adds, for however few bytes.
  if (!chunk_) chunk_ = std::make_unique_for_overwrite<char[]>(kReadChunk);
  const auto buffer = asio::buffer(chunk_.get(), kReadChunk);
  const auto read = [self = shared_from_this()](error_code error, std::size_t bytes) {
    if (self->closed_) return;
    self->received_.append(self->chunk_.get(), bytes);
    if (error) {
      self->Close(self->HangUpError(error));
    } else {
      self->heard_ = true;
      self->OnRead();
    }
  };
  if (tls_) {
    tls_->async_read_some(buffer, read);
  } else {
    plain_->async_read_some(buffer, read);
  }
}

void Connection::OnRead() {
  bool replied = false;
  while (!closed_) {
    const auto status = parser_.Parse(std::string_view(received_).substr(parsed_));
    if (status == RespParser::Status::kIncomplete) break;
    if (status == RespParser::Status::kError) {
      // The start of a TLS alert.
      const bool speaks_tls = !options_.tls.enabled && received_.starts_with("\x15\x03");
      return Close(Unreachable(
          text::Cat("it does not speak RESP: ", speaks_tls ? kTlsHint : parser_.error())));
    }
    parsed_ += parser_.consumed();
    const auto nodes = parser_.nodes();
    if (on_message_ && nodes.size() == 4 && nodes[1].text == "message") {
      on_message_(nodes);
      continue;
    }
    if (nodes.front().type == RespType::kPush) continue;
    if (handlers_.size() <= unsent_commands_) return Close(UnexpectedReply(nodes.front()));
    Handler handler = std::move(handlers_.front());
    handlers_.pop_front();
    handler(nodes);
    replied = true;
  }
  if (!closed_ && replied && on_replied_) on_replied_();
  if (closed_) return;
  received_.erase(0, parsed_);
  parsed_ = 0;
  Read();
}

void Connection::Close(const Error& reason) {
  if (closed_) return;
  closed_ = true;
  close_reason_ = reason;
  const bool was_open = std::exchange(open_, false);
  const auto self = shared_from_this();
  if (plain_ || tls_) {
    error_code ignored;
    socket().close(ignored);
  }
  // The owner first, so that handlers that send again find the connection gone.
  if (was_open && on_close_) std::exchange(on_close_, nullptr)(reason);
  // What was not yet passed to a write never left; everything before it may have arrived.
  std::deque<Handler> handlers = std::move(handlers_);
  const std::size_t sent = handlers.size() - unsent_commands_;
  for (std::size_t i = 0; i < handlers.size(); ++i) {
    handlers[i](Fail({i < sent ? ErrorCode::kOutcomeUnknown : reason.code, reason.message}));
  }
}

}  // namespace sluice::redis
