// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "net/loops.h"
#include "support/certificate.h"
#include "support/eventually.h"
#include "support/tcp_client.h"

namespace sluice::http {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::Certificate;
using testing_support::Eventually;
using testing_support::TcpClient;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

// Answers with method, path, query and body; /large?N with N bytes; /drop not at all. Requests for
// a path under /later wait until the test answers them.
class Echo final : public Handler {
 public:
  // A waiting exchange; wherever this goes, it stays with its loop.
  struct Held {
    Held(std::string_view asked, Exchange own)
        : path(asked), exchange(new Exchange(std::move(own)), [loop = home](Exchange* done) {
            loop->Post([last = std::unique_ptr<Exchange>(done)] {});
          }) {}

    std::string path;
    Mailbox* home = Mailbox::Here();
    std::shared_ptr<Exchange> exchange;
  };

  void Handle(const Request& request, Exchange exchange) override {
    if (request.path == "/drop") return;
    if (request.path == "/large") {
      const std::string body(std::stoul(std::string(request.query)), 'x');
      exchange.Respond({.content_type = "text/plain", .body = body});
      return;
    }
    if (request.path.starts_with("/later")) {
      const std::lock_guard lock(mutex_);
      held_.emplace_back(request.path, std::move(exchange));
      changed_.notify_all();
      return;
    }
    std::string body(request.method_text);
    body.append(" ").append(request.path).append("?").append(request.query);
    body.append(" ").append(request.body);
    exchange.Respond(
        {.content_type = "text/plain", .headers = "X-Peer: 127.0.0.1\r\n", .body = body});
    EXPECT_EQ(request.peer, boost::asio::ip::make_address("127.0.0.1"));
  }

  void OnRefused(int status, std::string_view /*code*/) override {
    const std::lock_guard lock(mutex_);
    refused_.push_back(status);
  }
  std::vector<int> refused() {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

  // All that wait, once there are at least this many.
  std::vector<Held> Take(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 30s, [&] { return held_.size() >= count; }));
    return std::exchange(held_, {});
  }
  std::size_t held() {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> held_;
  std::vector<int> refused_;
};

void Answer(Echo::Held& held) {
  held.home->Post([exchange = std::move(held.exchange), body = "<" + held.path + ">"] {
    exchange->Respond({.content_type = "text/plain", .body = body});
  });
}

class ServerTest : public ::testing::Test {
 protected:
  ~ServerTest() override {
    server_.reset();
    loops_.Stop();
  }

  void Start(const Limits& limits = {}, std::optional<net::TlsFiles> tls = {}) {
    auto server = Server::Start(loops_, handler_,
                                {.address = {"127.0.0.1", 0},
                                 .tls = std::move(tls),
                                 .limits = limits,
                                 .server_name = "sluice",
                                 .clock = clock_});
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    loops_.Start();
  }

  TcpClient Connect(int receive_bytes = 0) { return TcpClient(server_->port(), receive_bytes); }
  std::string Ask(std::string_view request) {
    TcpClient client = Connect();
    client.Send(request);
    client.EndSending();
    return client.ReadAll();
  }

  ManualClock clock_{TimePoint{std::chrono::seconds{784'111'777}}};
  net::Loops loops_{2};  // Outlive what the handler holds.
  Echo handler_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersARequest) {
  Start();
  EXPECT_EQ(Ask("POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"),
            "HTTP/1.1 200 OK\r\nServer: sluice\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: text/plain\r\nContent-Length: 14\r\nX-Peer: 127.0.0.1\r\n\r\n"
            "POST /a?b body");
  EXPECT_EQ(server_->counts().requests, 1U);
  EXPECT_EQ(server_->counts().connections.accepted, 1U);
  EXPECT_TRUE(Eventually([&] { return server_->counts().connections.open == 0; }));
}

TEST_F(ServerTest, KeepsTheDateUpToDate) {
  Start({.body_timeout = 40ms});  // The shortest timeout sets how often it reads the clock.
  TcpClient client = Connect();
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("GET /? "), HasSubstr("08:49:37"));
  clock_.Advance(2s);
  EXPECT_TRUE(Eventually([&] {
    client.Send(kGet);
    return client.ReadUntil("GET /? ").find("08:49:39") != std::string::npos;
  }));
}

TEST_F(ServerTest, KeepsConnectionsAliveOrClosesThemAsTheClientWishes) {
  Start();
  TcpClient client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Send(kGet);
    EXPECT_THAT(client.ReadUntil("GET /? "),
                AllOf(StartsWith("HTTP/1.1 200 OK"), Not(HasSubstr("Connection"))));
  }
  client.Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("GET /? "), HasSubstr("Connection: keep-alive\r\n"));
  client.Send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + std::string(kGet));
  const std::string rest = client.ReadAll();
  EXPECT_THAT(rest, AllOf(HasSubstr("Connection: close\r\n"), EndsWith("GET /? ")));
  EXPECT_EQ(rest.find("HTTP/1.1", 1), std::string::npos) << rest;

  TcpClient old = Connect();
  old.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.ReadAll(), AllOf(HasSubstr("Connection: close\r\n"), EndsWith("GET /? ")));
}

TEST_F(ServerTest, SendsNoBodyToHead) {
  Start();
  EXPECT_THAT(Ask("HEAD /large?5 HTTP/1.1\r\nHost: a\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 5\r\n"), EndsWith("\r\n\r\n")));
}

TEST_F(ServerTest, AnswersWhatTheHandlerForgets) {
  Start();
  EXPECT_THAT(Ask("GET /drop HTTP/1.1\r\nHost: a\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 500 Internal Server Error\r\n"),
                    HasSubstr(R"({"error":{"code":"INTERNAL_ERROR",)")));
  TcpClient client = Connect();
  client.Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n" + std::string(kGet));
  handler_.Take(1).clear();
  EXPECT_THAT(client.ReadUntil("GET /? "), StartsWith("HTTP/1.1 500"));
}

TEST_F(ServerTest, AnswersPipelinedRequestsAtOnce) {
  Start();
  std::string requests;
  for (int i = 0; i < 1000; ++i) {
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  }
  const std::string answers = Ask(requests);
  std::size_t at = 0;
  for (int i = 0; i < 1000; ++i) {
    at = answers.find("GET /" + std::to_string(i) + "? ", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST_F(ServerTest, KeepsTheOrderWhateverTheOrderOfTheAnswers) {
  Start({.pending_max = 200});
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    TcpClient client = Connect();
    std::string requests;
    std::string expected_order;
    std::size_t later = 0;
    for (int i = 0; i < 100; ++i) {
      const bool now = random() % 3 == 0;
      later += now ? 0 : 1;
      const std::string path = (now ? "/now/" : "/later/") + std::to_string(i);
      requests += "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
    }
    client.Send(requests);
    std::vector<Echo::Held> held = handler_.Take(later);
    ASSERT_EQ(held.size(), later);
    std::ranges::shuffle(held, random);
    // From several threads at once.
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&held, t] {
        for (std::size_t i = t; i < held.size(); i += 4) Answer(held[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    client.EndSending();
    const std::string answers = client.ReadAll();
    std::size_t at = 0;
    for (int i = 0; i < 100; ++i) {
      const std::size_t now = answers.find("GET /now/" + std::to_string(i) + "? ", at);
      const std::size_t then = answers.find("</later/" + std::to_string(i) + ">", at);
      ASSERT_NE(std::min(now, then), std::string::npos) << i;
      at = std::min(now, then);
    }
  }
}

TEST_F(ServerTest, TakesNoMoreRequestsThanMayBePending) {
  Start({.pending_max = 4});
  TcpClient client = Connect();
  std::string requests;
  for (int i = 0; i < 10; ++i) {
    requests += "GET /later/" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  }
  client.Send(requests);
  std::vector<Echo::Held> held = handler_.Take(4);
  EXPECT_EQ(held.size(), 4U);
  EXPECT_EQ(server_->counts().requests, 4U);
  int answered = 0;
  while (answered < 10) {
    for (Echo::Held& one : held) {
      Answer(one);
      ++answered;
    }
    if (answered < 10) held = handler_.Take(1);
    EXPECT_LE(held.size(), 4U);
  }
  EXPECT_THAT(client.ReadUntil("</later/9>"), EndsWith("</later/9>"));
}

TEST_F(ServerTest, ContinuesWhenAsked) {
  Start();
  TcpClient client = Connect();
  client.Send(
      "GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
      "POST /b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  // The answer to the first request comes first.
  std::vector<Echo::Held> held = handler_.Take(1);
  Answer(held.front());
  EXPECT_THAT(client.ReadUntil("Continue\r\n\r\n"),
              AllOf(HasSubstr("</later>HTTP/1.1 100 Continue\r\n\r\n")));
  client.Send("body");
  EXPECT_THAT(client.ReadUntil("POST /b? body"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n"),
              StartsWith("HTTP/1.1 417 Expectation Failed\r\n"));
}

TEST_F(ServerTest, RefusesAndClosesButAnswersWhatCameBefore) {
  Start();
  TcpClient client = Connect();
  client.Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n" + std::string(kGet));
  std::vector<Echo::Held> held = handler_.Take(1);
  Answer(held.front());
  const std::string answers = client.ReadAll();
  EXPECT_THAT(
      answers,
      AllOf(HasSubstr("</later>HTTP/1.1 400 Bad Request\r\n"), HasSubstr("Connection: close\r\n"),
            EndsWith(R"({"error":{"code":"BAD_REQUEST","message":"the request has no Host"}})")));
  EXPECT_EQ(server_->counts().bad_requests, 1U);
  EXPECT_EQ(server_->counts().requests, 1U);
}

TEST_F(ServerTest, TellsTheHandlerWhatItRefused) {
  Start({.body_bytes_max = 10});
  Ask(kGet);
  Ask("nonsense\r\n\r\n");
  Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n");
  Ask("GET / HTTP/3.0\r\nHost: a\r\n\r\n");
  EXPECT_THAT(handler_.refused(), ::testing::ElementsAre(400, 413, 505));
}

TEST_F(ServerTest, TellsTheHandlerForWhomItDidNotWait) {
  Start({.head_timeout = 20ms});
  TcpClient slow = Connect();
  slow.Send("GET /");
  EXPECT_THAT(slow.ReadAll(), HasSubstr("408"));
  EXPECT_THAT(handler_.refused(), ::testing::ElementsAre(408));
}

TEST_F(ServerTest, RefusesWhatIsTooLargeSoThatTheClientHearsIt) {
  Start({.target_bytes_max = 1000, .head_bytes_max = 2000, .body_bytes_max = 3000});
  const std::string large(1'000'000, 'x');
  EXPECT_THAT(Ask("GET /" + large), StartsWith("HTTP/1.1 414 URI Too Long\r\n"));
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nA: " + large), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + large),
              StartsWith("HTTP/1.1 413 Content Too Large\r\n"));
}

TEST_F(ServerTest, AnswersAClientThatHasEndedSending) {
  Start();
  TcpClient client = Connect();
  client.Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  client.EndSending();
  std::vector<Echo::Held> held = handler_.Take(1);
  Answer(held.front());
  EXPECT_THAT(client.ReadAll(), EndsWith("</later>"));
}

TEST_F(ServerTest, OutlivesGarbageAndClientsThatGoAway) {
  Start();
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    TcpClient client = Connect();
    std::string bytes = "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789";
    bytes += kGet;
    bytes += "GET /large?1000000 HTTP/1.1\r\nHost: a\r\n\r\n";
    bytes.resize(random() % bytes.size());
    if (random() % 2 == 0) {
      for (int flips = 0; flips < 3 && !bytes.empty(); ++flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    }
    client.Send(bytes);
    if (random() % 2 == 0) client.Abort();
  }
  // Answers clients that are gone.
  for (Echo::Held& held : handler_.Take(0)) Answer(held);
  EXPECT_TRUE(Eventually([&] {
    for (Echo::Held& held : handler_.Take(0)) Answer(held);
    return server_->counts().connections.open == 0;
  }));
  EXPECT_THAT(Ask(kGet), EndsWith("GET /? "));
}

TEST_F(ServerTest, ClosesIdleConnections) {
  Start({.idle_timeout = 30ms});
  EXPECT_EQ(Connect().ReadAll(), "");
  // If the machine stalls, a request may come too late.
  std::uint64_t closed = 1;
  EXPECT_TRUE(Eventually([&] {
    ++closed;
    TcpClient once = Connect();
    once.Send(kGet);
    return once.ReadAll().ends_with("GET /? ");
  }));
  EXPECT_EQ(server_->counts().timeouts, closed);
}

TEST_F(ServerTest, GivesUpOnSlowHeads) {
  Start({.head_timeout = 50ms});
  TcpClient client = Connect();
  // Every byte comes well within the timeout, but all of them together do not.
  std::atomic<bool> answered = false;
  std::thread slow([&] {
    client.Send("GET / HTTP/1.1\r\nX: ");
    while (!answered && client.Send("x")) std::this_thread::sleep_for(5ms);
  });
  const std::string answer = client.ReadAll();
  answered = true;
  slow.join();
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 408 Request Timeout\r\n"),
                            HasSubstr("Connection: close"), HasSubstr("REQUEST_TIMEOUT")));
  EXPECT_EQ(server_->counts().timeouts, 1U);
}

TEST_F(ServerTest, GivesUpOnSlowBodies) {
  Start({.body_timeout = 50ms});
  TcpClient client = Connect();
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n012");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
}

TEST_F(ServerTest, DoesNotTimeOutWhileTheHandlerIsAtWork) {
  Start({.idle_timeout = 20ms, .head_timeout = 20ms, .body_timeout = 20ms, .write_timeout = 20ms});
  // If the machine stalls, the request or the answer may come too late.
  EXPECT_TRUE(Eventually([&] {
    const auto timeouts = server_->counts().timeouts;
    TcpClient client = Connect();
    client.Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET /la");
    EXPECT_TRUE(
        Eventually([&] { return handler_.held() > 0 || server_->counts().timeouts > timeouts; }));
    std::vector<Echo::Held> held = handler_.Take(0);
    if (held.empty()) return false;
    // Meanwhile, another connection comes and goes under the same timeouts.
    for (int i = 0; i < 5; ++i) EXPECT_EQ(Connect().ReadAll(), "");
    Answer(held.front());
    return client.ReadAll().contains("</later>HTTP/1.1 408");
  }));
}

TEST_F(ServerTest, StopsReadingFromThoseWhoDoNotReadAndThenGivesUp) {
  Start({.unsent_bytes_max = 100'000, .write_timeout = 300ms});
  TcpClient client = Connect(4096);
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "GET /large?50000 HTTP/1.1\r\nHost: a\r\n\r\n";
  client.Send(requests);
  EXPECT_TRUE(Eventually([&] { return server_->counts().timeouts == 1; }));
  EXPECT_TRUE(Eventually([&] { return server_->counts().connections.open == 0; }));
  // What the system buffered, and little more than the limit.
  EXPECT_LT(server_->counts().requests, 500U);
}

TEST_F(ServerTest, SendsLargeAnswersToSlowReaders) {
  Start();
  TcpClient client = Connect(4096);
  client.Send(
      "GET /large?3000000 HTTP/1.1\r\nHost: a\r\n\r\nGET /large?1 HTTP/1.1\r\nHost: a\r\n"
      "Connection: close\r\n\r\n");
  const std::string answers = client.ReadAll();
  EXPECT_EQ(std::ranges::count(answers, 'x'), 3'000'001 + 2);  // Including those of text/plain.
}

TEST_F(ServerTest, HoldsTheMaximumOfConnections) {
  Start({.connections_max = 2});
  TcpClient first = Connect();
  TcpClient second = Connect();
  first.Send(kGet);
  second.Send(kGet);
  EXPECT_THAT(first.ReadUntil("GET /? "), EndsWith("GET /? "));
  EXPECT_THAT(second.ReadUntil("GET /? "), EndsWith("GET /? "));
  EXPECT_EQ(Connect().ReadAll(), "");
  EXPECT_EQ(server_->counts().connections.refused, 1U);
  first.Close();
  EXPECT_TRUE(Eventually([&] { return server_->counts().connections.open == 1; }));
  EXPECT_THAT(Ask(kGet), EndsWith("GET /? "));
}

TEST_F(ServerTest, ServesManyConnections) {
  Start();
  std::vector<TcpClient> clients;
  for (int i = 0; i < 400; ++i) clients.push_back(Connect());
  for (int round = 0; round < 3; ++round) {
    for (TcpClient& client : clients) client.Send(kGet);
    for (TcpClient& client : clients) EXPECT_THAT(client.ReadUntil("GET /? "), EndsWith("GET /? "));
  }
  EXPECT_EQ(server_->counts().connections.open, 400U);
  EXPECT_EQ(server_->counts().requests, 1200U);
}

TEST_F(ServerTest, DrainsWithoutLosingARequest) {
  Start();
  TcpClient idle = Connect();
  idle.Send(kGet);
  EXPECT_THAT(idle.ReadUntil("GET /? "), EndsWith("GET /? "));
  TcpClient pending = Connect();
  pending.Send("GET /later/1 HTTP/1.1\r\nHost: a\r\n\r\nGET /later/2 HTTP/1.1\r\nHost: a\r\n\r\n");
  TcpClient partial = Connect();
  partial.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo");
  std::vector<Echo::Held> held = handler_.Take(2);
  ASSERT_EQ(held.size(), 2U);

  server_->StartDrain();  // On every loop, before anything else happens there.
  std::atomic<std::size_t> cut_off = 99;
  std::thread drain([&] { cut_off = server_->Drain(std::chrono::steady_clock::now() + 30s); });
  EXPECT_EQ(idle.ReadAll(), "");
  Answer(held[1]);
  Answer(held[0]);
  partial.Send("dy");
  const std::string answers = pending.ReadAll();
  EXPECT_THAT(answers, AllOf(HasSubstr("</later/1>"), EndsWith("</later/2>")));
  EXPECT_EQ(answers.find("Connection: close"), answers.rfind("Connection: close"));
  EXPECT_GT(answers.find("Connection: close"), answers.find("</later/1>"));
  EXPECT_THAT(partial.ReadAll(), AllOf(HasSubstr("Connection: close"), EndsWith("POST /? body")));
  pending.Close();
  partial.Close();
  drain.join();
  EXPECT_EQ(cut_off, 0U);
  EXPECT_THROW(Connect(), std::runtime_error);
}

// However far the server has got with them.
TEST_F(ServerTest, DrainsRequestsThatHaveJustCome) {
  for (int round = 0; round < 300; ++round) {
    Start();
    std::vector<TcpClient> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(Connect());
      clients.back().Send(kGet);
    }
    server_->StartDrain();
    for (TcpClient& client : clients) {
      ASSERT_THAT(client.ReadAll(), EndsWith("GET /? ")) << round;
    }
    server_.reset();
    loops_.Stop();
  }
}

TEST_F(ServerTest, DrainsUnderLoadWithoutLosingARequest) {
  Start();
  // A complete request on an open connection gets a complete answer, unless the answer before it
  // said that the connection closes; or the connection was idle, and the client sees its end before
  // any byte of an answer.
  std::atomic<int> broken = 0;
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      try {
        while (true) {
          TcpClient client = Connect();
          while (true) {
            client.Send(kGet);
            const std::string answer = client.ReadUntil("GET /? ");
            if (answer.empty()) break;
            if (!answer.ends_with("GET /? ")) ++broken;
            ++answered;
            if (answer.find("Connection: close") != std::string::npos) break;
          }
        }
      } catch (const std::runtime_error&) {
        // The server accepts no more connections.
      }
    });
  }
  EXPECT_TRUE(Eventually([&] { return answered > 2000; }));
  EXPECT_EQ(server_->Drain(std::chrono::steady_clock::now() + 30s), 0U);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(server_->counts().requests, static_cast<std::uint64_t>(answered));
}

TEST_F(ServerTest, DrainsWhoTakesItsLastAnswerAndSaysNothingMore) {
  Start();
  TcpClient client = Connect(65'536);
  client.Send("GET /large?20000000 HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string begun = client.ReadSome();
  server_->StartDrain();
  const std::string all = begun + client.ReadAll();
  EXPECT_THAT(all, Not(HasSubstr("Connection: close"))) << "it was answered before";
  EXPECT_GT(all.size(), 20'000'000U);
  EXPECT_EQ(server_->Drain(std::chrono::steady_clock::now() + 30s), 0U);
  EXPECT_EQ(server_->counts().timeouts, 0U);
}

TEST_F(ServerTest, ClosesWhatIsNotDrainedByTheDeadline) {
  Start();
  TcpClient client = Connect();
  client.Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  std::vector<Echo::Held> held = handler_.Take(1);
  EXPECT_EQ(server_->Drain(std::chrono::steady_clock::now()), 1U);
  EXPECT_EQ(client.ReadAll(), "");
  // Too late, and harmless, even after the server is gone.
  server_.reset();
  Answer(held.front());
}

TEST_F(ServerTest, EndsWithRequestsUnanswered) {
  Start();
  TcpClient client = Connect();
  client.Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  std::vector<Echo::Held> held = handler_.Take(1);
  server_.reset();
  EXPECT_EQ(client.ReadAll(), "");
  loops_.Stop();
  held.clear();
}

class TlsServerTest : public ServerTest {
 protected:
  std::string Curl(const std::string& arguments) {
    const std::string command =
        "curl -sS --max-time 30 --cacert " + certificate_.cert() + " " + arguments + " 2>&1";
    std::string output;
    std::FILE* pipe = ::popen(command.c_str(), "re");
    char piece[4096];
    while (const std::size_t got = std::fread(piece, 1, sizeof(piece), pipe)) {
      output.append(piece, got);
    }
    ::pclose(pipe);
    return output;
  }
  std::string Url(const std::string& path) const {
    return "https://localhost:" + std::to_string(server_->port()) + path;
  }

  Certificate certificate_;
};

TEST_F(TlsServerTest, SpeaksTls) {
  Start({}, net::TlsFiles{certificate_.cert(), certificate_.key()});
  EXPECT_EQ(Curl(Url("/a?b") + " " + Url("/c")), "GET /a?b GET /c? ");
  EXPECT_EQ(Curl("-d body " + Url("/")), "POST /? body");
  EXPECT_EQ(Curl("-o /dev/null -w '%{size_download} %{http_version}' " + Url("/large?3000000")),
            "3000000 1.1");
  EXPECT_EQ(Curl("-H 'Connection: close' " + Url("/")), "GET /? ");
  EXPECT_EQ(Curl("--http2 -o /dev/null -w %{http_version} " + Url("/")), "1.1");
  EXPECT_TRUE(Eventually([&] { return server_->counts().connections.open == 0; }));
  EXPECT_EQ(server_->Drain(std::chrono::steady_clock::now() + 30s), 0U);
}

TEST_F(ServerTest, SaysThatTheAddressIsTaken) {
  Start();
  const auto second = Server::Start(loops_, handler_, {.address = server_->address()});
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("already in use"));
}

}  // namespace
}  // namespace sluice::http
