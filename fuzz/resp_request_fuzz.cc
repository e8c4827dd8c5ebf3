// SPDX-License-Identifier: Apache-2.0
// What clients may send to the RESP door: it must be refused or answered, and the answers must not
// depend on how the bytes were split.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/renewable_store.h"
#include "support/resp_session.h"

namespace {

using sluice::testing_support::RenewableStore;
using sluice::testing_support::RespEngine;
using sluice::testing_support::RespPeer;

// `cuts` gives the lengths of the pieces, over and over; without any it is one piece.
std::string Converse(const sluice::resp::SessionOptions& options, std::string_view bytes,
                     std::string_view cuts) {
  static RenewableStore store;
  static RespEngine parts(&store);
  store.Renew(parts.clock);
  sluice::resp::Worker worker(parts.engine, options, [] { return sluice::resp::ServerInfo{}; });
  RespPeer peer(worker);
  std::string out;
  for (std::size_t i = 0; !bytes.empty(); ++i) {
    const std::size_t size =
        cuts.empty() ? bytes.size() : static_cast<unsigned char>(cuts[i % cuts.size()]) % 32 + 1;
    out += peer.Send(bytes.substr(0, size));
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  return out;
}

// Without the ids of holds, which are random unless the client names them.
std::string WithoutIds(std::string replies) {
  constexpr std::string_view kName = "$2\r\nid\r\n";
  for (std::size_t at = 0; (at = replies.find(kName, at)) != std::string::npos;) {
    at += kName.size();
    const std::size_t length_end = replies.find("\r\n", at);
    if (length_end == std::string::npos) break;
    const std::size_t end = replies.find("\r\n", length_end + 2);
    replies.erase(at, end == std::string::npos ? end : end - at);
  }
  return replies;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHead = 4;
  if (size < kHead) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  sluice::resp::SessionOptions options;
  sluice::net::Access access(sluice::net::Access::Door::kGuarded);
  sluice::net::Tokens tokens;
  tokens.Add("user", "secret");
  access.SetTokens(std::move(tokens));
  if ((data[0] & 1) != 0) options.access = &access;
  if ((data[0] & 2) != 0) {
    options.bounds = {.arguments_max = 8,
                      .bulk_bytes_max = 64,
                      .inline_bytes_max = 128,
                      .request_bytes_max = 256,
                      .pipeline_max = 3,
                      .output_bytes_max = 64};
  }
  const std::string_view bytes = input.substr(kHead);
  const std::string whole = Converse(options, bytes, {});
  const std::string cut = Converse(options, bytes, input.substr(1, kHead - 1));
  if (WithoutIds(whole) != WithoutIds(cut)) {
    std::abort();
  }
  return 0;
}
