// SPDX-License-Identifier: Apache-2.0
// The part of the server that lives on one loop, and its connections.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grpc/counters.h"
#include "grpc/server.h"
#include "grpc/services.h"
#include "net/byte_budget.h"
#include "net/stream.h"

namespace sluice::grpc {

class Connection;

// Used only on its loop, except for the counters.
class Shard : public std::enable_shared_from_this<Shard> {
 public:
  Shard(boost::asio::io_context& context, service::Engine& engine, Server::Options options);
  ~Shard();

  void Add(net::Stream stream);
  void SetServing(Serving serving);
  // See net::Shards.
  void StartDrain(std::function<void()> on_drained);
  std::size_t Close();

  Counters counters;

 private:
  friend class Connection;

  void Remove(Connection& connection);
  void StartTicking();

  // Constant after construction.
  service::Engine& engine_;
  const Server::Options options_;
  const std::chrono::milliseconds tick_;

  boost::asio::steady_timer ticker_;
  bool ticking_ = false;
  std::vector<std::shared_ptr<Connection>> connections_;  // Each knows its place.
  Serving serving_ = Serving::kYes;
  bool draining_ = false;
  bool closed_ = false;
  std::function<void()> on_drained_;
};

// Lives as long as the shard holds it or an operation is pending.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shard> shard, net::Stream stream);

  void Start();
  void SetServing(Serving serving);
  void Drain();
  // Called once per tick: ends a connection that has been silent for too long.
  void CheckSilence(SteadyTime now);
  void Close();

 private:
  friend class Shard;

  Session& session() { return services_->session(); }
  // Does all that can be done now: sends, reads on, and sets the timer; or ends.
  void Pump();
  void Read();
  void OnRead(boost::system::error_code error, std::size_t size);
  // Returns whether everything is sent.
  bool Flush();
  void Write();
  void OnWritten(boost::system::error_code error, std::size_t size);
  void SetTimer();
  void End(SteadyTime now);
  std::size_t HeldBytes();
  // Whether the client has recently read some of what is sent to it.
  bool Takes(SteadyTime now);

  const std::shared_ptr<Shard> shard_;
  net::ByteBudget::Share share_;
  std::size_t place_ = 0;  // In the shard.
  net::Stream stream_;
  std::string in_;
  std::string out_;
  std::size_t written_ = 0;
  std::uint64_t writes_ = 0;  // Those that had to wait.
  bool reading_ = false;
  bool writing_ = false;
  bool closed_ = false;

  boost::asio::steady_timer timer_;  // For the deadlines of calls.
  std::optional<SteadyTime> timer_at_;

  SteadyTime opened_;
  SteadyTime heard_;                  // When the client last sent something.
  std::optional<SteadyTime> pinged_;  // When it got a PING; nothing once heard.
  std::optional<SteadyTime> ending_;  // Since when nothing more is sent.
  std::uint64_t writes_seen_ = 0;     // At the last tick.
  SteadyTime taken_;                  // The last tick at which the client had read something.

  std::shared_ptr<Services> services_;  // From Start to Close.
};

}  // namespace sluice::grpc
