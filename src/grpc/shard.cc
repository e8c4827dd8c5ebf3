// SPDX-License-Identifier: Apache-2.0
#include "grpc/shard.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <utility>

namespace sluice::grpc {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Steady = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr std::size_t kOutputBytesMax = std::size_t{256} << 10;
constexpr std::size_t kSpareOutputBytesMax = std::size_t{16} << 10;
constexpr std::chrono::milliseconds kTickMax{500};
// Time between the last output and closing: closing with unread bytes would lose the output.
constexpr std::chrono::seconds kLinger{2};

// Often enough to keep timeouts accurate to a fifth.
std::chrono::milliseconds TickFor(const Server::Options& options) {
  const auto shortest =
      std::min({options.preface_timeout, options.idle_timeout, options.ping_timeout,
                options.write_timeout, options.services.limits.send_timeout});
  return std::clamp(shortest / 5, std::chrono::milliseconds{1}, kTickMax);
}

}  // namespace

Shard::Shard(asio::io_context& context, service::Engine& engine, Server::Options options)
    : engine_(engine), options_(std::move(options)), tick_(TickFor(options_)), ticker_(context) {}

Shard::~Shard() = default;

void Shard::Add(net::Stream stream) {
  if (closed_) return;
  const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(stream));
  connection->place_ = connections_.size();
  connections_.push_back(connection);
  connection->Start();
  if (draining_) connection->Drain();
  StartTicking();
}

void Shard::Remove(Connection& connection) {
  const std::size_t place = connection.place_;
  std::swap(connections_[place], connections_.back());
  connections_[place]->place_ = place;
  connections_.pop_back();
  if (connections_.empty() && on_drained_) std::exchange(on_drained_, {})();
}

void Shard::SetServing(Serving serving) {
  serving_ = serving;
  for (const auto& connection : std::vector(connections_)) connection->SetServing(serving);
}

void Shard::StartDrain(std::function<void()> on_drained) {
  draining_ = true;
  serving_ = Serving::kNo;
  if (connections_.empty()) return on_drained();
  on_drained_ = std::move(on_drained);
  for (const auto& connection : std::vector(connections_)) connection->Drain();
}

std::size_t Shard::Close() {
  closed_ = true;
  const std::vector open = connections_;
  for (const auto& connection : open) connection->Close();
  ticker_.cancel();
  return open.size();
}

void Shard::StartTicking() {
  if (std::exchange(ticking_, true)) return;
  ticker_.expires_after(tick_);
  ticker_.async_wait([self = shared_from_this()](error_code) {
    self->ticking_ = false;
    const SteadyTime now = Steady::now();
    for (const auto& connection : std::vector(self->connections_)) connection->CheckSilence(now);
    if (!self->connections_.empty()) self->StartTicking();
  });
}

Connection::Connection(std::shared_ptr<Shard> shard, net::Stream stream)
    : shard_(std::move(shard)),
      share_(*shard_->options_.buffered),
      stream_(std::move(stream)),
      timer_(stream_.get_executor()),
      opened_(Steady::now()),
      heard_(opened_),
      taken_(opened_) {
  in_.resize(kReadBytes);
}

void Connection::Start() {
  services_ = std::make_shared<Services>(
      shard_->engine_, shard_->options_.services, shard_->counters, shard_->serving_,
      [this] { Pump(); }, stream_.certified() ? Certified::kYes : Certified::kNo);
  Pump();
}

void Connection::SetServing(Serving serving) {
  services_->SetServing(serving);
  Pump();
}

void Connection::Drain() {
  services_->Drain();
  Pump();
}

void Connection::Pump() {
  if (closed_) return;
  const bool sent = Flush();
  if (closed_) return;
  if (sent && session().finished() && !ending_) End(Steady::now());
  // Does not read from a client that does not read: output must be bounded.
  if (sent && !reading_) Read();
  if (!share_.Hold(HeldBytes())) return Close();
  SetTimer();
}

std::size_t Connection::HeldBytes() {
  return session().held_bytes() + (writing_ ? out_.capacity() : 0);
}

void Connection::Read() {
  reading_ = true;
  stream_.async_read_some(asio::buffer(in_),
                          [self = shared_from_this()](error_code error, std::size_t size) {
                            self->reading_ = false;
                            self->OnRead(error, size);
                          });
}

void Connection::OnRead(error_code error, std::size_t size) {
  if (closed_) return;
  if (error) return Close();
  if (!ending_) {
    heard_ = Steady::now();
    pinged_.reset();
    services_->Receive(std::string_view(in_).substr(0, size), heard_);
  }
  Pump();
}

bool Connection::Flush() {
  if (writing_) return false;
  while (true) {
    session().Produce(out_, kOutputBytesMax);
    if (out_.empty()) return true;
    written_ = stream_.TryWrite(out_);
    if (written_ < out_.size()) break;
    out_.clear();
  }
  Write();
  return false;
}

void Connection::Write() {
  writing_ = true;
  stream_.async_write_some(asio::buffer(out_) + written_,
                           [self = shared_from_this()](error_code error, std::size_t size) {
                             self->writing_ = false;
                             self->OnWritten(error, size);
                           });
}

void Connection::OnWritten(error_code error, std::size_t size) {
  if (closed_) return;
  if (error) return Close();
  ++writes_;
  written_ += size;
  if (written_ < out_.size()) return Write();
  out_.clear();
  if (out_.capacity() > kSpareOutputBytesMax) out_.shrink_to_fit();
  written_ = 0;
  Pump();
}

void Connection::SetTimer() {
  const auto next = session().NextExpiry();
  if (!next || (timer_at_ && *timer_at_ <= *next)) return;
  timer_at_ = next;
  timer_.expires_at(*next);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    // Another wait has replaced this one.
    if (error || self->closed_) return;
    self->timer_at_.reset();
    self->session().Expire(Steady::now());
    self->Pump();
  });
}

// Tells the client that nothing more will come, and reads on until the client has closed, too.
void Connection::End(SteadyTime now) {
  ending_ = now;
  stream_.async_shutdown([self = shared_from_this()](error_code) {});
}

void Connection::CheckSilence(SteadyTime now) {
  const Server::Options& options = shard_->options_;
  if (ending_) {
    if (now - *ending_ > kLinger) Close();
    return;
  }
  const bool mute = !session().greeted() && now - opened_ > options.preface_timeout;
  const bool dead = pinged_ && now - *pinged_ > options.ping_timeout;
  if (mute || dead || !Takes(now)) {
    shard_->counters.timeouts.Add();
    return Close();
  }
  if (session().ExpireReplies(now)) Pump();
  if (closed_) return;
  if (session().open_calls() == 0 && now - heard_ > shard_->tick_) services_->DropSpare();
  if (pinged_ || now - heard_ <= options.idle_timeout) return;
  if (session().open_calls() > 0) {
    pinged_ = now;
    session().Ping();
  } else {
    shard_->counters.timeouts.Add();
    if (writing_) return Close();  // The client would not read this, either.
    session().Terminate();
  }
  Pump();
}

bool Connection::Takes(SteadyTime now) {
  if (!writing_ || std::exchange(writes_seen_, writes_) != writes_) taken_ = now;
  return now - taken_ <= shard_->options_.write_timeout;
}

void Connection::Close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  timer_.cancel();
  stream_.Close();
  services_.reset();
  shard_->Remove(*this);
}

}  // namespace sluice::grpc
