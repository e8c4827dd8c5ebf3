// SPDX-License-Identifier: Apache-2.0
#include "client/http_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

namespace sluice::client {
namespace {

struct Read {
  bool tls;
  std::string host;
  std::string port;
  std::string path;
};

TEST(Server, ReadsUrls) {
  const std::pair<const char*, Read> cases[] = {
      {"http://127.0.0.1:8080", {false, "127.0.0.1", "8080", ""}},
      {"http://sluice/", {false, "sluice", "80", ""}},
      {"https://sluice.example", {true, "sluice.example", "443", ""}},
      {"https://sluice.example:8443/limits/", {true, "sluice.example", "8443", "/limits"}},
      {"http://[::1]:8080", {false, "::1", "8080", ""}},
      {"https://[::1]/a/b", {true, "::1", "443", "/a/b"}},
  };
  for (const auto& [url, expected] : cases) {
    const auto server = Server::Parse(url);
    ASSERT_TRUE(server) << url;
    EXPECT_EQ(server->tls, expected.tls) << url;
    EXPECT_EQ(server->host, expected.host) << url;
    EXPECT_EQ(server->port, expected.port) << url;
    EXPECT_EQ(server->path, expected.path) << url;
  }
}

TEST(Server, RefusesWhatIsNoUrlOfAService) {
  for (const char* const url :
       {"", "127.0.0.1:8080", "ftp://a", "http://", "http://:80", "http://a:", "http://a:0",
        "http://a:65536", "http://a:b", "http://[::1", "http://[::1]x", "http://[]:80",
        "http://user:secret@a", "http://a?b", "http://a/b#c", "http://a b", "http://a\nb"}) {
    const auto server = Server::Parse(url);
    ASSERT_FALSE(server) << url;
    EXPECT_EQ(server.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(server.error().message, testing::Not(testing::HasSubstr("secret")));
  }
}

namespace asio = boost::asio;

// Descriptors that a program started now would inherit.
int Inherited() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int flags = ::fcntl(std::stoi(entry.path().filename().string()), F_GETFD);
    if (flags != -1 && (flags & FD_CLOEXEC) == 0) ++count;
  }
  return count;
}

class HttpClientTest : public testing::Test {
 protected:
  HttpClientTest() { acceptor_.non_blocking(true); }

  Server ServerHere() const {
    return {.host = "127.0.0.1", .port = std::to_string(acceptor_.local_endpoint().port())};
  }

  // Of `client`, once the context runs.
  void Ask(HttpClient& client) {
    asio::co_spawn(
        context_,
        [this, &client]() -> asio::awaitable<void> {
          Question question{.method = Method::kPost, .target = "/"};
          response_ = co_await client.Ask(std::move(question), std::chrono::minutes{1});
        },
        asio::detached);
  }

  asio::io_context context_{1};
  asio::ip::tcp::acceptor acceptor_{context_, {asio::ip::address_v4::loopback(), 0}};
  Expected<Response> response_;
};

TEST_F(HttpClientTest, NoProgramInheritsItsConnection) {
  HttpClient client(context_.get_executor(), ServerHere(), "");
  const int before = Inherited();
  Ask(client);
  int accepted = -1;
  // Also while it is connecting.
  while (accepted < 0 && context_.run_one() > 0) {
    EXPECT_EQ(Inherited(), before);
    accepted = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
  }
  ASSERT_GE(accepted, 0);
  ::close(accepted);
  context_.run();
  EXPECT_EQ(Inherited(), before);
  ASSERT_FALSE(response_);
  EXPECT_EQ(response_.error().code, ErrorCode::kOutcomeUnknown) << "it was sent";
}

TEST_F(HttpClientTest, NothingWasDoneIfNobodyIsThere) {
  HttpClient client(context_.get_executor(), ServerHere(), "");
  acceptor_.close();
  Ask(client);
  context_.run();
  ASSERT_FALSE(response_);
  EXPECT_EQ(response_.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(response_.error().message, testing::HasSubstr("refused"));
}

}  // namespace
}  // namespace sluice::client
