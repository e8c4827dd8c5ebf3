// SPDX-License-Identifier: Apache-2.0
#include "daemon/door_plan.h"

#include <tuple>

#include "resp/server.h"

namespace sluice::daemon {
namespace {

// For people and their tools, not traffic.
constexpr std::int64_t kAdminConnectionsMax = 256;

}  // namespace

std::vector<DoorPlan> PlanDoors(const config::Settings& settings) {
  const auto& [http, admin, resp, grpc] =
      std::tie(settings.http, settings.admin, settings.resp, settings.grpc);
  std::vector<DoorPlan> doors = {
      {.kind = DoorKind::kHttp,
       .name = "http",
       .listen = http.listen,
       .token_file = http.token_file,
       .guarded = !http.tls_client_ca.empty() || http.is_public,
       .has_certificate = !http.tls_certificate.empty(),
       .certificate_setting = "http.tlsCertificate",
       .connections_max = http.connections_max},
      {.kind = DoorKind::kAdmin,
       .name = "admin",
       .listen = admin.listen,
       .token_file = admin.token_file,
       .token = admin.token,
       .has_certificate = !http.tls_certificate.empty(),  // Shared with the HTTP door.
       .certificate_setting = "http.tlsCertificate",
       .connections_max = kAdminConnectionsMax,
       .for_operators = true},
      {.kind = DoorKind::kResp,
       .name = "resp",
       .listen = resp.listen,
       .token_file = resp.token_file,
       .token = resp.password,
       .guarded = !resp.tls_client_ca.empty(),
       .has_certificate = !resp.tls_certificate.empty(),
       .certificate_setting = "resp.tlsCertificate",
       .connections_max = resp.connections_max,
       .refusals_max = static_cast<std::int64_t>(resp::Server::kRefusalsMax)},
      {.kind = DoorKind::kGrpc,
       .name = "grpc",
       .listen = grpc.listen,
       .token_file = grpc.token_file,
       .guarded = !grpc.tls_client_ca.empty(),
       .has_certificate = !grpc.tls_certificate.empty(),
       .certificate_setting = "grpc.tlsCertificate",
       .connections_max = grpc.connections_max},
  };
  for (DoorPlan& door : doors) door.guarded = door.guarded || door.has_tokens();
  return doors;
}

}  // namespace sluice::daemon
