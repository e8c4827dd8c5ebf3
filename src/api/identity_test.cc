// SPDX-License-Identifier: Apache-2.0
#include "api/identity.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::api {
namespace {

Identity Of(std::string_view peer, const std::vector<http::Header>& headers,
            const std::vector<std::string>& trusted = {}, bool forwarded = false) {
  const ClientOptions options{.trusted_proxies = *net::CidrSet::Parse(trusted),
                              .forwarded = forwarded};
  http::Request request;
  request.peer = boost::asio::ip::make_address(peer);
  request.headers = headers;
  return Identify(request, options);
}

TEST(Identify, BelievesNobodyByDefault) {
  const Identity identity = Of("192.0.2.1", {{"X-Forwarded-For", "198.51.100.1"},
                                             {"X-Real-IP", "198.51.100.2"},
                                             {"X-User-Id", "root"},
                                             {"X-API-Key", "stolen"}});
  EXPECT_EQ(identity.ip, "192.0.2.1");
  EXPECT_EQ(identity.user_id, "");
  EXPECT_EQ(identity.api_key, "");
}

TEST(Identify, BelievesTrustedPeers) {
  const Identity identity = Of("10.0.0.1",
                               {{"x-forwarded-for", "6.6.6.6, 198.51.100.1"},
                                {"X-Forwarded-For", "10.0.0.2"},
                                {"x-user-id", "alice"},
                                {"X-Api-Key", "k"}},
                               {"10.0.0.0/8"});
  EXPECT_EQ(identity.ip, "198.51.100.1") << "defect 14: the leftmost is forgeable";
  EXPECT_EQ(identity.user_id, "alice");
  EXPECT_EQ(identity.api_key, "k");
}

TEST(Identify, BelievesForwardedOnlyWhereProxiesWriteIt) {
  const std::vector<http::Header> headers = {{"Forwarded", "for=6.6.6.6"},
                                             {"forwarded", "for=\"198.51.100.1:80\";proto=https"}};
  EXPECT_EQ(Of("10.0.0.1", headers, {"10.0.0.0/8"}).ip, "10.0.0.1");
  EXPECT_EQ(Of("10.0.0.1", headers, {"10.0.0.0/8"}, true).ip, "198.51.100.1");
  EXPECT_EQ(Of("192.0.2.1", headers, {"10.0.0.0/8"}, true).ip, "192.0.2.1");
}

TEST(Identify, WalksFromTheRightHoweverManyLinesThereAre) {
  std::vector<http::Header> headers(1000, {"X-Forwarded-For", "6.6.6.6"});
  headers.push_back({"X-Forwarded-For", "198.51.100.1"});
  EXPECT_EQ(Of("10.0.0.1", headers, {"10.0.0.0/8"}).ip, "198.51.100.1");
}

TEST(Identify, KnowsIpv6ClientsByTheirNetwork) {
  EXPECT_EQ(Of("2001:db8:1:2::5", {}).ip, "2001:db8:1:2::/64");
  EXPECT_EQ(Of("::ffff:192.0.2.1", {}).ip, "192.0.2.1");
}

}  // namespace
}  // namespace sluice::api
