// SPDX-License-Identifier: Apache-2.0
#include "redis/lookup.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

namespace sluice::redis {
namespace {

struct UnderWay {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const Lookup>> by_name;
};

// Never destroyed: a lookup may end after main has.
UnderWay& LookupsUnderWay() {
  static UnderWay& lookups = *new UnderWay;
  return lookups;
}

}  // namespace

std::shared_ptr<const Lookup> Lookup::Of(const std::string& name) {
  UnderWay& under_way = LookupsUnderWay();
  const std::scoped_lock lock(under_way.mutex);
  auto& known = under_way.by_name[name];
  if (known) return known;
  const auto lookup = std::make_shared<Lookup>();
  known = lookup;
  try {
    std::thread([lookup, name] { lookup->Run(name); }).detach();
  } catch (const std::system_error& no_thread) {
    under_way.by_name.erase(name);
    lookup->error_.assign(no_thread.code().value(), boost::system::system_category());
    lookup->done_.store(true, std::memory_order_release);
  }
  return lookup;
}

void Lookup::Run(const std::string& name) {
  using boost::asio::ip::tcp;
  boost::asio::io_context unused;  // Required, but used only by calls that do not block.
  const auto found = tcp::resolver(unused).resolve(name, "", error_);
  std::ranges::transform(found, std::back_inserter(addresses_),
                         [](const auto& entry) { return entry.endpoint().address(); });
  UnderWay& under_way = LookupsUnderWay();
  {
    const std::scoped_lock lock(under_way.mutex);
    under_way.by_name.erase(name);
  }
  done_.store(true, std::memory_order_release);
}

}  // namespace sluice::redis
