// SPDX-License-Identifier: Apache-2.0
#include "http/response_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::http {
namespace {

using enum Delivery::Persistence;

std::string Written(const Response& response, const Delivery& delivery) {
  std::string out = "before|";
  AppendResponse(out, response, delivery);
  return out;
}

TEST(ResponseWriter, WritesAResponse) {
  EXPECT_EQ(Written({.status = 200,
                     .content_type = "application/json",
                     .headers = "X-A: 1\r\nX-B: 2\r\n",
                     .body = "{}"},
                    {.common_headers = "Date: now\r\n"}),
            "before|HTTP/1.1 200 OK\r\nDate: now\r\nContent-Type: application/json\r\n"
            "Content-Length: 2\r\nX-A: 1\r\nX-B: 2\r\n\r\n{}");
  EXPECT_EQ(
      Written({.status = 429}, {.persistence = kClose}),
      "before|HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(Written({.status = 299}, {.persistence = kKeepAlive}),
            "before|HTTP/1.1 299 \r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n");
}

TEST(ResponseWriter, LeavesTheBodyOutWhereThereMayBeNone) {
  EXPECT_EQ(Written({.body = "hello"}, {.head_only = true}),
            "before|HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(Written({.status = 204, .body = "hello"}, {}),
            "before|HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_EQ(Written({.status = 304, .body = "hello"}, {}),
            "before|HTTP/1.1 304 Not Modified\r\n\r\n");
}

TEST(ResponseWriter, WritesLargeBodies) {
  const std::string body(1'000'000, 'x');
  const std::string written = Written({.body = body}, {});
  EXPECT_EQ(written, "before|HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + body);
}

TEST(ResponseWriter, WritesErrors) {
  EXPECT_EQ(ErrorBody("NOT_FOUND", "no such thing"),
            R"({"error":{"code":"NOT_FOUND","message":"no such thing"}})");
}

TEST(ResponseWriter, WritesDates) {
  using std::chrono::seconds;
  EXPECT_EQ(HttpDate(TimePoint{seconds{784'111'777}}), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(HttpDate(TimePoint{seconds{0}}), "Thu, 01 Jan 1970 00:00:00 GMT");
  EXPECT_EQ(HttpDate(TimePoint{Micros{1'709'251'199'999'999}}), "Thu, 29 Feb 2024 23:59:59 GMT");
}

}  // namespace
}  // namespace sluice::http
