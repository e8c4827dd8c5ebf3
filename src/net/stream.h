// SPDX-License-Identifier: Apache-2.0
// One accepted connection, plain or TLS. It is an AsyncReadStream and AsyncWriteStream as Asio
// defines them, so its composed operations and completion tokens work on it.
#pragma once

#include <boost/asio/append.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "net/connection_count.h"
#include "net/tls.h"

namespace sluice::net {

// Belongs to the loop of its socket and is used only there.
class Stream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using TlsStream = boost::asio::ssl::stream<Socket>;
  using executor_type = Socket::executor_type;

  // Without `tls` it is plain. The slot is freed with the stream. The peer is passed in, because
  // the system forgets it as soon as the other side resets the connection.
  Stream(Socket socket, const boost::asio::ip::address& peer, ConnectionCount::Slot slot,
         std::shared_ptr<TlsContext> tls);

  executor_type get_executor() { return socket().get_executor(); }
  // The other side's address; IPv4 through an IPv6 socket is an IPv4 address.
  const boost::asio::ip::address& peer() const { return peer_; }
  bool tls() const { return tls_ != nullptr; }
  // The other side has shown a certificate signed by the listener's client CA. Known after the
  // handshake.
  bool certified() const;
  // The agreed protocol; empty if there is none.
  std::string_view alpn() const;

  template <typename Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(TlsStream::server, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return plain_->async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return plain_->async_write_some(buffers, std::forward<Token>(token));
  }
  // Tells the other side that nothing more will come; completes with void(error_code). Afterwards,
  // read until the other side has closed, too: closing with unread bytes would reset the
  // connection, and the other side could lose what it has not read yet.
  template <typename Token>
  auto async_shutdown(Token&& token) {
    if (tls_) return tls_->async_shutdown(std::forward<Token>(token));
    boost::system::error_code error;
    plain_->shutdown(Socket::shutdown_send, error);
    return boost::asio::post(plain_->get_executor(),
                             boost::asio::append(std::forward<Token>(token), error));
  }

  // Sends what fits without waiting and returns how much that was; on TLS always nothing. Leaves
  // the rest, and any error, to async_write_some.
  std::size_t TryWrite(std::string_view bytes);

  // Reads what is available without waiting and returns how much that was; on TLS only the rest of
  // a record that was read in part. Leaves the rest, the end and any error to async_read_some.
  std::size_t TryRead(std::span<char> room);

  // Whether bytes are ready to be read.
  bool readable();

  // Pending operations complete with operation_aborted, unless they are done and only their
  // completion is still to come.
  void Cancel();

  // Immediate, in any state; pending operations complete with operation_aborted.
  void Close();

 private:
  Socket& socket() { return tls_ ? tls_->next_layer() : *plain_; }

  std::optional<Socket> plain_;
  std::unique_ptr<TlsStream> tls_;
  std::shared_ptr<TlsContext> tls_context_;
  boost::asio::ip::address peer_;
  ConnectionCount::Slot slot_;
};

}  // namespace sluice::net
