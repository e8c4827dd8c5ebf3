// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "base/duration.h"
#include "base/text.h"
#include "base/yaml.h"
#include "redis/uri.h"

namespace sluice::config {
namespace {

using telemetry::LogFormat;
using telemetry::LogLevel;

std::unexpected<Error> Invalid(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

struct Bounds {
  std::int64_t min;
  std::int64_t max;
};

// A choice by name, accepted in either case.
template <typename Enum>
struct Name {
  Enum value;
  std::string_view name;
};

constexpr std::array kLevels = {
    Name<LogLevel>{LogLevel::kDebug, "debug"}, Name<LogLevel>{LogLevel::kInfo, "info"},
    Name<LogLevel>{LogLevel::kWarn, "warn"}, Name<LogLevel>{LogLevel::kError, "error"},
    Name<LogLevel>{LogLevel::kOff, "off"}};
constexpr std::array kFormats = {Name<LogFormat>{LogFormat::kText, "text"},
                                 Name<LogFormat>{LogFormat::kJson, "json"}};
constexpr Name<OnStoreFailure> NameOf(OnStoreFailure policy) { return {policy, ToString(policy)}; }
constexpr std::array kPolicies = {NameOf(OnStoreFailure::kFailOpen),
                                  NameOf(OnStoreFailure::kFailClosed),
                                  NameOf(OnStoreFailure::kLocal)};
constexpr std::array kSwitch = {Name<bool>{true, "true"}, Name<bool>{false, "false"}};

constexpr const auto& NamesOf(LogLevel) { return kLevels; }
constexpr const auto& NamesOf(LogFormat) { return kFormats; }
constexpr const auto& NamesOf(OnStoreFailure) { return kPolicies; }
constexpr const auto& NamesOf(bool) { return kSwitch; }

template <typename Enum>
Expected<void> Read(Enum& out, std::string_view text) {
  const auto& names = NamesOf(Enum{});
  std::string known;
  for (const auto& [value, name] : names) {
    if (text::EqualsIgnoreCase(name, text)) {
      out = value;
      return {};
    }
    if (!known.empty()) known += ", ";
    known += name;
  }
  return Invalid(text::Cat(text::Quote(text), ": expected one of ", known));
}

Expected<void> Read(std::string& out, std::string_view text) {
  out = text;
  return {};
}

Expected<void> Read(std::vector<std::string>& out, std::string_view text) {
  out.clear();
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    if (const auto item = text::Trim(text.substr(0, comma)); !item.empty()) out.emplace_back(item);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return {};
}

Expected<void> ReadWithin(std::int64_t& out, std::string_view text, Bounds bounds) {
  const auto number = text::ParseInteger(text);
  if (!number || *number < bounds.min || *number > bounds.max) {
    return Invalid(text::Cat(text::Quote(text), ": expected a whole number from ", bounds.min,
                             " to ", bounds.max));
  }
  out = *number;
  return {};
}

Expected<void> ReadWithin(Micros& out, std::string_view text, Bounds bounds) {
  const auto duration = text::ParseDuration(text);
  if (!duration) return std::unexpected(duration.error());
  if (duration->count() < bounds.min || duration->count() > bounds.max) {
    return Invalid(text::Cat(text::Quote(text), ": expected a duration from ",
                             text::FormatDuration(Micros{bounds.min}), " to ",
                             text::FormatDuration(Micros{bounds.max})));
  }
  out = *duration;
  return {};
}

template <typename Enum>
std::string Write(Enum value) {
  const auto& names = NamesOf(Enum{});
  const auto found =
      std::ranges::find_if(names, [&](const auto& candidate) { return candidate.value == value; });
  return std::string(found->name);
}
std::string Write(const std::string& value) { return value; }
std::string Write(Micros value) { return text::FormatDuration(value); }
std::string Write(std::int64_t value) { return std::to_string(value); }
std::string Write(const std::vector<std::string>& value) {
  std::string joined;
  for (const std::string& item : value) {
    if (!joined.empty()) joined += ',';
    joined += item;
  }
  return joined;
}

// Makes a row of the table from a function that returns the field.
template <auto field>
constexpr Setting Row(std::string_view path, std::string_view flag, std::string_view value,
                      std::string_view help, Secret secret = Secret::kNo) {
  using Field = std::remove_reference_t<std::invoke_result_t<decltype(field), Settings&>>;
  return {
      .path = path,
      .flag = flag,
      .value = value,
      .help = help,
      .secret = secret,
      .list = std::is_same_v<Field, std::vector<std::string>>,
      .set = [](Settings& settings, std::string_view text) -> Expected<void> {
        return Read(field(settings), text);
      },
      .get =
          [](const Settings& settings) { return Write(field(const_cast<Settings&>(settings))); }};
}

// The same with bounds: a whole number, or a duration in microseconds.
template <auto field, std::int64_t min, std::int64_t max>
constexpr Setting Within(std::string_view path, std::string_view flag, std::string_view value,
                         std::string_view help) {
  return {
      .path = path,
      .flag = flag,
      .value = value,
      .help = help,
      .set = [](Settings& settings, std::string_view text) -> Expected<void> {
        return ReadWithin(field(settings), text, {min, max});
      },
      .get =
          [](const Settings& settings) { return Write(field(const_cast<Settings&>(settings))); }};
}

// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name.
#define FIELD(name) [](Settings& settings) -> auto& { return settings.name; }

constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr std::int64_t kMillisecond = 1'000;
constexpr std::int64_t kHour = 3'600'000'000;
constexpr std::int64_t kDay = 24 * kHour;

constexpr std::array kSettings = {
    Within<FIELD(threads), 0, 256>("threads", "--threads", "N",
                                   "Number of event loops, one per thread; 0: one per core"),
    Row<FIELD(store)>("store", "--store", "URI",
                      "Where the state lives: memory, redis://host:port, redis://a:1,b:2,c:3, "
                      "redis-sentinel://…",
                      Secret::kPasswordInUri),
    Within<FIELD(drain_timeout), 0, kDay>("drainTimeout", "--drain-timeout", "DURATION",
                                          "How long requests may take to finish after SIGTERM"),
    Within<FIELD(buffered_bytes_max), 1 << 24, kMany>(
        "bufferedBytesMax", "--buffered-bytes-max", "BYTES",
        "Bytes of incomplete requests and unread answers that all connections together may hold; "
        "when they are used up, a connection that needs more than 16 KiB is closed"),

    Row<FIELD(http.listen)>("http.listen", "--http", "ADDRESS:PORT",
                            "Address of the REST API; empty: off"),
    Row<FIELD(http.token_file)>("http.tokenFile", "--http-token-file", "FILE",
                                "File of callers' tokens, one per line, each with or without a "
                                "name before it; empty: no token is required"),
    Row<FIELD(http.is_public)>("http.public", "--http-public", "BOOL",
                               "Whether callers without a token may ask, but only about their own "
                               "address: they can neither name keys nor reset"),
    Row<FIELD(http.tls_certificate)>("http.tlsCertificate", "--http-tls-certificate", "FILE",
                                     "Certificate chain in PEM; turns TLS on"),
    Row<FIELD(http.tls_key)>("http.tlsKey", "--http-tls-key", "FILE",
                             "Private key of the certificate, in PEM"),
    Row<FIELD(http.tls_client_ca)>("http.tlsClientCa", "--http-tls-client-ca", "FILE",
                                   "CA of client certificates, in PEM; such a certificate is as "
                                   "good as a token, and required if there are no tokens"),
    Within<FIELD(http.connections_max), 1, 1'000'000>(
        "http.connectionsMax", "--http-connections-max", "N",
        "Maximum number of connections; further ones are refused"),
    Within<FIELD(http.header_bytes_max), 1024, 1 << 20>("http.headerBytesMax",
                                                        "--http-header-bytes-max", "BYTES",
                                                        "Maximum size of a request's head"),
    Within<FIELD(http.headers_max), 1, 10'000>("http.headersMax", "--http-headers-max", "N",
                                               "Maximum number of headers of a request"),
    Within<FIELD(http.body_bytes_max), 1024, 1 << 28>("http.bodyBytesMax", "--http-body-bytes-max",
                                                      "BYTES", "Maximum size of a request's body"),
    Within<FIELD(http.idle_timeout), kMillisecond, kDay>(
        "http.idleTimeout", "--http-idle-timeout", "DURATION",
        "How long a connection may be silent before it is closed"),
    Within<FIELD(http.header_timeout), kMillisecond, kDay>(
        "http.headerTimeout", "--http-header-timeout", "DURATION",
        "How long a request's head may take to arrive"),
    Within<FIELD(http.body_timeout), kMillisecond, kDay>(
        "http.bodyTimeout", "--http-body-timeout", "DURATION",
        "How long a request's body may take to arrive after its head"),
    Row<FIELD(http.band_fields)>("http.bandFields", "--http-band-fields", "BOOL",
                                 "Whether answers of rule sets have X-RateLimit-Limit-LABEL, "
                                 "-Remaining-LABEL and -Reset-LABEL for every band, as APIs of "
                                 "language models do"),
    Row<FIELD(http.on_store_failure)>(
        "http.onStoreFailure", "--http-on-store-failure", "POLICY",
        "Policy for checks without a rule when the store fails: FAIL_OPEN, FAIL_CLOSED or LOCAL"),

    Row<FIELD(admin.listen)>("admin.listen", "--admin", "ADDRESS:PORT",
                             "Address of the admin API; empty: off"),
    Row<FIELD(admin.token)>(
        "admin.token", "--admin-token", "TEXT",
        "Bearer token that admin requests must show; required unless the API listens on loopback",
        Secret::kYes),
    Row<FIELD(admin.token_file)>(
        "admin.tokenFile", "--admin-token-file", "FILE",
        "File with that token, or with several in the format of http.tokenFile"),

    Row<FIELD(resp.listen)>("resp.listen", "--resp", "ADDRESS:PORT",
                            "Address of the RESP door (CL.THROTTLE); empty: off"),
    Row<FIELD(resp.password)>("resp.password", "--resp-password", "TEXT",
                              "Password that AUTH accepts besides the tokens; empty: none",
                              Secret::kYes),
    Row<FIELD(resp.token_file)>("resp.tokenFile", "--resp-token-file", "FILE",
                                "File of callers' tokens, one per line, each with or without a "
                                "name before it; empty: no token is required"),
    Row<FIELD(resp.tls_certificate)>("resp.tlsCertificate", "--resp-tls-certificate", "FILE",
                                     "Certificate chain in PEM; turns TLS on"),
    Row<FIELD(resp.tls_key)>("resp.tlsKey", "--resp-tls-key", "FILE",
                             "Private key of the certificate, in PEM"),
    Row<FIELD(resp.tls_client_ca)>("resp.tlsClientCa", "--resp-tls-client-ca", "FILE",
                                   "CA of client certificates, in PEM; such a certificate is as "
                                   "good as a token, and required if there are no tokens"),
    Within<FIELD(resp.connections_max), 1, 1'000'000>(
        "resp.connectionsMax", "--resp-connections-max", "N",
        "Maximum number of connections; further ones are refused"),
    Within<FIELD(resp.idle_timeout), 0, kDay>(
        "resp.idleTimeout", "--resp-idle-timeout", "DURATION",
        "How long a connection may be silent before it is closed; 0s: for ever"),
    Row<FIELD(resp.on_store_failure)>("resp.onStoreFailure", "--resp-on-store-failure", "POLICY",
                                      "Policy for checks without a rule when the store fails"),

    Row<FIELD(grpc.listen)>(
        "grpc.listen", "--grpc", "ADDRESS:PORT",
        "Address of the gRPC door (Envoy Rate Limit Service, sluice.v1.Limiter); empty: off"),
    Row<FIELD(grpc.token_file)>("grpc.tokenFile", "--grpc-token-file", "FILE",
                                "File of callers' tokens, one per line, each with or without a "
                                "name before it; empty: no token is required"),
    Row<FIELD(grpc.tls_certificate)>("grpc.tlsCertificate", "--grpc-tls-certificate", "FILE",
                                     "Certificate chain in PEM; turns TLS on"),
    Row<FIELD(grpc.tls_key)>("grpc.tlsKey", "--grpc-tls-key", "FILE",
                             "Private key of the certificate, in PEM"),
    Row<FIELD(grpc.tls_client_ca)>("grpc.tlsClientCa", "--grpc-tls-client-ca", "FILE",
                                   "CA of client certificates, in PEM; such a certificate is as "
                                   "good as a token, and required if there are no tokens"),
    Within<FIELD(grpc.connections_max), 1, 1'000'000>(
        "grpc.connectionsMax", "--grpc-connections-max", "N",
        "Maximum number of connections; further ones are refused"),
    Row<FIELD(grpc.headers)>("grpc.headers", "--grpc-headers", "BOOL",
                             "Whether answers carry X-RateLimit headers for Envoy to add"),
    Row<FIELD(grpc.on_store_failure)>(
        "grpc.onStoreFailure", "--grpc-on-store-failure", "POLICY",
        "Policy for descriptors and limits without a rule when the store fails"),

    Row<FIELD(rules.path)>("rules.path", "--rules", "PATH",
                           "File, or folder of .yaml files, with rule sets; watched for changes"),
    Row<FIELD(rules.rls_path)>(
        "rules.rlsPath", "--rls-config", "PATH",
        "File or folder in the format of envoyproxy/ratelimit; watched for changes"),
    Row<FIELD(rules.rls_merge_domains)>("rules.rlsMergeDomains", "--rls-merge-domains", "BOOL",
                                        "Whether one domain may be spread over several files"),
    Row<FIELD(rules.redis)>("rules.redis", "--rules-redis", "URI",
                            "Redis that holds rule sets; watched by pub/sub and polling. \"store\" "
                            "is the one that holds the state",
                            Secret::kPasswordInUri),
    Row<FIELD(rules.keep_file)>("rules.keepFile", "--rules-keep", "FILE",
                                "File that keeps the rule sets of rules.redis, and of the admin "
                                "API, for a start without Redis"),
    Within<FIELD(rules.poll_interval), kMillisecond, kDay>(
        "rules.pollInterval", "--rules-poll-interval", "DURATION",
        "How often rules are checked for changes, whatever was announced"),

    Row<FIELD(client.trusted_proxies)>(
        "client.trustedProxies", "--trusted-proxies", "CIDRS",
        "Networks of proxies whose headers say who the client is, separated by commas"),
    Row<FIELD(client.trusted_headers)>(
        "client.trustedHeaders", "--trusted-headers", "HEADERS",
        "Headers to believe from these proxies: X-Forwarded-For, X-Real-IP, Forwarded, X-User-Id, "
        "X-API-Key. The proxies must write or remove each of them"),
    Row<FIELD(client.attribute_headers)>(
        "client.attributeHeaders", "--attribute-headers", "HEADERS",
        "Headers from these proxies that become attributes of a request in forward authentication, "
        "by their names in lower case. The proxies must write or remove each of them"),
    Within<FIELD(client.ipv6_prefix), 1, 128>("client.ipv6Prefix", "--ipv6-prefix", "BITS",
                                              "Length of the IPv6 prefix that tells clients apart"),

    Within<FIELD(memory.keys_max), 1, std::int64_t{1} << 32>(
        "memory.keysMax", "--memory-keys-max", "N",
        "Maximum number of states in memory. Beyond it, a sketch for new keys takes 192 bytes for "
        "each of N while it is needed"),
    Within<FIELD(memory.log_entries_max), 1, kMany>(
        "memory.logEntriesMax", "--memory-log-entries-max", "N",
        "Maximum number of requests that all SLIDING_WINDOW limits together remember"),
    Row<FIELD(memory.snapshot_file)>("memory.snapshotFile", "--snapshot", "FILE",
                                     "File that keeps the state of the memory store across "
                                     "restarts; one file per instance, and none with Redis"),
    Within<FIELD(memory.snapshot_interval), kMillisecond, kDay>(
        "memory.snapshotInterval", "--snapshot-interval", "DURATION",
        "How often the snapshot is written"),

    Within<FIELD(guard.deadline), kMillisecond, kHour>(
        "guard.deadline", "--deadline", "DURATION",
        "How long Redis may take to decide; after that the policy answers"),
    Within<FIELD(guard.in_flight_max), 1, 1 << 20>(
        "guard.inFlightMax", "--in-flight-max", "N",
        "Maximum number of decisions that wait for Redis at a time"),
    Row<FIELD(guard.on_overload)>("guard.onOverload", "--on-overload", "POLICY",
                                  "Policy of a FAIL_OPEN limit while Redis answers but cannot keep "
                                  "up: LOCAL, FAIL_OPEN or FAIL_CLOSED"),
    Within<FIELD(guard.instances), 0, 100'000>(
        "guard.instances", "--instances", "N",
        "Number of instances that share a limit under LOCAL; 0: counted by heartbeats in Redis"),
    Within<FIELD(guard.failure_percent), 1, 100>(
        "guard.failurePercent", "--breaker-failure-percent", "N",
        "Percentage of failed calls that opens the breaker"),
    Within<FIELD(guard.slow_percent), 1, 100>("guard.slowPercent", "--breaker-slow-percent", "N",
                                              "Percentage of slow calls that opens the breaker"),
    Within<FIELD(guard.slow_after), 1, kDay>("guard.slowAfter", "--breaker-slow-after", "DURATION",
                                             "How long a call may take before it counts as slow"),
    Within<FIELD(guard.calls_min), 1, 1'000'000>("guard.callsMin", "--breaker-calls-min", "N",
                                                 "Number of calls before the breaker judges"),
    Within<FIELD(guard.window), kMillisecond, kDay>("guard.window", "--breaker-window", "DURATION",
                                                    "How far back the breaker looks"),
    Within<FIELD(guard.open_min), kMillisecond, kDay>(
        "guard.openMin", "--breaker-open-min", "DURATION",
        "How long the breaker stays open before it probes; doubles while probes fail"),
    Within<FIELD(guard.open_max), kMillisecond, kDay>("guard.openMax", "--breaker-open-max",
                                                      "DURATION",
                                                      "How long the breaker stays open at most"),
    Within<FIELD(guard.deny_cache_entries), 0, 1 << 28>(
        "guard.denyCacheEntries", "--deny-cache-entries", "N",
        "Number of denials to remember, so that repeats need no Redis; 0: off"),
    Within<FIELD(guard.deny_cache_trust), 0, kDay>(
        "guard.denyCacheTrust", "--deny-cache-trust", "DURATION",
        "How long a remembered denial is believed before Redis is asked again"),

    Row<FIELD(metrics.labels)>(
        "metrics.labels", "--metrics-labels", "LABELS",
        "Labels for all metrics, such as application=checkout, separated by commas"),

    Row<FIELD(log.level)>("log.level", "--log-level", "LEVEL",
                          "Log level: debug, info, warn, error or off"),
    Row<FIELD(log.format)>("log.format", "--log-format", "FORMAT", "Log format: text or json"),
};
#undef FIELD

std::string Redacted(Secret secret, const std::string& value) {
  if (secret == Secret::kNo || value.empty() || value == "memory" || value == "store") return value;
  if (secret == Secret::kYes) return "***";
  // A URI that cannot be parsed might hide a password anywhere.
  const auto endpoint = redis::Endpoint::Parse(value);
  return endpoint ? endpoint->ToString() : "***";
}

}  // namespace

std::string Setting::Environment() const {
  std::string name = "SLUICE_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  }
  return name;
}

std::span<const Setting> AllSettings() { return kSettings; }

const Setting* FindSetting(std::string_view path) {
  const auto found = std::ranges::find(kSettings, path, &Setting::path);
  return found == kSettings.end() ? nullptr : &*found;
}

std::string ToYaml(const Settings& settings) {
  std::string out;
  std::string_view section;
  for (const Setting& setting : kSettings) {
    const auto dot = setting.path.find('.');
    const std::string_view own =
        dot == std::string_view::npos ? std::string_view{} : setting.path.substr(0, dot);
    if (own != section) {
      section = own;
      out += text::Cat("\n", section, ":\n");
    }
    const std::string_view indent = section.empty() ? "" : "  ";
    const std::string_view name =
        section.empty() ? setting.path : setting.path.substr(section.size() + 1);
    const std::string value = Redacted(setting.secret, setting.get(settings));
    // When read back, a redacted token would be one that anybody can guess.
    const bool hidden = setting.secret == Secret::kYes && !value.empty();
    out += text::Cat(indent, "# ", setting.help, ". ", setting.flag, ", ", setting.Environment(),
                     "\n", indent, hidden ? "# " : "", name, ": ", YamlScalar(value), "\n");
  }
  return out;
}

}  // namespace sluice::config
