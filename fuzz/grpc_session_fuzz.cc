// SPDX-License-Identifier: Apache-2.0
// Any bytes of a client, HTTP/2 frames or not, into the services on a memory store: no crash, no
// leak, and bounded output. The first byte determines how the rest is split; the second, whether
// the client's preface precedes it, so that most inputs get past it.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "grpc/services.h"
#include "support/rls_engine.h"

namespace {

using sluice::grpc::Counters;
using sluice::grpc::Services;
using sluice::grpc::Serving;
using sluice::grpc::SteadyTime;

constexpr std::string_view kGreeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr const char* kDomain = R"(
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static sluice::ManualClock clock;
  static sluice::MemoryStore store({.clock = &clock});
  static sluice::test::RlsEngine engine(store, clock, {kDomain});
  if (size < 2) return 0;
  const std::size_t step = std::size_t{data[0]} + 1;
  const bool greet = data[1] % 2 == 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);

  Counters counters;
  const Services::Options options = {.limits = {.message_bytes_max = 1024,
                                                .buffered_bytes_max = 2048,
                                                .reply_bytes_max = 65'536,
                                                .streams_max = 8,
                                                .header_bytes_max = 1024,
                                                .resets_max = 50,
                                                .quiet_frames_max = 50,
                                                .receive_timeout = std::chrono::seconds(2),
                                                .next_message_timeout = std::chrono::seconds(3),
                                                .send_timeout = std::chrono::seconds(1)},
                                     .rls = {.headers = true}};
  const auto made = std::make_shared<Services>(*engine, options, counters, Serving::kYes,
                                               [] { __builtin_trap(); });
  Services& services = *made;
  SteadyTime now{};
  std::string out;
  if (greet) services.Receive(kGreeting, now);
  for (std::size_t turn = 0; !rest.empty() && !services.session().finished(); ++turn) {
    // A copy, so that nothing can be kept of it and nothing read past its end.
    const std::size_t part = std::min(step, rest.size());
    const std::unique_ptr<char[]> copy(new char[part]);
    rest.copy(copy.get(), part);
    rest.remove_prefix(part);
    services.Receive({copy.get(), part}, now);
    now += std::chrono::milliseconds(100);
    if (turn % 4 == 1) services.session().ExpireReplies(now);
    if (turn % 4 == 3) services.session().Expire(now);
    if (turn % 8 == 7) services.DropSpare();
    if (turn == 10) services.SetServing(Serving::kNo);
    if (turn == 20) services.Drain();
    services.session().Produce(out, 1 << 20);
    if (out.size() > (8 << 20)) __builtin_trap();
    const auto& session = services.session();
    if ((session.open_calls() == 0) != (session.held_bytes() == 0)) __builtin_trap();
    out.clear();
  }
  return 0;
}
