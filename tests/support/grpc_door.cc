// SPDX-License-Identifier: Apache-2.0
// The gRPC door alone: grpc_door PORT FILE [CERT KEY]. 
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "grpc/server.h"
#include "support/rls_engine.h"

int main(int argc, char** argv) {
  using namespace sluice;
  std::ifstream file(argv[2]);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  MemoryStore store;
  test::RlsEngine engine(store, SystemClock(), {text});
  net::Loops loops(1);
  grpc::Server::Options options;
  options.address = {.host = "127.0.0.1", .port = static_cast<std::uint16_t>(std::atoi(argv[1]))};
  if (argc > 4) options.tls = net::TlsFiles{.cert = argv[3], .key = argv[4]};
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto server = grpc::Server::Start(loops, *engine, options);
  if (!server) { std::fprintf(stderr, "%s\n", server.error().message.c_str()); return 1; }
  loops.Start();
  std::printf("grpc listening on %s\n", (*server)->address().ToString().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  const auto left = (*server)->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(5));
  const auto c = (*server)->counts();
  std::fprintf(stderr, "drained; %zu left; calls %lu refused %lu deadlines %lu resets %lu floods %lu timeouts %lu open %zu\n", left, c.calls, c.refused, c.deadlines_exceeded, c.resets, c.floods, c.timeouts, c.connections.open);
  server->reset();
  loops.Stop();
}
