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
  std::string cert;  // PEM: the certificate, and those between it and a root.
  std::string key;   // PEM, without a passphrase.

  // PEM: who signs the certificates of clients. Empty: they are not asked for one.
  std::string client_ca = {};
  // Whether a client may come without. One that has another certificate is refused either way.
  enum class Client : std::uint8_t { kOptional, kRequired } client = Client::kRequired;

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

// TLS 1.2 and 1.3, no compression, no renegotiation. Shared by all connections of a listener, and
// constant once made.
class TlsContext {
 public:
  // `alpn` lists the protocols that may be agreed on, the best first; a client that offers none of
  // them is refused, and one that does not ask is not. Empty: the question is not answered.
  static Expected<std::shared_ptr<TlsContext>> Make(const TlsFiles& files,
                                                    std::span<const std::string> alpn = {});

  boost::asio::ssl::context& context() { return context_; }
  // The protocols as they are written on the wire: each after a byte with its length.
  const std::string& alpn() const { return alpn_; }

 private:
  TlsContext();

  // For their certificates.
  Expected<void> AskClients(const TlsFiles& files);

  boost::asio::ssl::context context_;
  std::string alpn_;
};

}  // namespace sluice::net
