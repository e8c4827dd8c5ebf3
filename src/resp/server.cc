// SPDX-License-Identifier: Apache-2.0
#include "resp/server.h"

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "net/stream.h"
#include "resp/session.h"
#include "resp/worker.h"

namespace sluice::resp {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Steady = std::chrono::steady_clock;

constexpr std::string_view kRefusal = "-ERR max number of clients reached\r\n";

constexpr std::size_t kInputBytesMin = 4 << 10;
constexpr std::size_t kInputBytesStep = 64 << 10;  // A buffer grows to this at once.
constexpr std::size_t kSpareOutputBytesMax = 4 << 10;

// All connections of a loop are checked in regular sweeps, so they need no timers of their own.
constexpr std::chrono::milliseconds kSweepPause{250};
// How long a peer has to close its side after we have closed ours.
constexpr std::chrono::milliseconds kLingerMax{2'000};

}  // namespace

// What all shards share.
struct Server::Shared {
  Shared(service::Engine& given_engine, Options given_options)
      : engine(given_engine), options(std::move(given_options)) {}

  // Whether it is admitted. One that is not gets an error, and takes nobody's place meanwhile.
  bool Opened() {
    const std::lock_guard lock(mutex);
    ++open;
    if (admitted == options.connections_max) return false;
    ++admitted;
    return true;
  }
  void Closed(bool was_admitted) {
    const std::lock_guard lock(mutex);
    if (was_admitted) --admitted;
    if (--open == 0) all_closed.notify_all();
  }
  void Refused() { refused.fetch_add(1, std::memory_order_relaxed); }

  service::Engine& engine;
  const Options options;
  const Steady::time_point start = Steady::now();
  std::atomic<std::int64_t> next_id = 1;
  std::atomic<std::uint64_t> timeouts = 0;
  std::atomic<std::uint64_t> refused = 0;                // With an error; see kRefusalsMax.
  std::atomic<const net::Listener*> listener = nullptr;  // Null until there is one.

  std::mutex mutex;
  std::condition_variable all_closed;
  std::size_t open = 0;      // Guarded by the mutex.
  std::size_t admitted = 0;  // Of those; guarded by the mutex.
};

// The part of the server that lives on one loop.
class Server::Shard : public std::enable_shared_from_this<Shard> {
 public:
  Shard(asio::io_context& context, std::shared_ptr<Shared> shared, Worker::GetInfo info)
      : worker(shared->engine, shared->options.session, std::move(info)),
        shared_(std::move(shared)),
        sweep_(context) {}

  void Start() {
    sweep_.expires_after(kSweepPause);
    sweep_.async_wait([weak = weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || !self) return;
      self->Sweep();
      self->Start();
    });
  }

  void Take(net::Stream stream);
  void Sweep();
  void StartDrain();
  std::size_t CloseAll();
  // Sends its replies when everything that has arrived so far is answered. With many connections,
  // peers then find several replies when they wake up, and wake up less often.
  void SendSoon(std::shared_ptr<Connection> connection);

  Shared& shared() { return *shared_; }
  bool draining() const { return draining_; }

  // How often Sweep has run: precise enough for idleness, without a clock read per command.
  std::uint64_t now() const { return now_; }

  Worker worker;
  std::string out;  // Replies to be sent, of one connection at a time.
  std::list<std::shared_ptr<Connection>> connections;

 private:
  const std::shared_ptr<Shared> shared_;
  asio::steady_timer sweep_;
  std::vector<std::shared_ptr<Connection>> to_send_;
  std::uint64_t now_ = 0;
  bool draining_ = false;
  bool closed_ = false;
};

// Reads, lets the session answer, writes, and reads again. Nothing is read while the store decides
// or while the peer has not read its replies: what it sends meanwhile fills its socket, and then it
// has to wait.
class Server::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shard> shard, net::Stream stream)
      : shard_(std::move(shard)),
        share_(*shard_->shared().options.buffered),
        stream_(std::move(stream)),
        session_(shard_->worker,
                 {.id = shard_->shared().next_id.fetch_add(1, std::memory_order_relaxed),
                  .address = stream_.peer().to_string(),
                  .certified = stream_.certified()},
                 [this] { OnReady(); }),
        active_at_(shard_->now()),
        admitted_(shard_->shared().Opened()) {}
  ~Connection() { shard_->shared().Closed(admitted_); }

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool admitted() const { return admitted_; }
  void set_place(std::list<std::shared_ptr<Connection>>::iterator place) { place_ = place; }

  void Read() {
    state_ = State::kReading;
    Reserve();
    if (!share_.Hold(capacity_)) return Close();
    const auto room = asio::buffer(input_.get() + filled_, capacity_ - filled_);
    stream_.async_read_some(room, [self = shared_from_this()](error_code error, std::size_t size) {
      self->OnRead(error, size);
    });
  }

  void Refuse() {
    progress_ = {.next = Session::Next::kClose, .consumed = 0};
    Write(kRefusal);
  }

  // Removes the connection from the shard. Pending operations keep it alive.
  void Close() {
    if (state_ == State::kClosed) return;
    state_ = State::kClosed;
    stream_.Close();
    const auto self = shared_from_this();
    shard_->connections.erase(place_);
  }

  void CloseIfIdle(std::uint64_t sweeps_max) {
    if (state_ == State::kAnswering || shard_->now() - active_at_ <= sweeps_max) return;
    Add(shard_->shared().timeouts);
    Close();
  }
  void CloseIfSlow(std::uint64_t request_sweeps_max, std::uint64_t write_sweeps_max) {
    const std::uint64_t now = shard_->now();
    const bool requests = state_ == State::kReading && filled_ > begin_;
    if ((requests && now - request_since_ > request_sweeps_max) ||
        (state_ == State::kWriting && now - active_at_ > write_sweeps_max)) {
      Add(shard_->shared().timeouts);
      Close();
    }
  }
  void CloseIfLingering(std::uint64_t sweeps_max) {
    if (state_ == State::kLingering && shard_->now() - active_at_ > sweeps_max) Close();
  }

  void Send() {
    if (state_ == State::kClosed) return;
    const std::size_t written = stream_.TryWrite(unwritten_);
    if (written == unwritten_.size()) return OnWritten();
    if (!share_.Hold(capacity_ + unwritten_.capacity())) return Close();
    asio::async_write(stream_, asio::buffer(unwritten_) + written,
                      [self = shared_from_this()](error_code error, std::size_t) {
                        if (self->state_ == State::kClosed) return;
                        if (error) return self->Close();
                        self->active_at_ = self->shard_->now();
                        self->OnWritten();
                      });
  }

  // What has been received will be answered; what has not been sent never will be.
  void StartDrain() {
    // OnRead decides: a read may have completed without having been reported.
    if (state_ == State::kReading) stream_.Cancel();
  }

 private:
  enum class State : std::uint8_t {
    kReading,
    kAnswering,  // The session or the store is busy.
    kWriting,    // Replies are about to be sent, or the peer has to read them first.
    kLingering,  // We have closed our side.
    kClosed,
  };

  static void Add(std::atomic<std::uint64_t>& counter) {
    counter.fetch_add(1, std::memory_order_relaxed);
  }

  void OnRead(error_code error, std::size_t size) {
    if (state_ == State::kClosed) return;
    if (error == asio::error::operation_aborted) return Continue();
    if (error) return Close();
    active_at_ = state_ == State::kLingering ? active_at_ : shard_->now();
    if (state_ == State::kLingering) return Discard();
    if (filled_ == begin_) request_since_ = shard_->now();
    filled_ += size;
    if (filled_ == capacity_ && capacity_ < kInputBytesStep) {
      // What came together is answered together, even if it exceeds the initial buffer.
      Reserve();
      filled_ += stream_.TryRead({input_.get() + filled_, capacity_ - filled_});
    }
    Process();
  }

  void Process() {
    state_ = State::kAnswering;
    std::string& out = shard_->out;
    out.clear();
    const auto progress = session_.Consume({input_.get() + begin_, filled_ - begin_}, out);
    Handle(progress, out);
  }

  void Handle(const Session::Progress& progress, std::string_view out) {
    progress_ = progress;
    if (progress.next == Session::Next::kWait) {
      waiting_ = shared_from_this();
      return;
    }
    if (progress.consumed > 0) request_since_ = shard_->now();
    begin_ += progress.consumed;
    Write(out);
  }

  void OnReady() {
    const auto self = std::exchange(waiting_, nullptr);
    if (state_ == State::kClosed) return;  // Drops what it still had to ask.
    std::string& out = shard_->out;
    out.clear();
    const auto progress = session_.Resume(out);
    Handle(progress, out);
  }

  void Write(std::string_view out) {
    if (out.empty()) return Continue();
    state_ = State::kWriting;
    active_at_ = shard_->now();
    unwritten_ = out;
    shard_->SendSoon(shared_from_this());
  }

  void OnWritten() {
    unwritten_.clear();
    if (unwritten_.capacity() > kSpareOutputBytesMax) unwritten_.shrink_to_fit();
    Continue();
  }

  void Continue() {
    if (progress_.next == Session::Next::kAgain) {
      // Gives others their turn, too.
      state_ = State::kAnswering;
      asio::post(stream_.get_executor(), [self = shared_from_this()] {
        if (self->state_ != State::kClosed) self->Process();
      });
      return;
    }
    if (progress_.next == Session::Next::kClose) return Finish();
    if (shard_->draining() && !stream_.readable()) return Finish();
    Read();
  }

  // Closing at once could lose replies that the peer has not read: see Stream::async_shutdown.
  void Finish() {
    state_ = State::kLingering;
    active_at_ = shard_->now();
    stream_.async_shutdown([self = shared_from_this()](error_code error) {
      if (self->state_ == State::kClosed) return;
      if (error || self->stream_.tls()) return self->Close();
      self->Discard();
    });
  }

  void Discard() {
    begin_ = filled_ = 0;
    Reserve();
    stream_.async_read_some(asio::buffer(input_.get(), capacity_),
                            [self = shared_from_this()](error_code error, std::size_t size) {
                              self->OnRead(error, size);
                            });
  }

  // Makes room for the next read, with the rest of the last one at the front.
  void Reserve() {
    const std::size_t left = filled_ - begin_;
    std::size_t wanted = left < capacity_ ? capacity_ : GrownCapacity();
    if (left < kInputBytesMin && capacity_ > SpareInputBytesMax()) wanted = kInputBytesMin;
    if (wanted != capacity_) {
      auto larger = std::make_unique_for_overwrite<char[]>(wanted);
      if (left > 0) std::memcpy(larger.get(), input_.get() + begin_, left);
      input_ = std::move(larger);
      capacity_ = wanted;
    } else if (left > 0 && begin_ > 0) {
      std::memmove(input_.get(), input_.get() + begin_, left);
    }
    begin_ = 0;
    filled_ = left;
  }

  // What a pipelining connection keeps between rounds.
  std::size_t SpareInputBytesMax() const {
    return capacity_ > kInputBytesMin && shard_->shared().options.buffered->IsScarce()
               ? kInputBytesMin
               : kInputBytesStep;
  }

  std::size_t GrownCapacity() const {
    if (capacity_ < kInputBytesMin) return kInputBytesMin;
    return capacity_ < kInputBytesStep ? kInputBytesStep : 2 * capacity_;
  }

  const std::shared_ptr<Shard> shard_;
  net::ByteBudget::Share share_;
  net::Stream stream_;
  Session session_;
  std::list<std::shared_ptr<Connection>>::iterator place_;
  State state_ = State::kAnswering;
  Session::Progress progress_ = {.next = Session::Next::kRead, .consumed = 0};
  std::uint64_t active_at_;              // In sweeps.
  std::uint64_t request_since_ = 0;      // When the current partial command began; in sweeps.
  std::shared_ptr<Connection> waiting_;  // Ourselves, while the store uses the session.

  // [begin_, filled_) is not consumed. The parser refuses a request before more than its bounds
  // would have to be held.
  std::unique_ptr<char[]> input_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t filled_ = 0;
  std::string unwritten_;  // Replies.

  const bool admitted_;  // Last, because it counts from here on.
};

void Server::Shard::SendSoon(std::shared_ptr<Connection> connection) {
  to_send_.push_back(std::move(connection));
  if (to_send_.size() > 1) return;
  asio::post(sweep_.get_executor(), [self = shared_from_this()] {
    for (const auto& each : std::exchange(self->to_send_, {})) each->Send();
  });
}

void Server::Shard::Take(net::Stream stream) {
  if (closed_) return;  // Its handshake was too late.
  const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(stream));
  connections.push_front(connection);
  connection->set_place(connections.begin());
  if (connection->admitted()) {
    connection->Read();
    if (draining_) connection->StartDrain();
  } else {
    shared_->Refused();
    connection->Refuse();
  }
}

void Server::Shard::Sweep() {
  ++now_;
  const Options& options = shared_->options;
  const auto idle_max = static_cast<std::uint64_t>(options.idle_timeout / kSweepPause);
  const auto request_max = static_cast<std::uint64_t>(options.request_timeout / kSweepPause);
  const auto write_max = static_cast<std::uint64_t>(options.write_timeout / kSweepPause);
  for (auto next = connections.begin(); next != connections.end();) {
    const std::shared_ptr<Connection> connection = *next++;
    connection->CloseIfLingering(kLingerMax / kSweepPause);
    connection->CloseIfSlow(request_max, write_max);
    if (idle_max > 0) connection->CloseIfIdle(idle_max);
  }
}

void Server::Shard::StartDrain() {
  draining_ = true;
  for (auto next = connections.begin(); next != connections.end();) {
    const std::shared_ptr<Connection> connection = *next++;
    connection->StartDrain();
  }
}

std::size_t Server::Shard::CloseAll() {
  const std::size_t count = connections.size();
  while (!connections.empty()) {
    const std::shared_ptr<Connection> connection = connections.front();
    connection->Close();
  }
  to_send_.clear();
  sweep_.cancel();
  closed_ = true;
  return count;
}

Expected<std::unique_ptr<Server>> Server::Start(net::Loops& loops, service::Engine& engine,
                                                Options options) {
  const Bounds& bounds = options.session.bounds;
  for (const std::size_t bound :
       {bounds.arguments_max, bounds.bulk_bytes_max, bounds.inline_bytes_max,
        bounds.request_bytes_max, bounds.pipeline_max, bounds.output_bytes_max,
        options.connections_max}) {
    if (bound == 0) {
      return std::unexpected(
          Error{ErrorCode::kInvalidInput, "a bound of the RESP door is 0; expected 1 or more"});
    }
  }
  const auto shared = std::make_shared<Shared>(engine, std::move(options));
  std::unique_ptr<Server> server(new Server(loops, shared));
  net::Listener::Options listening{
      .address = shared->options.address,
      .tls = shared->options.tls,
      .connections_max = shared->options.connections_max + kRefusalsMax};
  auto listener =
      net::Listener::Start(loops, std::move(listening),
                           [shards = server->shards_](std::size_t loop, net::Stream stream) {
                             shards[loop]->Take(std::move(stream));
                           });
  if (!listener) return std::unexpected(std::move(listener.error()));
  server->listener_ = std::move(*listener);
  shared->listener.store(server->listener_.get(), std::memory_order_release);
  return server;
}

Server::Server(net::Loops& loops, std::shared_ptr<Shared> shared)
    : loops_(loops), shared_(std::move(shared)) {
  for (std::size_t i = 0; i < loops.size(); ++i) {
    shards_.push_back(
        std::make_shared<Shard>(loops.context(i), shared_, [this] { return Info(); }));
    asio::post(loops.context(i), [shard = shards_.back()] { shard->Start(); });
  }
}

Server::~Server() {
  if (listener_) listener_->StopAccepting();
  loops_.RunOnAll([this](std::size_t loop) { shards_[loop]->CloseAll(); });
}

void Server::StartDrain() {
  listener_->StopAccepting();
  loops_.RunOnAll([this](std::size_t loop) { shards_[loop]->StartDrain(); });
}

std::size_t Server::Drain(Steady::time_point deadline) {
  StartDrain();
  {
    std::unique_lock lock(shared_->mutex);
    shared_->all_closed.wait_until(lock, deadline, [this] { return shared_->open == 0; });
  }
  std::atomic<std::size_t> closed = 0;
  loops_.RunOnAll([&](std::size_t loop) { closed += shards_[loop]->CloseAll(); });
  return closed;
}

const net::ListenAddress& Server::address() const { return listener_->address(); }

Server::Counts Server::counts() const {
  Counts counts;
  // Read before the listener's counts, which include each of them.
  const std::uint64_t refused = shared_->refused.load(std::memory_order_relaxed);
  if (const net::Listener* listener = shared_->listener.load(std::memory_order_acquire)) {
    counts.connections = listener->counts();
    counts.connections.accepted -= refused;
    counts.connections.refused += refused;
  }
  for (const auto& shard : shards_) {
    counts.commands += shard->worker.commands.value();
    counts.protocol_errors += shard->worker.protocol_errors.value();
  }
  counts.timeouts = shared_->timeouts.load(std::memory_order_relaxed);
  return counts;
}

ServerInfo Server::Info() const {
  const net::Listener* const listener = shared_->listener.load(std::memory_order_acquire);
  const Counts counts = this->counts();
  const auto uptime = Steady::now() - shared_->start;
  return {.port = listener ? listener->port() : std::uint16_t{0},
          .uptime = std::chrono::duration_cast<std::chrono::seconds>(uptime),
          .connections_max = shared_->options.connections_max,
          .connections = counts.connections.open,
          .connections_accepted = counts.connections.accepted,
          .connections_refused = counts.connections.refused,
          .commands = counts.commands,
          .protocol_errors = counts.protocol_errors};
}

}  // namespace sluice::resp
