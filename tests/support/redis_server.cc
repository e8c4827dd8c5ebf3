// SPDX-License-Identifier: Apache-2.0
#include "support/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>

#include "support/eventually.h"

namespace sluice::testing_support {

int FreePort() {
  // Bound until the process ends, though it does not listen: others that ask for any port get
  // another one. A server that asks for this one gets it, as servers set SO_REUSEADDR.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  return ntohs(address.sin_port);
}

RedisServer::RedisServer(Options options)
    : options_(std::move(options)), port_(options_.port != 0 ? options_.port : FreePort()) {
  try {
    Start();
  } catch (...) {
    Kill();
    throw;
  }
}

RedisServer::~RedisServer() { Kill(); }

void RedisServer::Start() {
  StartWithoutWaiting();
  if (options_.wait && !WaitUntilReady()) throw std::runtime_error("redis-server does not start");
}

void RedisServer::StartWithoutWaiting() {
  std::vector<std::string> arguments = {"redis-server",   "--port",      std::to_string(port_),
                                        "--bind",         options_.host, "--dir",
                                        folder(),         "--save",      "",
                                        "--appendonly",   "no",          "--logfile",
                                        folder() / "log", "--daemonize", "no"};
  if (options_.scheme == "rediss") {
    arguments[2] = "0";
    arguments.insert(arguments.end(), {"--tls-port", std::to_string(port_)});
  }
  if (!options_.sentinel_config.empty()) {
    arguments = {"redis-server", options_.sentinel_config, "--sentinel"};
  }
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // A test that crashes leaves no server behind.
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

bool RedisServer::WaitUntilReady() const {
  // Not another one on the same port.
  const std::string process = "process_id:" + std::to_string(pid_) + "\r\n";
  bool ready = false;
  Eventually([&] {
    if (HasEnded()) return true;
    ready = Cli("ping").starts_with("PONG") && Cli("info server").contains(process);
    return ready;
  });
  return ready;
}

bool RedisServer::HasEnded() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void RedisServer::Signal(int number) const { ::kill(pid_, number); }

void RedisServer::Kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string RedisServer::Uri(const std::string& query) const {
  const bool v6 = options_.host.find(':') != std::string::npos;
  return options_.scheme + "://" + (options_.auth.empty() ? "" : options_.auth + "@") +
         (v6 ? "[" + options_.host + "]" : options_.host) + ":" + std::to_string(port_) + query;
}

std::string RedisServer::Cli(const std::string& command) const {
  std::string line = "redis-cli -h " + options_.host + " -p " + std::to_string(port_);
  if (!options_.auth.empty()) {
    const auto colon = options_.auth.find(':');
    if (colon > 0) line += " --user '" + options_.auth.substr(0, colon) + "'";
    line += " --no-auth-warning -a '" + options_.auth.substr(colon + 1) + "'";
  }
  if (options_.scheme == "rediss") line += " --tls --insecure";
  line += " " + command + " 2>/dev/null";
  std::string output;
  std::FILE* pipe = ::popen(line.c_str(), "re");
  if (!pipe) return output;
  std::array<char, 4096> piece{};
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), pipe)) {
    output.append(piece.data(), got);
  }
  ::pclose(pipe);
  return output;
}

}  // namespace sluice::testing_support
