// SPDX-License-Identifier: Apache-2.0
// Requests and responses as a handler sees them: views of bytes that somebody else owns.
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
  std::string_view name;   // As it was sent; names are equal whatever their case.
  std::string_view value;  // Without blanks at either end; no control bytes but tabs.
};

// Valid until Handler::Handle returns.
struct Request {
  Method method = Method::kGet;
  std::string_view method_text;
  std::string_view target;  // As it was sent: printable ASCII without blanks and '#'.
  // Of the target, not decoded. The path starts with '/', or is "*" for OPTIONS; of
  // http://host/path it is /path.
  std::string_view path;
  std::string_view query;  // Without '?'; empty if there is none.
  std::string_view host;   // With its port, if it has one; empty in HTTP/1.0 without Host.
  std::span<const Header> headers;
  std::string_view body;          // Whole; chunks are put together.
  boost::asio::ip::address peer;  // Who connected, which may be a proxy.
  bool certified = false;         // They have shown a certificate: see net::Stream::certified.
  bool keep_alive = true;
  int minor_version = 1;  // Of HTTP/1.

  // The value of the first header of that name; empty if there is none.
  std::string_view FindHeader(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string_view content_type = {};  // Empty: no Content-Type.
  // Further ones: complete lines that end in "\r\n". Content-Length, Connection, Date and
  // Transfer-Encoding are the server's.
  std::string_view headers = {};
  std::string_view body = {};  // Left out of the answer to HEAD, but for its length.
};

// "Not Found" and so on; empty if the status is not known.
std::string_view ReasonPhrase(int status);

}  // namespace sluice::http
