// SPDX-License-Identifier: Apache-2.0
#include "net/stream.h"

#include <boost/asio/buffer.hpp>

namespace sluice::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

asio::ip::address Unmapped(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return address;
}

}  // namespace

Stream::Stream(Socket socket, const asio::ip::address& peer, ConnectionCount::Slot slot,
               std::shared_ptr<TlsContext> tls)
    : tls_context_(std::move(tls)), peer_(Unmapped(peer)), slot_(std::move(slot)) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  if (tls_context_) {
    tls_ = std::make_unique<TlsStream>(std::move(socket), tls_context_->context());
  } else {
    plain_.emplace(std::move(socket));
  }
}

bool Stream::certified() const {
  if (!tls_) return false;
  const SSL* const tls = tls_->native_handle();
  return ::SSL_get0_peer_certificate(tls) != nullptr && ::SSL_get_verify_result(tls) == X509_V_OK;
}

std::string_view Stream::alpn() const {
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  if (tls_) ::SSL_get0_alpn_selected(tls_->native_handle(), &protocol, &size);
  return {reinterpret_cast<const char*>(protocol), size};
}

std::size_t Stream::TryWrite(std::string_view bytes) {
  if (tls_) return 0;
  error_code error;
  return plain_->write_some(asio::buffer(bytes), error);
}

std::size_t Stream::TryRead(std::span<char> room) {
  if (!tls_) {
    error_code error;
    return plain_->read_some(asio::buffer(room.data(), room.size()), error);
  }
  std::size_t got = 0;
  if (::SSL_pending(tls_->native_handle()) > 0) {
    ::SSL_read_ex(tls_->native_handle(), room.data(), room.size(), &got);
  }
  return got;
}

bool Stream::readable() {
  error_code error;
  if (socket().available(error) > 0) return true;
  if (!tls_) return false;
  // The rest of a record that was read in part, or records that came with it.
  SSL* const tls = tls_->native_handle();
  return ::SSL_has_pending(tls) != 0 || ::BIO_ctrl_pending(::SSL_get_rbio(tls)) > 0;
}

void Stream::Cancel() {
  error_code ignored;
  socket().cancel(ignored);
}

void Stream::Close() {
  error_code ignored;
  socket().close(ignored);
}

}  // namespace sluice::net
