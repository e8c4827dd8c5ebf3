// SPDX-License-Identifier: Apache-2.0
#include "http/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {
namespace {

using Status = RequestReader::Status;
using Phase = RequestReader::Phase;
using ::testing::HasSubstr;

// A request that owns its texts.
struct Copy {
  explicit Copy(const Request& request)
      : method(request.method_text),
        target(request.target),
        path(request.path),
        query(request.query),
        host(request.host),
        body(request.body),
        keep_alive(request.keep_alive),
        minor_version(request.minor_version) {
    for (const Header& header : request.headers) {
      headers.emplace_back(header.name, header.value);
    }
  }
  bool operator==(const Copy&) const = default;

  std::string method, target, path, query, host, body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool keep_alive;
  int minor_version;
};

struct Outcome {
  std::vector<Copy> requests;
  int refused = 0;  // With this status.
  std::string message;
  bool operator==(const Outcome&) const = default;
};

void Feed(RequestReader& reader, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::span<char> room = reader.Prepare();
    const std::size_t size = std::min(room.size(), bytes.size());
    std::copy_n(bytes.data(), size, room.data());
    reader.Commit(size);
    bytes.remove_prefix(size);
  }
}

Status TakeAll(RequestReader& reader, Outcome& outcome) {
  Request request;
  while (true) {
    const Status status = reader.Next(request);
    if (status != Status::kRequest) return status;
    outcome.requests.emplace_back(request);
  }
}

// Feeds them in two pieces, or in many of the same size.
Outcome Read(std::string_view bytes, std::size_t first, std::size_t then, const Limits& limits) {
  RequestReader reader(limits);
  Outcome outcome;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string_view piece = bytes.substr(at, at == 0 && first > 0 ? first : then);
    Feed(reader, piece);
    at += piece.size();
    if (TakeAll(reader, outcome) == Status::kRefused) {
      outcome.refused = reader.refusal().status;
      outcome.message = reader.refusal().message;
      break;
    }
  }
  return outcome;
}

// Checks that the outcome is the same however the bytes are split.
Outcome Read(std::string_view bytes, const Limits& limits = {}) {
  const Outcome whole = Read(bytes, 0, bytes.size(), limits);
  EXPECT_EQ(Read(bytes, 0, 1, limits), whole) << bytes;
  for (std::size_t cut = 1; cut < bytes.size() && bytes.size() < 2000; ++cut) {
    EXPECT_EQ(Read(bytes, cut, bytes.size(), limits), whole) << cut << " of " << bytes;
  }
  return whole;
}

Copy One(std::string_view bytes, const Limits& limits = {}) {
  const Outcome outcome = Read(bytes, limits);
  EXPECT_EQ(outcome.refused, 0) << bytes << outcome.message;
  EXPECT_EQ(outcome.requests.size(), 1U) << bytes;
  return outcome.requests.empty() ? Copy(Request{}) : outcome.requests.front();
}

int RefusalOf(std::string_view bytes, const Limits& limits = {}) {
  const Outcome outcome = Read(bytes, limits);
  EXPECT_TRUE(outcome.requests.empty()) << bytes;
  return outcome.refused;
}

// A request with these lines among its headers.
std::string With(std::string_view lines, std::string_view body = "") {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + std::string(lines) + "\r\n" + std::string(body);
}

std::string Chunked(std::string_view body) { return With("Transfer-Encoding: chunked\r\n", body); }

TEST(RequestReader, ReadsARequest) {
  const Copy request =
      One("GET /a/b%20c?x=1&y=?2 HTTP/1.1\r\nHost: example.com:8080\r\nX-Empty:\r\n"
          "X-Padded: \t some \x80 text\t \r\n\r\n");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target, "/a/b%20c?x=1&y=?2");
  EXPECT_EQ(request.path, "/a/b%20c");
  EXPECT_EQ(request.query, "x=1&y=?2");
  EXPECT_EQ(request.host, "example.com:8080");
  EXPECT_EQ(request.minor_version, 1);
  EXPECT_TRUE(request.keep_alive);
  EXPECT_EQ(request.body, "");
  EXPECT_THAT(request.headers, ::testing::ElementsAre(std::pair("Host", "example.com:8080"),
                                                      std::pair("X-Empty", ""),
                                                      std::pair("X-Padded", "some \x80 text")));
}

TEST(RequestReader, KnowsMethods) {
  const Limits limits;
  RequestReader reader(limits);
  Request request;
  const auto method = [&](std::string_view name) {
    Feed(reader, std::string(name) + " / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_EQ(reader.Next(request), Status::kRequest);
    EXPECT_EQ(request.method_text, name);
    return request.method;
  };
  EXPECT_EQ(method("GET"), Method::kGet);
  EXPECT_EQ(method("HEAD"), Method::kHead);
  EXPECT_EQ(method("POST"), Method::kPost);
  EXPECT_EQ(method("PUT"), Method::kPut);
  EXPECT_EQ(method("DELETE"), Method::kDelete);
  EXPECT_EQ(method("PATCH"), Method::kPatch);
  EXPECT_EQ(method("OPTIONS"), Method::kOptions);
  EXPECT_EQ(method("get"), Method::kOther);
  EXPECT_EQ(method("M-SEARCH"), Method::kOther);
}

TEST(RequestReader, FindsHeadersWhateverTheirCase) {
  const Limits limits;
  RequestReader reader(limits);
  Request request;
  Feed(reader, "GET / HTTP/1.1\r\nhOST: a\r\nX-a: 1\r\nx-A: 2\r\n\r\n");
  ASSERT_EQ(reader.Next(request), Status::kRequest);
  EXPECT_EQ(request.FindHeader("Host"), "a");
  EXPECT_EQ(request.FindHeader("X-A"), "1");
  EXPECT_EQ(request.FindHeader("X-B"), "");
}

TEST(RequestReader, ReadsBodies) {
  EXPECT_EQ(One(With("Content-Length: 5\r\n", "hello")).body, "hello");
  EXPECT_EQ(One(With("content-length:005\r\n", "he\r\no")).body, "he\r\no");
  EXPECT_EQ(One(With("Content-Length: 0\r\n")).body, "");
  const std::string large(300'000, 'x');
  EXPECT_EQ(One(With("Content-Length: 300000\r\n", large)).body, large);
}

TEST(RequestReader, PutsChunksTogether) {
  EXPECT_EQ(One(Chunked("0\r\n\r\n")).body, "");
  EXPECT_EQ(One(Chunked("5\r\nhello\r\n0\r\n\r\n")).body, "hello");
  EXPECT_EQ(One(Chunked("3\r\n\r\n\n\r\n00A\r\n0123456789\r\n00\r\n\r\n")).body,
            "\r\n\n0123456789");
  EXPECT_EQ(
      One(Chunked("1;a=b;c=\"d e\"\r\nx\r\n0;last\r\nTrailer: ignored\r\nAnd: this\r\n\r\n")).body,
      "x");
  EXPECT_EQ(One(With("transfer-encoding: Chunked\r\n", "1\r\nx\r\n0\r\n\r\n")).body, "x");
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "1\r\nx\r\n";
  EXPECT_EQ(One(Chunked(many + "0\r\n\r\n")).body, std::string(20'000, 'x'));
}

TEST(RequestReader, ReadsRequestsOneAfterAnother) {
  const std::string get = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
  const Outcome outcome = Read(get + "\r\n" + Chunked("2\r\nab\r\n0\r\n\r\n") +
                               With("Content-Length: 1\r\n", "c") + "GET /4 HTTP/1.0\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 4U);
  EXPECT_EQ(outcome.refused, 0);
  EXPECT_EQ(outcome.requests[0].path, "/1");
  EXPECT_EQ(outcome.requests[1].body, "ab");
  EXPECT_EQ(outcome.requests[2].body, "c");
  EXPECT_EQ(outcome.requests[3].path, "/4");
}

TEST(RequestReader, KnowsWhetherTheConnectionPersists) {
  EXPECT_TRUE(One(With("Connection: keep-alive\r\n")).keep_alive);
  EXPECT_FALSE(One(With("Connection: close\r\n")).keep_alive);
  EXPECT_FALSE(One(With("Connection: Upgrade , CLOSE\r\n")).keep_alive);
  EXPECT_FALSE(One(With("Connection: close\r\nConnection: keep-alive\r\n")).keep_alive);
  EXPECT_TRUE(One(With("Connection: closed, , not-close\r\n")).keep_alive);
  EXPECT_FALSE(One("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(One("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
  EXPECT_EQ(One("GET / HTTP/1.0\r\n\r\n").minor_version, 0);
  EXPECT_EQ(One("GET / HTTP/1.2\r\nHost: a\r\n\r\n").minor_version, 1);
}

TEST(RequestReader, TakesUrlsAsTargets) {
  const auto read = [](std::string_view method, std::string_view target) {
    return One(std::string(method) + " " + std::string(target) + " HTTP/1.1\r\nHost: b\r\n\r\n");
  };
  EXPECT_EQ(read("GET", "http://a:80/x?y").path, "/x");
  EXPECT_EQ(read("GET", "http://a:80/x?y").query, "y");
  EXPECT_EQ(read("GET", "http://a:80/x?y").host, "a:80");
  EXPECT_EQ(read("GET", "HTTPS://a").path, "/");
  EXPECT_EQ(read("GET", "http://a?y=/").path, "/");
  EXPECT_EQ(read("GET", "http://a?y=/").query, "y=/");
  EXPECT_EQ(read("GET", "//a/b").path, "//a/b");
  EXPECT_EQ(read("GET", "//a/b").host, "b");
  EXPECT_EQ(read("OPTIONS", "*").path, "*");
}

TEST(RequestReader, RefusesTargetsThatAreNone) {
  for (const char* target : {"a", "*", "ftp://a/", "http:/a", "http://", "http:///x", "http://u@a/",
                             "/a#b", "/\x7f", "/\xc3\xa9", "/\t", "/\x01"}) {
    EXPECT_EQ(RefusalOf("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400)
        << target;
  }
  EXPECT_EQ(RefusalOf("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"), 501);
}

TEST(RequestReader, RefusesRequestLinesThatAreNone) {
  for (const char* line : {"GET /",
                           "GET / ",
                           " GET / HTTP/1.1",
                           "GET  / HTTP/1.1",
                           "GET /  HTTP/1.1",
                           "GET / HTTP/1.1 ",
                           "GET / HTTP/11",
                           "GET / HTTP/1.",
                           "GET / http/1.1",
                           "GET / HTTP/1.1x",
                           "GET / HTTP/a.1",
                           "GET / HTTP/1.10",
                           "GET\t/ HTTP/1.1",
                           "G(T / HTTP/1.1",
                           "GET",
                           " ",
                           "GET / a HTTP/1.1",
                           "GET /\rHTTP/1.1",
                           "\x16\x03\x01\x02\x01\x01",
                           "\x80 / HTTP/1.1",
                           "GET / HTTP/1.1\r",
                           "AVeryLongMethodThatNobodyHasEverHeardOf / HTTP/1.1"}) {
    EXPECT_EQ(RefusalOf(std::string(line) + "\r\nHost: a\r\n\r\n"), 400) << line;
  }
  EXPECT_EQ(RefusalOf(std::string_view("GE\0T / HTTP/1.1\r\nHost: a\r\n\r\n", 29)), 400);
  EXPECT_EQ(RefusalOf(std::string_view("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 29)), 400);
  EXPECT_EQ(RefusalOf("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(RefusalOf("GET / HTTP/0.9\r\n\r\n"), 505);
  EXPECT_EQ(RefusalOf("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

TEST(RequestReader, RefusesLinesThatDoNotEndProperly) {
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\nHost: a\n\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: a\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: a\r\n\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\rHost: a\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf(With("X: a\rb\r\n")), 400);
  EXPECT_EQ(RefusalOf(With("X: a\r\r\n")), 400);
  EXPECT_EQ(RefusalOf("\n"), 400);
}

TEST(RequestReader, RefusesHeadersThatAreNone) {
  for (const char* line :
       {"X : a", " X: a", "\tX: a", "X", ": a", "X\t: a", "(X): a", "X\x01: a", "X: a\x01",
        "X: \x7f", "X: a\x1b[0m", "X: a\r\n continued", "X: a\r\n\tcontinued", "\xc3\xa9: a",
        "Transfer-Encoding : chunked", "Content-Length\t: 5", "X\r: a", "{X}: a", "\"X\": a"}) {
    EXPECT_EQ(RefusalOf(With(std::string(line) + "\r\n")), 400) << line;
  }
  EXPECT_EQ(RefusalOf(With(std::string_view("X: a\0b\r\n", 8))), 400);
  EXPECT_EQ(RefusalOf(With(std::string_view("X\0: b\r\n", 7))), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400);
}

TEST(RequestReader, InsistsOnOneHost) {
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET http://a/ HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), 400);
  EXPECT_EQ(RefusalOf("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
  for (const char* host : {"a b", "a/b", "u@a", "a?", "a#", "a\\b", "\xc3\xa9", "a\"b"}) {
    EXPECT_EQ(RefusalOf("GET / HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n"), 400) << host;
  }
  EXPECT_EQ(One("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").host, "[::1]:80");
  EXPECT_EQ(One("GET / HTTP/1.1\r\nHost:\r\n\r\n").host, "");
}

TEST(RequestReader, RefusesLengthsThatOthersMightReadDifferently) {
  for (const char* lines :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n", "Content-Length: 5,6\r\n", "Content-Length: +5\r\n",
        "Content-Length: -5\r\n", "Content-Length: 0x5\r\n", "Content-Length: 5 5\r\n",
        "Content-Length: 5a\r\n", "Content-Length: 5.0\r\n", "Content-Length:\r\n",
        "Content-Length: \"5\"\r\n", "Content-Length: 5;\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"}) {
    EXPECT_EQ(RefusalOf(With(lines, "0\r\n\r\n")), 400) << lines;
  }
  for (const char* coding : {"gzip", "chunked, chunked", "gzip, chunked", "identity", "chunked;a=b",
                             "xchunked", "\"chunked\"", ", chunked", "chunked,", "", "\vchunked"}) {
    const int refused =
        RefusalOf(With("Transfer-Encoding: " + std::string(coding) + "\r\n", "0\r\n\r\n"));
    EXPECT_EQ(refused, coding[0] == '\v' ? 400 : 501) << coding;
  }
  EXPECT_EQ(RefusalOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(RequestReader, RefusesChunksThatAreNone) {
  for (const char* body : {"x\r\n",
                           "\r\n",
                           "-1\r\n",
                           "+1\r\n",
                           "0x1\r\nx\r\n0\r\n\r\n",
                           " 1\r\nx\r\n0\r\n\r\n",
                           "1 \r\nx\r\n0\r\n\r\n",
                           "1\nx\r\n0\r\n\r\n",
                           "1\r\nxy\r\n0\r\n\r\n",
                           "1\r\nx0\r\n\r\n",
                           "2\r\nx\r\n0\r\n\r\n",
                           "1\r\nx\n0\r\n\r\n",
                           "1;\x01\r\nx\r\n0\r\n\r\n",
                           "1;a\rb\r\nx\r\n0\r\n\r\n",
                           "1\r\r\nx\r\n0\r\n\r\n",
                           "1\r\nx\r\n0\r\n\n",
                           "00000000000000001\r\nx\r\n0\r\n\r\n",
                           "10000000000000000\r\n",
                           "1g\r\n",
                           "1,\r\n",
                           "0\r\nNo trailer\r\n\r\n",
                           "0\r\n Folded: a\r\n\r\n",
                           "0\r\nX : a\r\n\r\n",
                           "0\r\nX: a\n\r\n",
                           "0\r\nX: \x01\r\n\r\n",
                           "0\r\nGET / HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(RefusalOf(Chunked(body)), 400) << body;
  }
  EXPECT_EQ(RefusalOf(Chunked("ffffffffffffffff\r\n")), 413);
  EXPECT_EQ(RefusalOf(Chunked("1;" + std::string(2000, 'a'))), 400);
}

TEST(RequestReader, NeverReadsOnAfterARefusal) {
  const Limits limits;
  RequestReader reader(limits);
  Outcome outcome;
  Feed(reader, "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(TakeAll(reader, outcome), Status::kRefused);
  EXPECT_EQ(TakeAll(reader, outcome), Status::kRefused);
  Feed(reader, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(TakeAll(reader, outcome), Status::kRefused);
  EXPECT_TRUE(outcome.requests.empty());
  EXPECT_EQ(reader.refusal().status, 400);
  EXPECT_EQ(reader.refusal().code, "BAD_REQUEST");
  EXPECT_EQ(reader.refusal().message, "the request has no Host");
}

TEST(RequestReader, HoldsTheLimitOfTargets) {
  const Limits limits{.target_bytes_max = 100};
  const auto with = [](std::size_t size) {
    return "GET /" + std::string(size - 1, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };
  EXPECT_EQ(One(with(100), limits).path.size(), 100U);
  EXPECT_EQ(RefusalOf(with(101), limits), 414);
  EXPECT_EQ(RefusalOf("GET /" + std::string(1000, 'a'), limits), 414);
}

TEST(RequestReader, HoldsTheLimitsOfHeads) {
  const Limits bytes{.head_bytes_max = 200};
  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  const auto with = [&](std::size_t size) {
    return start + std::string(size - start.size() - 4, 'a') + "\r\n\r\n";
  };
  EXPECT_EQ(One(with(200), bytes).headers.size(), 2U);
  EXPECT_EQ(RefusalOf(with(201), bytes), 431);
  EXPECT_EQ(RefusalOf(start + std::string(1000, 'a'), bytes), 431);

  const Limits count{.headers_max = 3};
  EXPECT_EQ(One(With("A: 1\r\nB: 2\r\n"), count).headers.size(), 3U);
  EXPECT_EQ(RefusalOf(With("A: 1\r\nB: 2\r\nC: 3\r\n"), count), 431);
}

TEST(RequestReader, HoldsTheLimitsOfBodies) {
  const Limits limits{.head_bytes_max = 200, .body_bytes_max = 10};
  EXPECT_EQ(One(With("Content-Length: 10\r\n", "0123456789"), limits).body.size(), 10U);
  EXPECT_EQ(RefusalOf(With("Content-Length: 11\r\n"), limits), 413);
  EXPECT_EQ(RefusalOf(With("Content-Length: 99999999999999999999999999999999\r\n"), limits), 413);
  EXPECT_EQ(RefusalOf(With("Content-Length: 18446744073709551616\r\n"), limits), 413);
  EXPECT_EQ(One(Chunked("5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), limits).body.size(), 10U);
  EXPECT_EQ(RefusalOf(Chunked("5\r\n01234\r\n6\r\n567890\r\n0\r\n\r\n"), limits), 413);
  const std::string trailer = "A: " + std::string(93, 'a') + "\r\n";
  EXPECT_EQ(One(Chunked("0\r\n" + trailer + trailer + "\r\n"), limits).body, "");
  EXPECT_EQ(RefusalOf(Chunked("0\r\n" + trailer + trailer + trailer + "\r\n"), limits), 431);
  std::string extended;
  for (int i = 0; i < 9; ++i) extended += "1;" + std::string(30, 'a') + "\r\nx\r\n";
  EXPECT_EQ(RefusalOf(Chunked(extended + "0\r\n\r\n"), limits), 431);
}

TEST(RequestReader, SaysWhenToContinue) {
  const Limits limits;
  RequestReader reader(limits);
  Outcome outcome;
  Feed(reader, With("Expect: 100-Continue\r\nContent-Length: 2\r\n"));
  EXPECT_FALSE(reader.TakeExpectation());
  EXPECT_EQ(TakeAll(reader, outcome), Status::kIncomplete);
  EXPECT_TRUE(reader.TakeExpectation());
  EXPECT_FALSE(reader.TakeExpectation());
  Feed(reader, "ab");
  EXPECT_EQ(TakeAll(reader, outcome), Status::kIncomplete);
  ASSERT_EQ(outcome.requests.size(), 1U);
  EXPECT_EQ(outcome.requests[0].body, "ab");
  EXPECT_FALSE(reader.TakeExpectation());

  EXPECT_EQ(RefusalOf(With("Expect: miracles\r\n")), 417);
  EXPECT_EQ(One("GET / HTTP/1.0\r\nExpect: miracles\r\n\r\n").path, "/");
}

TEST(RequestReader, SaysWhatHasArrived) {
  const Limits limits;
  RequestReader reader(limits);
  Request request;
  const auto phase = [&](std::string_view bytes) {
    Feed(reader, bytes);
    EXPECT_EQ(reader.Next(request), Status::kIncomplete);
    return reader.phase();
  };
  EXPECT_EQ(phase(""), Phase::kIdle);
  EXPECT_EQ(phase("G"), Phase::kHead);
  EXPECT_EQ(phase("ET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r"), Phase::kHead);
  EXPECT_EQ(phase("\n"), Phase::kBody);
  EXPECT_EQ(phase("x"), Phase::kBody);
  Feed(reader, "y");
  EXPECT_EQ(reader.Next(request), Status::kRequest);
  EXPECT_EQ(phase(""), Phase::kIdle);
}

}  // namespace
}  // namespace sluice::http
