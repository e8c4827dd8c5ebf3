// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "api/admin_api.h"
#include "api/public_api.h"
#include "api/reply.h"
#include "base/text.h"
#include "base/yaml.h"
#include "clock/forward_clock.h"
#include "config/load.h"
#include "daemon/backend.h"
#include "daemon/descriptors.h"
#include "daemon/freed_memory.h"
#include "daemon/periodic.h"
#include "daemon/redis_rule_sets.h"
#include "grpc/rls_json.h"
#include "grpc/server.h"
#include "http/server.h"
#include "net/access.h"
#include "net/byte_budget.h"
#include "net/loops.h"
#include "redis/client.h"
#include "reload/keeper.h"
#include "resp/server.h"
#include "service/engine.h"
#include "service/service_metrics.h"
#include "telemetry/heavy_hitters.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace sluice::daemon {
namespace {

constexpr int kExitForced = 2;  // By a second signal; what was received is not answered.

namespace asio = boost::asio;
using config::Settings;

Problems ProblemOf(std::string_view what, const Error& error) {
  return {{.file = std::string(what), .message = error.message}};
}

// Who is let in at each door.
net::Access::Door DoorOf(bool guarded) {
  return guarded ? net::Access::Door::kGuarded : net::Access::Door::kOpen;
}
net::Access::Door DoorOf(const Settings::Http& http) {
  return DoorOf(!http.token_file.empty() || !http.tls_client_ca.empty() || http.is_public);
}
net::Access::Door DoorOf(const Settings::Admin& admin) {
  return DoorOf(!admin.token_file.empty() || !admin.token.empty());
}
net::Access::Door DoorOf(const Settings::Resp& resp) {
  return DoorOf(!resp.token_file.empty() || !resp.tls_client_ca.empty() || !resp.password.empty());
}
net::Access::Door DoorOf(const Settings::Grpc& grpc) {
  return DoorOf(!grpc.token_file.empty() || !grpc.tls_client_ca.empty());
}

// A client may come without a certificate where there is another way to be let in.
template <typename Door>
std::optional<net::TlsFiles> TlsOf(const Door& door, bool has_other_way) {
  if (door.tls_certificate.empty()) return std::nullopt;
  return net::TlsFiles{.cert = door.tls_certificate,
                       .key = door.tls_key,
                       .client_ca = door.tls_client_ca,
                       .client = has_other_way ? net::TlsFiles::Client::kOptional
                                               : net::TlsFiles::Client::kRequired};
}

std::chrono::milliseconds Millis(Micros duration) {
  return std::chrono::ceil<std::chrono::milliseconds>(duration);
}

// Where a door listens, once it does; a supervisor or a test reads it. Whoever gathers lines of
// JSON gathers those of standard output, too.
void Announce(std::string_view door, const net::ListenAddress& address,
              telemetry::LogFormat format) {
  const std::string line = text::Cat(door, " listening on ", address.ToString());
  if (format == telemetry::LogFormat::kJson) {
    telemetry::Logger({.fd = STDOUT_FILENO, .format = format}).Info(line);
    return;
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::size_t LoopCount(const Settings& settings) {
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  const auto count = settings.threads > 0 ? static_cast<std::size_t>(settings.threads) : cores;
  return std::min(count, net::Loops::kCountMax);
}

// What the admin door has to itself, so that it answers whatever clients do at the others.
std::shared_ptr<net::ByteBudget> AdminBuffered() {
  constexpr std::size_t kBodies = 4;  // As large as they may be.
  return std::make_shared<net::ByteBudget>(kBodies * kYamlBytesMax);
}

void WarnOfFewDescriptors(const Descriptors& descriptors, telemetry::Logger& logger) {
  if (descriptors.files_max >= descriptors.needed) return;
  const ConnectionMaxima& connections = descriptors.connections;
  logger.Warn(
      "too few files may be open; doors take fewer connections than the settings say; raise the "
      "limit of the system",
      {{"files_max", descriptors.files_max},
       {"needed", descriptors.needed},
       {"http_connections_max", connections.http},
       {"admin_connections_max", connections.admin},
       {"resp_connections_max", connections.resp},
       {"grpc_connections_max", connections.grpc}});
}

// Of what listens beyond this machine: a door that asks nobody who they are, and tokens that others
// on the way can read.
void WarnOfExposedDoors(const Settings& settings, telemetry::Logger& logger) {
  const auto warn = [&](std::string_view door, const std::string& listen,
                        std::string_view message) {
    logger.Warn(message, {{"door", door}, {"listen", listen}});
  };
  const auto is_exposed = [](const std::string& listen) {
    return !listen.empty() && !net::ListenAddress::Parse(listen)->IsLoopback();
  };
  const auto look_at = [&](std::string_view name, const auto& door, bool has_tokens) {
    if (!is_exposed(door.listen)) return;
    if (DoorOf(door) == net::Access::Door::kOpen) {
      warn(name, door.listen,
           text::Cat("whoever reaches this door may use it; set ", name, ".tokenFile or ", name,
                     ".tlsClientCa, or listen on loopback"));
    } else if (has_tokens && door.tls_certificate.empty()) {
      warn(name, door.listen,
           text::Cat("tokens travel in clear; set ", name,
                     ".tlsCertificate, or listen on loopback"));
    }
  };
  look_at("http", settings.http, !settings.http.token_file.empty());
  look_at("resp", settings.resp,
          !settings.resp.token_file.empty() || !settings.resp.password.empty());
  look_at("grpc", settings.grpc, !settings.grpc.token_file.empty());
  if (is_exposed(settings.admin.listen) && settings.http.tls_certificate.empty()) {
    warn("admin", settings.admin.listen,
         "the admin token travels in clear; set http.tlsCertificate, or listen on loopback");
  }
}

bool IsReadByOthers(const std::string& path) {
  using std::filesystem::perms;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  return !error && (status.permissions() & perms::others_read) != perms::none;
}

}  // namespace

class Daemon::Impl {
 public:
  Impl(const Settings& settings, const std::string& config_path)
      : settings_(settings),
        logger_({.level = settings.log.level, .format = settings.log.format}),
        metrics_(registry_, {.version = SLUICE_VERSION}),
        loops_(LoopCount(settings)),
        config_path_(config_path) {
    telemetry::AddProcessMetrics(registry_);
    registry_.AddCallback(telemetry::Registry::Type::kCounter, "sluice_log_lines_lost_total",
                          "Lines of the log that could not be written.", {},
                          [this] { return static_cast<double>(logger_.lines_lost()); });
    WatchBuffered();
  }

  ~Impl() {
    give_back_.reset();
    // What the keeper was asked is done while there are doors to tell. Then the doors; the store,
    // which decides what still waits in it, for connections that are no more; and the loops.
    if (keeper_) keeper_->Stop();
    http_.reset();
    admin_.reset();
    resp_.reset();
    grpc_.reset();
    backend_.reset();
    loops_.Stop();
    keeper_.reset();
  }

  std::expected<void, Problems> Start(const Problems& warnings) {
    std::signal(SIGPIPE, SIG_IGN);  // Whoever reads the log may go; the service stays.
    descriptors_ = ReserveDescriptors(settings_, loops_.size());
    if (!clock_.believed()) TellOfClock();
    if (auto loaded = LoadTokens(); !loaded.empty()) return std::unexpected(loaded);
    auto backend = Backend::Open(settings_, {logger_, registry_, metrics_, clock_});
    if (!backend) return std::unexpected(ProblemOf("store", backend.error()));
    backend_ = *std::move(backend);
    engine_.emplace(service::Engine::Parts{.store = backend_->store(),
                                           .metrics = metrics_,
                                           .keys = keys_,
                                           .logger = logger_,
                                           .clock = clock_},
                    nullptr);
    if (auto opened = OpenRuleSetStore(); !opened) return opened;
    keeper_.emplace(
        reload::Keeper::Options{.places = {.config = config_path_,
                                           .rules = settings_.rules.path,
                                           .rls = settings_.rules.rls_path,
                                           .rls_merge_domains = settings_.rules.rls_merge_domains},
                                .poll_interval = settings_.rules.poll_interval,
                                .keep_file = settings_.rules.keep_file,
                                .publish =
                                    [this](auto catalog) {
                                      engine_->SetCatalog(std::move(catalog));
                                      backend_->ForgetDenials();
                                    }},
        reload::Keeper::Parts{.managed = *managed_, .logger = logger_, .metrics = metrics_});
    // Nobody is answered before the loops run. What fails says so before anything is logged.
    if (auto opened = OpenHttp(); !opened) return opened;
    if (auto opened = OpenAdmin(); !opened) return opened;
    if (auto opened = OpenResp(); !opened) return opened;
    if (auto opened = OpenGrpc(); !opened) return opened;
    WatchConnections();
    WatchRules();
    WatchReloads();
    if (auto labelled = LabelMetrics(); !labelled) return labelled;
    if (Problems problems = keeper_->Load(); !problems.empty()) return std::unexpected(problems);
    for (const Problem& warning : warnings) logger_.Warn(warning.ToString());
    WarnOfFewDescriptors(descriptors_, logger_);
    WarnOfExposedDoors(settings_, logger_);
    ForEachTokenFile([this](const TokenFile& of) { TellOfTokens(of); });
    keeper_->Start();
    backend_->Start();
    FollowClock();
    loops_.Start();
    give_back_.emplace(std::chrono::seconds{1}, Periodic::First::kAfterInterval, [this] {
      freed_memory_.GiveBack();
      TellOfAcceptErrors();
      TellOfFullBuffers();
    });
    if (http_) Announce("http", http_->address(), settings_.log.format);
    if (admin_) Announce("admin", admin_->address(), settings_.log.format);
    if (resp_) Announce("resp", resp_->address(), settings_.log.format);
    if (grpc_) Announce("grpc", grpc_->address(), settings_.log.format);
    logger_.Info("serving", {{"version", SLUICE_VERSION},
                             {"store", backend_->Description()},
                             {"threads", loops_.size()}});
    return {};
  }

  void Run() {
    WaitForReload();
    stop_signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      // A second signal does not wait.
      stop_signals_.async_wait([](const boost::system::error_code& again, int) {
        if (!again) std::_Exit(kExitForced);
      });
      drain_ = std::jthread([this] {
        Drain();
        signal_context_.stop();
      });
    });
    signal_context_.run();
  }

 private:
  void WaitForReload() {
    reload_signals_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      Reload([](const reload::Keeper::Outcome&) {});  // All of it is logged.
      WaitForReload();
    });
  }

  void FollowClock() {
    clock_follower_.emplace(std::chrono::seconds{1}, Periodic::First::kAfterInterval, [this] {
      const bool believed = clock_.believed();
      const Micros behind = clock_.CatchUp();
      if (clock_.believed() != believed) TellOfClock();
      if (behind < std::chrono::seconds{1}) return;
      logger_.Warn("the system's clock was set forward; budgets may be whole early",
                   {{"seconds", std::chrono::floor<std::chrono::seconds>(behind).count()}});
    });
  }

  void TellOfClock() {
    if (clock_.believed()) return logger_.Info("the system's clock can be right again");
    logger_.Error("the system's clock cannot be right and is not followed",
                  {{"seconds", std::chrono::floor<std::chrono::seconds>(SystemClock().Now())
                                   .time_since_epoch()
                                   .count()}});
  }

  // Reads rules, certificates and tokens again; does not wait.
  void Reload(reload::Keeper::Done done) {
    keeper_->Reload([this, done = std::move(done)](reload::Keeper::Outcome outcome) mutable {
      // A file that is missing is a problem of what was asked for, not of the question.
      if (!outcome.result && outcome.problems.empty()) {
        outcome.problems = ProblemOf("rules", outcome.result.error());
      }
      Problems others = ReloadCertificates();
      std::ranges::move(ReloadTokens(), std::back_inserter(others));
      {
        const std::scoped_lock lock(reload_mutex_);
        other_problems_ = others;
      }
      std::ranges::move(others, std::back_inserter(outcome.problems));
      done(std::move(outcome));
    });
  }

  // Of the doors that listen.
  struct TokenFile {
    std::string_view door;
    const std::string& path;   // Empty: none.
    std::string_view further;  // A token that stands in the settings themselves; empty: none.
    net::Access& access;
  };

  template <typename Visit>
  void ForEachTokenFile(Visit visit) {
    const auto& [http, admin, resp, grpc] =
        std::tie(settings_.http, settings_.admin, settings_.resp, settings_.grpc);
    if (!http.listen.empty()) visit(TokenFile{"http", http.token_file, {}, http_access_});
    if (!admin.listen.empty()) {
      visit(TokenFile{"admin", admin.token_file, admin.token, admin_access_});
    }
    if (!resp.listen.empty()) {
      visit(TokenFile{"resp", resp.token_file, resp.password, resp_access_});
    }
    if (!grpc.listen.empty()) visit(TokenFile{"grpc", grpc.token_file, {}, grpc_access_});
  }

  static Expected<void> Load(const TokenFile& of) {
    net::Tokens tokens;
    if (!of.path.empty()) {
      auto read = config::ReadTokens(of.path);
      if (!read) return std::unexpected(std::move(read.error()));
      tokens = *std::move(read);
    }
    if (!of.further.empty()) tokens.Add("", of.further);
    of.access.SetTokens(std::move(tokens));
    return {};
  }

  void TellOfTokens(const TokenFile& of) {
    if (of.path.empty()) return;
    logger_.Info("tokens in use", {{"door", of.door}});
    if (!IsReadByOthers(of.path)) return;
    logger_.Warn("every user of this machine can read the tokens; take that right from the file",
                 {{"door", of.door}, {"file", of.path}});
  }

  Problems LoadTokens() {
    Problems problems;
    ForEachTokenFile([&](const TokenFile& of) {
      const auto loaded = Load(of);
      if (loaded) return;
      problems.push_back(
          {.file = text::Cat(of.door, ".tokenFile"), .message = loaded.error().message});
    });
    return problems;
  }

  // Each door's own. A file that is no good leaves its door the old tokens.
  Problems ReloadTokens() {
    Problems problems;
    ForEachTokenFile([&](const TokenFile& of) {
      // What came through a pipe came once, and whoever reads it again may wait without end.
      std::error_code error;
      const auto type = std::filesystem::status(of.path, error).type();
      using std::filesystem::file_type;
      if (of.path.empty() || (type != file_type::regular && type != file_type::not_found)) return;
      if (const auto loaded = Load(of); !loaded) {
        metrics_.TokensReloaded(service::ReloadResult::kInvalid);
        logger_.Error("the tokens cannot be used; the old ones stay",
                      {{"door", of.door}, {"error", loaded.error().message}});
        problems.push_back({.file = std::string(of.door), .message = loaded.error().message});
      } else {
        metrics_.TokensReloaded(service::ReloadResult::kOk);
        TellOfTokens(of);
      }
    });
    return problems;
  }

  // Each door's own. One that is no good leaves its door the old one.
  Problems ReloadCertificates() {
    Problems problems;
    const auto reload = [&](std::string_view door, const auto& server) {
      if (!server) return;
      const Expected<bool> loaded = server->ReloadCertificate();
      if (!loaded) {
        metrics_.CertificateReloaded(service::ReloadResult::kInvalid);
        logger_.Error("the certificate cannot be used; the old one stays",
                      {{"door", door}, {"error", loaded.error().message}});
        problems.push_back({.file = std::string(door), .message = loaded.error().message});
      } else if (*loaded) {
        metrics_.CertificateReloaded(service::ReloadResult::kOk);
        logger_.Info("certificate in use", {{"door", door}});
      }
    };
    reload("http", http_);
    reload("admin", admin_);
    reload("resp", resp_);
    reload("grpc", grpc_);
    return problems;
  }

  // A door that is not open has had no connections.
  void WatchConnections() {
    using service::Door;
    const auto watch = [this](Door door, const auto& server) {
      metrics_.WatchConnections(door, [&server]() -> service::ServiceMetrics::Connections {
        if (!server) return {};
        const net::Listener::Counts counts = server->counts().connections;
        return {.open = counts.open,
                .accepted = counts.accepted,
                .refused = counts.refused,
                .accept_errors = counts.accept_errors,
                .handshakes_failed = counts.handshakes_failed};
      });
    };
    watch(Door::kHttp, http_);
    watch(Door::kAdmin, admin_);
    watch(Door::kResp, resp_);
    watch(Door::kGrpc, grpc_);
  }

  void WatchRules() {
    metrics_.WatchRules([this]() -> service::ServiceMetrics::ManagedRules {
      const reload::RulesStatus status = keeper_->status();
      service::ServiceMetrics::ManagedRules rules{.ready = status.ready,
                                                  .store_works = status.store_works,
                                                  .revision = status.revision,
                                                  .restored = status.restored,
                                                  .keep_failures = status.keep_failures,
                                                  .rejected = status.rejected_count,
                                                  .rejected_names = {}};
      for (const auto& rejected : status.rejected) rules.rejected_names.push_back(rejected.id);
      return rules;
    });
  }

  std::expected<void, Problems> LabelMetrics() {
    auto labels = telemetry::ParseCommonLabels(settings_.metrics.labels);
    if (!labels) return std::unexpected(ProblemOf("metrics.labels", labels.error()));
    registry_.SetCommonLabels(*std::move(labels));
    return {};
  }

  void WatchBuffered() {
    using enum telemetry::Registry::Type;
    registry_.AddCallback(kGauge, "sluice_buffered_bytes",
                          "Requests in part and answers not taken that connections hold.", {},
                          [this] { return static_cast<double>(buffered_->held()); });
    registry_.AddCallback(kCounter, "sluice_buffered_bytes_refused_total",
                          "Connections closed because all connections together held too much.", {},
                          [this] { return static_cast<double>(buffered_->refused()); });
  }

  // At most one line a second, as of all that clients bring about.
  void TellOfFullBuffers() {
    const std::uint64_t refused = buffered_->refused();
    const std::uint64_t before = std::exchange(buffers_refused_told_, refused);
    if (refused == before) return;
    logger_.Warn("connections were closed; requests in part and answers not taken are too many",
                 {{"connections", refused - before},
                  {"buffered_bytes", buffered_->held()},
                  {"buffered_bytes_max", buffered_->bytes_max()}});
  }

  // At most one line a second, however many connections wait.
  void TellOfAcceptErrors() {
    std::uint64_t errors = 0;
    const auto add = [&](const auto& server) {
      if (server) errors += server->counts().connections.accept_errors;
    };
    add(http_);
    add(admin_);
    add(resp_);
    add(grpc_);
    const std::uint64_t before = std::exchange(accept_errors_told_, errors);
    if (errors == before) return;
    logger_.Error("connections cannot be accepted; too few files may be open, or memory is short",
                  {{"attempts", errors - before}, {"files_max", FilesMax()}});
  }

  void Drain() {
    const auto deadline = std::chrono::steady_clock::now() + settings_.drain_timeout;
    logger_.Info("draining");
    draining_ = true;
    std::size_t cut = 0;
    // All doors close before any is waited for.
    if (http_) http_->StartDrain();
    if (grpc_) grpc_->StartDrain();
    if (resp_) cut += resp_->Drain(deadline);
    if (http_) cut += http_->Drain(deadline);
    if (grpc_) cut += grpc_->Drain(deadline);
    if (admin_) cut += admin_->Drain(deadline);
    backend_->Finish();
    logger_.Info("stopped", {{"connections_cut", cut}});
  }

  api::Health Health() const {
    api::Health health;
    health.draining = draining_;
    health.clock_believed = clock_.believed();
    health.store = backend_->Health();
    const Settings::Rules& rules = settings_.rules;
    if (!rules.redis.empty() || !rules.keep_file.empty()) health.rules = keeper_->status();
    health.reload = ReloadHealth();
    return health;
  }

  api::Health::Reload ReloadHealth() const {
    const reload::Keeper::FilesStatus files = keeper_->files_status();
    api::Health::Reload reload{.problems = {}, .good_at = files.good_at};
    if (!files.problem.empty()) reload.problems.push_back(files.problem);
    const std::scoped_lock lock(reload_mutex_);
    for (const Problem& problem : other_problems_) reload.problems.push_back(problem.ToString());
    return reload;
  }

  void WatchReloads() {
    using enum telemetry::Registry::Type;
    registry_.AddCallback(
        kGauge, "sluice_last_reload_successful",
        "1 if rules, certificates and tokens are as their files say; 0 until those are mended.", {},
        [this] { return ReloadHealth().problems.empty() ? 1.0 : 0.0; });
    registry_.AddCallback(
        kGauge, "sluice_last_reload_success_timestamp_seconds",
        "When rules were last taken from their files.", {}, [this] {
          const auto good_at = keeper_->files_status().good_at;
          if (!good_at) return 0.0;
          return std::chrono::duration<double>(good_at->time_since_epoch()).count();
        });
  }

  http::Limits HttpLimits() const {
    http::Limits limits;
    limits.connections_max = static_cast<std::size_t>(descriptors_.connections.http);
    limits.head_bytes_max = static_cast<std::size_t>(settings_.http.header_bytes_max);
    limits.headers_max = static_cast<std::size_t>(settings_.http.headers_max);
    limits.body_bytes_max = static_cast<std::size_t>(settings_.http.body_bytes_max);
    limits.head_bytes_hint = "; see http.headerBytesMax";
    limits.headers_hint = "; see http.headersMax";
    limits.body_bytes_hint = "; see http.bodyBytesMax";
    limits.idle_timeout = Millis(settings_.http.idle_timeout);
    limits.head_timeout = Millis(settings_.http.header_timeout);
    limits.body_timeout = Millis(settings_.http.body_timeout);
    return limits;
  }

  std::expected<void, Problems> OpenRuleSetStore() {
    const std::string& uri = settings_.rules.redis;
    if (uri.empty()) {
      managed_ = std::make_unique<reload::ProcessRuleSetStore>();
      return {};
    }
    auto client = redis::Client::Create(uri == "store" ? settings_.store : uri);
    if (!client) return std::unexpected(ProblemOf("rules.redis", client.error()));
    rules_client_ = *std::move(client);
    managed_ = std::make_unique<RedisRuleSets>(*rules_client_);
    return {};
  }

  std::expected<void, Problems> OpenResp() {
    if (settings_.resp.listen.empty()) return {};
    auto server = resp::Server::Start(
        loops_, *engine_,
        {.address = *net::ListenAddress::Parse(settings_.resp.listen),
         .tls = TlsOf(settings_.resp,
                      !settings_.resp.token_file.empty() || !settings_.resp.password.empty()),
         .session = {.access = &resp_access_,
                     .on_store_failure = settings_.resp.on_store_failure,
                     .ipv6_prefix = static_cast<int>(settings_.client.ipv6_prefix)},
         .connections_max = static_cast<std::size_t>(descriptors_.connections.resp),
         .idle_timeout = std::chrono::ceil<std::chrono::seconds>(settings_.resp.idle_timeout),
         .buffered = buffered_});
    if (!server) return std::unexpected(ProblemOf("resp", server.error()));
    resp_ = *std::move(server);
    return {};
  }

  grpc::RlsOptions RlsOptions() const {
    return {.on_store_failure = settings_.grpc.on_store_failure, .headers = settings_.grpc.headers};
  }

  std::expected<void, Problems> OpenGrpc() {
    if (settings_.grpc.listen.empty()) return {};
    auto server = grpc::Server::Start(
        loops_, *engine_,
        {.address = *net::ListenAddress::Parse(settings_.grpc.listen),
         .tls = TlsOf(settings_.grpc, !settings_.grpc.token_file.empty()),
         .connections_max = static_cast<std::size_t>(descriptors_.connections.grpc),
         .services = {.rls = RlsOptions(), .access = &grpc_access_},
         .buffered = buffered_});
    if (!server) return std::unexpected(ProblemOf("grpc", server.error()));
    grpc_ = *std::move(server);
    return {};
  }

  // POST /json, in the shape of envoyproxy/ratelimit.
  void AnswerRlsJson(const http::Request& request, http::Exchange exchange) {
    auto reply = std::make_shared<api::Reply>(std::move(exchange), request, instruments_);
    const auto done = [reply](grpc::JsonAnswer answer) {
      reply->body = std::move(answer.body);
      reply->Send(answer.http_status);
    };
    grpc::HandleJson(*engine_, RlsOptions(), request.body, done, reply->request_id());
  }

  std::expected<void, Problems> OpenHttp() {
    if (settings_.http.listen.empty()) return {};
    auto trusted = net::CidrSet::Parse(settings_.client.trusted_proxies);
    if (!trusted) return std::unexpected(ProblemOf("client.trustedProxies", trusted.error()));
    const auto trusted_headers = net::TrustedHeaders::Parse(settings_.client.trusted_headers);
    if (!trusted_headers) {
      return std::unexpected(ProblemOf("client.trustedHeaders", trusted_headers.error()));
    }
    auto attribute_headers = net::ParseAttributeHeaders(settings_.client.attribute_headers);
    if (!attribute_headers) {
      return std::unexpected(ProblemOf("client.attributeHeaders", attribute_headers.error()));
    }
    public_api_.emplace(api::PublicApi::Parts{
        .service = {.engine = *engine_,
                    .registry = registry_,
                    .instruments = instruments_,
                    .health = [this] { return Health(); },
                    .version = SLUICE_VERSION,
                    .tls = !settings_.http.tls_certificate.empty()},
        .clients = {.trusted_proxies = *std::move(trusted),
                    .trusted_headers = *trusted_headers,
                    .attribute_headers = *std::move(attribute_headers),
                    .ipv6_prefix = static_cast<int>(settings_.client.ipv6_prefix)},
        .on_store_failure = settings_.http.on_store_failure,
        .access = http_access_,
        .is_public = settings_.http.is_public,
        .rls_json = [this](const http::Request& request, http::Exchange exchange) {
          AnswerRlsJson(request, std::move(exchange));
        }});
    auto server = http::Server::Start(
        loops_, *public_api_,
        {.address = *net::ListenAddress::Parse(settings_.http.listen),
         .tls =
             TlsOf(settings_.http, !settings_.http.token_file.empty() || settings_.http.is_public),
         .limits = HttpLimits(),
         .buffered = buffered_});
    if (!server) return std::unexpected(ProblemOf("http", server.error()));
    http_ = *std::move(server);
    return {};
  }

  std::expected<void, Problems> OpenAdmin() {
    if (settings_.admin.listen.empty()) return {};
    const auto address = *net::ListenAddress::Parse(settings_.admin.listen);
    admin_api_.emplace(
        api::AdminApi::Parts{.engine = *engine_,
                             .keeper = *keeper_,
                             .keys = keys_,
                             .instruments = instruments_,
                             .health = [this] { return Health(); },
                             .reload = [this](auto done) { Reload(std::move(done)); },
                             .guard_status = [this] { return backend_->GuardStatus(); },
                             .access = admin_access_});
    http::Limits limits = HttpLimits();
    limits.connections_max = static_cast<std::size_t>(descriptors_.connections.admin);
    // Every rule set that can be read can be sent.
    limits.body_bytes_max = kYamlBytesMax;
    limits.body_bytes_hint = ", as a rule set may have";
    // A token does not travel in the clear if there is a certificate. Those of the HTTP door's
    // clients let nobody in here.
    std::optional<net::TlsFiles> tls;
    if (!address.IsLoopback()) tls = TlsOf(settings_.http, true);
    if (tls) tls->client_ca.clear();
    auto server = http::Server::Start(
        loops_, *admin_api_,
        {.address = address, .tls = std::move(tls), .limits = limits, .buffered = AdminBuffered()});
    if (!server) return std::unexpected(ProblemOf("admin", server.error()));
    admin_ = *std::move(server);
    return {};
  }

  // Constant after construction.
  const Settings settings_;

  // Caught from the beginning: by default they would kill a service that has just said it listens.
  asio::io_context signal_context_{1};
  asio::signal_set stop_signals_{signal_context_, SIGTERM, SIGINT};
  asio::signal_set reload_signals_{signal_context_, SIGHUP};

  ForwardClock clock_{SystemClock(), BootClock()};
  telemetry::Logger logger_;
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_;
  const api::Instruments instruments_{.metrics = metrics_, .logger = logger_};
  net::Access http_access_{DoorOf(settings_.http)};
  net::Access admin_access_{DoorOf(settings_.admin)};
  net::Access resp_access_{DoorOf(settings_.resp)};
  net::Access grpc_access_{DoorOf(settings_.grpc)};
  telemetry::HeavyHitters keys_;
  std::optional<service::Engine> engine_;
  std::unique_ptr<Backend> backend_;  // Tells the engine of each decision, to its end.
  std::unique_ptr<redis::Client> rules_client_;
  std::unique_ptr<reload::RuleSetStore> managed_;
  std::optional<reload::Keeper> keeper_;
  Descriptors descriptors_;  // From Start on.
  const std::shared_ptr<net::ByteBudget> buffered_ =
      std::make_shared<net::ByteBudget>(static_cast<std::size_t>(settings_.buffered_bytes_max));
  net::Loops loops_;
  std::optional<api::PublicApi> public_api_;
  std::optional<api::AdminApi> admin_api_;
  std::unique_ptr<http::Server> http_;
  std::unique_ptr<http::Server> admin_;
  std::unique_ptr<resp::Server> resp_;
  std::unique_ptr<grpc::Server> grpc_;
  mutable std::mutex reload_mutex_;
  Problems other_problems_;  // Of certificates and tokens, at the last reload. By reload_mutex_.
  FreedMemory freed_memory_;
  std::uint64_t accept_errors_told_ = 0;  // Of the thread of give_back_, as is the next.
  std::uint64_t buffers_refused_told_ = 0;
  std::optional<Periodic> give_back_;
  std::atomic<bool> draining_ = false;
  const std::string config_path_;
  std::jthread drain_;
  std::optional<Periodic> clock_follower_;
};

std::expected<std::unique_ptr<Daemon>, Problems> Daemon::Start(const Settings& settings,
                                                               const std::string& config_path,
                                                               const Problems& warnings) {
  auto impl = std::make_unique<Impl>(settings, config_path);
  if (auto started = impl->Start(warnings); !started)
    return std::unexpected(std::move(started.error()));
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() = default;

void Daemon::Run() { impl_->Run(); }

}  // namespace sluice::daemon
