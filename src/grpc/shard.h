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

// Used on its loop only, but for the counters.
class Shard : public std::enable_shared_from_this<Shard> {
 public:
  Shard(boost::asio::io_context& context, service::Engine& engine, Server::Options options);
  ~Shard();

  void Add(net::Stream stream);
  void SetServing(Serving serving);
  // As net::Shards has it.
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

// Lives as long as the shard has it, and an operation is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shard> shard, net::Stream stream);

  void Start();
  void SetServing(Serving serving);
  void Drain();
  // Once a tick: ends what has been silent for too long.
  void CheckSilence(SteadyTime now);
  void Close();

 private:
  friend class Shard;

  Session& session() { return services_->session(); }
  // All that can be done now: send, read on, and set the timer; or end.
  void Pump();
  void Read();
  void OnRead(boost::system::error_code error, std::size_t size);
  // Whether all is sent.
  bool Flush();
  void Write();
  void OnWritten(boost::system::error_code error, std::size_t size);
  void SetTimer();
  void End(SteadyTime now);
  std::size_t HeldBytes();
  // Whether the client has taken something lately of what is sent to it.
  bool Takes(SteadyTime now);

  const std::shared_ptr<Shard> shard_;
  net::ByteBudget::Share share_;
  std::size_t place_ = 0;  // In the shard.
  net::Stream stream_;
  std::string in_;
  std::string out_;
  std::size_t written_ = 0;
  std::uint64_t writes_ = 0;  // That have had to be waited for.
  bool reading_ = false;
  bool writing_ = false;
  bool closed_ = false;

  boost::asio::steady_timer timer_;  // For the deadlines of calls.
  std::optional<SteadyTime> timer_at_;

  SteadyTime opened_;
  SteadyTime heard_;                  // When the client last sent something.
  std::optional<SteadyTime> pinged_;  // And heard nothing since.
  std::optional<SteadyTime> ending_;  // Since when nothing more is said, or shall be.
  std::uint64_t writes_seen_ = 0;     // At the last tick.
  SteadyTime taken_;  // The last tick at which the client was seen to take something.

  std::shared_ptr<Services> services_;  // From Start to Close.
};

}  // namespace sluice::grpc
