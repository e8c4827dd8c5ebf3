// SPDX-License-Identifier: Apache-2.0
#include "net/address.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace sluice::net {
namespace {

std::string Shown(std::string_view text) {
  const auto address = IpAddress::Parse(text);
  return address ? address->ToString() : "none";
}

TEST(IpAddress, ReadsAndShowsTheShortestForm) {
  EXPECT_EQ(Shown("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(Shown("0.0.0.0"), "0.0.0.0");
  EXPECT_EQ(Shown("2001:DB8:0:0:1:0:0:1"), "2001:db8::1:0:0:1");
  EXPECT_EQ(Shown("2001:0db8:0000:0001:0001:0001:0001:0001"), "2001:db8:0:1:1:1:1:1");
  EXPECT_EQ(Shown("::"), "::");
  EXPECT_EQ(Shown("::1"), "::1");
}

TEST(IpAddress, TakesIpv4InsideIpv6ForIpv4) {
  EXPECT_EQ(Shown("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(Shown("::FFFF:c000:201"), "192.0.2.1");
  EXPECT_EQ(IpAddress::Parse("::ffff:1.2.3.4"), IpAddress::V4({1, 2, 3, 4}));
  EXPECT_EQ(IpAddress::V6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4}),
            IpAddress::V4({1, 2, 3, 4}));
  EXPECT_TRUE(IpAddress::Parse("::ffff:1.2.3.4")->IsV4());
}

TEST(IpAddress, RefusesAllElse) {
  for (const std::string_view text : {"",
                                      " ",
                                      "1.2.3",
                                      "1.2.3.4.5",
                                      "1.2.3.256",
                                      "01.2.3.4",
                                      "1.2.3.04",
                                      "0x1.2.3.4",
                                      "1.2.3.4 ",
                                      " 1.2.3.4",
                                      "1.2.3.-4",
                                      "+1.2.3.4",
                                      "16909060",
                                      "1.2.3.4/8",
                                      "1.2.3.4:80",
                                      "[::1]",
                                      "fe80::1%eth0",
                                      "::1%1",
                                      ":::",
                                      "1::2::3",
                                      "12345::",
                                      "::g",
                                      "::ffff:1.2.3.04",
                                      "unknown",
                                      "1:2:3:4:5:6:7",
                                      "1:2:3:4:5:6:7:8:9",
                                      "localhost",
                                      "1.2.3.4\n"}) {
    EXPECT_FALSE(IpAddress::Parse(text)) << text;
  }
  EXPECT_FALSE(IpAddress::Parse(std::string_view("1.2.3.4\0x", 9)));
  EXPECT_FALSE(IpAddress::Parse(std::string_view("1.2.3.4\0", 8)));
  EXPECT_FALSE(IpAddress::Parse(std::string(10'000, '1')));
}

TEST(IpAddress, ReadsPortsWhereAsked) {
  const auto v4 = IpAddress::V4({1, 2, 3, 4});
  const auto v6 = IpAddress::Parse("2001:db8::1");
  EXPECT_EQ(IpAddress::ParseWithPort("1.2.3.4"), v4);
  EXPECT_EQ(IpAddress::ParseWithPort("1.2.3.4:5678"), v4);
  EXPECT_EQ(IpAddress::ParseWithPort("2001:db8::1"), v6);
  EXPECT_EQ(IpAddress::ParseWithPort("[2001:db8::1]"), v6);
  EXPECT_EQ(IpAddress::ParseWithPort("[2001:db8::1]:65535"), v6);
  for (const std::string_view text :
       {"1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:+1", "1.2.3.4:8 ", "1.2.3.4:x",
        "[1.2.3.4]", "[1.2.3.4]:80", "[2001:db8::1", "2001:db8::1]", "[2001:db8::1]80",
        "[2001:db8::1]:", "[]", "[]:80", ":80", "[[::1]]", "[::1%eth0]:80", "", "1.2.3.4:080"}) {
    EXPECT_FALSE(IpAddress::ParseWithPort(text)) << text;
  }
}

TEST(IpAddress, SurvivesTheRoundTrip) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::array<std::uint8_t, 16> bytes;
    // Many zeros, to cover all ways to shorten them.
    for (auto& byte : bytes) byte = random() % 3 == 0 ? static_cast<std::uint8_t>(random()) : 0;
    const IpAddress address = IpAddress::V6(bytes);
    ASSERT_EQ(IpAddress::Parse(address.ToString()), address) << address.ToString();
  }
}

bool Contains(std::string_view network, std::string_view address) {
  const auto cidr = Cidr::Parse(network);
  EXPECT_TRUE(cidr) << network;
  return cidr && cidr->Contains(*IpAddress::Parse(address));
}

TEST(Cidr, HoldsTheAddressesThatShareItsBits) {
  EXPECT_TRUE(Contains("10.0.0.0/8", "10.255.255.255"));
  EXPECT_FALSE(Contains("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(Contains("172.16.0.0/12", "172.31.255.255"));
  EXPECT_FALSE(Contains("172.16.0.0/12", "172.32.0.0"));
  EXPECT_TRUE(Contains("192.0.2.1", "192.0.2.1"));
  EXPECT_FALSE(Contains("192.0.2.1", "192.0.2.2"));
  EXPECT_TRUE(Contains("192.0.2.254/31", "192.0.2.255"));
  EXPECT_TRUE(Contains("0.0.0.0/0", "255.1.2.3"));
  EXPECT_TRUE(Contains("::1", "::1"));
  EXPECT_TRUE(Contains("2001:db8::/33", "2001:db8:7fff::1"));
  EXPECT_FALSE(Contains("2001:db8::/33", "2001:db8:8000::1"));
  EXPECT_TRUE(Contains("2001:db8::/127", "2001:db8::1"));
}

TEST(Cidr, KeepsTheKindsOfAddressesApart) {
  EXPECT_FALSE(Contains("::/0", "1.2.3.4"));
  EXPECT_FALSE(Contains("0.0.0.0/0", "::1"));
  EXPECT_TRUE(Contains("::ffff:10.0.0.0/104", "10.1.2.3"));
  EXPECT_TRUE(Contains("10.0.0.0/8", "::ffff:10.1.2.3"));
  EXPECT_EQ(Cidr::Parse("::ffff:10.0.0.0/104")->ToString(), "10.0.0.0/8");
  EXPECT_EQ(Cidr::Parse("::FFFF:10.0.0.1")->ToString(), "10.0.0.1/32");
  EXPECT_EQ(Cidr::Parse("::1")->ToString(), "::1/128");
}

TEST(Cidr, SaysWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const auto cidr = Cidr::Parse(text);
    return cidr ? "valid" : cidr.error().message;
  };
  EXPECT_EQ(message("10.1.2.3/8"),
            "network \"10.1.2.3/8\": bits are set beyond the prefix; expected 10.0.0.0/8");
  EXPECT_EQ(message("10.0.0.0/33"), "network \"10.0.0.0/33\": expected a prefix from 0 to 32");
  EXPECT_EQ(message("::/129"), "network \"::/129\": expected a prefix from 0 to 128");
  EXPECT_EQ(message("proxy"),
            "network \"proxy\": expected an address, or a network such as 10.0.0.0/8");
  for (const std::string_view text : {"10.0.0.0/", "10.0.0.0/08", "10.0.0.0/-1", "10.0.0.0/8/8",
                                      "/8", "", "10.0.0.0/+8", "::ffff:0.0.0.0/90"}) {
    EXPECT_NE(message(text), "valid") << text;
  }
}

TEST(CidrSet, HoldsWhatAnyOfItsNetworksHolds) {
  const auto set = CidrSet::Parse(std::vector<std::string>{"10.0.0.0/8", "::1"});
  ASSERT_TRUE(set);
  EXPECT_TRUE(set->Contains(*IpAddress::Parse("10.1.2.3")));
  EXPECT_TRUE(set->Contains(*IpAddress::Parse("::1")));
  EXPECT_FALSE(set->Contains(*IpAddress::Parse("127.0.0.1")));
  EXPECT_FALSE(CidrSet().Contains(*IpAddress::Parse("127.0.0.1")));
  EXPECT_FALSE(CidrSet::Parse(std::vector<std::string>{"10.0.0.0/8", "x"}));
  EXPECT_FALSE(CidrSet::Parse(std::vector<std::string>(CidrSet::kCidrsMax + 1, "::1")));
}

TEST(ClientKey, KnowsIpv6ClientsByTheirNetwork) {
  const auto key = [](std::string_view text, int prefix = 64) {
    return ClientKey(*IpAddress::Parse(text), prefix);
  };
  EXPECT_EQ(key("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(key("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(key("2001:db8:1:2::"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(key("2001:db8:1:2::"), key("2001:db8:1:3::"));
  EXPECT_EQ(key("2001:db8:1:2:3:4:5:6", 56), "2001:db8:1::/56");
  EXPECT_EQ(key("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
  EXPECT_EQ(key("ffff::1", 1), "8000::/1");
  EXPECT_EQ(ClientKey("2001:DB8:1:2::3"), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientKey("2001:db8:1:2::/64", 56), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientKey("192.0.2.7:80"), "192.0.2.7");
  EXPECT_EQ(ClientKey("[2001:db8:1:2::3]:80"), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientKey("[2001:db8:1:2::3]"), "2001:db8:1:2::/64");
  EXPECT_EQ(ClientKey("[::ffff:192.0.2.7]:80"), "192.0.2.7");
  for (const char* text : {"not an address", "192.0.2.7:http", "192.0.2.7:", "1.2.3:80", "ab:12"}) {
    EXPECT_EQ(ClientKey(text), text);
  }
  EXPECT_EQ(ClientKey(""), "");
}

}  // namespace
}  // namespace sluice::net
