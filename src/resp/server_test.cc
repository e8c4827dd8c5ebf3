// SPDX-License-Identifier: Apache-2.0
#include "resp/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/certificate.h"
#include "support/resp_session.h"
#include "support/tcp_client.h"
#include "support/thread_store.h"

namespace sluice::resp {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing_support::RespCommand;
using testing_support::RespEngine;
using testing_support::TcpClient;
using testing_support::ThreadStore;

constexpr std::string_view kPong = "+PONG\r\n";

std::string ReadExactly(TcpClient& client, std::size_t size) {
  std::string all;
  while (all.size() < size) {
    const std::string piece = client.ReadSome();
    if (piece.empty()) break;
    all += piece;
  }
  return all;
}

class ServerTest : public testing::Test {
 protected:
  // The store ends first, and the loops run what it still answered before the engine ends.
  ~ServerTest() override {
    server_.reset();
    later_.reset();
    loops_.Stop();
  }

  // Whether the store answers in place or on another thread.
  enum class Answers { kInline, kLater };

  void Start(Server::Options options = {}, Answers answers = Answers::kInline) {
    if (answers == Answers::kLater) {
      later_.emplace(memory_);
      parts_.emplace(&*later_);
    } else {
      parts_.emplace();
    }
    options.address = {.host = "127.0.0.1", .port = 0};
    auto server = Server::Start(loops_, parts_->engine, std::move(options));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    loops_.Start();
  }

  std::size_t Drain(std::chrono::milliseconds wait = 30s) {
    return server_->Drain(std::chrono::steady_clock::now() + wait);
  }

  TcpClient Connect(int receive_bytes = 0) { return TcpClient(server_->port(), receive_bytes); }

  net::Loops loops_{2};
  MemoryStore memory_;
  std::optional<RespEngine> parts_;
  std::optional<ThreadStore> later_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersPipelinesOfManyClients) {
  Start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      TcpClient client = Connect();
      const std::string key = "client" + std::to_string(i);
      std::string sent;
      std::string expected;
      for (int n = 1; n <= 3000; ++n) {
        sent += RespCommand({"CL.THROTTLE", key, "2999", "1", "3600"}) + "PING\r\n";
        expected += "*5\r\n:0\r\n:3000\r\n:" + std::to_string(3000 - n) +
                    "\r\n:-1\r\n:" + std::to_string(3600 * n) + "\r\n" + std::string(kPong);
      }
      std::thread sender([&] { EXPECT_TRUE(client.Send(sent)); });
      EXPECT_EQ(ReadExactly(client, expected.size()), expected);
      sender.join();
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(server_->counts().commands, 8U * 6000U);
}

TEST_F(ServerTest, KeepsTheOrderWithAStoreThatAnswersLater) {
  Start({}, Answers::kLater);
  TcpClient client = Connect();
  std::string sent;
  std::string expected;
  for (int n = 1; n <= 2000; ++n) {
    sent += RespCommand({"CL.THROTTLE", "k", "0", "1", "36000"}) + RespCommand({"DEL", "k"});
    expected += "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:36000\r\n:1\r\n";
  }
  std::thread sender([&] { EXPECT_TRUE(client.Send(sent)); });
  EXPECT_EQ(ReadExactly(client, expected.size()), expected);
  sender.join();
}

TEST_F(ServerTest, DecidesTogetherWhatCameTogether) {
  constexpr std::size_t kCommands = 300;  // Several times what a connection reads at first.
  const std::string command = RespCommand({"CL.THROTTLE", "key-of-some-length", "1", "1", "60"});
  Start({}, Answers::kLater);
  TcpClient client = Connect();
  // Nothing is read while the first is decided, so all others are ready afterwards.
  later_->Hold(true);
  EXPECT_TRUE(client.Send(command));
  later_->WaitForACall();
  std::string sent;
  for (std::size_t i = 0; i < kCommands; ++i) sent += command;
  EXPECT_TRUE(client.Send(sent + "QUIT\r\n"));
  later_->Hold(false);
  EXPECT_THAT(client.ReadAll(), EndsWith("+OK\r\n"));
  EXPECT_THAT(later_->batches(), ElementsAre(1U, kCommands));
}

TEST_F(ServerTest, AnswersBytesThatComeOneByOne) {
  Start();
  TcpClient client = Connect();
  const std::string bytes = RespCommand({"PING"}) + "PING\r\n";
  for (const char byte : bytes) EXPECT_TRUE(client.Send({&byte, 1}));
  EXPECT_EQ(ReadExactly(client, 14), "+PONG\r\n+PONG\r\n");
}

TEST_F(ServerTest, TakesLargeArguments) {
  Start();
  TcpClient client = Connect();
  const std::string large(64 << 10, 'x');
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client.Send(RespCommand({"ECHO", large}) + "PING\r\n"));
    EXPECT_EQ(ReadExactly(client, large.size() + 17), "$65536\r\n" + large + "\r\n+PONG\r\n");
  }
}

TEST_F(ServerTest, AnswersAProtocolErrorAndCloses) {
  Start();
  TcpClient client = Connect();
  EXPECT_TRUE(client.Send("*1\r\n:1\r\n" + std::string(100'000, 'x')));
  EXPECT_EQ(client.ReadAll(), "-ERR Protocol error: expected '$', got ':'\r\n");
  EXPECT_EQ(server_->counts().protocol_errors, 1U);
}

TEST_F(ServerTest, DoesNotReadFromAPeerThatDoesNotRead) {
  Start();
  TcpClient client = Connect(4096);
  const std::string large(64 << 10, 'x');
  const std::string echo = RespCommand({"ECHO", large});
  // Sockets take some; the rest must wait until the replies are read.
  constexpr int kEchoes = 1000;
  std::atomic<int> sent = 0;
  std::thread sender([&] {
    for (; sent < kEchoes; ++sent) {
      if (!client.Send(echo)) return;
    }
  });
  // Others are served meanwhile.
  TcpClient other = Connect();
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(other.Send("PING\r\n"));
    EXPECT_EQ(ReadExactly(other, 7), kPong);
  }
  EXPECT_LT(sent, kEchoes);
  EXPECT_EQ(ReadExactly(client, kEchoes * (large.size() + 10)).size(),
            kEchoes * (large.size() + 10));
  sender.join();
}

TEST_F(ServerTest, TellsClientsThatAreTooMany) {
  Start({.connections_max = 1});
  TcpClient first = Connect();
  EXPECT_TRUE(first.Send("PING\r\n"));
  EXPECT_EQ(ReadExactly(first, 7), kPong);
  EXPECT_EQ(Connect().ReadAll(), "-ERR max number of clients reached\r\n");
  EXPECT_EQ(server_->counts().connections.refused, 1U);
  EXPECT_TRUE(first.Send("PING\r\n"));
  EXPECT_EQ(ReadExactly(first, 7), kPong);
}

TEST_F(ServerTest, ThoseThatWereRefusedTakeNobodysPlace) {
  constexpr std::size_t kRefused = 4;
  Start({.connections_max = 3});
  std::vector<TcpClient> good;
  for (int i = 0; i < 3; ++i) {
    good.push_back(Connect());
    EXPECT_TRUE(good.back().Send("PING\r\n"));
    EXPECT_EQ(ReadExactly(good.back(), 7), kPong);
  }
  std::vector<TcpClient> refused;
  for (std::size_t i = 0; i < kRefused; ++i) {
    refused.push_back(Connect());
    EXPECT_EQ(refused.back().ReadAll(), "-ERR max number of clients reached\r\n");
  }
  good.clear();
  while (server_->counts().connections.open > kRefused) std::this_thread::yield();
  TcpClient next = Connect();
  EXPECT_TRUE(next.Send("PING\r\n"));
  EXPECT_EQ(ReadExactly(next, 7), kPong);
}

TEST_F(ServerTest, ClosesIdleConnections) {
  Start({.idle_timeout = 1s});
  TcpClient silent = Connect();
  TcpClient partial = Connect();
  EXPECT_TRUE(partial.Send("*1\r\n"));
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(partial.ReadAll(), "");
  EXPECT_EQ(server_->counts().timeouts, 2U);
}

// However active they are: a byte now and then would hold a partial command forever.
TEST_F(ServerTest, ClosesWhoDoesNotFinishACommand) {
  Start({.idle_timeout = 0s, .request_timeout = 500ms});
  TcpClient silent = Connect();
  TcpClient partial = Connect();
  EXPECT_TRUE(partial.Send("*2\r\n$4\r\nECHO\r\n$60000\r\n"));
  std::thread sender([&] {
    for (int i = 0; i < 50'000 && partial.Send("x"); ++i) std::this_thread::yield();
  });
  EXPECT_EQ(partial.ReadAll(), "");
  sender.join();
  EXPECT_EQ(server_->counts().timeouts, 1U);
  EXPECT_TRUE(silent.Send("PING\r\n"));
  EXPECT_EQ(ReadExactly(silent, 7), kPong);
}

TEST_F(ServerTest, ClosesWhoDoesNotTakeItsReplies) {
  Start({.idle_timeout = 0s, .write_timeout = 500ms});
  TcpClient client = Connect(4096);
  const std::string echo = RespCommand({"ECHO", std::string(64 << 10, 'x')});
  while (client.Send(echo)) {
  }
  EXPECT_EQ(server_->counts().timeouts, 1U);
}

TEST_F(ServerTest, KeepsNoRoomForPipelinesWhenItIsScarce) {
  const auto buffered = std::make_shared<net::ByteBudget>(1 << 20);
  Start({.buffered = buffered});
  std::string pings;
  for (int i = 0; i < 1'000; ++i) pings += "PING\r\n";
  // Each would keep 64 KiB, which exceeds the budget.
  std::vector<TcpClient> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(Connect());
    EXPECT_TRUE(clients.back().Send(pings));
    EXPECT_EQ(ReadExactly(clients.back(), 7'000).size(), 7'000U);
  }
  for (TcpClient& client : clients) {
    EXPECT_TRUE(client.Send(pings));
    EXPECT_EQ(ReadExactly(client, 7'000).size(), 7'000U);
  }
  EXPECT_EQ(buffered->refused(), 0U);
  EXPECT_GT(buffered->held(), 0U);
}

TEST_F(ServerTest, DrainAnswersWhatWasReceivedAndCloses) {
  Start({}, Answers::kLater);
  TcpClient idle = Connect();
  EXPECT_TRUE(idle.Send("PING\r\n"));
  EXPECT_EQ(ReadExactly(idle, 7), kPong);
  TcpClient busy = Connect();
  later_->Hold(true);
  EXPECT_TRUE(busy.Send(RespCommand({"CL.THROTTLE", "k", "0", "1", "60"})));
  later_->WaitForACall();
  EXPECT_TRUE(busy.Send("PING\r\n"));
  std::thread release([&] {
    EXPECT_EQ(idle.ReadAll(), "");  // Draining has begun.
    idle.Close();
    later_->Hold(false);
  });
  std::thread reader([&] {
    EXPECT_EQ(busy.ReadAll(), "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n+PONG\r\n");
    busy.Close();
  });
  EXPECT_EQ(Drain(), 0U);
  release.join();
  reader.join();
}

// However far the server has got with it.
TEST_F(ServerTest, DrainAnswersWhatHasJustCome) {
  for (int round = 0; round < 300; ++round) {
    Start();
    std::vector<TcpClient> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(Connect());
      clients.back().Send("PING\r\n");
    }
    server_->StartDrain();
    for (TcpClient& client : clients) ASSERT_EQ(client.ReadAll(), kPong) << round;
    server_.reset();
    loops_.Stop();
  }
}

TEST_F(ServerTest, DrainGivesUpAtTheDeadline) {
  Start({}, Answers::kLater);
  TcpClient client = Connect();
  later_->Hold(true);
  EXPECT_TRUE(client.Send(RespCommand({"CL.THROTTLE", "k", "0", "1", "60"})));
  later_->WaitForACall();
  EXPECT_EQ(Drain(0ms), 1U);
  EXPECT_EQ(client.ReadAll(), "");
  // The store answers a connection that is gone.
  later_->Hold(false);
}

TEST_F(ServerTest, SurvivesClientsThatGoAway) {
  Start({}, Answers::kLater);
  for (int i = 0; i < 200; ++i) {
    TcpClient client = Connect();
    for (int n = 0; n < 20; ++n) client.Send(RespCommand({"CL.THROTTLE", "k", "0", "1", "60"}));
    client.Abort();
  }
  TcpClient client = Connect();
  EXPECT_TRUE(client.Send("PING\r\n"));
  EXPECT_EQ(ReadExactly(client, 7), kPong);
}

class TlsServerTest : public ServerTest {
 protected:
  void Connect() {
    Start({.tls = net::TlsFiles{.cert = certificate_.cert(), .key = certificate_.key()}},
          Answers::kLater);
    tls_.load_verify_file(certificate_.cert());
    tls_.set_verify_mode(asio::ssl::verify_peer);
    client_.emplace(context_, tls_);
    client_->next_layer().connect({asio::ip::address_v4::loopback(), server_->port()});
    client_->handshake(asio::ssl::stream_base::client);
  }
  std::string ReadAll() {
    std::string all;
    boost::system::error_code error;
    asio::read(*client_, asio::dynamic_buffer(all), error);
    return all;
  }

  const testing_support::Certificate certificate_;
  asio::io_context context_;
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  std::optional<asio::ssl::stream<asio::ip::tcp::socket>> client_;
};

TEST_F(TlsServerTest, Answers) {
  Connect();
  // One record, larger than what a connection reads at first.
  constexpr std::size_t kCommands = 200;
  std::string sent;
  for (std::size_t i = 0; i < kCommands; ++i) {
    sent += RespCommand({"CL.THROTTLE", "k", "0", "1", "60"});
  }
  asio::write(*client_, asio::buffer(sent + "QUIT\r\n"));
  const std::string all = ReadAll();
  EXPECT_THAT(all, StartsWith("*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n*5\r\n:1\r\n"));
  EXPECT_THAT(all, EndsWith("+OK\r\n"));
  EXPECT_THAT(later_->batches(), ElementsAre(kCommands));
}

TEST_F(TlsServerTest, DrainAnswersAllThatWasReceived) {
  Connect();
  later_->Hold(true);
  // Two records that arrive together.
  int on = 1;
  setsockopt(client_->next_layer().native_handle(), IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
  asio::write(*client_, asio::buffer(RespCommand({"CL.THROTTLE", "k", "0", "1", "60"})));
  asio::write(*client_, asio::buffer("PING\r\n"s));
  on = 0;
  setsockopt(client_->next_layer().native_handle(), IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
  later_->WaitForACall();
  server_->StartDrain();
  later_->Hold(false);
  EXPECT_EQ(ReadAll(), "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n+PONG\r\n");
}

TEST_F(ServerTest, RefusesABoundOfZero) {
  parts_.emplace();
  const auto server = Server::Start(loops_, parts_->engine, {.connections_max = 0});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace sluice::resp
