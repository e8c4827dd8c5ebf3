// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>
#include <vector>

namespace sluice::redis {

// The addresses of a name. The system answers such a question when it likes, and cannot be asked to
// stop: each is put by a detached thread that owns nothing but the answer, so that whoever asked
// may leave at any time, and the process may end. There is one such thread for a name, however many
// ask for it.
class Lookup {
 public:
  // Begins one, or joins the one of the same name that has begun and not ended. From any thread;
  // does not block.
  static std::shared_ptr<const Lookup> Of(const std::string& name);

  // To be asked again and again: nobody is told, as an event loop may be gone by then.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Once it is done: the addresses, in the order in which to try them, or why there are none.
  const std::vector<boost::asio::ip::address>& addresses() const { return addresses_; }
  const boost::system::error_code& error() const { return error_; }

 private:
  void Run(const std::string& name);

  std::vector<boost::asio::ip::address> addresses_;
  boost::system::error_code error_;
  std::atomic<bool> done_ = false;  // Written last.
};

}  // namespace sluice::redis
