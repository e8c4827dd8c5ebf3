// SPDX-License-Identifier: Apache-2.0
#include "api/router.h"

#include <algorithm>
#include <utility>

#include "api/reply.h"
#include "base/text.h"
#include "net/url.h"

namespace sluice::api {

void Router::Add(std::string_view method, std::string_view path, Action action) {
  const std::size_t entry = entries_.size();
  entries_.push_back({std::string(method), std::string(path), std::move(action)});
  const auto open = path.find('{');
  if (open == std::string_view::npos) {
    exact_[std::string(path)].push_back(entry);
    return;
  }
  const std::string prefix(path.substr(0, open));
  const std::string suffix(path.substr(path.find('}') + 1));
  const auto same = std::ranges::find_if(patterns_, [&](const Pattern& pattern) {
    return pattern.prefix == prefix && pattern.suffix == suffix;
  });
  if (same != patterns_.end()) {
    same->entries.push_back(entry);
    return;
  }
  patterns_.push_back({prefix, suffix, {entry}});
}

void Router::Route(const http::Request& request, http::Exchange exchange) const {
  if (const auto found = exact_.find(request.path); found != exact_.end()) {
    return Dispatch(found->second, request, std::move(exchange), {});
  }
  for (const Pattern& pattern : patterns_) {
    const std::size_t fixed = pattern.prefix.size() + pattern.suffix.size();
    if (request.path.size() <= fixed || !request.path.starts_with(pattern.prefix) ||
        !request.path.ends_with(pattern.suffix)) {
      continue;
    }
    const std::string_view raw =
        request.path.substr(pattern.prefix.size(), request.path.size() - fixed);
    if (raw.contains('/')) continue;
    std::string parameter;
    if (!net::AppendDecoded(parameter, raw, net::Plus::kPlus)) break;
    return Dispatch(pattern.entries, request, std::move(exchange), parameter);
  }
  Reply(std::move(exchange), request, instruments_)
      .Fail(404, "NOT_FOUND",
            text::Cat("there is no ", text::Quote(request.path), "; see ", help_));
}

void Router::Dispatch(const std::vector<std::size_t>& entries, const http::Request& request,
                      http::Exchange exchange, std::string_view parameter) const {
  const std::string_view method =
      request.method == http::Method::kHead ? "GET" : request.method_text;
  std::string allowed;
  for (const std::size_t number : entries) {
    const Entry& entry = entries_[number];
    if (entry.method.empty() || entry.method == method) {
      return entry.action(request, std::move(exchange), parameter);
    }
    allowed += (allowed.empty() ? "" : ", ") + entry.method;
    if (entry.method == "GET") allowed += ", HEAD";
  }
  Reply reply(std::move(exchange), request, instruments_);
  reply.headers = text::Cat("Allow: ", allowed, "\r\n");
  reply.Fail(405, "METHOD_NOT_ALLOWED",
             text::Cat(text::Quote(request.method_text), ": expected ", allowed));
}

std::vector<std::string> Router::routes() const {
  std::vector<std::string> all;
  all.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    all.push_back(text::Cat(entry.method.empty() ? "*" : entry.method, " ", entry.path));
  }
  return all;
}

}  // namespace sluice::api
