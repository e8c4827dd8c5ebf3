// SPDX-License-Identifier: Apache-2.0
// What a listener needs to speak TLS.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sluice/error.h"

namespace sluice::net {

struct TlsFiles {
  std::string cert;  // PEM: the certificate and its intermediates.
  std::string key;   // PEM, without a passphrase.

  // PEM: who signs the certificates of clients. Empty: clients are not asked for one.
  std::string client_ca = {};
  // Whether a client may come without one. A wrong certificate is refused either way.
  enum class Client : std::uint8_t { kOptional, kRequired } client = Client::kRequired;

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// TLS 1.2 and 1.3, no compression, no renegotiation. Shared by all connections of a listener, and
// constant after construction.
class TlsContext {
 public:
  // `alpn` lists the accepted protocols, best first. A client that offers none of them is refused,
  // and one without ALPN is not. Empty: ALPN is ignored.
  static Expected<std::shared_ptr<TlsContext>> Make(const TlsFiles& files,
                                                    std::span<const std::string> alpn = {});

  boost::asio::ssl::context& context() { return context_; }
  // The protocols in wire format: each follows a byte with its length.
  const std::string& alpn() const { return alpn_; }
  // When the certificate expires, as Unix time.
  std::int64_t expires() const { return expires_; }

 private:
  TlsContext();

  // Asks for their certificates.
  Expected<void> AskClients(const TlsFiles& files);

  boost::asio::ssl::context context_;
  std::string alpn_;
  std::int64_t expires_ = 0;
};

}  // namespace sluice::net
