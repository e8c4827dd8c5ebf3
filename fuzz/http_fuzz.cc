// SPDX-License-Identifier: Apache-2.0
// However any bytes are split, they are the same requests, the same wait or a refusal at the same
// place, though the reason reported is the first one seen. Boost.Beast must also accept each
// request, with the same parts. The first byte selects the limits and how many lengths follow,
// which split the rest over and over.
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/request_reader.h"

namespace {

namespace beast = boost::beast;
using sluice::http::Limits;
using sluice::http::Request;
using sluice::http::RequestReader;
using Status = RequestReader::Status;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

struct Copy {
  std::string method, target, path, query, host, body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool keep_alive = false;
  int minor_version = 0;
  bool operator==(const Copy&) const = default;
};

struct Outcome {
  std::vector<Copy> requests;
  bool refused = false;
  bool operator==(const Outcome&) const = default;
};

Copy Checked(const Request& request, const Limits& limits) {
  Expect(request.target.size() <= limits.target_bytes_max);
  Expect(request.headers.size() <= limits.headers_max);
  Expect(request.body.size() <= limits.body_bytes_max);
  Expect(request.path.starts_with('/') || request.path == "*");
  Copy copy{std::string(request.method_text),
            std::string(request.target),
            std::string(request.path),
            std::string(request.query),
            std::string(request.host),
            std::string(request.body),
            {},
            request.keep_alive,
            request.minor_version};
  for (const auto& [name, value] : request.headers) copy.headers.emplace_back(name, value);
  return copy;
}

void Feed(RequestReader& reader, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto room = reader.Prepare();
    const std::size_t size = bytes.copy(room.data(), room.size());
    reader.Commit(size);
    bytes.remove_prefix(size);
  }
}

Outcome Run(std::string_view stream, std::string_view lengths, const Limits& limits) {
  RequestReader reader(limits);
  Outcome outcome;
  for (std::size_t turn = 0; !stream.empty(); ++turn) {
    const auto length = static_cast<std::uint8_t>(lengths[turn % lengths.size()]);
    const std::string_view piece = stream.substr(0, std::size_t{length} + 1);
    Feed(reader, piece);
    stream.remove_prefix(piece.size());
    Request request;
    Status status = Status::kRequest;
    while ((status = reader.Next(request)) == Status::kRequest) {
      outcome.requests.push_back(Checked(request, limits));
    }
    if (status == Status::kRefused) {
      Expect(reader.refusal().status >= 400 && !reader.refusal().message.empty());
      outcome.refused = true;
      return outcome;
    }
  }
  return outcome;
}

// Where Beast is stricter, or the difference cannot move the end of a request.
bool IsHarmless(const beast::error_code& error, std::string_view raw) {
  return error == beast::http::error::bad_value ||    // Lists in Connection.
         error == beast::http::error::bad_version ||  // HTTP/1.2 and above.
         raw.find(';') != std::string_view::npos ||   // Chunk extensions.
         !raw.ends_with("\r\n0\r\n\r\n");             // Trailers.
}

void Compare(const Copy& request, std::string_view raw) {
  if (raw.starts_with("\r\n")) raw.remove_prefix(2);
  beast::http::request_parser<beast::http::string_body> parser;
  parser.header_limit(1 << 20);
  parser.body_limit(1 << 20);
  parser.eager(true);
  beast::error_code error;
  std::size_t used = 0;
  while (!parser.is_done() && used < raw.size()) {
    used += parser.put(boost::asio::buffer(raw.substr(used)), error);
    if (error) break;
  }
  if (error) {
    Expect(IsHarmless(error, raw));
    return;
  }
  Expect(parser.is_done() && used == raw.size());
  const auto& other = parser.get();
  Expect(other.method_string() == request.method);
  Expect(other.target() == request.target);
  Expect(other.version() == 10 + static_cast<unsigned>(request.minor_version));
  Expect(other.body() == request.body);
  // Beast only looks at the first of several Connection fields, and also at those of trailers.
  const auto connections = std::ranges::count_if(request.headers, [](const auto& header) {
    return beast::iequals(header.first, "connection");
  });
  const auto seen = other.count(beast::http::field::connection);
  Expect(seen > 1 || std::cmp_not_equal(seen, connections) ||
         other.keep_alive() == request.keep_alive);
  for (const auto& [name, value] : request.headers) {
    // Beast keeps fields of one name together.
    const auto [first, last] = other.equal_range(name);
    Expect(std::any_of(first, last, [&](const auto& f) { return f.value() == value; }));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 8192) return 0;
  std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Limits limits = data[0] % 2 == 0 ? Limits{}
                                         : Limits{.target_bytes_max = 16,
                                                  .head_bytes_max = 200,
                                                  .headers_max = 4,
                                                  .body_bytes_max = 32};
  const std::string_view lengths = stream.substr(0, data[0] / 2 % 16);
  stream.remove_prefix(lengths.size());

  // All at once, which shows where each request ends.
  RequestReader reader(limits);
  Outcome whole;
  Feed(reader, stream);
  Request request;
  Status status = Status::kRequest;
  for (std::size_t start = 0; (status = reader.Next(request)) == Status::kRequest;) {
    const std::size_t end = stream.size() - reader.buffered();
    whole.requests.push_back(Checked(request, limits));
    Compare(whole.requests.back(), stream.substr(start, end - start));
    start = end;
  }
  whole.refused = status == Status::kRefused;

  Expect(Run(stream, std::string_view("\0", 1), limits) == whole);
  if (!lengths.empty()) Expect(Run(stream, lengths, limits) == whole);
  return 0;
}
