// SPDX-License-Identifier: Apache-2.0
// Where a Redis is and how to talk to it, from one line of text.
//
//   redis://[[user]:password@]host[:port][/database][?options]          standalone
//   rediss://...                                                        the same over TLS
//   redis://a:1,b:2,c:3                                                 Cluster
//   redis-sentinel://[[user]:password@]host:port,host:port/master-name[/database]
//   rediss-sentinel://...                                               the same over TLS
//   unix:///path/to/socket[?db=1]    or    redis+unix://[[user]:password@]/path/to/socket
//
// Every address of a list may be a URI of its own (redis://a:1,redis://b:2), as some tools write
// them. IPv6 addresses are in brackets. User, password, master name and paths are percent-decoded.
// Ports default to 6379, and to 26379 for Sentinels.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::redis {

enum class Mode { kStandalone, kSentinel, kCluster };

std::string_view ToString(Mode mode);  // "standalone" and so on.

struct Address {
  std::string host;  // Name or IP address without brackets; or the path of a socket.
  std::uint16_t port = 6379;
  bool unix_socket = false;

  std::string ToString() const;  // host:port, [v6]:port or unix:path
  friend bool operator==(const Address&, const Address&) = default;
};

struct Credentials {
  std::string user;  // Empty: the default user.
  std::string password;

  bool empty() const { return user.empty() && password.empty(); }
  friend bool operator==(const Credentials&, const Credentials&) = default;
};

struct Tls {
  bool enabled = false;
  bool verify = true;     // verify=no accepts any certificate.
  std::string ca_file;    // ca=; empty: the system's store.
  std::string cert_file;  // cert= and key=: the client's own certificate.
  std::string key_file;
  std::string server_name;  // sni=; empty: the host.

  friend bool operator==(const Tls&, const Tls&) = default;
};

// Whether it is a valid key prefix: 1 to 64 characters of A-Z a-z 0-9 . _ - and :
bool IsPrefix(std::string_view text);

struct Endpoint {
  static constexpr std::chrono::milliseconds kCommandTimeout{500};

  Mode mode = Mode::kStandalone;
  std::vector<Address> addresses;  // At least one: the server, the Sentinels, or cluster seeds.
  std::string master_name;         // Sentinel only.
  Credentials credentials;
  Credentials sentinel_credentials;  // sentinel_user= and sentinel_password=
  Tls tls;
  int database = 0;                                             // Also db=; a Cluster has only 0.
  std::chrono::milliseconds connect_timeout{1000};              // connect_timeout=500ms
  std::chrono::milliseconds command_timeout = kCommandTimeout;  // timeout=50ms
  std::string client_name = "sluice";                           // name=
  std::string prefix = "sluice";                                // prefix=, of state keys.
  std::size_t batch_max = 128;        // batch=, operations in one call of the script.
  std::size_t in_flight_max = 2;      // in_flight=, such calls to each master.
  std::size_t waiting_max = 65'536;   // waiting=, requests that wait for a call.
  bool announces = true;              // Not in a URI: false if nobody listens.
  std::vector<std::string> warnings;  // Worth a log line, such as unused addresses.

  // Options, in a query: those above, and mode=standalone|sentinel|cluster, which overrides what
  // the scheme and the number of addresses imply. Several addresses with mode=standalone use the
  // first, with a warning. Errors, all kInvalidInput, tell what is wrong and what was expected, and
  // never contain a password. An unknown option is an error that lists the known ones.
  // `command_timeout` is used if the URI has no timeout=.
  static Expected<Endpoint> Parse(std::string_view uri,
                                  std::chrono::milliseconds command_timeout = kCommandTimeout);

  // The URI with passwords replaced by ***; safe to print. Parse(ToString()) is equal except for
  // them and the warnings.
  std::string ToString() const;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace sluice::redis
