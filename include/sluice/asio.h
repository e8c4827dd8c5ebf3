// SPDX-License-Identifier: Apache-2.0
// Asynchronous calls in the manner of Boost.Asio; the one public header that needs Boost.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <span>
#include <utility>

#include "sluice/store.h"

namespace sluice {

// Applies one request and completes with its outcome, as any completion token says: a callback,
// boost::asio::use_future, boost::asio::use_awaitable.
//
//   auto decision = co_await sluice::AsyncApply(store, request, boost::asio::use_awaitable);
//
// The completion runs on the token's executor, which has work until then. The request and all that
// it points to stay alive until then, and so does what the executor belongs to. A store that is
// destroyed completes what is outstanding with an error. There is no cancelling: what was sent may
// have been charged.
template <typename CompletionToken>
auto AsyncApply(Store& store, Request& request, CompletionToken&& token) {
  return boost::asio::async_initiate<CompletionToken, void(Expected<Decision>)>(
      [&store, &request](auto handler) {
        auto work = boost::asio::make_work_guard(handler);
        store.Apply({&request, 1},
                    [handler = std::move(handler), work = std::move(work), &request]() mutable {
                      const auto executor = work.get_executor();
                      // Nothing of it is left on the store's thread: by then its executor may be
                      // gone.
                      boost::asio::post(executor, [handler = std::move(handler),
                                                   work = std::move(work), &request]() mutable {
                        std::move(handler)(std::move(request.outcome));
                      });
                    });
      },
      token);
}

}  // namespace sluice
