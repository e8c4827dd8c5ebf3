// SPDX-License-Identifier: Apache-2.0
#include "grpc/server.h"

#include <envoy/service/ratelimit/v3/rls.pb.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sluice/memory_store.h"
#include "support/eventually.h"
#include "support/h2_client.h"
#include "support/rls_engine.h"
#include "support/thread_store.h"

namespace sluice::grpc {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using boost::asio::ip::tcp;
using test::H2Client;
using testing_support::Eventually;
using testing_support::ThreadStore;

constexpr const char* kDomain = R"(
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 3}
)";
constexpr const char* kShouldRateLimit =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

std::string UserRequest() {
  envoy::service::ratelimit::v3::RateLimitRequest request;
  request.set_domain("edge");
  auto& entry = *request.add_descriptors()->add_entries();
  entry.set_key("user");
  entry.set_value("ann");
  return request.SerializeAsString();
}

// An H2Client with a socket.
class Client {
 public:
  explicit Client(std::uint16_t port) {
    socket_.open(tcp::v4());
    socket_.set_option(tcp::socket::receive_buffer_size(16'384));
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
  }

  H2Client& h2() { return h2_; }
  tcp::socket& socket() { return socket_; }

  void Send(const std::string& bytes) {
    boost::system::error_code ignored;  // If the server has closed, reading will fail.
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }

  // Exchanges bytes until `done` or until the server has closed; returns whether it is done.
  template <typename Done>
  bool Until(Done done) {
    while (!done()) {
      Send(h2_.Take());
      std::string buffer(65'536, '\0');
      boost::system::error_code error;
      const std::size_t size = socket_.read_some(boost::asio::buffer(buffer), error);
      if (error) {
        closed_ = true;
        return done();
      }
      h2_.Feed(std::string_view(buffer).substr(0, size));
    }
    return true;
  }
  bool UntilClosed() {
    return Until([&] { return closed_; });
  }

 private:
  boost::asio::io_context context_;
  tcp::socket socket_{context_};
  H2Client h2_;
  bool closed_ = false;
};

class ServerTest : public testing::Test {
 protected:
  // The store ends first, and the loops run what it still answered before the engine ends.
  ~ServerTest() override {
    server_.reset();
    later_.reset();
    loops_.Stop();
  }

  void Start(Server::Options options = {}) { StartOn(memory_, options); }
  // With a store that answers on another thread, and holds its requests.
  void StartHeld() {
    later_.emplace(memory_);
    later_->Hold(true);
    StartOn(*later_, {});
  }
  void StartOn(Store& store, Server::Options options) {
    engine_.emplace(store, SystemClock(), std::vector<std::string>{kDomain});
    options.address = {.host = "127.0.0.1", .port = 0};
    auto server = Server::Start(loops_, **engine_, options);
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    loops_.Start();
  }

  net::Loops loops_{2};
  MemoryStore memory_;
  std::optional<test::RlsEngine> engine_;
  std::optional<ThreadStore> later_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, Answers) {
  Start();
  Client client(server_->port());
  const std::int32_t id = client.h2().Call(kShouldRateLimit, UserRequest());
  EXPECT_TRUE(client.Until([&] { return client.h2().stream(id).closed; }));
  EXPECT_EQ(client.h2().stream(id).grpc_status(), "0");
  EXPECT_EQ(server_->counts().calls, 1U);
}

TEST_F(ServerTest, AnswersWhatAStoreDecidesElsewhere) {
  StartHeld();
  later_->Hold(false);
  Client client(server_->port());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(client.h2().Call(kShouldRateLimit, UserRequest()));
  for (const std::int32_t id : ids) {
    EXPECT_TRUE(client.Until([&] { return client.h2().stream(id).closed; }));
    EXPECT_EQ(client.h2().stream(id).grpc_status(), "0");
  }
}

TEST_F(ServerTest, KeepsDeadlinesWhileAStoreIsSlow) {
  StartHeld();
  Client client(server_->port());
  auto headers = H2Client::CallHeaders(kShouldRateLimit);
  headers.emplace_back("grpc-timeout", "20m");
  const std::int32_t id = client.h2().Start(headers, test::Framed(UserRequest()));
  EXPECT_TRUE(client.Until([&] { return client.h2().stream(id).closed; }));
  EXPECT_EQ(client.h2().stream(id).grpc_status(), "4");
  later_->Hold(false);
  EXPECT_EQ(server_->counts().deadlines_exceeded, 1U);
}

TEST_F(ServerTest, OutlivesClientsThatDoNotWait) {
  StartHeld();
  {
    Client client(server_->port());
    client.h2().Call(kShouldRateLimit, UserRequest());
    client.Send(client.h2().Take());
    later_->WaitForACall();
  }
  later_->Hold(false);
  Client other(server_->port());
  const std::int32_t id = other.h2().Call(kShouldRateLimit, UserRequest());
  EXPECT_TRUE(other.Until([&] { return other.h2().stream(id).closed; }));
}

TEST_F(ServerTest, ClosesWhoSaysNothing) {
  Start({.address = {}, .preface_timeout = 50ms});
  Client client(server_->port());
  boost::system::error_code error;
  std::string buffer(1000, '\0');
  while (!error) client.socket().read_some(boost::asio::buffer(buffer), error);
  EXPECT_EQ(server_->counts().timeouts, 1U);
}

TEST_F(ServerTest, ClosesWhoIsIdle) {
  Start({.address = {}, .idle_timeout = 50ms});
  Client client(server_->port());
  EXPECT_TRUE(client.UntilClosed());
  EXPECT_EQ(client.h2().goaway(), NGHTTP2_NO_ERROR);
  EXPECT_EQ(server_->counts().timeouts, 1U);
}

TEST_F(ServerTest, ClosesWhoGivesNoSignOfLife) {
  Start({.address = {}, .idle_timeout = 50ms, .ping_timeout = 50ms});
  std::optional<Client> client;
  std::uint64_t closed = 0;
  // Answers pings for a while. If the machine stalls, it may fail to.
  ASSERT_TRUE(Eventually([&] {
    ++closed;
    client.emplace(server_->port());
    const std::int32_t id = client->h2().Call("/grpc.health.v1.Health/Watch", "");
    return client->Until([&] { return !client->h2().stream(id).data.empty(); });
  }));
  // Then it stops.
  boost::system::error_code error;
  std::string buffer(1000, '\0');
  while (!error) client->socket().read_some(boost::asio::buffer(buffer), error);
  EXPECT_EQ(server_->counts().timeouts, closed);
}

TEST_F(ServerTest, RefusesConnectionsBeyondTheMaximum) {
  Start({.address = {}, .connections_max = 1});
  Client first(server_->port());
  const std::int32_t id = first.h2().Call(kShouldRateLimit, UserRequest());
  EXPECT_TRUE(first.Until([&] { return first.h2().stream(id).closed; }));
  Client second(server_->port());
  EXPECT_TRUE(second.UntilClosed());
  EXPECT_EQ(server_->counts().connections.refused, 1U);
}

TEST_F(ServerTest, DrainsWithEveryCallAnswered) {
  StartHeld();
  Client client(server_->port());
  const std::int32_t id = client.h2().Call(kShouldRateLimit, UserRequest());
  client.Send(client.h2().Take());
  later_->WaitForACall();
  server_->StartDrain();
  later_->Hold(false);
  std::size_t cut_off = 1;
  std::jthread drain([&] { cut_off = server_->Drain(std::chrono::steady_clock::now() + 60s); });
  EXPECT_TRUE(client.UntilClosed());
  client.socket().close();
  drain.join();
  EXPECT_EQ(client.h2().stream(id).grpc_status(), "0");
  EXPECT_EQ(client.h2().goaway(), NGHTTP2_NO_ERROR);
  EXPECT_EQ(cut_off, 0U);
  EXPECT_TRUE(Eventually([&] { return server_->counts().connections.open == 0; }));
}

TEST_F(ServerTest, DrainsNoLongerThanToldTo) {
  StartHeld();
  Client client(server_->port());
  client.h2().Call(kShouldRateLimit, UserRequest());
  client.Send(client.h2().Take());
  later_->WaitForACall();
  EXPECT_EQ(server_->Drain(std::chrono::steady_clock::now() + 20ms), 1U);
  EXPECT_TRUE(client.UntilClosed());
  later_->Hold(false);
}

TEST_F(ServerTest, ClosesWhoNeitherListensNorSpeaks) {
  Start({.address = {}, .idle_timeout = 100ms});
  Client client(server_->port());
  boost::system::error_code error;
  while (!error) {
    client.h2().Call("/" + std::string(50, 'x'), "");
    boost::asio::write(client.socket(), boost::asio::buffer(client.h2().Take()), error);
  }
  EXPECT_EQ(server_->counts().timeouts, 1U);
  EXPECT_TRUE(Eventually([&] { return server_->counts().connections.open == 0; }));
}

TEST_F(ServerTest, ClosesWhoDoesNotTakeWhatItIsSent) {
  Start({.address = {}, .write_timeout = 100ms});
  Client client(server_->port());
  boost::system::error_code error;
  while (!error) {
    client.h2().Call("/" + std::string(50, 'x'), "");
    boost::asio::write(client.socket(), boost::asio::buffer(client.h2().Take()), error);
  }
  EXPECT_EQ(server_->counts().timeouts, 1U);
}

TEST_F(ServerTest, ClosesWhoFindsNoRoomForWhatItHasSent) {
  const auto buffered = std::make_shared<net::ByteBudget>(64 << 10);
  Start({.address = {}, .buffered = buffered});
  Client large(server_->port());
  const std::string part = test::Framed(std::string(200'000, 'x')).substr(0, 60'000);
  large.h2().Start(H2Client::CallHeaders(kShouldRateLimit), part, false);
  Client larger(server_->port());
  large.Send(large.h2().Take());
  ASSERT_TRUE(Eventually([&] { return buffered->held() > 32'000; }));
  for (int i = 0; i < 2; ++i) {
    larger.h2().Start(H2Client::CallHeaders(kShouldRateLimit), part, false);
  }
  EXPECT_TRUE(larger.UntilClosed());
  EXPECT_EQ(buffered->refused(), 1U);
  // Clients with small requests are served meanwhile.
  Client small(server_->port());
  const std::int32_t id = small.h2().Call(kShouldRateLimit, UserRequest());
  EXPECT_TRUE(small.Until([&] { return small.h2().stream(id).closed; }));
  EXPECT_EQ(small.h2().stream(id).grpc_status(), "0");
  large.socket().close();
  EXPECT_TRUE(Eventually([&] { return buffered->held() == 0; }));
}

// Unread answers fill the sockets, and then nothing more is read from the client.
TEST_F(ServerTest, DoesNotListenToWhoDoesNotListen) {
  static constexpr int kCallsMax = 500'000;
  Start();
  Client client(server_->port());
  client.socket().non_blocking(true);
  std::string out;
  int calls = 0;
  bool stuck = false;
  while (!stuck && calls < kCallsMax) {
    // The answers are headers, for which HTTP/2 has no window.
    if (out.empty()) {
      client.h2().Call("/" + std::to_string(++calls) + std::string(50, 'x'), "");
      out = client.h2().Take();
    }
    boost::system::error_code error;
    out.erase(0, client.socket().write_some(boost::asio::buffer(out), error));
    if (error == boost::asio::error::would_block) {
      pollfd ready = {client.socket().native_handle(), POLLOUT, 0};
      stuck = poll(&ready, 1, 1000) == 0;
    } else {
      ASSERT_FALSE(error) << error.message();
    }
  }
  EXPECT_TRUE(stuck);
  EXPECT_LT(server_->counts().calls, static_cast<std::uint64_t>(calls));
  // Nothing is lost if the client reads again.
  int answered = 0;
  while (answered < calls - 1) {
    std::string buffer(1 << 20, '\0');
    boost::system::error_code error;
    const std::size_t size = client.socket().read_some(boost::asio::buffer(buffer), error);
    if (error == boost::asio::error::would_block) {
      out.erase(0, client.socket().write_some(boost::asio::buffer(out), error));
      pollfd ready = {client.socket().native_handle(), POLLIN, 0};
      poll(&ready, 1, 1000);
      continue;
    }
    ASSERT_FALSE(error) << error.message();
    client.h2().Feed(std::string_view(buffer).substr(0, size));
    while (answered < calls - 1 && client.h2().stream(2 * answered + 1).closed) ++answered;
  }
  EXPECT_EQ(client.h2().stream(1).grpc_status(), "12");
}

}  // namespace
}  // namespace sluice::grpc
