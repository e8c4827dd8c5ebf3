// SPDX-License-Identifier: Apache-2.0
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cassert>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/text.h"

namespace sluice::net {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

std::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

// OpenSSL's own message for a missing file says little, and it would wait for a pipe.
Expected<void> CheckReadable(std::string_view what, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || !std::ifstream(path)) {
    return Fail(ErrorCode::kIo, text::Cat("cannot read the ", what, " file ", text::Quote(path)));
  }
  return {};
}

std::int64_t ExpiryOf(const X509* certificate) {
  std::tm time{};
  ::ASN1_TIME_to_tm(::X509_get0_notAfter(certificate), &time);
  return ::timegm(&time);
}

int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int offered_size, void* context) {
  const std::string& alpn = static_cast<const TlsContext*>(context)->alpn();
  unsigned char* chosen = nullptr;
  const int result = ::SSL_select_next_proto(
      &chosen, out_size, reinterpret_cast<const unsigned char*>(alpn.data()),
      static_cast<unsigned int>(alpn.size()), offered, offered_size);
  *out = chosen;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

TlsContext::TlsContext() : context_(ssl::context::tls_server) {
  SSL_CTX* const native = context_.native_handle();
  ::SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  ::SSL_CTX_set_options(
      native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Frees the buffers of idle connections: they are most of what such a connection costs.
  ::SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
}

Expected<std::shared_ptr<TlsContext>> TlsContext::Make(const TlsFiles& files,
                                                       std::span<const std::string> alpn) {
  if (const auto readable = CheckReadable("certificate", files.cert); !readable) {
    return std::unexpected(readable.error());
  }
  if (const auto readable = CheckReadable("key", files.key); !readable) {
    return std::unexpected(readable.error());
  }
  std::shared_ptr<TlsContext> made(new TlsContext());
  error_code error;
  made->context_.use_certificate_chain_file(files.cert, error);
  if (error) {
    return Fail(ErrorCode::kInvalidInput,
                text::Cat("the file ", text::Quote(files.cert),
                          " has no certificate in PEM format: ", error.message()));
  }
  made->context_.use_private_key_file(files.key, ssl::context::pem, error);
  if (error) {
    return Fail(ErrorCode::kInvalidInput,
                text::Cat("the file ", text::Quote(files.key),
                          " has no private key in PEM format that belongs to the certificate in ",
                          text::Quote(files.cert), ": ", error.message()));
  }
  made->expires_ = ExpiryOf(::SSL_CTX_get0_certificate(made->context_.native_handle()));
  if (!files.client_ca.empty()) {
    if (auto asks = made->AskClients(files); !asks) return std::unexpected(std::move(asks.error()));
  }
  for (const std::string& protocol : alpn) {
    assert(!protocol.empty() && protocol.size() <= 255);
    made->alpn_ += static_cast<char>(protocol.size());
    made->alpn_ += protocol;
  }
  if (!alpn.empty()) {
    ::SSL_CTX_set_alpn_select_cb(made->context_.native_handle(), ChooseProtocol, made.get());
  }
  return made;
}

Expected<void> TlsContext::AskClients(const TlsFiles& files) {
  if (auto readable = CheckReadable("client CA", files.client_ca); !readable) return readable;
  SSL_CTX* const native = context_.native_handle();
  error_code error;
  context_.load_verify_file(files.client_ca, error);
  // The names of the signers, so that a client with several certificates knows which to send.
  STACK_OF(X509_NAME)* const names =
      error ? nullptr : ::SSL_load_client_CA_file(files.client_ca.c_str());
  ::ERR_clear_error();
  if (!names) {
    return Fail(ErrorCode::kInvalidInput, text::Cat("the file ", text::Quote(files.client_ca),
                                                    " has no certificate in PEM format"));
  }
  ::SSL_CTX_set_client_CA_list(native, names);
  const bool required = files.client == TlsFiles::Client::kRequired;
  ::SSL_CTX_set_verify(native, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       nullptr);
  // Without it, no client with a certificate could resume a session. Our sessions are identified by
  // the keys of their tickets, which are specific to this context.
  constexpr std::string_view kSessions = "sluice";
  ::SSL_CTX_set_session_id_context(native, reinterpret_cast<const unsigned char*>(kSessions.data()),
                                   static_cast<unsigned int>(kSessions.size()));
  return {};
}

}  // namespace sluice::net
