// SPDX-License-Identifier: Apache-2.0
// Every setting of the service: its path in the configuration file, flag, environment variable,
// default and meaning. One table, so that file, command line, environment, `--help`, `sluice
// config` and the reference cannot disagree.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "sluice/limit.h"
#include "sluice/store.h"
#include "sluice/time.h"
#include "telemetry/log.h"

namespace sluice::config {

// What `sluice config` must not print.
enum class Secret { kNo, kYes, kPasswordInUri };

struct Settings {
  std::int64_t threads = 0;  // 0: one per core.
  std::string store = "memory";
  Micros drain_timeout{30'000'000};
  std::int64_t buffered_bytes_max = 64 << 20;

  struct Http {
    std::string listen = "127.0.0.1:8080";
    bool is_public = false;
    std::string token_file;
    std::string tls_certificate;
    std::string tls_key;
    std::string tls_client_ca;
    std::int64_t connections_max = 10'000;
    std::int64_t header_bytes_max = 16 * 1024;
    std::int64_t headers_max = 100;
    std::int64_t body_bytes_max = 1024 * 1024;
    Micros idle_timeout{60'000'000};
    Micros header_timeout{10'000'000};
    Micros body_timeout{30'000'000};
    bool band_fields = false;
    OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;
  } http;

  struct Admin {
    std::string listen = "127.0.0.1:8090";
    std::string token;
    std::string token_file;
  } admin;

  struct Resp {
    std::string listen;
    std::string password;
    std::string token_file;
    std::string tls_certificate;
    std::string tls_key;
    std::string tls_client_ca;
    std::int64_t connections_max = 10'000;
    Micros idle_timeout{300'000'000};
    OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;
  } resp;

  struct Grpc {
    std::string listen;
    std::string token_file;
    std::string tls_certificate;
    std::string tls_key;
    std::string tls_client_ca;
    std::int64_t connections_max = 10'000;
    bool headers = false;
    OnStoreFailure on_store_failure = OnStoreFailure::kFailOpen;
  } grpc;

  struct Rules {
    std::string path;
    std::string rls_path;
    bool rls_merge_domains = false;
    std::string redis;
    std::string keep_file;
    Micros poll_interval{5'000'000};
  } rules;

  struct Client {
    std::vector<std::string> trusted_proxies;
    std::vector<std::string> trusted_headers = {"X-Forwarded-For", "X-Real-IP"};
    std::vector<std::string> attribute_headers;
    std::int64_t ipv6_prefix = 64;
  } client;

  struct Memory {
    std::int64_t keys_max = std::int64_t{1} << 24;
    std::int64_t log_entries_max = std::int64_t{1} << 26;
    std::string snapshot_file;
    Micros snapshot_interval{30'000'000};
  } memory;

  struct Guard {
    Micros deadline{20'000};
    std::int64_t in_flight_max = 4'096;
    OnStoreFailure on_overload = OnStoreFailure::kLocal;
    std::int64_t instances = 0;  // 0: counted by heartbeats.
    std::int64_t failure_percent = 50;
    std::int64_t slow_percent = 80;
    Micros slow_after{15'000};
    std::int64_t calls_min = 20;
    Micros window{1'000'000};
    Micros open_min{200'000};
    Micros open_max{500'000};
    std::int64_t deny_cache_entries = 65'536;
    Micros deny_cache_trust{10'000'000};
  } guard;

  struct Metrics {
    std::vector<std::string> labels;
  } metrics;

  struct Log {
    telemetry::LogLevel level = telemetry::LogLevel::kInfo;
    telemetry::LogFormat format = telemetry::LogFormat::kText;
  } log;
};

struct Setting {
  std::string_view path;   // In the file: "http.listen".
  std::string_view flag;   // "--http"
  std::string_view value;  // The kind of value in one word: "ADDRESS", "DURATION".
  std::string_view help;
  Secret secret = Secret::kNo;
  bool list = false;  // Several, separated by commas or as a YAML list.

  // Fails with kInvalidInput and a message that tells what was expected, without the path.
  Expected<void> (*set)(Settings&, std::string_view text);
  std::string (*get)(const Settings&);

  std::string Environment() const;  // "SLUICE_HTTP": the flag in capitals.
};

std::span<const Setting> AllSettings();

// Null if there is no such path.
const Setting* FindSetting(std::string_view path);

// The settings as a configuration file: each with its value, below a comment that explains it.
// Secrets that are set are shown as "***"; tokens and passwords in a comment.
std::string ToYaml(const Settings& settings);

}  // namespace sluice::config
