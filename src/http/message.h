// SPDX-License-Identifier: Apache-2.0
// Requests and responses as a handler sees them: views of bytes owned by somebody else.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::http {

enum class Method : std::uint8_t {
  kGet,
  kHead,
  kPost,
  kPut,
  kDelete,
  kPatch,
  kOptions,
  kOther,  // Valid, but none of the above: see Request::method_text.
};

struct Header {
  std::string_view name;   // As sent; names are compared regardless of case.
  std::string_view value;  // Without blanks at either end or control bytes other than tabs.
};

// Valid until Handler::Handle returns.
struct Request {
  Method method = Method::kGet;
  std::string_view method_text;
  std::string_view target;  // As sent: printable ASCII without blanks and '#'.
  // Of the target, not decoded. The path starts with '/', or is "*" for OPTIONS; for
  // http://host/path it is /path.
  std::string_view path;
  std::string_view query;  // Without '?'; empty if there is none.
  std::string_view host;   // With its port, if any; empty in HTTP/1.0 without Host.
  std::span<const Header> headers;
  std::string_view body;          // Complete; chunks are joined.
  boost::asio::ip::address peer;  // Who connected, which may be a proxy.
  bool certified = false;         // See net::Stream::certified.
  bool keep_alive = true;
  int minor_version = 1;  // Of HTTP/1.

  // The value of the first header with that name; empty if there is none.
  std::string_view FindHeader(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string_view content_type = {};  // Empty: no Content-Type.
  // Further headers: complete lines that end in "\r\n". The server itself writes Content-Length,
  // Connection, Date and Transfer-Encoding.
  std::string_view headers = {};
  std::string_view body = {};  // For HEAD, only its length is sent.
};

// "Not Found" and so on; empty if the status is unknown.
std::string_view ReasonPhrase(int status);

}  // namespace sluice::http
