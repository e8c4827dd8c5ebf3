// SPDX-License-Identifier: Apache-2.0
// The HTTP server alone: answers every request with the same bytes. Usage: http_server ADDRESS
// [CERT KEY]. One loop; ends on SIGTERM or SIGINT.
#include <signal.h>

#include <cstdio>
#include <memory>

#include "http/server.h"
#include "net/loops.h"

namespace {

using namespace sluice;

constexpr http::Response kAnswer{
    .content_type = "application/json",
    .headers =
        "X-RateLimit-Limit: 100\r\n"
        "X-RateLimit-Remaining: 99\r\n"
        "X-RateLimit-Reset: 1760000000\r\n",
    .body = R"({"allowed":true,"key":"user:123456","algorithm":"TOKEN_BUCKET","limit":100,)"
            R"("remaining":99,"retryAfterSeconds":0,"resetAfterSeconds":1,)"
            R"("message":"Request allowed","source":"store"})"};

class Constant final : public http::Handler {
 public:
  void Handle(const http::Request&, http::Exchange exchange) override { exchange.Respond(kAnswer); }
};

}  // namespace

int main(int argc, char** argv) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);

  if (argc != 2 && argc != 4) {
    std::fprintf(stderr, "usage: http_server ADDRESS [CERT KEY]\n");
    return 2;
  }
  const auto address = net::ListenAddress::Parse(argv[1]);
  if (!address) {
    std::fprintf(stderr, "http_server: %s\n", address.error().message.c_str());
    return 1;
  }
  http::Server::Options options{.address = *address};
  if (argc == 4) options.tls = {.cert = argv[2], .key = argv[3]};
  net::Loops loops(1);
  Constant handler;
  const auto server = http::Server::Start(loops, handler, std::move(options));
  if (!server) {
    std::fprintf(stderr, "http_server: %s\n", server.error().message.c_str());
    return 1;
  }
  loops.Start();
  int received = 0;
  ::sigwait(&signals, &received);
  (*server)->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(5));
  return 0;
}
