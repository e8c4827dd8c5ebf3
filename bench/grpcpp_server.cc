// SPDX-License-Identifier: Apache-2.0
// The baseline for the gRPC door: a bare grpc++ callback server that answers every ShouldRateLimit
// with the same OK. It looks at nothing and counts nothing.
#include <envoy/service/ratelimit/v3/rls.grpc.pb.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <memory>

namespace {

namespace v3 = envoy::service::ratelimit::v3;

class ConstantService final : public v3::RateLimitService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ShouldRateLimit(grpc::CallbackServerContext* context,
                                            const v3::RateLimitRequest* /*request*/,
                                            v3::RateLimitResponse* response) override {
    response->set_overall_code(v3::RateLimitResponse::OK);
    response->add_statuses()->set_code(v3::RateLimitResponse::OK);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

int main() {
  ConstantService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return 1;
  std::printf("grpc listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
}
