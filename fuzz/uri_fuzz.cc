// SPDX-License-Identifier: Apache-2.0
// Any text is an endpoint or a clear error. An endpoint survives the round trip, and no text made
// for people contains a password, however badly the rest of the URI is written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"
#include "redis/uri.h"

namespace {

using sluice::redis::Endpoint;

constexpr std::string_view kSecret = "hunter2hunter2";

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

Endpoint WithoutPasswords(Endpoint endpoint) {
  for (auto* credentials : {&endpoint.credentials, &endpoint.sentinel_credentials}) {
    if (!credentials->password.empty()) credentials->password = "***";
  }
  endpoint.warnings.clear();
  return endpoint;
}

void CheckRoundTrip(std::string_view uri) {
  const auto endpoint = Endpoint::Parse(uri);
  if (!endpoint) {
    Expect(!endpoint.error().message.empty() && endpoint.error().message.size() < 1000);
    return;
  }
  Expect(!endpoint->addresses.empty());
  const std::string shown = endpoint->ToString();
  for (const char c : shown) Expect(c > ' ' && c <= '~');
  const auto again = Endpoint::Parse(shown);
  Expect(again && WithoutPasswords(*again) == WithoutPasswords(*endpoint));
  Expect(again->ToString() == shown);
}

void CheckSecrecy(const std::string& uri) {
  const auto hidden = [](std::string_view text) {
    return text.find(kSecret) == std::string_view::npos;
  };
  const auto endpoint = Endpoint::Parse(uri);
  if (!endpoint) return Expect(hidden(endpoint.error().message));
  Expect(hidden(endpoint->ToString()));
  for (const std::string& warning : endpoint->warnings) Expect(hidden(warning));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using sluice::text::Cat;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckRoundTrip(text);
  if (text.find(kSecret) != std::string_view::npos) return 0;  // It found the word by itself.

  // The password replaces the first '$', whatever the text around it makes of it.
  const std::string_view before = text.substr(0, text.find('$'));
  const std::string_view after = text.substr(std::min(before.size() + 1, text.size()));
  const bool in_options = before.find('?') != std::string_view::npos;
  // An option of one URI of a list is what it looks like, even if an '@' follows in the next.
  if (!in_options || after.find("://") == std::string_view::npos) {
    for (const std::string_view scheme : {"redis", "redis-sentinel"}) {
      CheckSecrecy(Cat(scheme, "://", before, ":", kSecret, after, "@host/1"));
      CheckSecrecy(Cat(scheme, "://", before, ":", kSecret, "@", after));
    }
  }
  if (!in_options) CheckSecrecy(Cat(before, "?sentinel_password=", kSecret, after));
  return 0;
}
