// SPDX-License-Identifier: Apache-2.0
#include "cli/stores.h"

#include <cstdio>
#include <future>

#include "base/text.h"
#include "cli/hide_secrets.h"

namespace sluice::cli {

Expected<std::unique_ptr<RedisStore>> OpenRedis(const RedisStore::Options& options) {
  // Shown only if it cannot contain a password.
  if (!options.uri.contains(':') && !options.uri.contains('@')) {
    return std::unexpected(Error{ErrorCode::kInvalidInput,
                                 text::Cat("--store ", text::Quote(options.uri),
                                           ": expected a URI such as redis://127.0.0.1:6379")});
  }
  auto store = RedisStore::Create(options);
  if (!store) {
    return std::unexpected(
        Error{store.error().code, text::Cat("--store: ", store.error().message)});
  }
  for (const std::string& warning : (*store)->Warnings()) {
    std::fprintf(stderr, "sluice: warning: %s\n", warning.c_str());
  }
  return store;
}

Expected<std::vector<Limit>> ParseLimits(const std::vector<std::string>& texts) {
  if (texts.size() > kChargesMax) {
    return std::unexpected(
        Error{ErrorCode::kInvalidRequest,
              text::Cat(texts.size(), " limits; expected at most ", kChargesMax)});
  }
  std::vector<Limit> limits;
  for (const std::string& text : texts) {
    auto limit = Limit::Parse(text);
    if (!limit) {
      const std::string shown = WithoutSecrets(text);
      // The detailed error may quote a part of a password.
      const std::string why =
          shown == text ? limit.error().message : "expected a limit such as limit=5,window=1m";
      return std::unexpected(
          Error{limit.error().code, text::Cat("--limit ", text::Quote(shown), ": ", why)});
    }
    limits.push_back(*limit);
  }
  return limits;
}

Expected<Decision> Decide(Store& store, Request& request) {
  auto promise = std::make_shared<std::promise<void>>();
  auto answered = promise->get_future();
  store.Apply({&request, 1}, [promise] { promise->set_value(); });
  answered.wait();
  return request.outcome;
}

}  // namespace sluice::cli
