// SPDX-License-Identifier: Apache-2.0
// The part of a server that lives on one loop: a shard and its connections.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/circular_buffer.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "http/limits.h"
#include "http/message.h"
#include "http/request_reader.h"
#include "http/response_writer.h"
#include "http/server.h"
#include "net/byte_budget.h"
#include "net/counter.h"
#include "net/stream.h"

namespace sluice::http {

class Connection;
using ConnectionPtr = boost::intrusive_ptr<Connection>;

// Used only on its loop, except for the counters.
class Shard : public std::enable_shared_from_this<Shard> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Shard(boost::asio::io_context& context, Handler& handler, const Server::Options& options);

  void Add(net::Stream stream);
  // See net::Shards.
  void StartDrain(std::function<void()> on_drained);
  std::size_t Close();

  bool draining() const { return draining_; }
  const Limits& limits() const { return limits_; }

  net::Counter requests;
  net::Counter bad_requests;
  net::Counter timeouts;

 private:
  friend class Connection;

  void Remove(Connection& connection);
  // For answers that come later: all those of one turn of the loop are sent together.
  void PumpSoon(ConnectionPtr connection);
  void StartTicking();
  void Tick();
  void ReadClocks();

  boost::asio::io_context& context_;
  Handler& handler_;
  const Limits limits_;
  const std::shared_ptr<net::ByteBudget> buffered_;
  const std::string server_line_;
  const Clock& clock_;

  // Deadlines are checked once per tick. That costs a request one store; its own timer would cost
  // more than all the rest of its bookkeeping.
  const std::chrono::milliseconds tick_;
  boost::asio::steady_timer timer_;
  bool ticking_ = false;
  TimePoint now_;  // At the last tick.
  std::chrono::sys_seconds date_{};
  std::string common_headers_;  // Server and Date.

  Request request_;  // The current one; here, since there is never more than one.
  std::vector<ConnectionPtr> connections_;
  std::vector<ConnectionPtr> to_pump_;
  bool draining_ = false;
  bool closed_ = false;
  std::function<void()> on_drained_;
};

// Counts its references: the shard's while it is open, pending operations, and exchanges. The count
// changes only on the loop.
class Connection {
 public:
  Connection(std::shared_ptr<Shard> shard, net::Stream stream);

  // Whoever calls one of these holds a reference.
  void Start() { Pump(); }
  void StartDrain();
  void CheckDeadline(Shard::TimePoint now);
  void Close();

  // Takes over the reference of an exchange.
  void Respond(std::uint64_t number, const Response& response);

 private:
  friend class Exchange;
  friend class Shard;
  friend void intrusive_ptr_add_ref(Connection* connection) { ++connection->references_; }
  friend void intrusive_ptr_release(Connection* connection) {
    if (--connection->references_ == 0) delete connection;
  }

  // What the client has to do next.
  enum class Wait : std::uint8_t { kNothing, kRequest, kHead, kBody, kWrite, kEnd };

  // A response that outlives the call that delivered it.
  class StoredResponse {
   public:
    explicit StoredResponse(const Response& response);
    Response View() const;
    std::size_t size() const { return texts_.size(); }

   private:
    int status_;
    std::size_t content_type_size_;
    std::size_t headers_size_;
    std::string texts_;  // One after another.
  };

  // A request whose answer has not been written to out_.
  struct Pending {
    bool head_only = false;
    bool keep_alive = true;
    bool http_1_0 = false;
    std::unique_ptr<StoredResponse> response = nullptr;  // If it is not its turn yet.
  };

  // Does all it can now: handles what has arrived, sends, reads on, and sets the deadline.
  void Pump();

  void HandleArrived();
  void Handle(const Request& request);
  void Refuse(const Refusal& refusal);
  void Answer(std::uint64_t number, const Response& response);
  void PutOut(const Response& response);
  bool IsLast();
  bool IsIdle();

  void Read();
  void OnRead(boost::system::error_code error, std::size_t bytes);
  void Flush();
  void WriteRest();
  void OnWritten(boost::system::error_code error, std::size_t bytes);
  void End();

  // Whether neither too many answers are due nor too many bytes are unsent.
  bool MayHandle() const;
  std::size_t unsent() const { return out_.size() + in_write_.size() - written_; }
  // What is held until the client has sent the rest or read its answers.
  std::size_t HeldBytes() const;
  // Frees what is kept for future answers.
  void DropSpare();
  Wait WaitsFor() const;
  void UpdateDeadline();

  const std::shared_ptr<Shard> shard_;
  net::ByteBudget::Share share_;
  net::Stream stream_;
  const bool certified_;
  RequestReader reader_;
  std::uint32_t references_ = 0;
  std::size_t index_ = 0;  // In the shard's list.

  boost::circular_buffer<Pending> pending_;
  std::uint64_t first_pending_ = 0;  // The number of its front.
  std::size_t stored_bytes_ = 0;     // Of answers before their turn.

  std::string out_;       // What is sent next.
  std::string in_write_;  // What is being sent; written_ bytes of it are done.
  std::size_t written_ = 0;

  bool reading_ = false;
  bool writing_ = false;
  bool handling_ = false;
  bool pump_scheduled_ = false;
  bool starved_ = true;       // All that has arrived is handled, except for a partial request.
  bool last_ = false;         // No request is accepted after the pending ones.
  bool ended_ = false;        // The last answer was written to out_.
  bool ending_ = false;       // It was sent, and so was the end of the stream.
  bool end_of_file_ = false;  // The client will send no more.
  bool closed_ = false;

  Wait waits_for_ = Wait::kNothing;
  bool progress_ = false;  // Since the deadline was set.
  Shard::TimePoint deadline_ = Shard::TimePoint::max();
};

}  // namespace sluice::http
