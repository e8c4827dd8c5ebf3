// SPDX-License-Identifier: Apache-2.0
#include "http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cassert>
#include <utility>

#include "base/text.h"

namespace sluice::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kErrorType = "application/json";
constexpr std::size_t kPendingAtFirst = 4;
constexpr std::size_t kOutBytesKeptMax = 16 * 1024;
// How long a client has to close after it was told that the connection ends.
constexpr milliseconds kEndTimeout{2'000};
constexpr milliseconds kTickMin{5};
constexpr milliseconds kTickMax{250};

// Precise enough for the shortest timeout.
milliseconds TickOf(const Limits& limits) {
  const milliseconds shortest = std::min(
      {limits.idle_timeout, limits.head_timeout, limits.body_timeout, limits.write_timeout});
  return std::clamp(shortest / 4, kTickMin, kTickMax);
}

// Clears the buffer, and frees what a large answer needed.
void Recycle(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kOutBytesKeptMax) buffer.shrink_to_fit();
}

}  // namespace

Shard::Shard(asio::io_context& context, Handler& handler, const Server::Options& options)
    : context_(context),
      handler_(handler),
      limits_(options.limits),
      buffered_(options.buffered),
      server_line_(
          options.server_name.empty() ? "" : text::Cat("Server: ", options.server_name, "\r\n")),
      clock_(options.clock),
      tick_(TickOf(limits_)),
      timer_(context) {}

void Shard::Add(net::Stream stream) {
  if (draining_ || closed_) return;
  StartTicking();
  const ConnectionPtr connection(new Connection(shared_from_this(), std::move(stream)));
  connection->index_ = connections_.size();
  connections_.push_back(connection);
  connection->Start();
}

void Shard::Remove(Connection& connection) {
  const ConnectionPtr last = std::move(connections_.back());
  connections_.pop_back();
  if (last.get() != &connection) {
    last->index_ = connection.index_;
    connections_[connection.index_] = last;
  }
  if (connections_.empty() && on_drained_) std::exchange(on_drained_, nullptr)();
}

void Shard::PumpSoon(ConnectionPtr connection) {
  if (std::exchange(connection->pump_scheduled_, true)) return;
  to_pump_.push_back(std::move(connection));
  if (to_pump_.size() > 1) return;
  asio::post(context_, [self = shared_from_this()] {
    for (const ConnectionPtr& each : std::exchange(self->to_pump_, {})) {
      each->pump_scheduled_ = false;
      each->Pump();
    }
  });
}

void Shard::StartDrain(std::function<void()> on_drained) {
  draining_ = true;
  on_drained_ = std::move(on_drained);
  for (std::size_t i = connections_.size(); i-- > 0;) {
    const ConnectionPtr connection = connections_[i];
    connection->StartDrain();
  }
  if (connections_.empty() && on_drained_) std::exchange(on_drained_, nullptr)();
}

std::size_t Shard::Close() {
  closed_ = true;
  const std::size_t count = connections_.size();
  while (!connections_.empty()) {
    const ConnectionPtr connection = connections_.back();
    connection->Close();
  }
  to_pump_.clear();
  timer_.cancel();
  return count;
}

// Ticks only while there are connections: an idle server sleeps.
void Shard::StartTicking() {
  if (ticking_) return;
  ticking_ = true;
  ReadClocks();
  timer_.expires_after(tick_);
  timer_.async_wait([self = shared_from_this()](error_code) {
    self->ticking_ = false;
    self->Tick();
  });
}

void Shard::Tick() {
  if (connections_.empty()) return;
  StartTicking();
  // From the back: the place of a closed one is taken by one that was checked already.
  for (std::size_t i = connections_.size(); i-- > 0;) {
    const ConnectionPtr connection = connections_[i];
    connection->CheckDeadline(now_);
  }
}

void Shard::ReadClocks() {
  now_ = std::chrono::steady_clock::now();
  const auto date = std::chrono::floor<std::chrono::seconds>(clock_.Now());
  if (date == date_ && !common_headers_.empty()) return;
  date_ = date;
  common_headers_ = text::Cat(server_line_, "Date: ", HttpDate(date), "\r\n");
}

Connection::StoredResponse::StoredResponse(const Response& response)
    : status_(response.status),
      content_type_size_(response.content_type.size()),
      headers_size_(response.headers.size()),
      texts_(text::Cat(response.content_type, response.headers, response.body)) {}

Response Connection::StoredResponse::View() const {
  const std::string_view texts = texts_;
  return {.status = status_,
          .content_type = texts.substr(0, content_type_size_),
          .headers = texts.substr(content_type_size_, headers_size_),
          .body = texts.substr(content_type_size_ + headers_size_)};
}

Connection::Connection(std::shared_ptr<Shard> shard, net::Stream stream)
    : shard_(std::move(shard)),
      share_(*shard_->buffered_),
      stream_(std::move(stream)),
      certified_(stream_.certified()),
      reader_(shard_->limits()),
      pending_(kPendingAtFirst) {}

void Connection::StartDrain() {
  // OnRead decides: a read may have completed without having been reported.
  if (reading_ && IsIdle()) stream_.Cancel();
}

void Connection::CheckDeadline(Shard::TimePoint now) {
  if (waits_for_ == Wait::kRequest) DropSpare();
  if (now <= deadline_) return;
  if (waits_for_ != Wait::kEnd) shard_->timeouts.Add();
  if (waits_for_ == Wait::kHead || waits_for_ == Wait::kBody) {
    Refuse({408, "REQUEST_TIMEOUT", "the request did not arrive in time"});
    Pump();
  } else {
    Close();
  }
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  stream_.Close();
  shard_->Remove(*this);
}

void Connection::Pump() {
  do {
    HandleArrived();
    Flush();
  } while (!starved_ && MayHandle());
  if (closed_) return;
  if (unsent() == 0 && ended_) {
    End();
  } else if (unsent() == 0 && end_of_file_ && pending_.empty()) {
    Close();
  } else if (starved_ && MayHandle()) {
    Read();
  }
  if (closed_) return;
  if (!share_.Hold(HeldBytes())) {
    Close();
    return;
  }
  // Answers from before the drain did not announce that they are the last.
  if (shard_->draining() && !last_) StartDrain();
  UpdateDeadline();
}

bool Connection::MayHandle() const {
  const Limits& limits = shard_->limits();
  return !closed_ && !last_ && pending_.size() < limits.pending_max &&
         unsent() + stored_bytes_ < limits.unsent_bytes_max;
}

std::size_t Connection::HeldBytes() const {
  return (reader_.buffered() > 0 ? reader_.capacity() : 0) + stored_bytes_ +
         (unsent() > 0 ? out_.capacity() + in_write_.capacity() : 0);
}

void Connection::DropSpare() {
  if (out_.empty()) out_.shrink_to_fit();
  if (in_write_.empty()) in_write_.shrink_to_fit();
}

void Connection::HandleArrived() {
  if (starved_ && pending_.empty() && !closed_ && !last_ && reader_.TakeExpectation()) {
    out_ += kContinue;
  }
  Request& request = shard_->request_;
  handling_ = true;
  while (!starved_ && MayHandle()) {
    switch (reader_.Next(request)) {
      case RequestReader::Status::kRequest:
        Handle(request);
        break;
      case RequestReader::Status::kRefused:
        Refuse(reader_.refusal());
        break;
      case RequestReader::Status::kIncomplete:
        starved_ = true;
        if (pending_.empty() && reader_.TakeExpectation()) out_ += kContinue;
        break;
    }
  }
  handling_ = false;
}

void Connection::Handle(const Request& request) {
  shard_->requests.Add();
  progress_ = true;
  last_ = !request.keep_alive;
  if (pending_.full()) pending_.set_capacity(2 * pending_.capacity());
  pending_.push_back({.head_only = request.method == Method::kHead,
                      .keep_alive = request.keep_alive,
                      .http_1_0 = request.minor_version == 0});
  shard_->request_.peer = stream_.peer();
  shard_->request_.certified = certified_;
  shard_->handler_.Handle(request, Exchange(*this, first_pending_ + pending_.size() - 1));
}

// Answered last, after all pending requests.
void Connection::Refuse(const Refusal& refusal) {
  shard_->bad_requests.Add();
  shard_->handler_.OnRefused(refusal.status, refusal.code);
  last_ = true;
  if (pending_.full()) pending_.set_capacity(2 * pending_.capacity());
  pending_.push_back({.keep_alive = false});
  const std::string body = ErrorBody(refusal.code, refusal.message);
  Answer(first_pending_ + pending_.size() - 1,
         {.status = refusal.status, .content_type = kErrorType, .body = body});
}

void Connection::Respond(std::uint64_t number, const Response& response) {
  const ConnectionPtr self(this, false);
  Answer(number, response);
}

void Connection::Answer(std::uint64_t number, const Response& response) {
  if (closed_ || ended_) return;
  if (number != first_pending_) {
    auto stored = std::make_unique<StoredResponse>(response);
    stored_bytes_ += stored->size();
    pending_[number - first_pending_].response = std::move(stored);
    if (!handling_ && !share_.Hold(HeldBytes())) Close();
    return;
  }
  PutOut(response);
  while (!pending_.empty() && pending_.front().response) {
    const auto stored = std::move(pending_.front().response);
    stored_bytes_ -= stored->size();
    PutOut(stored->View());
  }
  if (!handling_) shard_->PumpSoon(this);
}

// Answers the first pending request.
void Connection::PutOut(const Response& response) {
  using enum Delivery::Persistence;
  const Pending& request = pending_.front();
  const bool close = !request.keep_alive || (shard_->draining() && IsLast());
  AppendResponse(out_, response,
                 {.head_only = request.head_only,
                  .persistence = close              ? kClose
                                 : request.http_1_0 ? kKeepAlive
                                                    : kDefault,
                  .common_headers = shard_->common_headers_});
  pending_.pop_front();
  ++first_pending_;
  if (close) {
    last_ = ended_ = true;
    pending_.clear();
    stored_bytes_ = 0;
  }
}

// While draining: whether the client has sent nothing else that needs an answer.
bool Connection::IsLast() {
  return pending_.size() == 1 && reader_.buffered() == 0 && !stream_.readable();
}
bool Connection::IsIdle() {
  return pending_.empty() && unsent() == 0 && reader_.buffered() == 0 && !stream_.readable();
}

void Connection::Read() {
  if (reading_ || end_of_file_) return;
  reading_ = true;
  const std::span<char> room = reader_.Prepare();
  stream_.async_read_some(asio::buffer(room.data(), room.size()),
                          [self = ConnectionPtr(this)](error_code error, std::size_t bytes) {
                            self->reading_ = false;
                            self->OnRead(error, bytes);
                          });
}

void Connection::OnRead(error_code error, std::size_t bytes) {
  if (closed_) return;
  if (error == asio::error::eof && !ending_) {
    // The client may still wait for its answers.
    end_of_file_ = true;
    Pump();
  } else if (error == asio::error::operation_aborted && !IsIdle()) {
    Read();
  } else if (error) {
    Close();
  } else if (last_) {
    if (ending_) Read();  // Discards it, too.
  } else {
    reader_.Commit(bytes);
    starved_ = false;
    Pump();
  }
}

void Connection::Flush() {
  if (writing_ || out_.empty() || closed_) return;
  const std::size_t sent = stream_.TryWrite(out_);
  if (sent == out_.size()) {
    Recycle(out_);
    return;
  }
  in_write_.swap(out_);
  written_ = sent;
  WriteRest();
}

void Connection::WriteRest() {
  writing_ = true;
  stream_.async_write_some(asio::buffer(std::string_view(in_write_).substr(written_)),
                           [self = ConnectionPtr(this)](error_code error, std::size_t bytes) {
                             self->writing_ = false;
                             self->OnWritten(error, bytes);
                           });
}

void Connection::OnWritten(error_code error, std::size_t bytes) {
  if (closed_) return;
  if (error) {
    Close();
    return;
  }
  progress_ = true;
  written_ += bytes;
  if (written_ < in_write_.size()) {
    WriteRest();
    UpdateDeadline();
    return;
  }
  Recycle(in_write_);
  written_ = 0;
  Pump();
}

// Does not close at once: with unread bytes of the client, that would reset the connection, and the
// client might never see the answer.
void Connection::End() {
  if (std::exchange(ending_, true)) return;
  if (end_of_file_) {
    Close();
    return;
  }
  stream_.async_shutdown([self = ConnectionPtr(this)](error_code error) {
    if (self->closed_) return;
    if (error || self->stream_.tls()) {
      self->Close();
    } else {
      self->Read();
    }
  });
}

Connection::Wait Connection::WaitsFor() const {
  if (ending_) return Wait::kEnd;
  if (writing_) return Wait::kWrite;
  if (!pending_.empty()) return Wait::kNothing;
  switch (reader_.phase()) {
    case RequestReader::Phase::kIdle:
      return Wait::kRequest;
    case RequestReader::Phase::kHead:
      return Wait::kHead;
    case RequestReader::Phase::kBody:
      return Wait::kBody;
  }
  return Wait::kNothing;
}

void Connection::UpdateDeadline() {
  const Wait waits_for = WaitsFor();
  if (waits_for == waits_for_ && !progress_) return;
  waits_for_ = waits_for;
  progress_ = false;
  const Limits& limits = shard_->limits();
  milliseconds timeout{};
  switch (waits_for) {
    case Wait::kNothing:
      deadline_ = Shard::TimePoint::max();
      return;
    case Wait::kRequest:
      timeout = limits.idle_timeout;
      break;
    case Wait::kHead:
      timeout = limits.head_timeout;
      break;
    case Wait::kBody:
      timeout = limits.body_timeout;
      break;
    case Wait::kWrite:
      timeout = limits.write_timeout;
      break;
    case Wait::kEnd:
      timeout = kEndTimeout;
      break;
  }
  // The shard's time is that of its last tick; never too early.
  deadline_ = shard_->now_ + shard_->tick_ + timeout;
}

Exchange::Exchange(Connection& connection, std::uint64_t number)
    : connection_(&connection), number_(number) {
  intrusive_ptr_add_ref(connection_);
}

void Exchange::RespondWithError() {
  const std::string body = ErrorBody("INTERNAL_ERROR", "the request was not answered");
  Respond({.status = 500, .content_type = kErrorType, .body = body});
}

void Exchange::Respond(const Response& response) {
  assert(connection_ != nullptr);
  std::exchange(connection_, nullptr)->Respond(number_, response);
}

}  // namespace sluice::http
