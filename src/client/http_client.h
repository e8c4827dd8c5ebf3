// SPDX-License-Identifier: Apache-2.0
// The least of an HTTP client that our own commands need: one connection for each request.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "client/hold_exchange.h"
#include "sluice/error.h"
#include "sluice/time.h"

namespace sluice::client {

// http://host:port, https://host:port, perhaps with a path before that of the API.
struct Server {
  bool tls = false;
  std::string host = {};  // Without brackets.
  std::string port = {};
  std::string path = {};  // Empty, or begins with '/' and does not end so.
  std::string authority = {};

  // Error: kInvalidInput.
  static Expected<Server> Parse(std::string_view url);
};

enum class Method : std::uint8_t { kPost, kDelete };

struct Question {
  Method method;
  std::string target;
  std::string body = {};
};

class HttpClient {
 public:
  // `token` is for `Authorization: Bearer`, if it is not empty. Certificates are checked against
  // those that the system, or SSL_CERT_FILE, trusts.
  HttpClient(boost::asio::any_io_executor executor, Server server, std::string token);

  // Error: kUnavailable, or kOutcomeUnknown if the question was sent; also if it takes longer than
  // `patience` after the name was looked up.
  boost::asio::awaitable<Expected<Response>> Ask(Question question, Micros patience);

 private:
  boost::asio::awaitable<Response> Exchange(const Question& question, Micros patience, bool& sent);

  const boost::asio::any_io_executor executor_;
  const Server server_;
  const std::string token_;
  boost::asio::ssl::context tls_;
};

}  // namespace sluice::client
