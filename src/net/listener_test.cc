// SPDX-License-Identifier: Apache-2.0
#include "net/listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "support/certificate.h"
#include "support/eventually.h"
#include "support/tcp_client.h"

namespace sluice::net {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing_support::Certificate;
using testing_support::Eventually;
using testing_support::TcpClient;

// Greets everyone and keeps the streams until it is told to drop them.
class Greeter {
 public:
  explicit Greeter(std::size_t loops) : streams_(loops) {}

  Listener::OnStream OnStream() {
    return [this](std::size_t loop, Stream stream) {
      // Only the loop touches it, except for the sizes.
      auto& streams = streams_[loop].held;
      streams.push_back(std::make_unique<Stream>(std::move(stream)));
      streams_[loop].count = streams.size();
      Stream& held = *streams.back();
      boost::asio::async_write(held, boost::asio::buffer("hello\n", 6),
                               [](boost::system::error_code, std::size_t) {});
    };
  }

  std::size_t count(std::size_t loop) const { return streams_[loop].count; }
  Stream& stream(std::size_t loop, std::size_t i) { return *streams_[loop].held[i]; }
  void Drop(Loops& loops) {
    loops.RunOnAll([this](std::size_t loop) { streams_[loop].held.clear(); });
  }

 private:
  struct OfLoop {
    std::vector<std::unique_ptr<Stream>> held;
    std::atomic<std::size_t> count = 0;
  };
  std::vector<OfLoop> streams_;
};

class ListenerTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kLoops = 2;

  ~ListenerTest() override {
    loops_.Stop();
    greeter_.Drop(loops_);
  }

  std::unique_ptr<Listener> Start(Listener::Options options) {
    auto listener = Listener::Start(loops_, std::move(options), greeter_.OnStream());
    EXPECT_TRUE(listener) << listener.error().message;
    return std::move(*listener);
  }

  std::string Failure(Listener::Options options) {
    const auto listener = Listener::Start(loops_, std::move(options), greeter_.OnStream());
    return listener ? "" : listener.error().message;
  }

  Loops loops_{kLoops};
  Greeter greeter_{kLoops};
};

TEST_F(ListenerTest, HandsOutConnectionsOnEveryLoop) {
  const auto listener = Start({.address = {"127.0.0.1", 0}});
  EXPECT_NE(listener->port(), 0);
  EXPECT_EQ(listener->address().host, "127.0.0.1");
  loops_.Start();
  std::vector<TcpClient> clients;
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back(listener->port());
    EXPECT_EQ(clients.back().ReadUntil("\n"), "hello\n");
  }
  EXPECT_EQ(greeter_.count(0) + greeter_.count(1), 64U);
  EXPECT_GT(greeter_.count(0), 0U);
  EXPECT_GT(greeter_.count(1), 0U);
  EXPECT_EQ(listener->counts().accepted, 64U);
  EXPECT_EQ(listener->counts().open, 64U);
  loops_.RunOnAll([&](std::size_t loop) {
    EXPECT_EQ(greeter_.stream(loop, 0).peer(), boost::asio::ip::make_address("127.0.0.1"));
  });
  greeter_.Drop(loops_);
  EXPECT_EQ(listener->counts().open, 0U);
}

TEST_F(ListenerTest, ListensOnEveryAddressAndKnowsIpv4WhenItSeesIt) {
  const auto listener = Start({.address = {"", 0}});
  loops_.Start();
  TcpClient client(listener->port());
  EXPECT_EQ(client.ReadUntil("\n"), "hello\n");
  loops_.RunOnAll([&](std::size_t loop) {
    if (greeter_.count(loop) == 0) return;
    EXPECT_EQ(greeter_.stream(loop, 0).peer(), boost::asio::ip::make_address("127.0.0.1"));
  });
}

TEST_F(ListenerTest, ANameThatIsLocalhostIsReachedByIpv4) {
  const auto listener = Start({.address = {"localhost", 0}});
  loops_.Start();
  EXPECT_EQ(TcpClient(listener->port()).ReadUntil("\n"), "hello\n");
}

TEST_F(ListenerTest, DoesNotShareItsAddress) {
  const auto listener = Start({.address = {"127.0.0.1", 0}});
  const std::string failure = Failure({.address = listener->address()});
  EXPECT_EQ(failure, "cannot listen on 127.0.0.1:" + std::to_string(listener->port()) +
                         ": the address is already in use by another program");
  EXPECT_NE(Failure({.address = {"", listener->port()}}), "");
  // The first listener is unaffected.
  loops_.Start();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(TcpClient(listener->port()).ReadUntil("\n"), "hello\n");
}

TEST_F(ListenerTest, TakesAnAddressAgainAtOnce) {
  auto listener = Start({.address = {"127.0.0.1", 0}});
  const ListenAddress address = listener->address();
  loops_.Start();
  {
    TcpClient client(address.port);
    client.ReadUntil("\n");
    greeter_.Drop(loops_);  // We close first, which leaves the port in TIME_WAIT.
    client.ReadAll();
  }
  listener.reset();
  listener = Start({.address = address});
  EXPECT_EQ(TcpClient(address.port).ReadUntil("\n"), "hello\n");
}

TEST_F(ListenerTest, SaysWhyItCannotListen) {
  EXPECT_THAT(Failure({.address = {"no.such.host.invalid", 80}}),
              HasSubstr("cannot resolve the address \"no.such.host.invalid:80\""));
  EXPECT_THAT(Failure({.address = {"192.0.2.1", 0}}), HasSubstr("cannot listen on 192.0.2.1:0"));
}

TEST_F(ListenerTest, ClosesWhatIsMoreThanItsMaximum) {
  const auto listener = Start({.address = {"127.0.0.1", 0}, .connections_max = 3});
  loops_.Start();
  std::vector<TcpClient> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(listener->port());
    EXPECT_EQ(clients.back().ReadUntil("\n"), "hello\n");
  }
  EXPECT_EQ(TcpClient(listener->port()).ReadAll(), "");
  EXPECT_EQ(listener->counts().refused, 1U);
  EXPECT_EQ(listener->counts().open, 3U);
  greeter_.Drop(loops_);
  EXPECT_EQ(TcpClient(listener->port()).ReadUntil("\n"), "hello\n");
}

TEST_F(ListenerTest, HandsOverWhoeverHasConnectedBeforeItStops) {
  const auto listener = Start({.address = {"127.0.0.1", 0}});
  // The loops do not run yet: all of these wait to be accepted.
  std::vector<TcpClient> clients;
  for (int i = 0; i < 20; ++i) clients.emplace_back(listener->port());
  listener->StopAccepting();
  EXPECT_EQ(greeter_.count(0) + greeter_.count(1), 20U);
  loops_.Start();
  for (TcpClient& client : clients) EXPECT_EQ(client.ReadUntil("\n"), "hello\n");
  EXPECT_THROW(TcpClient(listener->port()), std::runtime_error);
}

TEST_F(ListenerTest, WaitsWhenThereAreNoMoreFiles) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer of virtual calls needs a file itself";
#endif
  const auto listener = Start({.address = {"127.0.0.1", 0}});
  TcpClient client(listener->port());
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  loops_.Start();
  const bool failed = Eventually([&] { return listener->counts().accept_errors >= 2; });
  const std::uint64_t errors = listener->counts().accept_errors;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(failed);
  EXPECT_LT(errors, 100U);
  EXPECT_EQ(client.ReadUntil("\n"), "hello\n");
}

// A loop that is busy when it is told to stop: the system has the connection, and the loop gets it
// and the order to stop in the same turn.
TEST_F(ListenerTest, LosesNobodyWhoConnectedBeforeItStopped) {
  loops_.Start();
  for (int round = 0; round < 20; ++round) {
    const auto listener = Start({.address = {"127.0.0.1", 0}});
    std::latch busy(kLoops);
    std::latch go_on(1);
    for (std::size_t i = 0; i < kLoops; ++i) {
      boost::asio::post(loops_.context(i), [&] {
        busy.count_down();
        go_on.wait();
      });
    }
    busy.wait();
    TcpClient client(listener->port());
    std::latch stopping(1);
    const std::jthread stop([&] {
      stopping.count_down();
      listener->StopAccepting();
    });
    stopping.wait();
    go_on.count_down();
    ASSERT_EQ(client.ReadUntil("\n"), "hello\n") << "in round " << round;
  }
}

class TlsListenerTest : public ListenerTest {
 protected:
  std::string Connect(std::uint16_t port, const std::string& options = "") {
    const std::string command = "openssl s_client -connect 127.0.0.1:" + std::to_string(port) +
                                " -CAfile " + certificate_.cert() + " -verify_return_error " +
                                options + " 2>&1 < /dev/null";
    std::string output;
    std::FILE* pipe = ::popen(command.c_str(), "re");
    char piece[4096];
    while (const std::size_t got = std::fread(piece, 1, sizeof(piece), pipe)) {
      output.append(piece, got);
    }
    ::pclose(pipe);
    return output;
  }

  Certificate certificate_;
  const TlsFiles files_{certificate_.cert(), certificate_.key()};
};

TEST_F(TlsListenerTest, ShakesHandsFirst) {
  const auto listener =
      Start({.address = {"127.0.0.1", 0}, .tls = files_, .alpn = {"h2", "http/1.1"}});
  loops_.Start();
  EXPECT_THAT(Connect(listener->port(), "-tls1_2 -alpn http/1.1"),
              ::testing::AllOf(HasSubstr("Verify return code: 0 (ok)"), HasSubstr("TLSv1.2"),
                               HasSubstr("ALPN protocol: http/1.1")));
  EXPECT_THAT(Connect(listener->port(), "-tls1_3 -alpn http/1.1,h2"),
              ::testing::AllOf(HasSubstr("Verify return code: 0 (ok)"), HasSubstr("TLSv1.3"),
                               HasSubstr("ALPN protocol: h2")));
  ASSERT_TRUE(Eventually([&] { return greeter_.count(0) + greeter_.count(1) == 2; }));
  std::vector<std::string> agreed;
  std::mutex mutex;
  loops_.RunOnAll([&](std::size_t loop) {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < greeter_.count(loop); ++i) {
      EXPECT_TRUE(greeter_.stream(loop, i).tls());
      agreed.emplace_back(greeter_.stream(loop, i).alpn());
    }
  });
  EXPECT_THAT(agreed, ::testing::UnorderedElementsAre("h2", "http/1.1"));
}

TEST_F(TlsListenerTest, RefusesOldVersionsUnknownProtocolsAndWhatIsNotTls) {
  const auto listener = Start({.address = {"127.0.0.1", 0}, .tls = files_, .alpn = {"h2"}});
  loops_.Start();
  EXPECT_THAT(Connect(listener->port(), "-tls1_1 -cipher ALL:@SECLEVEL=0"), HasSubstr("alert"));
  EXPECT_THAT(Connect(listener->port(), "-alpn spdy/1"), HasSubstr("alert"));
  TcpClient plain(listener->port());
  plain.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  plain.ReadAll();
  EXPECT_TRUE(Eventually([&] { return listener->counts().handshakes_failed == 3; }));
  EXPECT_TRUE(Eventually([&] { return listener->counts().open == 0; }));
  EXPECT_EQ(greeter_.count(0) + greeter_.count(1), 0U);
}

TEST_F(TlsListenerTest, GivesUpOnAHandshakeThatDoesNotCome) {
  const auto listener =
      Start({.address = {"127.0.0.1", 0}, .tls = files_, .handshake_timeout = 20ms});
  loops_.Start();
  TcpClient silent(listener->port());
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_TRUE(Eventually([&] { return listener->counts().open == 0; }));
  EXPECT_EQ(listener->counts().handshakes_failed, 1U);
}

TEST_F(TlsListenerTest, SaysWhichFileIsWrong) {
  const std::string empty = certificate_.folder() / "empty";
  std::ofstream(empty).close();
  const std::string missing = certificate_.folder() / "missing";
  const Certificate other;
  const ListenAddress address{"127.0.0.1", 0};
  EXPECT_EQ(Failure({.address = address, .tls = TlsFiles{missing, files_.key}}),
            "cannot read the certificate file \"" + missing + "\"");
  EXPECT_EQ(Failure({.address = address, .tls = TlsFiles{files_.cert, missing}}),
            "cannot read the key file \"" + missing + "\"");
  const std::string pipe = certificate_.folder() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Failure({.address = address, .tls = TlsFiles{pipe, files_.key}}),
            "cannot read the certificate file \"" + pipe + "\"");
  EXPECT_THAT(Failure({.address = address, .tls = TlsFiles{empty, files_.key}}),
              HasSubstr("has no certificate in PEM format"));
  EXPECT_THAT(Failure({.address = address, .tls = TlsFiles{files_.cert, empty}}),
              HasSubstr("has no private key in PEM format that belongs to the certificate"));
  EXPECT_THAT(Failure({.address = address, .tls = TlsFiles{files_.cert, other.key()}}),
              HasSubstr("has no private key in PEM format that belongs to the certificate"));
}

TEST_F(TlsListenerTest, RenewsItsCertificateForNewConnections) {
  const auto listener = Start({.address = {"127.0.0.1", 0}, .tls = files_});
  loops_.Start();
  const auto replace = [](const std::string& path, const std::string& by) {
    std::filesystem::copy_file(by, path, std::filesystem::copy_options::overwrite_existing);
  };
  constexpr const char* kVerified = "Verify return code: 0 (ok)";
  const Certificate renewed;
  replace(files_.cert, renewed.cert());

  // Half of a renewal: the key does not match the certificate. The old ones stay.
  const auto half_done = listener->ReloadCertificate();
  ASSERT_FALSE(half_done.has_value());
  EXPECT_EQ(half_done.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(half_done.error().message, HasSubstr("belongs to the certificate"));
  EXPECT_THAT(Connect(listener->port()), ::testing::Not(HasSubstr(kVerified)));

  replace(files_.key, renewed.key());
  EXPECT_EQ(listener->ReloadCertificate(), true);
  EXPECT_THAT(Connect(listener->port()), HasSubstr(kVerified));
}

TEST_F(ListenerTest, HasNoCertificateToRenewWithoutTls) {
  const auto listener = Start({.address = {"127.0.0.1", 0}});
  EXPECT_EQ(listener->ReloadCertificate(), false);
}

}  // namespace
}  // namespace sluice::net
