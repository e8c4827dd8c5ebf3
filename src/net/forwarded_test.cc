// SPDX-License-Identifier: Apache-2.0
#include "net/forwarded.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::net {
namespace {

using Lines = std::vector<std::string_view>;

constexpr ForwardedOptions kAll = {.forwarded = true};

class ForwardedTest : public testing::Test {
 protected:
  Client Find(std::string_view peer, const Lines& x_forwarded_for, const Lines& forwarded = {},
              const Lines& x_real_ip = {}, const ForwardedOptions& options = kAll) const {
    return FindClient(
        *IpAddress::Parse(peer), trusted_,
        {.x_forwarded_for = x_forwarded_for, .forwarded = forwarded, .x_real_ip = x_real_ip},
        options);
  }
  std::string ByXff(const Lines& lines) const { return Find("10.0.0.1", lines).address.ToString(); }
  std::string ByForwarded(const Lines& lines) const {
    return Find("10.0.0.1", {}, lines).address.ToString();
  }

  CidrSet trusted_ =
      *CidrSet::Parse(std::vector<std::string>{"10.0.0.0/8", "2001:db8:ffff::/48", "::1"});
};

TEST_F(ForwardedTest, BelievesNothingFromAPeerThatIsNotTrusted) {
  const Client client = Find("192.0.2.9", {"1.1.1.1"}, {"for=1.1.1.1"}, {"1.1.1.1"});
  EXPECT_EQ(client.address.ToString(), "192.0.2.9");
  EXPECT_EQ(client.from, ClientFrom::kPeer);
}

TEST_F(ForwardedTest, TakesTheRightmostAddressThatIsNotTrusted) {
  EXPECT_EQ(ByXff({"203.0.113.7"}), "203.0.113.7");
  EXPECT_EQ(ByXff({"1.1.1.1, 203.0.113.7, 10.0.0.2"}), "203.0.113.7") << "1.1.1.1 is forged";
  EXPECT_EQ(ByXff({"1.1.1.1,203.0.113.7,10.0.0.2 ,\t10.0.0.3"}), "203.0.113.7");
  EXPECT_EQ(ByXff({"203.0.113.7, 2001:db8:ffff::1"}), "203.0.113.7");
  EXPECT_EQ(ByXff({"203.0.113.7, ::ffff:10.0.0.2"}), "203.0.113.7");
}

TEST_F(ForwardedTest, JoinsLinesInTheirOrder) {
  EXPECT_EQ(ByXff({"1.1.1.1", "203.0.113.7", "10.0.0.2"}), "203.0.113.7");
  EXPECT_EQ(ByXff({"1.1.1.1", "2.2.2.2, 10.0.0.2"}), "2.2.2.2");
  EXPECT_EQ(ByXff({"1.1.1.1", "", " , "}), "1.1.1.1");
}

TEST_F(ForwardedTest, TakesTheLeftmostIfAllAreTrusted) {
  EXPECT_EQ(ByXff({"10.0.0.5, 10.0.0.4"}), "10.0.0.5");
}

TEST_F(ForwardedTest, AcceptsPorts) {
  EXPECT_EQ(ByXff({"203.0.113.7:5678, 10.0.0.2:80"}), "203.0.113.7");
  EXPECT_EQ(ByXff({"[2001:db8::7]:5678"}), "2001:db8::7");
  EXPECT_EQ(ByXff({"2001:db8::7"}), "2001:db8::7");
}

TEST_F(ForwardedTest, GarbageLeadsToTheTrustedProxyThatWasReachedLast) {
  EXPECT_EQ(ByXff({"1.1.1.1, garbage"}), "10.0.0.1") << "the peer";
  EXPECT_EQ(ByXff({"1.1.1.1, garbage, 10.0.0.2"}), "10.0.0.2");
  EXPECT_EQ(ByXff({"garbage, 203.0.113.7"}), "203.0.113.7") << "never looked at";
  EXPECT_EQ(ByXff({"1.1.1.1, unknown"}), "10.0.0.1");
  EXPECT_EQ(ByXff({"1.1.1.1, \"2.2.2.2\""}), "10.0.0.1");
  EXPECT_EQ(ByXff({"1.1.1.1 2.2.2.2"}), "10.0.0.1");
}

TEST_F(ForwardedTest, LooksAtABoundedNumberOfEntries) {
  std::string line = "1.1.1.1";
  for (std::size_t i = 0; i + 1 < kForwardedHopsMax; ++i) line += ",10.0.0.2";
  EXPECT_EQ(ByXff({line}), "1.1.1.1");
  EXPECT_EQ(ByXff({line + ",10.0.0.3"}), "10.0.0.2");
}

TEST_F(ForwardedTest, PrefersXForwardedForThenForwardedThenXRealIp) {
  EXPECT_EQ(Find("::1", {"1.1.1.1"}, {"for=2.2.2.2"}, {"3.3.3.3"}),
            (Client{IpAddress::V4({1, 1, 1, 1}), ClientFrom::kXForwardedFor}));
  EXPECT_EQ(Find("::1", {}, {"for=2.2.2.2"}, {"3.3.3.3"}),
            (Client{IpAddress::V4({2, 2, 2, 2}), ClientFrom::kForwarded}));
  EXPECT_EQ(Find("::1", {" "}, {","}, {"3.3.3.3"}),
            (Client{IpAddress::V4({3, 3, 3, 3}), ClientFrom::kXRealIp}));
  EXPECT_EQ(Find("::1", {"x"}, {"for=2.2.2.2"}, {"3.3.3.3"}).address.ToString(), "::1")
      << "a field that is garbage does not make way for another";
}

TEST_F(ForwardedTest, UsesOnlyTheFieldsThatProxiesWrite) {
  EXPECT_EQ(Find("::1", {}, {"for=2.2.2.2"}, {}, {}).address.ToString(), "::1")
      << "Forwarded has to be asked for";
  EXPECT_EQ(Find("::1", {"1.1.1.1"}, {}, {"3.3.3.3"}, {.x_forwarded_for = false}).from,
            ClientFrom::kXRealIp);
  EXPECT_EQ(Find("::1", {}, {}, {"3.3.3.3"}, {.x_real_ip = false}).from, ClientFrom::kPeer);
}

TEST_F(ForwardedTest, XRealIpIsOneAddress) {
  const auto by = [&](const Lines& lines) {
    return Find("10.0.0.1", {}, {}, lines).address.ToString();
  };
  EXPECT_EQ(by({" 203.0.113.7 "}), "203.0.113.7");
  EXPECT_EQ(by({"[2001:db8::7]:80"}), "2001:db8::7");
  EXPECT_EQ(by({"10.9.9.9"}), "10.9.9.9") << "a client may be a trusted one";
  EXPECT_EQ(by({"203.0.113.7, 203.0.113.8"}), "10.0.0.1");
  EXPECT_EQ(by({"203.0.113.7", "203.0.113.8"}), "10.0.0.1");
  EXPECT_EQ(by({""}), "10.0.0.1");
}

TEST_F(ForwardedTest, ReadsRfc7239) {
  EXPECT_EQ(ByForwarded({"for=192.0.2.43"}), "192.0.2.43");
  EXPECT_EQ(ByForwarded({"For=\"[2001:db8:cafe::17]:4711\""}), "2001:db8:cafe::17");
  EXPECT_EQ(ByForwarded({"for=192.0.2.60;proto=http;by=203.0.113.43"}), "192.0.2.60");
  EXPECT_EQ(ByForwarded({"proto=http ; FOR=\"192.0.2.60:80\" ; host=\"a,b;for=1.1.1.1\";"}),
            "192.0.2.60");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1, for=192.0.2.43, for=10.0.0.2"}), "192.0.2.43");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1", "for=192.0.2.43, for=10.0.0.2"}), "192.0.2.43");
  EXPECT_EQ(ByForwarded({"for=192.0.2.43:80"}), "192.0.2.43") << "quotes are often forgotten";
}

TEST_F(ForwardedTest, AHopThatDoesNotSayWhoEndsTheWalk) {
  EXPECT_EQ(ByForwarded({"for=1.1.1.1, for=unknown"}), "10.0.0.1");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1, for=_hidden, for=10.0.0.2"}), "10.0.0.2");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1, proto=https, for=10.0.0.2"}), "10.0.0.2");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1;for=2.2.2.2"}), "10.0.0.1");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1;=x"}), "10.0.0.1");
  EXPECT_EQ(ByForwarded({"for=1.1.1.1 proto=x"}), "10.0.0.1");
  EXPECT_EQ(ByForwarded({"for=\"1.1.1\\.1\""}), "10.0.0.1");
  EXPECT_EQ(ByForwarded({"for="}), "10.0.0.1");
}

// What a client writes is left of what the trusted proxy adds, and must not swallow it.
TEST_F(ForwardedTest, AnOpenQuoteDoesNotSwallowWhatAProxyAppended) {
  for (const std::string client :
       {"for=\"", "for=9.9.9.9;x=\"", "\"", "for=\"9.9.9.9\\\"", "x=\"\\"}) {
    EXPECT_EQ(ByForwarded({client + ", for=203.0.113.7"}), "203.0.113.7") << client;
    EXPECT_EQ(ByForwarded({client + ", for=\"[2001:db8::7]:80\""}), "2001:db8::7") << client;
    EXPECT_EQ(ByForwarded({client + ", for=203.0.113.7, for=10.0.0.2;host=\"a,b\""}), "203.0.113.7")
        << client;
  }
}

}  // namespace
}  // namespace sluice::net
