// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "zones/offsets.h"

namespace sluice::zones {

// A time zone by its IANA name. Limits refer to it, so it lives as long as its database; what its
// clocks show may change when the database is read again.
class Zone {
 public:
  // A zone's name as a number, the same on every machine: a hash of so many bits. It leaves room in
  // 53 bits for the rest of a calendar; see core/calendar.h.
  static constexpr int kKeyBits = 38;
  static std::uint64_t KeyOf(std::string_view name);

  Zone(std::string name, Offsets offsets);

  const std::string& name() const { return name_; }
  std::uint64_t key() const { return key_; }

  // Wait-free. Remains valid when the database is read again.
  const Offsets& offsets() const { return *current_.load(std::memory_order_acquire); }

  // Not from several threads at once.
  void Update(Offsets offsets);

 private:
  const std::string name_;
  const std::uint64_t key_;
  // Decisions may be looking at any of them. There is a new one only if the data has changed, which
  // happens a few times a year.
  std::vector<std::unique_ptr<const Offsets>> versions_;
  std::atomic<const Offsets*> current_;
};

// The time zones in a folder such as /usr/share/zoneinfo. A zone is read when somebody first asks
// for it; UTC is always there. Safe to use from any thread.
class Database {
 public:
  explicit Database(std::string folder) : folder_(std::move(folder)) {}
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // That of the operating system, or of the variable TZDIR. All limits of the process refer to it.
  static Database& System();

  // Error: kInvalidLimit, which names what comes close.
  Expected<const Zone*> Find(std::string_view name);

  // By Zone::key. Error: kInvalidLimit.
  Expected<const Zone*> FindKey(std::uint64_t key);

  // All that there are, in the order of the alphabet: as of the last time that it was read again.
  std::vector<std::string> Names();

  struct Reloaded {
    std::size_t changed = 0;
    std::vector<std::string> problems;  // Of zones that stay as they were.
  };

  // Reads the zones in use again.
  Reloaded Reload();

 private:
  Expected<const Zone*> FindLocked(std::string_view name);
  const std::vector<std::string>& NamesLocked();
  Error Unknown(std::string_view name);

  const std::string folder_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Zone>, std::less<>> zones_;  // Guarded by mutex_,
  std::vector<std::string> names_;  // as is this. Empty: not known.
};

}  // namespace sluice::zones
