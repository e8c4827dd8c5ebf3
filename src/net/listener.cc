// SPDX-License-Identifier: Apache-2.0
#include "net/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "base/text.h"

namespace sluice::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;

constexpr int kBacklog = 4096;
// How long to wait when the system has no file or memory left for a connection.
constexpr std::chrono::milliseconds kAcceptPause{50};

Expected<std::vector<tcp::endpoint>> Resolve(asio::io_context& context,
                                             const ListenAddress& address) {
  // One socket for both families if the system has IPv6, else one for IPv4.
  if (address.host.empty()) {
    return std::vector<tcp::endpoint>{{tcp::v6(), address.port}, {tcp::v4(), address.port}};
  }
  error_code error;
  const auto found = tcp::resolver(context).resolve(address.host, std::to_string(address.port),
                                                    tcp::resolver::passive, error);
  if (error) {
    return std::unexpected(
        Error{ErrorCode::kIo, text::Cat("cannot resolve the address ",
                                        text::Quote(address.ToString()), ": ", error.message())});
  }
  // For a name with both, such as localhost, the IPv4 one: most clients will try that.
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) {
    const bool v4 = entry.endpoint().address().is_v4();
    endpoints.insert(v4 ? endpoints.begin() : endpoints.end(), entry.endpoint());
  }
  return endpoints;
}

enum class Sharing { kFirst, kFurther };

// Every loop has its own socket on the same address, and the system spreads connections over them.
// Anybody who listens there with the same setting, another instance of this program in particular,
// would get a share without anybody noticing. The first socket is therefore bound without the
// setting, which fails if anybody listens, and turns it on afterwards.
error_code Listen(tcp::acceptor& acceptor, const tcp::endpoint& endpoint, Sharing sharing) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (error) return error;
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.protocol() == tcp::v6()) {
    acceptor.set_option(asio::ip::v6_only(!endpoint.address().is_unspecified()), error);
  }
  // Accepted sockets inherit it.
  if (!error) acceptor.set_option(tcp::no_delay(true), error);
  if (!error && sharing == Sharing::kFurther) acceptor.set_option(ReusePort(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  if (!error && sharing == Sharing::kFirst) acceptor.set_option(ReusePort(true), error);
  if (!error) acceptor.non_blocking(true, error);
  return error;
}

Error CannotListen(const ListenAddress& address, const error_code& error) {
  const std::string shown = address.ToString();
  if (error == asio::error::address_in_use) {
    return {ErrorCode::kIo, text::Cat("cannot listen on ", shown,
                                      ": the address is already in use by another program")};
  }
  return {ErrorCode::kIo, text::Cat("cannot listen on ", shown, ": ", error.message())};
}

bool IsExhausted(const error_code& error) {
  return error == asio::error::no_descriptors || error == asio::error::no_buffer_space ||
         error == asio::error::no_memory || error.value() == ENFILE;
}

}  // namespace

struct Listener::Shared {
  Shared(Options given, OnStream callback)
      : options(std::move(given)),
        on_stream(std::move(callback)),
        count(std::make_shared<ConnectionCount>(options.connections_max)) {}

  Expected<bool> LoadCertificate() {
    if (!options.tls) return false;
    auto made = TlsContext::Make(*options.tls, options.alpn);
    if (!made) return std::unexpected(std::move(made.error()));
    tls.store(*std::move(made), std::memory_order_release);
    return true;
  }

  const Options options;
  const OnStream on_stream;
  std::atomic<std::shared_ptr<TlsContext>> tls;  // Null without TLS.
  const std::shared_ptr<ConnectionCount> count;
  std::atomic<std::uint64_t> accepted = 0;
  std::atomic<std::uint64_t> refused = 0;
  std::atomic<std::uint64_t> accept_errors = 0;
  std::atomic<std::uint64_t> handshakes_failed = 0;
};

// The part of a listener that lives on one loop.
class Listener::Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(asio::io_context& context, std::size_t loop, std::shared_ptr<Shared> shared)
      : loop_(loop), shared_(std::move(shared)), acceptor_(context), pause_(context) {}

  error_code Open(const tcp::endpoint& endpoint, Sharing sharing) {
    const error_code error = Listen(acceptor_, endpoint, sharing);
    if (error) Close();
    return error;
  }

  tcp::endpoint endpoint() const {
    error_code ignored;
    return acceptor_.local_endpoint(ignored);
  }

  void Accept() {
    acceptor_.async_accept(peer_,
                           [self = shared_from_this()](error_code error, tcp::socket socket) {
                             // Kept even if the address was closed after it was accepted.
                             if (!error) self->Take(std::move(socket), self->peer_);
                             if (!self->acceptor_.is_open()) return;
                             if (error) {
                               self->shared_->accept_errors.fetch_add(1, std::memory_order_relaxed);
                             }
                             if (IsExhausted(error)) {
                               self->Pause();
                             } else {
                               self->Accept();
                             }
                           });
  }

  // Whoever has connected may have sent a request already.
  void TakeAllAndClose() {
    if (!acceptor_.is_open()) return;
    while (true) {
      // Not peer_: an accepted connection may not have been reported yet.
      tcp::endpoint peer;
      error_code error;
      tcp::socket socket = acceptor_.accept(peer, error);
      if (error == asio::error::connection_aborted) continue;
      if (error) break;
      Take(std::move(socket), peer);
    }
    Close();
  }

  void Close() {
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
  }

 private:
  struct Handshake {
    explicit Handshake(Stream given) : stream(std::move(given)), timer(stream.get_executor()) {}

    Stream stream;
    asio::steady_timer timer;
  };

  void Pause() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](error_code) {
      if (self->acceptor_.is_open()) self->Accept();
    });
  }

  void Take(tcp::socket socket, const tcp::endpoint& peer) {
    auto slot = ConnectionCount::Take(shared_->count);
    if (!slot) {
      shared_->refused.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    shared_->accepted.fetch_add(1, std::memory_order_relaxed);
    Stream stream(std::move(socket), peer.address(), std::move(*slot),
                  shared_->tls.load(std::memory_order_acquire));
    if (stream.tls()) {
      ShakeHands(std::move(stream));
    } else {
      shared_->on_stream(loop_, std::move(stream));
    }
  }

  void ShakeHands(Stream stream) {
    const auto handshake = std::make_shared<Handshake>(std::move(stream));
    handshake->timer.expires_after(shared_->options.handshake_timeout);
    handshake->timer.async_wait([handshake](error_code error) {
      if (!error) handshake->stream.Close();
    });
    handshake->stream.async_handshake([self = shared_from_this(), handshake](error_code error) {
      // Nothing to cancel: the timer has closed the stream, or is about to.
      const bool in_time = handshake->timer.cancel() > 0;
      if (error || !in_time) {
        self->shared_->handshakes_failed.fetch_add(1, std::memory_order_relaxed);
        handshake->stream.Close();
      } else {
        self->shared_->on_stream(self->loop_, std::move(handshake->stream));
      }
    });
  }

  const std::size_t loop_;
  const std::shared_ptr<Shared> shared_;
  tcp::acceptor acceptor_;
  tcp::endpoint peer_;
  asio::steady_timer pause_;
};

Expected<std::unique_ptr<Listener>> Listener::Start(Loops& loops, Options options,
                                                    OnStream on_stream) {
  const auto shared = std::make_shared<Shared>(std::move(options), std::move(on_stream));
  if (auto loaded = shared->LoadCertificate(); !loaded) {
    return std::unexpected(std::move(loaded.error()));
  }
  ListenAddress address = shared->options.address;
  const auto endpoints = Resolve(loops.context(0), address);
  if (!endpoints) return std::unexpected(endpoints.error());

  std::vector<std::shared_ptr<Acceptor>> acceptors;
  acceptors.reserve(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) {
    acceptors.push_back(std::make_shared<Acceptor>(loops.context(i), i, shared));
  }
  error_code error;
  for (const tcp::endpoint& endpoint : *endpoints) {
    error = acceptors.front()->Open(endpoint, Sharing::kFirst);
    if (!error || error == asio::error::address_in_use) break;
  }
  for (std::size_t i = 1; !error && i < acceptors.size(); ++i) {
    error = acceptors[i]->Open(acceptors.front()->endpoint(), Sharing::kFurther);
  }
  if (error) return std::unexpected(CannotListen(address, error));
  address.port = acceptors.front()->endpoint().port();
  for (std::size_t i = 0; i < acceptors.size(); ++i) {
    asio::post(loops.context(i), [acceptor = acceptors[i]] { acceptor->Accept(); });
  }
  return std::unique_ptr<Listener>(
      new Listener(loops, shared, std::move(address), std::move(acceptors)));
}

Listener::Listener(Loops& loops, std::shared_ptr<Shared> shared, ListenAddress address,
                   std::vector<std::shared_ptr<Acceptor>> acceptors)
    : loops_(loops),
      shared_(std::move(shared)),
      address_(std::move(address)),
      acceptors_(std::move(acceptors)) {}

Listener::~Listener() { StopAccepting(); }

void Listener::StopAccepting() {
  loops_.RunOnAll([this](std::size_t loop) { acceptors_[loop]->TakeAllAndClose(); });
}

Expected<bool> Listener::ReloadCertificate() { return shared_->LoadCertificate(); }

Listener::Counts Listener::counts() const {
  const auto tls = shared_->tls.load(std::memory_order_acquire);
  return {.open = shared_->count->open(),
          .accepted = shared_->accepted.load(std::memory_order_relaxed),
          .refused = shared_->refused.load(std::memory_order_relaxed),
          .accept_errors = shared_->accept_errors.load(std::memory_order_relaxed),
          .handshakes_failed = shared_->handshakes_failed.load(std::memory_order_relaxed),
          .certificate_expires = tls ? tls->expires() : 0};
}

}  // namespace sluice::net
