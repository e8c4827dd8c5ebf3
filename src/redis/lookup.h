// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>
#include <vector>

namespace sluice::redis {

// The addresses of a name. A system lookup can take arbitrarily long and cannot be cancelled. So
// each runs on a detached thread that owns nothing but the answer: the caller may leave at any
// time, and the process may end. There is one thread for a name, however many ask for it.
class Lookup {
 public:
  // Begins a lookup, or joins one of the same name that is under way. From any thread; does not
  // block.
  static std::shared_ptr<const Lookup> Of(const std::string& name);

  // Poll this: nobody is notified, because an event loop may be gone by then.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Once done: the addresses, in the order in which to try them, or why there are none.
  const std::vector<boost::asio::ip::address>& addresses() const { return addresses_; }
  const boost::system::error_code& error() const { return error_; }

 private:
  void Run(const std::string& name);

  std::vector<boost::asio::ip::address> addresses_;
  boost::system::error_code error_;
  std::atomic<bool> done_ = false;  // Written last.
};

}  // namespace sluice::redis
