// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls in the manner of Boost.Asio; the one public header that needs Boost.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <span>
#include <utility>

#include "sluice/store.h"

namespace sluice {

// Applies one request and completes with its outcome, as any completion token says: a callback,
// boost::asio::use_future, boost::asio::use_awaitable.
//
//   auto decision = co_await sluice::AsyncApply(store, request, boost::asio::use_awaitable);
//
// The completion runs on the token's executor. The request, all that it points to, and the store
// stay alive until then.
template <typename CompletionToken>
auto AsyncApply(Store& store, Request& request, CompletionToken&& token) {
  return boost::asio::async_initiate<CompletionToken, void(Expected<Decision>)>(
      [&store, &request](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        store.Apply({&request, 1}, [shared, &request] {
          const auto executor = boost::asio::get_associated_executor(*shared);
          boost::asio::post(executor, [shared, &request]() mutable {
            std::move (*shared)(std::move(request.outcome));
          });
        });
      },
      token);
}

}  // namespace sluice
