// SPDX-License-Identifier: Apache-2.0
#include "http/request_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/hex.h"
#include "base/text.h"

namespace sluice::http {
namespace {

constexpr std::size_t kBufferBytes = 4 * 1024;     // For a connection with little traffic.
constexpr std::size_t kBufferKeptMax = 16 * 1024;  // Larger ones are freed.
constexpr std::size_t kReadBytesMin = 1024;
constexpr std::size_t kMethodBytesMax = 32;
constexpr std::size_t kChunkLineBytesMax = 1024;
constexpr std::size_t kChunkDigitsMax = 16;
constexpr std::string_view kVersion = "HTTP/1.1";
constexpr std::string_view kLineEnd = "\r\n";

using CharSet = std::array<bool, 256>;

consteval CharSet Set(bool (*contains)(unsigned char c)) {
  CharSet set{};
  for (std::size_t c = 0; c < set.size(); ++c) set[c] = contains(static_cast<unsigned char>(c));
  return set;
}

constexpr bool IsAlphanumeric(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool IsOneOf(unsigned char c, std::string_view set) {
  return set.find(static_cast<char>(c)) != std::string_view::npos;
}

// RFC 9110, 5.6.2: names of methods and headers.
constexpr CharSet kToken =
    Set([](unsigned char c) { return IsAlphanumeric(c) || IsOneOf(c, "!#$%&'*+-.^_`|~"); });
// RFC 9110, 5.5: values of headers.
constexpr CharSet kValue =
    Set([](unsigned char c) { return c == '\t' || (c >= ' ' && c != 0x7f); });
// More than RFC 3986 allows in a URI, as browsers send more: all printable characters except '#',
// which starts a fragment and is never sent.
constexpr CharSet kTarget = Set([](unsigned char c) { return c > ' ' && c < 0x7f && c != '#'; });
// RFC 3986, 3.2.2 and 3.2.3: a host and a port.
constexpr CharSet kHost =
    Set([](unsigned char c) { return IsAlphanumeric(c) || IsOneOf(c, "-._~%!$&'()*+,;=:[]"); });

bool Has(const CharSet& set, char c) { return set[static_cast<unsigned char>(c)]; }

bool AllIn(const CharSet& set, std::string_view text) {
  return std::ranges::all_of(text, [&](char c) { return Has(set, c); });
}

// The first character that is not in the set. There always is one: the end of the line.
const char* Skip(const CharSet& set, const char* at) {
  while (Has(set, *at)) ++at;
  return at;
}

// The same for header values, which are most of a request: eight bytes at a time up to `end`, as
// long as none of them is a control byte.
const char* SkipValue(const char* at, const char* end) {
  constexpr std::uint64_t kEach = 0x0101'0101'0101'0101;
  constexpr std::uint64_t kHigh = 0x80 * kEach;
  std::uint64_t bytes = 0;
  while (end - at >= static_cast<std::ptrdiff_t>(sizeof(bytes))) {
    std::memcpy(&bytes, at, sizeof(bytes));
    const std::uint64_t deletes = bytes ^ (0x7f * kEach);
    if ((((bytes - ' ' * kEach) & ~bytes) | ((deletes - kEach) & ~deletes)) & kHigh) break;
    at += sizeof(bytes);
  }
  return Skip(kValue, at);
}

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

bool IsLineEnd(const char* at) { return at[0] == '\r' && at[1] == '\n'; }

Method MethodOf(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, Method>, 7> kMethods = {{
      {"GET", Method::kGet},
      {"POST", Method::kPost},
      {"HEAD", Method::kHead},
      {"PUT", Method::kPut},
      {"DELETE", Method::kDelete},
      {"PATCH", Method::kPatch},
      {"OPTIONS", Method::kOptions},
  }};
  for (const auto& [name, method] : kMethods) {
    if (text == name) return method;
  }
  return Method::kOther;
}

// Digits only; no sign, no list. Saturates at a value above any limit.
std::optional<std::size_t> ParseLength(std::string_view text) {
  std::size_t length = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::size_t>(c - '0');
    if (__builtin_mul_overflow(length, std::size_t{10}, &length) ||
        __builtin_add_overflow(length, digit, &length)) {
      length = SIZE_MAX / 16;
    }
  }
  if (text.empty()) return std::nullopt;
  return length;
}

// Whether a list such as "keep-alive, Upgrade" contains the token.
bool ListHas(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (text::EqualsIgnoreCase(text::Trim(list.substr(0, comma)), token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

std::span<char> RequestReader::Prepare() {
  const std::size_t size = buffered();
  if (size == 0) {
    begin_ = end_ = 0;
    if (capacity_ > kBufferKeptMax) {
      buffer_.reset();
      capacity_ = 0;
    }
  }
  if (capacity_ - end_ < kReadBytesMin) {
    if (capacity_ - size < kReadBytesMin) {
      // Doubles as bytes arrive, and never grows to what a client merely announces.
      const std::size_t capacity = std::max(kBufferBytes, 2 * capacity_);
      auto larger = std::make_unique_for_overwrite<char[]>(capacity);
      if (size > 0) std::memcpy(larger.get(), &buffer_[begin_], size);
      buffer_ = std::move(larger);
      capacity_ = capacity;
    } else {
      std::memmove(buffer_.get(), &buffer_[begin_], size);
    }
    begin_ = 0;
    end_ = size;
  }
  return {&buffer_[end_], capacity_ - end_};
}

RequestReader::Status RequestReader::Next(Request& request) {
  if (refusal_.status != 0) return Status::kRefused;
  Framing framing;
  const bool head_was_complete = head_size_ > 0;
  if (!head_was_complete) {
    if (buffered() == 0) return Status::kIncomplete;
    if (!FindHead()) return Status::kRefused;
    if (head_size_ == 0) return Status::kIncomplete;
    if (!ReadHead(request, framing)) return Status::kRefused;
    chunked_ = framing.chunked;
    expects_continue_ = framing.expects_continue;
    body_size_ = framing.length;
    raw_ = head_size_;
    chunk_part_ = ChunkPart::kSize;
    overhead_ = 0;
  }
  if (chunked_) {
    if (!ReadChunks()) return Status::kRefused;
    if (chunk_part_ != ChunkPart::kDone) return Status::kIncomplete;
  } else {
    if (buffered() - head_size_ < body_size_) return Status::kIncomplete;
    raw_ = head_size_ + body_size_;
  }
  // The bytes may have moved since the head was first read and found valid.
  if (head_was_complete) ReadHead(request, framing);
  request.body = {&buffer_[begin_ + head_size_], body_size_};
  begin_ += raw_;
  line_ = scanned_ = lines_ = head_size_ = 0;
  skipped_line_ = false;
  return Status::kRequest;
}

bool RequestReader::TakeExpectation() {
  return head_size_ > 0 && std::exchange(expects_continue_, false);
}

bool RequestReader::Refuse(int status, std::string_view code, std::string message) {
  refusal_ = {status, code, std::move(message)};
  return false;
}

bool RequestReader::RefuseTarget() {
  return Refuse(414, "TARGET_TOO_LONG",
                text::Cat("the target of the request is too long; expected at most ",
                          limits_.target_bytes_max, " bytes"));
}

bool RequestReader::RefuseHead(std::string_view what) {
  return Refuse(431, "HEADERS_TOO_LARGE",
                text::Cat(what, " too large; expected at most ", limits_.head_bytes_max, " bytes",
                          limits_.head_bytes_hint));
}

bool RequestReader::RefuseBody() {
  return Refuse(413, "BODY_TOO_LARGE",
                text::Cat("the body of the request is too large; expected at most ",
                          limits_.body_bytes_max, " bytes", limits_.body_bytes_hint));
}

// Sets head_size_ if the head is complete.
bool RequestReader::FindHead() {
  while (scanned_ < buffered()) {
    const char* const start = &buffer_[begin_];
    const void* const found = std::memchr(start + scanned_, '\n', buffered() - scanned_);
    if (found == nullptr) break;
    const auto end = static_cast<std::size_t>(static_cast<const char*>(found) - start);
    if (end == line_ || start[end - 1] != '\r') {
      return BadRequest("a line does not end with a carriage return and a line feed");
    }
    const bool empty = end - line_ == 1;
    line_ = scanned_ = end + 1;
    if (empty && lines_ == 0) {
      if (skipped_line_) return BadRequest("empty lines before the request");
      skipped_line_ = true;
      begin_ += line_;
      line_ = scanned_ = 0;
      continue;
    }
    if (line_ > limits_.head_bytes_max) break;
    if (empty) {
      head_size_ = line_;
      return true;
    }
    if (++lines_ == 1 && !CheckStart({start, line_})) return false;
    if (lines_ > limits_.headers_max + 1) {
      return Refuse(431, "HEADERS_TOO_LARGE",
                    text::Cat("the request has too many headers; expected at most ",
                              limits_.headers_max, limits_.headers_hint));
    }
  }
  scanned_ = buffered();
  if (lines_ == 0 && !CheckStart({&buffer_[begin_], buffered()})) return false;
  return buffered() <= limits_.head_bytes_max || RefuseHead("the headers of the request are");
}

// Checks the first line, or what has arrived of it, so that a client that does not speak HTTP is
// refused at once, and not after a timeout.
bool RequestReader::CheckStart(std::string_view line) {
  if (line == kLineEnd.substr(0, 1)) return true;
  const std::string_view start = line.substr(0, kMethodBytesMax + 1);
  const std::string_view method = start.substr(0, start.find(' '));
  if (method.size() > kMethodBytesMax || !AllIn(kToken, method)) {
    return BadRequest("the request does not start with a method");
  }
  if (line.size() > limits_.target_bytes_max + kMethodBytesMax + kVersion.size() + 4) {
    return RefuseTarget();
  }
  return true;
}

bool RequestReader::ReadHead(Request& request, Framing& framing) {
  const char* at = &buffer_[begin_];
  const char* const end = at + head_size_;
  if (!ReadRequestLine(at, request)) return false;
  headers_.clear();
  while (!IsLineEnd(at)) {
    Header& header = headers_.emplace_back();
    if (!ReadField(at, end, header) || !ReadFraming(header, request, framing)) return false;
  }
  request.headers = headers_;
  return CheckFraming(request, framing);
}

bool RequestReader::ReadRequestLine(const char*& at, Request& request) {
  const char* const method_end = Skip(kToken, at);
  request.method_text = Between(at, method_end);
  if (request.method_text.empty() || request.method_text.size() > kMethodBytesMax ||
      *method_end != ' ') {
    return BadRequest("the request does not start with a method");
  }
  request.method = MethodOf(request.method_text);

  const char* const target_end = Skip(kTarget, method_end + 1);
  request.target = Between(method_end + 1, target_end);
  if (request.target.empty() || *target_end != ' ') {
    return BadRequest("the target of the request is empty or has characters that it may not have");
  }
  if (request.target.size() > limits_.target_bytes_max) {
    return RefuseTarget();
  }

  const char* const version_end = Skip(kTarget, target_end + 1);
  const std::string_view version = Between(target_end + 1, version_end);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (version.size() != kVersion.size() || !version.starts_with("HTTP/") || !is_digit(version[5]) ||
      version[6] != '.' || !is_digit(version[7]) || !IsLineEnd(version_end)) {
    return BadRequest("the request line does not end in a version of HTTP");
  }
  if (version[5] != '1') {
    return Refuse(505, "VERSION_NOT_SUPPORTED", "only HTTP/1.1 and HTTP/1.0 are served");
  }
  request.minor_version = version[7] == '0' ? 0 : 1;
  at = version_end + kLineEnd.size();
  return ReadTarget(request);
}

bool RequestReader::ReadTarget(Request& request) {
  if (request.method_text == "CONNECT") {
    return Refuse(501, "NOT_IMPLEMENTED", "CONNECT is not served");
  }
  std::string_view rest = request.target;
  request.host = {};
  if (rest.front() != '/' && rest != "*") {
    // The form that is sent to proxies.
    const std::size_t scheme_end = rest.find("://");
    const std::string_view scheme = rest.substr(0, scheme_end);
    if (scheme_end == std::string_view::npos ||
        (!text::EqualsIgnoreCase(scheme, "http") && !text::EqualsIgnoreCase(scheme, "https"))) {
      return BadRequest("the target of the request is neither a path nor a URL");
    }
    rest.remove_prefix(scheme_end + 3);
    request.host = rest.substr(0, rest.find_first_of("/?"));
    if (request.host.empty() || !AllIn(kHost, request.host)) {
      return BadRequest("the host in the target of the request is not valid");
    }
    rest.remove_prefix(request.host.size());
  }
  const std::size_t path_end = std::min(rest.find('?'), rest.size());
  request.path = rest.substr(0, path_end);
  request.query = rest.substr(std::min(path_end + 1, rest.size()));
  if (request.path.empty()) request.path = "/";
  if (request.target == "*" && request.method != Method::kOptions) {
    return BadRequest("the target * is for OPTIONS only");
  }
  return true;
}

bool RequestReader::ReadField(const char*& at, const char* end, Header& header) {
  const char* const name_end = Skip(kToken, at);
  header.name = Between(at, name_end);
  if (header.name.empty() || *name_end != ':') {
    // Others read blanks differently: before the name they continue the previous line, and after it
    // they may or may not be a part of it.
    return BadRequest("a header has no name, or one with blanks or characters it may not have");
  }
  const char* value = name_end + 1;
  while (*value == ' ' || *value == '\t') ++value;
  const char* value_end = SkipValue(value, end);
  if (!IsLineEnd(value_end)) return BadRequest("the value of a header has a control character");
  at = value_end + kLineEnd.size();
  while (value_end != value && (value_end[-1] == ' ' || value_end[-1] == '\t')) --value_end;
  header.value = Between(value, value_end);
  return true;
}

bool RequestReader::ReadFraming(const Header& header, Request& request, Framing& framing) {
  const auto is = [&](std::string_view name) { return text::EqualsIgnoreCase(header.name, name); };
  switch (header.name.size()) {
    case 4:
      return !is("Host") || ReadHost(header.value, request, framing);
    case 6:
      if (!is("Expect") || request.minor_version == 0) return true;
      framing.expects_continue = text::EqualsIgnoreCase(header.value, "100-continue");
      return framing.expects_continue ||
             Refuse(417, "EXPECTATION_FAILED", "nothing but 100-continue may be expected");
    case 10:
      if (!is("Connection")) return true;
      framing.close |= ListHas(header.value, "close");
      framing.keep_alive |= ListHas(header.value, "keep-alive");
      return true;
    case 14:
      return !is("Content-Length") || ReadLength(header.value, framing);
    case 17:
      return !is("Transfer-Encoding") || ReadCoding(header.value, request, framing);
    default:
      return true;
  }
}

bool RequestReader::ReadHost(std::string_view value, Request& request, Framing& framing) {
  if (framing.has_host) return BadRequest("the request has more than one Host");
  framing.has_host = true;
  if (!AllIn(kHost, value)) return BadRequest("the Host of the request is not valid");
  if (request.host.empty()) request.host = value;
  return true;
}

bool RequestReader::ReadLength(std::string_view value, Framing& framing) {
  // Equal ones could be merged, but no honest client sends them.
  if (framing.has_length) return BadRequest("the request has more than one Content-Length");
  framing.has_length = true;
  const auto length = ParseLength(value);
  if (!length) return BadRequest("the Content-Length is not a number");
  framing.length = *length;
  return true;
}

bool RequestReader::ReadCoding(std::string_view value, const Request& request, Framing& framing) {
  if (framing.chunked) return BadRequest("the request has more than one Transfer-Encoding");
  if (request.minor_version == 0) return BadRequest("HTTP/1.0 has no Transfer-Encoding");
  framing.chunked = text::EqualsIgnoreCase(value, "chunked");
  return framing.chunked ||
         Refuse(501, "NOT_IMPLEMENTED", "no Transfer-Encoding but chunked is served");
}

bool RequestReader::CheckFraming(Request& request, const Framing& framing) {
  if (framing.chunked && framing.has_length) {
    return BadRequest("the request has both a Content-Length and a Transfer-Encoding");
  }
  if (!framing.has_host && request.minor_version > 0) return BadRequest("the request has no Host");
  if (framing.length > limits_.body_bytes_max) {
    return RefuseBody();
  }
  request.keep_alive = !framing.close && (request.minor_version > 0 || framing.keep_alive);
  return true;
}

// Reads up to kDone, when raw_ is where the body ends, or up to what has not arrived.
bool RequestReader::ReadChunks() {
  while (chunk_part_ != ChunkPart::kDone) {
    const std::size_t raw_before = raw_;
    const ChunkPart part_before = chunk_part_;
    const bool good = chunk_part_ == ChunkPart::kData      ? TakeChunkData()
                      : chunk_part_ == ChunkPart::kDataEnd ? ReadChunkEnd()
                                                           : ReadChunkLine();
    if (!good) return false;
    if (raw_ == raw_before && chunk_part_ == part_before) break;
  }
  if (chunk_part_ != ChunkPart::kDone) CloseGap();
  return true;
}

bool RequestReader::TakeChunkData() {
  const std::size_t size = std::min(chunk_left_, buffered() - raw_);
  std::memmove(&buffer_[begin_ + head_size_ + body_size_], &buffer_[begin_ + raw_], size);
  body_size_ += size;
  raw_ += size;
  chunk_left_ -= size;
  if (chunk_left_ == 0) chunk_part_ = ChunkPart::kDataEnd;
  return true;
}

bool RequestReader::ReadChunkEnd() {
  const std::size_t size = std::min(buffered() - raw_, kLineEnd.size());
  if (std::string_view(&buffer_[begin_ + raw_], size) != kLineEnd.substr(0, size)) {
    return BadRequest("a chunk is longer than it said");
  }
  if (size == kLineEnd.size()) {
    raw_ += size;
    chunk_part_ = ChunkPart::kSize;
  }
  return true;
}

// Reads the size of a chunk, or a trailer.
bool RequestReader::ReadChunkLine() {
  const std::string_view arrived(&buffer_[begin_ + raw_], buffered() - raw_);
  const std::string_view line = arrived.substr(0, arrived.find('\n') + 1);  // npos + 1 is 0.
  if ((line.empty() ? arrived : line).size() > kChunkLineBytesMax) {
    return BadRequest("a line between chunks is too long");
  }
  raw_ += line.size();
  if (line.empty()) return true;
  if (chunk_part_ == ChunkPart::kSize) return ReadChunkSize(line);
  if (line == kLineEnd) {
    chunk_part_ = ChunkPart::kDone;
    return true;
  }
  return ReadTrailer(line);
}

// The rest is a partial line. Dropping the bytes decoded before it makes the buffer grow only with
// the body.
void RequestReader::CloseGap() {
  const std::size_t body_end = head_size_ + body_size_;
  const std::size_t left = buffered() - raw_;
  std::memmove(&buffer_[begin_ + body_end], &buffer_[begin_ + raw_], left);
  raw_ = body_end;
  end_ = begin_ + body_end + left;
}

bool RequestReader::ReadChunkSize(std::string_view line) {
  std::size_t size = 0;
  std::size_t digits = 0;
  for (; digits <= kChunkDigitsMax && text::HexValue(line[digits]) >= 0; ++digits) {
    size = size << 4 | static_cast<std::size_t>(text::HexValue(line[digits]));
  }
  const char* const extension = line.data() + digits;
  if (digits == 0 || digits > kChunkDigitsMax || (*extension != ';' && *extension != '\r') ||
      !IsLineEnd(Skip(kValue, extension))) {
    return BadRequest("the size of a chunk is not valid");
  }
  if (!AddOverhead(line.size() - digits - kLineEnd.size())) return false;
  if (size > limits_.body_bytes_max - body_size_) {
    return RefuseBody();
  }
  chunk_left_ = size;
  chunk_part_ = size > 0 ? ChunkPart::kData : ChunkPart::kTrailers;
  return true;
}

// Trailers are checked, because the next request follows them, and otherwise ignored.
bool RequestReader::ReadTrailer(std::string_view line) {
  const char* at = line.data();
  Header trailer;
  if (!line.ends_with(kLineEnd)) return BadRequest("a trailer does not end its line");
  return ReadField(at, line.data() + line.size(), trailer) && AddOverhead(line.size());
}

bool RequestReader::AddOverhead(std::size_t bytes) {
  overhead_ += bytes;
  return overhead_ <= limits_.head_bytes_max || RefuseHead("the trailers of the request are");
}

}  // namespace sluice::http
