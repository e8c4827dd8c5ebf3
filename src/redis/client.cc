// SPDX-License-Identifier: Apache-2.0
#include "redis/client.h"

#include <utility>

#include "redis/listener.h"
#include "redis/loop_thread.h"
#include "redis/network.h"

namespace sluice::redis {

class Client::Impl {
 public:
  explicit Impl(Endpoint endpoint)
      : endpoint_(std::move(endpoint)),
        network_(std::make_shared<Network>(
            thread_.executor(), Network::Options{.endpoint = endpoint_, .on_routes = [this] {
                                                   listener_.LeaveFormerMaster();
                                                 }})) {
    thread_.Post([this] { network_->Start(); });
  }

  ~Impl() {
    thread_.Stop([this] {
      listener_.Stop();
      network_->Stop();
    });
  }

  void Send(std::string command, std::uint16_t slot, Connection::Handler handler) {
    thread_.Post(
        [this, command = std::move(command), slot, handler = std::move(handler)]() mutable {
          network_->Send(std::move(command), slot, std::move(handler));
        });
  }

  void SendToMasters(std::string command, MasterHandler handler) {
    thread_.Post([this, command = std::move(command), handler = std::move(handler)] {
      for (const Address& master : network_->Masters()) {
        network_->Send(command, master, [handler, master](auto reply) { handler(master, reply); });
      }
    });
  }

  void Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                 std::function<void()> on_subscribed) {
    thread_.Post([this, channel = std::move(channel), on_message = std::move(on_message),
                  on_subscribed = std::move(on_subscribed)]() mutable {
      listener_.Subscribe(std::move(channel), std::move(on_message), std::move(on_subscribed));
    });
  }

  const Endpoint& endpoint() const { return endpoint_; }

 private:
  const Endpoint endpoint_;
  LoopThread thread_;
  const std::shared_ptr<Network> network_;
  Listener listener_{*network_};  // On the loop.
};

Expected<std::unique_ptr<Client>> Client::Create(std::string_view uri) {
  auto endpoint = Endpoint::Parse(uri);
  if (!endpoint) return std::unexpected(endpoint.error());
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(*std::move(endpoint))));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

void Client::Send(std::string command, std::string_view key, Connection::Handler handler) {
  impl_->Send(std::move(command), SlotOf(key), std::move(handler));
}

void Client::SendToMasters(std::string command, MasterHandler handler) {
  impl_->SendToMasters(std::move(command), std::move(handler));
}

void Client::Subscribe(std::string channel, std::function<void(std::string_view)> on_message,
                       std::function<void()> on_subscribed) {
  impl_->Subscribe(std::move(channel), std::move(on_message), std::move(on_subscribed));
}

const std::string& Client::prefix() const { return impl_->endpoint().prefix; }
std::string Client::Description() const { return impl_->endpoint().ToString(); }

}  // namespace sluice::redis
