// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program, it makes looking up names that start with "slow" take a minute, as if
// their DNS server were gone.
#include <dlfcn.h>
#include <netdb.h>

#include <chrono>
#include <string_view>
#include <thread>

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto next =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (!name || !std::string_view(name).starts_with("slow")) {
    return next(name, service, hints, found);
  }
  std::this_thread::sleep_for(std::chrono::minutes(1));
  return EAI_AGAIN;
}
