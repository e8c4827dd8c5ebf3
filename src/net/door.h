// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include "net/listener.h"

namespace sluice::net {

// A listening server, as seen by whoever runs several of them. Destroying it closes every
// connection, whatever its state.
class Door {
 public:
  virtual ~Door() = default;
  Door() = default;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Accepts no more connections, and answers what has been received. Must not be called on a loop.
  virtual void StartDrain() = 0;
  // Starts to drain if it has not, and waits until all connections are closed. Closes the remaining
  // ones at the deadline, and returns how many there were.
  virtual std::size_t Drain(std::chrono::steady_clock::time_point deadline) = 0;

  // As Listener::ReloadCertificate.
  virtual Expected<bool> ReloadCertificate() = 0;

  virtual const ListenAddress& address() const = 0;  // With the actual port.
  virtual Listener::Counts connections() const = 0;
};

}  // namespace sluice::net
