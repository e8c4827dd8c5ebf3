// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls for Boost.Asio; the only public header that needs Boost.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <span>
#include <utility>

#include "sluice/store.h"

namespace sluice {

// Applies one request and completes with its outcome. Takes any completion token: a callback,
// boost::asio::use_future, boost::asio::use_awaitable.
//
//   auto decision = co_await sluice::AsyncApply(store, request, boost::asio::use_awaitable);
//
// The completion runs on the token's executor, which has work until then. Keep the request, and
// everything it points to, alive until then. Keep the executor's context alive until it runs out of
// work, or until the store is destroyed, which completes outstanding requests with an error. A
// request cannot be cancelled, because what was sent may have been charged.
template <typename CompletionToken>
auto AsyncApply(Store& store, Request& request, CompletionToken&& token) {
  return boost::asio::async_initiate<CompletionToken, void(Expected<Decision>)>(
      [&store, &request](auto handler) {
        // Released when post() has returned: only then may the executor's context end.
        auto work = boost::asio::make_work_guard(handler);
        store.Apply({&request, 1},
                    [handler = std::move(handler), work = std::move(work), &request]() mutable {
                      boost::asio::post(work.get_executor(),
                                        [handler = std::move(handler), &request]() mutable {
                                          std::move(handler)(std::move(request.outcome));
                                        });
                    });
      },
      token);
}

}  // namespace sluice
