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
#include "daemon/door_plan.h"
#include "daemon/freed_memory.h"
#include "daemon/periodic.h"
#include "daemon/redis_rule_sets.h"
#include "grpc/rls_json.h"
#include "grpc/server.h"
#include "http/server.h"
#include "net/access.h"
#include "net/byte_budget.h"
#include "net/door.h"
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

constexpr int kExitForced = 2;  // By a second signal; pending requests stay unanswered.

namespace asio = boost::asio;
using config::Settings;

Problems ProblemOf(std::string_view what, const Error& error) {
  return {{.file = std::string(what), .message = error.message}};
}

// A client certificate is optional if there is another way to be let in.
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

// Prints where a door listens, for a supervisor or a test. Whoever collects JSON lines collects
// those of standard output, too.
void Announce(std::string_view door, const net::ListenAddress& address,
              telemetry::LogFormat format) {
  const std::string message = text::Cat(door, " listening on ", address.ToString());
  const std::string line =
      format == telemetry::LogFormat::kJson
          ? telemetry::LogLine(format, SystemClock().Now(), telemetry::LogLevel::kInfo, message)
          : message + '\n';
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

std::size_t LoopCount(const Settings& settings) {
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  const auto count = settings.threads > 0 ? static_cast<std::size_t>(settings.threads) : cores;
  return std::min(count, net::Loops::kCountMax);
}

// The admin door's own budget, so that it answers whatever clients do at the others.
std::shared_ptr<net::ByteBudget> AdminBuffered() {
  constexpr std::size_t kBodies = 4;  // Of the maximum size.
  return std::make_shared<net::ByteBudget>(kBodies * kYamlBytesMax);
}

// Warns about a door that listens beyond this machine and asks for no credentials, or whose tokens
// can be read on the way.
void WarnIfExposed(const DoorPlan& door, telemetry::Logger& logger) {
  if (!door.is_open() || net::ListenAddress::Parse(door.listen)->IsLoopback()) return;
  const auto warn = [&](std::string_view message) {
    logger.Warn(message, {{"door", door.name}, {"listen", door.listen}});
  };
  if (!door.guarded) {
    warn(text::Cat("whoever reaches this door may use it; set ", door.name, ".tokenFile or ",
                   door.name, ".tlsClientCa, or listen on loopback"));
  } else if (door.has_tokens() && !door.has_certificate) {
    warn(text::Cat("tokens travel in clear; set ", door.certificate_setting,
                   ", or listen on loopback"));
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
    // The keeper's work is finished while there are doors to answer it. Then end the doors; the
    // store, which decides what still waits in it, for connections that are gone; and the loops.
    if (keeper_) keeper_->Stop();
    for (ServiceDoor& each : doors_) each.door.reset();
    backend_.reset();
    loops_.Stop();
    keeper_.reset();
  }

  std::expected<void, Problems> Start(const Problems& warnings) {
    std::signal(SIGPIPE, SIG_IGN);  // The log's reader may go; the service stays.
    std::vector<DoorPlan> plans = PlanDoors(settings_);
    const Descriptors descriptors = ReserveDescriptors(plans, loops_.size());
    for (DoorPlan& plan : plans) doors_.emplace_back(std::move(plan));
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
                                .publish = [this](auto catalog) { Publish(std::move(catalog)); }},
        reload::Keeper::Parts{.managed = *managed_, .logger = logger_, .metrics = metrics_});
    // Nobody is answered before the loops run. Failures are reported before anything is logged.
    for (ServiceDoor& each : doors_) {
      if (!each.plan.is_open()) continue;
      auto opened = Open(each);
      if (!opened) return std::unexpected(std::move(opened.error()));
      each.door = *std::move(opened);
    }
    WatchConnections();
    WatchCertificates();
    WatchRules();
    metrics_.WatchHolds([this] { return engine_->live_holds().Count(engine_->Now()); },
                        [this] { return engine_->live_holds().CountByRule(engine_->Now()); });
    WatchReloads();
    if (auto labelled = LabelMetrics(); !labelled) return labelled;
    if (Problems problems = keeper_->Load(); !problems.empty()) return std::unexpected(problems);
    for (const Problem& warning : warnings) logger_.Warn(warning.ToString());
    const bool few_files = descriptors.files_max < descriptors.needed;
    if (few_files) {
      logger_.Warn("too few files may be open; raise the limit of the system",
                   {{"files_max", descriptors.files_max}, {"needed", descriptors.needed}});
    }
    for (const ServiceDoor& each : doors_) {
      if (few_files && each.door) {
        logger_.Warn("maximum of connections in effect at this door",
                     {{"door", each.plan.name}, {"connections_max", each.plan.connections_max}});
      }
      WarnIfExposed(each.plan, logger_);
      TellOfTokens(each.plan);
    }
    backend_->Start();
    FollowClock();
    loops_.Start();
    keeper_->Start();
    give_back_.emplace(std::chrono::seconds{1}, Periodic::First::kAfterInterval, [this] {
      freed_memory_.GiveBack();
      TellOfAcceptErrors();
      TellOfFullBuffers();
    });
    for (const ServiceDoor& each : doors_) {
      if (each.door) Announce(each.plan.name, each.door->address(), settings_.log.format);
    }
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
  // Every loop, even an idle one, has released the old catalog when this returns. What requests no
  // longer use is destroyed here, where nobody has to wait for it.
  void Publish(std::shared_ptr<const service::Catalog> catalog) {
    const auto old = engine_->catalog();
    engine_->SetCatalog(std::move(catalog));
    backend_->ForgetDenials();
    loops_.RunOnAll([this](std::size_t) { engine_->catalog(); });
  }

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

  // Reloads time zones, rules, certificates and tokens; does not wait.
  void Reload(reload::Keeper::Done done) {
    // First, so that rules may name a zone that is new.
    Problems of_zones = ReloadZones();
    keeper_->Reload([this, of_zones = std::move(of_zones),
                     done = std::move(done)](reload::Keeper::Outcome outcome) mutable {
      // A missing file is a problem of the configuration, not an error of the request.
      if (!outcome.result && outcome.problems.empty()) {
        outcome.problems = ProblemOf("rules", outcome.result.error());
      }
      Problems others = std::move(of_zones);
      std::ranges::move(ReloadCertificates(), std::back_inserter(others));
      std::ranges::move(ReloadTokens(), std::back_inserter(others));
      {
        const std::scoped_lock lock(reload_mutex_);
        other_problems_ = others;
      }
      std::ranges::move(others, std::back_inserter(outcome.problems));
      done(std::move(outcome));
    });
  }

  struct ServiceDoor {
    explicit ServiceDoor(DoorPlan own_plan)
        : plan(std::move(own_plan)),
          access(std::make_unique<net::Access>(plan.guarded ? net::Access::Door::kGuarded
                                                            : net::Access::Door::kOpen)) {}

    DoorPlan plan;
    std::unique_ptr<net::Access> access;
    std::unique_ptr<net::Door> door;  // Null if it stays closed.
  };
  using Opened = std::expected<std::unique_ptr<net::Door>, Problems>;

  Opened Open(const ServiceDoor& each) {
    switch (each.plan.kind) {
      case DoorKind::kHttp:
        return OpenHttp(each);
      case DoorKind::kAdmin:
        return OpenAdmin(each);
      case DoorKind::kResp:
        return OpenResp(each);
      case DoorKind::kGrpc:
        return OpenGrpc(each);
    }
    std::unreachable();
  }

  // Turns the result of a server's Start into a door.
  template <typename Server>
  static Opened DoorOf(std::string_view name, Expected<std::unique_ptr<Server>> server) {
    if (!server) return std::unexpected(ProblemOf(name, server.error()));
    return *std::move(server);
  }

  static Expected<void> LoadTokens(const ServiceDoor& each) {
    net::Tokens tokens;
    if (!each.plan.token_file.empty()) {
      auto read = config::ReadTokens(each.plan.token_file);
      if (!read) return std::unexpected(std::move(read.error()));
      tokens = *std::move(read);
    }
    if (!each.plan.token.empty()) tokens.Add("", each.plan.token);
    each.access->SetTokens(std::move(tokens));
    return {};
  }

  void TellOfTokens(const DoorPlan& plan) {
    if (!plan.is_open() || plan.token_file.empty()) return;
    logger_.Info("tokens in use", {{"door", plan.name}});
    if (!IsReadByOthers(plan.token_file)) return;
    logger_.Warn("every user of this machine can read the tokens; take that right from the file",
                 {{"door", plan.name}, {"file", plan.token_file}});
  }

  Problems LoadTokens() {
    Problems problems;
    for (const ServiceDoor& each : doors_) {
      if (!each.plan.is_open()) continue;
      if (const auto loaded = LoadTokens(each); !loaded) {
        problems.push_back(
            {.file = text::Cat(each.plan.name, ".tokenFile"), .message = loaded.error().message});
      }
    }
    return problems;
  }

  // Of calendars: what clocks show, as the system knows it now.
  Problems ReloadZones() {
    const Expected<int> changed = ReloadTimeZones();
    if (!changed) {
      logger_.Error("a time zone cannot be used; the old data stays",
                    {{"error", changed.error().message}});
      return ProblemOf("time zones", changed.error());
    }
    if (*changed > 0) logger_.Info("time zones have changed", {{"zones", text::Cat(*changed)}});
    return {};
  }

  // Each door has its own. If a file is invalid, its door keeps the old tokens.
  Problems ReloadTokens() {
    Problems problems;
    for (const ServiceDoor& each : doors_) {
      const auto& [name, path] = std::tie(each.plan.name, each.plan.token_file);
      // A pipe delivers only once, and reading it again may block forever.
      std::error_code error;
      const auto type = std::filesystem::status(path, error).type();
      using std::filesystem::file_type;
      const bool is_file = type == file_type::regular || type == file_type::not_found;
      if (!each.plan.is_open() || path.empty() || !is_file) continue;
      if (const auto loaded = LoadTokens(each); !loaded) {
        metrics_.TokensReloaded(service::ReloadResult::kInvalid);
        logger_.Error("the tokens cannot be used; the old ones stay",
                      {{"door", name}, {"error", loaded.error().message}});
        problems.push_back({.file = std::string(name), .message = loaded.error().message});
      } else {
        metrics_.TokensReloaded(service::ReloadResult::kOk);
        TellOfTokens(each.plan);
      }
    }
    return problems;
  }

  // Each door has its own. If one is invalid, its door keeps the old one.
  Problems ReloadCertificates() {
    Problems problems;
    for (const ServiceDoor& each : doors_) {
      if (!each.door) continue;
      const Expected<bool> loaded = each.door->ReloadCertificate();
      if (!loaded) {
        metrics_.CertificateReloaded(service::ReloadResult::kInvalid);
        logger_.Error("the certificate cannot be used; the old one stays",
                      {{"door", each.plan.name}, {"error", loaded.error().message}});
        problems.push_back(
            {.file = std::string(each.plan.name), .message = loaded.error().message});
      } else if (*loaded) {
        metrics_.CertificateReloaded(service::ReloadResult::kOk);
        logger_.Info("certificate in use", {{"door", each.plan.name}});
      }
    }
    return problems;
  }

  // A door that is not open has had no connections.
  void WatchConnections() {
    for (const ServiceDoor& each : doors_) {
      metrics_.WatchConnections(each.plan.name, [&each]() -> service::ServiceMetrics::Connections {
        if (!each.door) return {};
        const net::Listener::Counts counts = each.door->connections();
        return {.open = counts.open,
                .accepted = counts.accepted,
                .refused = counts.refused,
                .accept_errors = counts.accept_errors,
                .handshakes_failed = counts.handshakes_failed};
      });
    }
  }

  void WatchCertificates() {
    registry_.AddSamples(
        telemetry::Registry::Type::kGauge, "sluice_certificate_expires_seconds",
        "When the certificate in use expires, as Unix time; of doors with TLS.", {"door"}, [this] {
          telemetry::Registry::Samples samples;
          for (const ServiceDoor& each : doors_) {
            if (!each.door) continue;
            const std::int64_t expires = each.door->connections().certificate_expires;
            if (expires == 0) continue;
            samples.push_back({{std::string(each.plan.name)}, static_cast<double>(expires)});
          }
          return samples;
        });
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

  // At most one line a second, as for everything that clients cause.
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
    for (const ServiceDoor& each : doors_) {
      if (each.door) errors += each.door->connections().accept_errors;
    }
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
    // All client doors close before we wait for any; operators can watch meanwhile.
    const auto drain = [&](bool for_operators) {
      for (const ServiceDoor& each : doors_) {
        if (each.door && each.plan.for_operators == for_operators) each.door->StartDrain();
      }
      for (const ServiceDoor& each : doors_) {
        if (each.door && each.plan.for_operators == for_operators)
          cut += each.door->Drain(deadline);
      }
    };
    drain(false);
    drain(true);
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

  http::Limits HttpLimits(const DoorPlan& plan) const {
    http::Limits limits;
    limits.connections_max = static_cast<std::size_t>(plan.connections_max);
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

  Opened OpenResp(const ServiceDoor& each) {
    auto server = resp::Server::Start(
        loops_, *engine_,
        {.address = *net::ListenAddress::Parse(each.plan.listen),
         .tls = TlsOf(settings_.resp, each.plan.has_tokens()),
         .session = {.access = each.access.get(),
                     .on_store_failure = settings_.resp.on_store_failure,
                     .ipv6_prefix = static_cast<int>(settings_.client.ipv6_prefix)},
         .connections_max = static_cast<std::size_t>(each.plan.connections_max),
         .idle_timeout = std::chrono::ceil<std::chrono::seconds>(settings_.resp.idle_timeout),
         .buffered = buffered_});
    return DoorOf(each.plan.name, std::move(server));
  }

  grpc::RlsOptions RlsOptions() const {
    return {.on_store_failure = settings_.grpc.on_store_failure, .headers = settings_.grpc.headers};
  }

  Opened OpenGrpc(const ServiceDoor& each) {
    auto server = grpc::Server::Start(
        loops_, *engine_,
        {.address = *net::ListenAddress::Parse(each.plan.listen),
         .tls = TlsOf(settings_.grpc, each.plan.has_tokens()),
         .connections_max = static_cast<std::size_t>(each.plan.connections_max),
         .services = {.rls = RlsOptions(),
                      .limiter = {.on_store_failure = settings_.grpc.on_store_failure,
                                  .ipv6_prefix = static_cast<int>(settings_.client.ipv6_prefix)},
                      .access = each.access.get()},
         .buffered = buffered_});
    return DoorOf(each.plan.name, std::move(server));
  }

  // POST /json, in the format of envoyproxy/ratelimit.
  void AnswerRlsJson(const http::Request& request, http::Exchange exchange) {
    auto reply = std::make_shared<api::Reply>(std::move(exchange), request, instruments_);
    const auto done = [reply](grpc::JsonAnswer answer) {
      reply->body = std::move(answer.body);
      reply->Send(answer.http_status);
    };
    grpc::HandleJson(*engine_, RlsOptions(), request.body, done, reply->request_id());
  }

  Opened OpenHttp(const ServiceDoor& each) {
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
        .access = *each.access,
        .is_public = settings_.http.is_public,
        .band_fields =
            settings_.http.band_fields ? service::BandFields::kYes : service::BandFields::kNo,
        .rls_json = [this](const http::Request& request, http::Exchange exchange) {
          AnswerRlsJson(request, std::move(exchange));
        }});
    auto server = http::Server::Start(
        loops_, *public_api_,
        {.address = *net::ListenAddress::Parse(each.plan.listen),
         .tls = TlsOf(settings_.http, each.plan.has_tokens() || settings_.http.is_public),
         .limits = HttpLimits(each.plan),
         .buffered = buffered_});
    return DoorOf(each.plan.name, std::move(server));
  }

  Opened OpenAdmin(const ServiceDoor& each) {
    const auto address = *net::ListenAddress::Parse(each.plan.listen);
    admin_api_.emplace(
        api::AdminApi::Parts{.engine = *engine_,
                             .keeper = *keeper_,
                             .keys = keys_,
                             .instruments = instruments_,
                             .health = [this] { return Health(); },
                             .reload = [this](auto done) { Reload(std::move(done)); },
                             .guard_status = [this] { return backend_->GuardStatus(); },
                             .access = *each.access});
    http::Limits limits = HttpLimits(each.plan);
    // Every rule set that can be read can be sent.
    limits.body_bytes_max = kYamlBytesMax;
    limits.body_bytes_hint = ", as a rule set may have";
    // With a certificate, tokens are encrypted on the way. Certificates of the HTTP door's clients
    // are not accepted here.
    std::optional<net::TlsFiles> tls;
    if (!address.IsLoopback()) tls = TlsOf(settings_.http, true);
    if (tls) tls->client_ca.clear();
    auto server = http::Server::Start(
        loops_, *admin_api_,
        {.address = address, .tls = std::move(tls), .limits = limits, .buffered = AdminBuffered()});
    return DoorOf(each.plan.name, std::move(server));
  }

  // Constant after construction.
  const Settings settings_;

  // Caught from the beginning: by default they would kill a service that has just announced itself.
  asio::io_context signal_context_{1};
  asio::signal_set stop_signals_{signal_context_, SIGTERM, SIGINT};
  asio::signal_set reload_signals_{signal_context_, SIGHUP};

  ForwardClock clock_{SystemClock(), BootClock()};
  telemetry::Logger logger_;
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_;
  const api::Instruments instruments_{.metrics = metrics_, .logger = logger_};
  telemetry::HeavyHitters keys_;
  std::optional<service::Engine> engine_;
  std::unique_ptr<Backend> backend_;  // Reports each decision to the engine until it ends.
  std::unique_ptr<redis::Client> rules_client_;
  std::unique_ptr<reload::RuleSetStore> managed_;
  std::optional<reload::Keeper> keeper_;
  const std::shared_ptr<net::ByteBudget> buffered_ =
      std::make_shared<net::ByteBudget>(static_cast<std::size_t>(settings_.buffered_bytes_max));
  net::Loops loops_;
  std::optional<api::PublicApi> public_api_;
  std::optional<api::AdminApi> admin_api_;
  std::vector<ServiceDoor> doors_;  // From Start on.
  mutable std::mutex reload_mutex_;
  Problems other_problems_;  // Certificates and tokens, last reload. Guarded by reload_mutex_.
  FreedMemory freed_memory_;
  std::uint64_t accept_errors_told_ = 0;  // For give_back_'s thread only, like the next.
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
