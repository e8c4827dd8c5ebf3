// SPDX-License-Identifier: Apache-2.0
#include "redis/uri.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/duration.h"
#include "base/percent.h"
#include "base/text.h"

namespace sluice::redis {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kUriSizeMax = 4096;
constexpr std::size_t kAddressesMax = 64;
constexpr std::size_t kHostSizeMax = 253;
constexpr std::size_t kNameSizeMax = 64;  // Of clients, and of prefixes.
constexpr std::size_t kSocketPathSizeMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr std::chrono::hours kTimeoutMax{1};
constexpr std::size_t kBatchMax = 1'024;
constexpr std::size_t kInFlightMax = 64;
constexpr std::size_t kWaitingMax = 1'048'576;
constexpr std::uint16_t kRedisPort = 6379;
constexpr std::uint16_t kSentinelPort = 26379;
constexpr std::string_view kMasked = "***";
constexpr std::string_view kExample = "expected a URI such as redis://localhost:6379";

struct Scheme {
  std::string_view name;
  bool tls = false;
  bool sentinel = false;
  bool unix_socket = false;
};

constexpr std::array kSchemes = {Scheme{.name = "redis"},
                                 Scheme{.name = "rediss", .tls = true},
                                 Scheme{.name = "redis-sentinel", .sentinel = true},
                                 Scheme{.name = "rediss-sentinel", .tls = true, .sentinel = true},
                                 Scheme{.name = "unix", .unix_socket = true},
                                 Scheme{.name = "redis+unix", .unix_socket = true}};

constexpr bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool IsWord(std::string_view text, std::string_view also, std::size_t size_max) {
  return !text.empty() && text.size() <= size_max && std::ranges::all_of(text, [&](char c) {
    return IsAlphanumeric(c) || also.find(c) != std::string_view::npos;
  });
}

bool IsSchemeName(std::string_view text) { return IsWord(text, "+-.", kNameSizeMax); }
bool IsHostName(std::string_view text) { return IsWord(text, "-._", kHostSizeMax); }
bool IsClientName(std::string_view text) {
  return text.size() <= kNameSizeMax &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}
bool IsIpv6(std::string_view text) {
  in6_addr address;
  return IsWord(text, ":.", INET6_ADDRSTRLEN) &&
         ::inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

std::optional<int> ParseDatabase(std::string_view text) {
  const auto number = text::ParseNumber<std::uint32_t>(text);
  if (!number || *number > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*number);
}

// Rounded up, so that no timeout becomes zero.
std::optional<milliseconds> ParseTimeout(std::string_view text) {
  const auto duration = text::ParseDuration(text);
  if (!duration || *duration == microseconds{0} || *duration > kTimeoutMax) return std::nullopt;
  return std::chrono::ceil<milliseconds>(*duration);
}

std::optional<std::string> Decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const auto byte = text::DecodePercent(text.substr(i));
      if (!byte) return std::nullopt;
      c = *byte;
      i += 2;
    }
    // Would end a path or a name early for code that takes it as a C string.
    if (c == '\0') return std::nullopt;
    decoded += c;
  }
  return decoded;
}

std::string Encode(std::string_view text, std::string_view keep = {}) {
  std::string encoded;
  text::AppendPercentEncoded(encoded, text, [&](char c) {
    return text::IsUnreserved(c) || keep.find(c) != std::string_view::npos;
  });
  return encoded;
}

template <typename Range, typename Name>
std::string Join(const Range& range, Name name) {
  std::string joined;
  for (const auto& element : range) {
    if (!joined.empty()) joined += ", ";
    joined += name(element);
  }
  return joined;
}

// What the options say, before it is combined with the rest of the URI.
struct Draft {
  Endpoint endpoint;
  std::optional<Mode> mode;
  std::optional<int> database;
};

template <typename T>
bool Assign(T& field, const std::type_identity_t<std::optional<T>>& value) {
  if (value) field = *value;
  return value.has_value();
}

using Value = const std::string&;

bool SetMode(Draft& to, Value value) {
  for (const Mode mode : {Mode::kStandalone, Mode::kSentinel, Mode::kCluster}) {
    if (value == ToString(mode)) to.mode = mode;
  }
  return to.mode.has_value();
}

bool SetDatabase(Draft& to, Value value) {
  to.database = ParseDatabase(value);
  return to.database.has_value();
}

bool SetVerify(Draft& to, Value value) {
  to.endpoint.tls.verify = value != "no";
  return value == "yes" || value == "no";
}

std::optional<std::size_t> ParseCount(std::string_view text, std::size_t max) {
  const auto count = text::ParseNumber<std::size_t>(text);
  return count && *count >= 1 && *count <= max ? count : std::nullopt;
}

struct Option {
  std::string_view name;
  bool (*set)(Draft& to, Value value);  // Whether the value is valid.
  std::string_view expected = {};       // Empty: any text is valid.
};

constexpr std::string_view kExpectedDatabase = "expected a number from 0 to 2147483647";
constexpr std::string_view kExpectedTimeout =
    "expected a duration such as 50ms, above 0 and up to an hour";

constexpr std::array kOptions = {
    Option{"mode", SetMode, "expected standalone, sentinel or cluster"},
    Option{"db", SetDatabase, kExpectedDatabase},
    Option{"timeout",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.command_timeout, ParseTimeout(value));
           },
           kExpectedTimeout},
    Option{"connect_timeout",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.connect_timeout, ParseTimeout(value));
           },
           kExpectedTimeout},
    Option{"name",
           [](Draft& to, Value value) {
             return IsClientName(value) && Assign(to.endpoint.client_name, value);
           },
           "expected at most 64 printable ASCII characters without blanks"},
    Option{
        "prefix",
        [](Draft& to, Value value) { return IsPrefix(value) && Assign(to.endpoint.prefix, value); },
        "expected 1 to 64 characters of A-Z a-z 0-9 . _ - and :"},
    Option{"batch",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.batch_max, ParseCount(value, kBatchMax));
           },
           "expected a number from 1 to 1024"},
    Option{"in_flight",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.in_flight_max, ParseCount(value, kInFlightMax));
           },
           "expected a number from 1 to 64"},
    Option{"waiting",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.waiting_max, ParseCount(value, kWaitingMax));
           },
           "expected a number from 1 to 1048576"},
    Option{"verify", SetVerify, "expected yes or no"},
    Option{"ca", [](Draft& to, Value value) { return Assign(to.endpoint.tls.ca_file, value); }},
    Option{"cert", [](Draft& to, Value value) { return Assign(to.endpoint.tls.cert_file, value); }},
    Option{"key", [](Draft& to, Value value) { return Assign(to.endpoint.tls.key_file, value); }},
    Option{"sni",
           [](Draft& to, Value value) {
             return IsHostName(value) && Assign(to.endpoint.tls.server_name, value);
           },
           "expected a host name"},
    Option{"sentinel_user",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.sentinel_credentials.user, value);
           }},
    Option{"sentinel_password",
           [](Draft& to, Value value) {
             return Assign(to.endpoint.sentinel_credentials.password, value);
           }},
};

// Reads one URI. Every step returns whether it succeeded, and leaves a message if not.
//
// Messages must never reveal a password, not even when it is written in a way that makes it look
// like something else: redis://:a/b@host has the authority ":a", user:a,b@host starts with the
// address user:a, and sentinel_password=a&b ends in an option "b". So nothing before the last '@'
// or after the first "password=" is quoted, and no port at all, since the password of
// redis://user:password looks like one.
class Reader {
 public:
  Reader(std::string_view uri, milliseconds command_timeout) : uri_(uri) {
    endpoint().command_timeout = command_timeout;
    constexpr std::string_view kPassword = "password=";
    shown_begin_ = uri.rfind('@') + 1;  // Or zero: npos is -1.
    while (shown_end_ < uri.size() &&
           !text::EqualsIgnoreCase(uri.substr(shown_end_, kPassword.size()), kPassword)) {
      ++shown_end_;
    }
    shown_end_ = std::min(shown_end_ + kPassword.size() - 1, uri.size());  // The name may be shown.
  }

  Expected<Endpoint> Read() {
    if (!ReadUris() || !SettleMode() || !ReadPath() || !CheckOptions()) {
      return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(error_)});
    }
    return std::move(endpoint());
  }

 private:
  Endpoint& endpoint() { return draft_.endpoint; }

  bool Fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  // For a piece of uri_.
  std::string Show(std::string_view piece) const {
    const auto begin = static_cast<std::size_t>(piece.data() - uri_.data());
    const bool shown = begin >= shown_begin_ && begin + piece.size() <= shown_end_;
    return shown ? text::Quote(piece) : "(not shown)";
  }

  // A list of URIs is one URI after another, and each of them may hold a list of addresses.
  bool ReadUris() {
    if (uri_.empty()) return Fail(text::Cat("the URI is empty; ", kExample));
    if (uri_.size() > kUriSizeMax) {
      return Fail(text::Cat("the URI has ", uri_.size(), " bytes; expected at most ", kUriSizeMax));
    }
    const std::string_view name = uri_.substr(0, uri_.find("://"));
    if (name.size() == uri_.size() || !IsSchemeName(name)) {
      return Fail(text::Cat("the URI has no scheme; ", kExample));
    }
    scheme_ = std::ranges::find_if(
        kSchemes, [&](const Scheme& known) { return text::EqualsIgnoreCase(known.name, name); });
    if (scheme_ == kSchemes.end()) {
      return Fail(text::Cat("unknown scheme ", text::Quote(name), "; expected one of ",
                            Join(kSchemes, [](const Scheme& known) { return known.name; })));
    }
    endpoint().tls.enabled = scheme_->tls;

    std::string_view rest = uri_.substr(name.size() + 3);
    while (true) {
      const std::size_t end = EndOfUri(rest);
      if (!ReadUri(rest.substr(0, end))) return false;
      if (end == rest.size()) return true;
      rest.remove_prefix(end + 1);
      const std::string_view again = rest.substr(0, rest.find("://"));
      if (!text::EqualsIgnoreCase(again, scheme_->name)) {
        return Fail(text::Cat("scheme ", Show(again), " in a list that starts with ", scheme_->name,
                              "; expected the same one for every address"));
      }
      rest.remove_prefix(again.size() + 3);
    }
  }

  // Where a comma and another scheme follow.
  static std::size_t EndOfUri(std::string_view text) {
    for (std::size_t at = text.find("://"); at != std::string_view::npos;
         at = text.find("://", at + 1)) {
      const std::size_t comma = text.rfind(',', at);
      if (comma != std::string_view::npos && IsSchemeName(text.substr(comma + 1, at - comma - 1))) {
        return comma;
      }
    }
    return text.size();
  }

  // One URI without its scheme.
  bool ReadUri(std::string_view text) {
    const std::string_view authority = text.substr(0, text.find_first_of("/?"));
    const std::string_view rest = text.substr(authority.size());
    const std::string_view path = rest.substr(0, rest.find('?'));
    const bool plain_socket = scheme_->unix_socket && authority.empty();
    if (!plain_socket && rest.find('@') != std::string_view::npos) {
      return Fail(
          "'@' in the path or the options; expected %40, and in a password %2F for '/' and %3F "
          "for '?'");
    }
    if (!(scheme_->unix_socket ? ReadSocket(authority, path) : ReadAuthority(authority, path))) {
      return false;
    }
    return path.size() == rest.size() || ReadOptions(rest.substr(path.size() + 1));
  }

  bool ReadSocket(std::string_view authority, std::string_view path) {
    if (!authority.empty() && !authority.ends_with('@')) {
      return Fail("the path of the socket is not absolute; expected unix:///path/to/socket");
    }
    const auto decoded = Decode(path);
    if (!decoded || decoded->size() < 2 || decoded->size() > kSocketPathSizeMax) {
      return Fail(text::Cat("socket ", Show(path), ": expected unix:///path/to/socket of at most ",
                            kSocketPathSizeMax, " bytes, percent-encoded"));
    }
    endpoint().addresses.push_back({.host = *decoded, .unix_socket = true});
    return authority.empty() || ReadCredentials(authority.substr(0, authority.size() - 1));
  }

  bool ReadAuthority(std::string_view authority, std::string_view path) {
    if (path.size() > 1) {
      if (!path_.empty() && path != path_) {
        return Fail("the addresses name different paths; expected the same one or none");
      }
      path_ = path;
    }
    while (true) {
      const std::string_view one = authority.substr(0, authority.find(','));
      const std::size_t at = one.rfind('@');
      const bool credentials = at != std::string_view::npos;
      if (credentials && !ReadCredentials(one.substr(0, at))) return false;
      if (!ReadAddress(credentials ? one.substr(at + 1) : one)) return false;
      if (one.size() == authority.size()) return true;
      authority.remove_prefix(one.size() + 1);
    }
  }

  bool ReadCredentials(std::string_view text) {
    const std::string_view raw_user = text.substr(0, text.find(':'));
    const auto user = Decode(raw_user);
    const auto password = Decode(text.substr(std::min(raw_user.size() + 1, text.size())));
    if (!user || !password) {
      return Fail("bad percent-encoding in the user or the password; expected '%' as %25");
    }
    const Credentials credentials{*user, *password};
    if (credentials.empty()) return true;
    if (!endpoint().credentials.empty() && endpoint().credentials != credentials) {
      return Fail("the addresses have different users or passwords; expected the same, or one");
    }
    endpoint().credentials = credentials;
    return true;
  }

  bool ReadAddress(std::string_view text) {
    std::vector<Address>& addresses = endpoint().addresses;
    if (addresses.size() == kAddressesMax) {
      return Fail(text::Cat("more than ", kAddressesMax, " addresses"));
    }
    const bool bracket = text.starts_with('[');
    // Empty if a bracket is left open, since npos + 1 is zero.
    std::string_view host = text.substr(0, bracket ? text.find(']') + 1 : text.find(':'));
    const std::string_view rest = text.substr(host.size());
    if (host.empty()) {
      return Fail(text::Cat("address ", addresses.size() + 1,
                            " has no host; expected host:port or [IPv6 address]:port, and %2C for "
                            "',' in a password"));
    }
    if (bracket) host = host.substr(1, host.size() - 2);
    if (!(bracket ? IsIpv6(host) : IsHostName(host))) {
      return Fail(text::Cat("host ", Show(host), ": expected ",
                            bracket ? "an IPv6 address" : "letters, digits and . - _"));
    }
    std::uint16_t port = 0;  // Zero: the default, which depends on the mode.
    if (!rest.empty()) {
      port = text::ParseNumber<std::uint16_t>(rest.substr(1)).value_or(0);
      if (!rest.starts_with(':') || port == 0) {
        return Fail(
            text::Cat("the port of host ", Show(host),
                      ": expected a number from 1 to 65535, and brackets around an IPv6 address"));
      }
    }
    addresses.push_back({.host = std::string(host), .port = port});
    return true;
  }

  bool ReadOptions(std::string_view query) {
    while (!query.empty()) {
      const std::string_view pair = query.substr(0, query.find('&'));
      if (!ReadOption(pair)) return false;
      query.remove_prefix(std::min(pair.size() + 1, query.size()));
    }
    return true;
  }

  bool ReadOption(std::string_view pair) {
    const std::string_view name = pair.substr(0, pair.find('='));
    const auto option = std::ranges::find(kOptions, name, &Option::name);
    if (option == kOptions.end()) {
      return Fail(text::Cat("unknown option ", Show(name), "; expected one of ",
                            Join(kOptions, [](const Option& known) { return known.name; })));
    }
    if (name.size() == pair.size()) return Fail(text::Cat(option->name, ": expected a value"));
    bool& given = given_[static_cast<std::size_t>(option - kOptions.begin())];
    if (std::exchange(given, true)) return Fail(text::Cat(option->name, " is given twice"));

    const std::string_view raw = pair.substr(name.size() + 1);
    const auto value = Decode(raw);
    if (!value) {
      return Fail(
          text::Cat(option->name, "=", Show(raw), ": bad percent-encoding; expected '%' as %25"));
    }
    if (!option->set(draft_, *value)) {
      return Fail(text::Cat(option->name, "=", Show(raw), ": ", option->expected));
    }
    return true;
  }

  bool SettleMode() {
    std::vector<Address>& addresses = endpoint().addresses;
    const Mode unless_named = scheme_->sentinel      ? Mode::kSentinel
                              : addresses.size() > 1 ? Mode::kCluster
                                                     : Mode::kStandalone;
    const Mode mode = draft_.mode.value_or(unless_named);
    endpoint().mode = mode;
    if (scheme_->unix_socket) {
      if (mode == Mode::kStandalone && addresses.size() == 1) return true;
      return Fail(text::Cat("a socket with mode ", ToString(mode), " and ", addresses.size(),
                            " addresses; expected one socket, standalone"));
    }
    for (Address& address : addresses) {
      if (address.port == 0) address.port = mode == Mode::kSentinel ? kSentinelPort : kRedisPort;
    }
    if (mode == Mode::kStandalone && addresses.size() > 1) {
      Warn(text::Cat("mode=standalone uses only the first of ", addresses.size(), " addresses, ",
                     addresses.front().ToString()));
      addresses.resize(1);
    }
    return true;
  }

  // What a path means depends on the mode, and that on options and addresses.
  bool ReadPath() {
    std::string_view path = path_.empty() ? path_ : path_.substr(1);
    if (endpoint().mode == Mode::kSentinel) {
      const std::string_view raw = path.substr(0, path.find('/'));
      const auto name = Decode(raw);
      if (!name) return Fail(text::Cat("master name ", Show(raw), ": bad percent-encoding"));
      if (name->empty()) {
        return Fail("no master name; expected redis-sentinel://host:port/master-name");
      }
      endpoint().master_name = *name;
      path.remove_prefix(std::min(raw.size() + 1, path.size()));
    }
    if (!path.empty()) {
      const auto database = ParseDatabase(path);
      if (!database) return Fail(text::Cat("database ", Show(path), ": ", kExpectedDatabase));
      if (draft_.database.value_or(*database) != *database) {
        return Fail("the path and db= name different databases; expected one of them");
      }
      draft_.database = database;
    }
    endpoint().database = draft_.database.value_or(0);
    return true;
  }

  // An option without effect is an error: whoever wrote ca= expects TLS.
  bool CheckOptions() {
    const Tls& tls = endpoint().tls;
    // The caller's timeout; one in the URI was already checked.
    if (endpoint().command_timeout <= milliseconds{0} || endpoint().command_timeout > kTimeoutMax) {
      return Fail(text::Cat("a timeout of ", endpoint().command_timeout.count(),
                            " ms; expected one above 0 and up to an hour"));
    }
    if (endpoint().mode == Mode::kCluster && endpoint().database != 0) {
      return Fail("a Cluster has only database 0; expected no other");
    }
    if (!tls.enabled && tls != Tls{}) {
      return Fail("verify, ca, cert, key and sni need TLS; expected a scheme such as rediss://");
    }
    if (tls.cert_file.empty() != tls.key_file.empty()) {
      return Fail("only one of cert and key is given; expected both or none");
    }
    if (endpoint().mode != Mode::kSentinel && !endpoint().sentinel_credentials.empty()) {
      return Fail("sentinel_user and sentinel_password need redis-sentinel:// or mode=sentinel");
    }
    if (!tls.verify) Warn("verify=no accepts any certificate");
    if (!endpoint().credentials.user.empty() && endpoint().credentials.password.empty()) {
      Warn("a user without a password; a password alone is written redis://:password@host");
    }
    // Otherwise the result of ToString() could not be parsed again.
    if (endpoint().ToString().size() > kUriSizeMax) {
      return Fail(text::Cat("the URI has more than ", kUriSizeMax,
                            " bytes when all that needs it is percent-encoded"));
    }
    return true;
  }

  void Warn(std::string warning) { endpoint().warnings.push_back(std::move(warning)); }

  std::string_view uri_;
  std::size_t shown_begin_ = 0;
  std::size_t shown_end_ = 0;
  const Scheme* scheme_ = nullptr;
  std::string_view path_;
  std::array<bool, kOptions.size()> given_ = {};
  Draft draft_;
  std::string error_;
};

std::string Userinfo(const Credentials& credentials) {
  if (credentials.empty()) return {};
  const std::string user = Encode(credentials.user);
  return credentials.password.empty() ? text::Cat(user, "@") : text::Cat(user, ":", kMasked, "@");
}

// Only the options that differ from the defaults.
std::string Options(const Endpoint& endpoint, bool unix_socket) {
  static constexpr std::string_view kKeep = "/:";  // Nothing that ends a value or starts a list.
  const Endpoint defaults;
  std::string options;
  const auto add = [&](std::string_view name, std::string_view value) {
    options += text::Cat(options.empty() ? "?" : "&", name, "=", value);
  };
  const auto add_text = [&](std::string_view name, const std::string& value,
                            const std::string& unless) {
    if (value != unless) add(name, Encode(value, kKeep));
  };
  const auto add_count = [&](std::string_view name, std::size_t value, std::size_t unless) {
    if (value != unless) add(name, text::Cat(value));
  };
  if (endpoint.mode == Mode::kCluster && endpoint.addresses.size() == 1) add("mode", "cluster");
  if (unix_socket && endpoint.database != 0) add("db", text::Cat(endpoint.database));
  if (endpoint.command_timeout != defaults.command_timeout) {
    add("timeout", text::Cat(endpoint.command_timeout.count(), "ms"));
  }
  if (endpoint.connect_timeout != defaults.connect_timeout) {
    add("connect_timeout", text::Cat(endpoint.connect_timeout.count(), "ms"));
  }
  add_text("name", endpoint.client_name, defaults.client_name);
  add_text("prefix", endpoint.prefix, defaults.prefix);
  add_count("batch", endpoint.batch_max, defaults.batch_max);
  add_count("in_flight", endpoint.in_flight_max, defaults.in_flight_max);
  add_count("waiting", endpoint.waiting_max, defaults.waiting_max);
  if (!endpoint.tls.verify) add("verify", "no");
  add_text("ca", endpoint.tls.ca_file, {});
  add_text("cert", endpoint.tls.cert_file, {});
  add_text("key", endpoint.tls.key_file, {});
  add_text("sni", endpoint.tls.server_name, {});
  add_text("sentinel_user", endpoint.sentinel_credentials.user, {});
  if (!endpoint.sentinel_credentials.password.empty()) add("sentinel_password", kMasked);
  return options;
}

}  // namespace

bool IsPrefix(std::string_view text) { return IsWord(text, "._-:", kNameSizeMax); }

std::string_view ToString(Mode mode) {
  switch (mode) {
    case Mode::kStandalone:
      return "standalone";
    case Mode::kSentinel:
      return "sentinel";
    case Mode::kCluster:
      return "cluster";
  }
  std::unreachable();
}

std::string Address::ToString() const {
  if (unix_socket) return text::Cat("unix:", text::Escape(host));
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? text::Cat("[", host, "]:", port) : text::Cat(host, ":", port);
}

Expected<Endpoint> Endpoint::Parse(std::string_view uri, milliseconds command_timeout) {
  return Reader(uri, command_timeout).Read();
}

std::string Endpoint::ToString() const {
  const std::string userinfo = Userinfo(credentials);
  if (!addresses.empty() && addresses.front().unix_socket) {
    return text::Cat(userinfo.empty() ? "unix://" : "redis+unix://", userinfo,
                     Encode(addresses.front().host, "/"), Options(*this, true));
  }
  const bool sentinel = mode == Mode::kSentinel;
  std::string uri =
      text::Cat(tls.enabled ? "rediss" : "redis", sentinel ? "-sentinel" : "", "://", userinfo);
  for (const Address& address : addresses) {
    if (&address != &addresses.front()) uri += ",";
    uri += address.ToString();
  }
  if (sentinel) uri += text::Cat("/", Encode(master_name));
  if (database != 0) uri += text::Cat("/", database);
  return uri + Options(*this, false);
}

}  // namespace sluice::redis
