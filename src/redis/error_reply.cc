// SPDX-License-Identifier: Apache-2.0
#include "redis/error_reply.h"

#include "base/text.h"

namespace sluice::redis {

Error ErrorOf(std::string_view reply) {
  const std::string_view word = reply.substr(0, reply.find(' '));
  const auto is = [&](auto... words) { return ((word == words) || ...); };
  ErrorCode code = ErrorCode::kStoreError;
  if (is("OOM")) {
    code = ErrorCode::kStoreFull;
  } else if (is("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
                "BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED") ||
             reply.starts_with("ERR max number of clients")) {
    code = ErrorCode::kUnavailable;
  } else if (is("NOAUTH", "WRONGPASS", "NOPERM", "DENIED") ||
             reply.starts_with("ERR Client sent AUTH") || reply.starts_with("ERR AUTH") ||
             reply.starts_with("ERR The user executing the script can't")) {
    code = ErrorCode::kAccessDenied;
  }
  return {code, text::Cat("Redis says ", text::Quote(reply))};
}

Error NotSentFor(Error reason) {
  if (reason.code == ErrorCode::kOutcomeUnknown) reason.code = ErrorCode::kUnavailable;
  return reason;
}

}  // namespace sluice::redis
