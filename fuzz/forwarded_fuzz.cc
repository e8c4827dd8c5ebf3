// SPDX-License-Identifier: Apache-2.0
// Whatever a client writes into X-Forwarded-For and Forwarded, what a trusted proxy appends
// decides, and an untrusted peer only ever counts as itself.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "net/address.h"
#include "net/forwarded.h"

namespace {

using sluice::net::Cidr;
using sluice::net::CidrSet;
using sluice::net::Client;
using sluice::net::ClientKey;
using sluice::net::IpAddress;
using sluice::text::Cat;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

enum class Field { kXForwardedFor, kForwarded };

IpAddress Find(Field field, const IpAddress& peer, const std::vector<std::string_view>& lines) {
  static const CidrSet kTrusted = *CidrSet::Parse(std::vector<std::string>{"10.0.0.0/8", "::1"});
  const bool xff = field == Field::kXForwardedFor;
  const Client client =
      sluice::net::FindClient(peer, kTrusted,
                              {.x_forwarded_for = xff ? lines : std::vector<std::string_view>{},
                               .forwarded = xff ? std::vector<std::string_view>{} : lines},
                              {.forwarded = true});
  return client.address;
}

void CheckField(Field field, std::string_view text) {
  static const IpAddress kProxy = *IpAddress::Parse("10.0.0.1");
  static const IpAddress kInnerProxy = *IpAddress::Parse("10.0.0.2");
  static const IpAddress kClient4 = *IpAddress::Parse("203.0.113.7");
  static const IpAddress kClient6 = *IpAddress::Parse("2001:db8::7");
  const std::string_view name = field == Field::kForwarded ? "for=" : "";
  const std::string_view quote = field == Field::kForwarded ? "\"" : "";

  Expect(Find(field, kClient4, {text}) == kClient4);

  // The proxy appends to the line, or adds a line.
  Expect(Find(field, kProxy, {Cat(text, ", ", name, "203.0.113.7")}) == kClient4);
  Expect(Find(field, kProxy, {text, Cat(name, "203.0.113.7")}) == kClient4);
  Expect(Find(field, kProxy, {Cat(text, ",", name, quote, "[2001:db8::7]:80", quote)}) == kClient6);

  const auto found = Find(field, kProxy, {text});
  Expect(IpAddress::Parse(found.ToString()) == found);
  const std::string key = ClientKey(found);
  Expect(Cidr::Parse(key) && Cidr::Parse(key)->Contains(found));

  // A trusted proxy in the list counts like one that we talk to.
  if (std::ranges::count(text, ',') + 2 < static_cast<long>(sluice::net::kForwardedHopsMax)) {
    Expect(Find(field, kProxy, {Cat(text, ", ", name, "10.0.0.2")}) ==
           Find(field, kInnerProxy, {text}));
  }
}

void CheckLines(std::string_view text) {
  static const IpAddress kProxy = *IpAddress::Parse("10.0.0.1");
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return;
  Expect(Find(Field::kXForwardedFor, kProxy, {text}) ==
         Find(Field::kXForwardedFor, kProxy, {text.substr(0, comma), text.substr(comma + 1)}));
}

void CheckAddress(std::string_view text) {
  if (const auto address = IpAddress::Parse(text)) {
    Expect(IpAddress::Parse(address->ToString()) == address);
    Expect(IpAddress::ParseWithPort(text) == address);
  }
  if (const auto cidr = Cidr::Parse(text)) {
    Expect(cidr->Contains(cidr->address()));
    Expect(Cidr::Parse(cidr->ToString()) == *cidr);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckField(Field::kXForwardedFor, text);
  CheckField(Field::kForwarded, text);
  CheckLines(text);
  CheckAddress(text);
  return 0;
}
