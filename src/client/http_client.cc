// SPDX-License-Identifier: Apache-2.0
#include "client/http_client.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <utility>

#include "base/text.h"

namespace sluice::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using text::Cat;

constexpr std::uint64_t kBodyBytesMax = 1 << 20;

using Request = http::request<http::string_body>;

// The first address that answers.
asio::awaitable<void> Connect(beast::tcp_stream& stream,
                              const tcp::resolver::results_type& addresses) {
  boost::system::error_code error = asio::error::host_not_found;
  for (const auto& address : addresses) {
    tcp::socket& socket = stream.socket();
    socket.close(error);
    socket.open(address.endpoint().protocol(), error);
    if (error) continue;
    // The command must not inherit it, even if it is started while this connects.
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    co_await stream.async_connect(address.endpoint(),
                                  asio::redirect_error(asio::use_awaitable, error));
    if (!error || error == beast::error::timeout) break;
  }
  if (error) throw boost::system::system_error(error);
}

template <typename Stream>
asio::awaitable<Response> WriteAndRead(Stream& stream, const Request& request) {
  co_await http::async_write(stream, request, asio::use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kBodyBytesMax);
  co_await http::async_read(stream, buffer, parser, asio::use_awaitable);
  auto& response = parser.get();
  co_return Response{.status = static_cast<int>(response.result_int()),
                     .body = std::move(response.body())};
}

}  // namespace

Expected<Server> Server::Parse(std::string_view url) {
  constexpr std::string_view kHttp = "http://";
  constexpr std::string_view kHttps = "https://";
  const auto invalid = [&] {
    // It may contain a password.
    return std::unexpected(
        Error{ErrorCode::kInvalidInput,
              "--server: expected http://HOST:PORT or https://HOST:PORT, such as "
              "http://127.0.0.1:8080"});
  };
  Server server{.tls = url.starts_with(kHttps)};
  if (!server.tls && !url.starts_with(kHttp)) return invalid();
  std::string_view rest = url.substr((server.tls ? kHttps : kHttp).size());
  const bool is_plain =
      std::ranges::all_of(rest, [](char c) { return c > ' ' && c < 0x7f && c != '@'; }) &&
      rest.find_first_of("?#") == std::string_view::npos;
  if (!is_plain) return invalid();
  const auto slash = std::min(rest.find('/'), rest.size());
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  server.path = path;
  const std::string_view authority = rest.substr(0, slash);
  const auto end = authority.starts_with('[') ? authority.find(']') : std::string_view::npos;
  if (authority.starts_with('[') && end == std::string_view::npos) return invalid();
  const auto colon = authority.find(':', end == std::string_view::npos ? 0 : end);
  const std::string_view host = authority.substr(0, std::min(colon, authority.size()));
  server.host = end == std::string_view::npos ? host : host.substr(1, end - 1);
  server.port = server.tls ? "443" : "80";
  if (colon != std::string_view::npos) {
    const auto port = text::ParseNumber<std::uint16_t>(authority.substr(colon + 1));
    if (!port || *port == 0) return invalid();
    server.port = std::to_string(*port);
  }
  if (server.host.empty() || (end != std::string_view::npos && host.size() != end + 1)) {
    return invalid();
  }
  server.authority = authority;
  return server;
}

HttpClient::HttpClient(asio::any_io_executor executor, Server server, std::string token)
    : executor_(std::move(executor)),
      server_(std::move(server)),
      token_(std::move(token)),
      tls_(asio::ssl::context::tls_client) {
  if (!server_.tls) return;
  boost::system::error_code ignored;  // Then no certificate is trusted, which asking reports.
  tls_.set_default_verify_paths(ignored);
  tls_.set_verify_mode(asio::ssl::verify_peer);
}

asio::awaitable<Expected<Response>> HttpClient::Ask(Question question, Micros patience) {
  bool sent = false;
  try {
    co_return co_await Exchange(question, patience, sent);
  } catch (const boost::system::system_error& error) {
    co_return std::unexpected(Error{sent ? ErrorCode::kOutcomeUnknown : ErrorCode::kUnavailable,
                                    Cat(server_.tls ? "https://" : "http://", server_.authority,
                                        ": ", error.code().message())});
  }
}

asio::awaitable<Response> HttpClient::Exchange(const Question& question, Micros patience,
                                               bool& sent) {
  Request request(question.method == Method::kPost ? http::verb::post : http::verb::delete_,
                  server_.path + question.target, 11, question.body);
  request.set(http::field::host, server_.authority);
  request.set(http::field::user_agent, "sluice");
  request.set(http::field::connection, "close");
  if (!question.body.empty()) request.set(http::field::content_type, "application/json");
  if (!token_.empty()) request.set(http::field::authorization, "Bearer " + token_);
  request.prepare_payload();

  tcp::resolver resolver(executor_);
  const auto addresses =
      co_await resolver.async_resolve(server_.host, server_.port, asio::use_awaitable);
  beast::ssl_stream<beast::tcp_stream> stream(executor_, tls_);
  beast::tcp_stream& plain = stream.next_layer();
  plain.expires_after(patience);
  co_await Connect(plain, addresses);
  if (!server_.tls) {
    sent = true;
    co_return co_await WriteAndRead(plain, request);
  }
  SSL_set_tlsext_host_name(stream.native_handle(), server_.host.c_str());
  stream.set_verify_callback(asio::ssl::host_name_verification(server_.host));
  co_await stream.async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
  sent = true;
  co_return co_await WriteAndRead(stream, request);
}

}  // namespace sluice::client
