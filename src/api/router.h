// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/reply.h"
#include "http/message.h"
#include "http/server.h"
#include "service/service_metrics.h"

namespace sluice::api {

// Finds the action for a request by its path and method. Answers 404 for an unknown path, and 405
// with Allow for a wrong method.
class Router {
 public:
  // `parameter` is the decoded value of {…} in the path; empty if there is none.
  using Action =
      std::function<void(const http::Request&, http::Exchange, std::string_view parameter)>;

  // `help` tells those who ask for an unknown path where to look.
  Router(const Instruments& instruments, std::string_view help)
      : instruments_(instruments), help_(help) {}

  // A path such as /health, or with one {name} for one segment: /rule-sets/{id}/enable. An empty
  // method means any. HEAD is answered as GET.
  void Add(std::string_view method, std::string_view path, Action action);

  void Route(const http::Request& request, http::Exchange exchange) const;

  // All of them as "GET /path", in the order in which they were added.
  std::vector<std::string> routes() const;

 private:
  struct Entry {
    std::string method;
    std::string path;
    Action action;
  };
  struct Pattern {
    std::string prefix;  // Before the parameter, and after it.
    std::string suffix;
    std::vector<std::size_t> entries;
  };

  void Dispatch(const std::vector<std::size_t>& entries, const http::Request& request,
                http::Exchange exchange, std::string_view parameter) const;

  const Instruments& instruments_;
  const std::string_view help_;
  std::vector<Entry> entries_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> exact_;
  std::vector<Pattern> patterns_;  // A few, tried in the order of Add.
};

}  // namespace sluice::api
