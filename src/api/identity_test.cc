// SPDX-License-Identifier: Apache-2.0
#include "api/identity.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::api {
namespace {

const std::vector<std::string> kDefault = {"X-Forwarded-For", "X-Real-IP"};
const std::vector<std::string> kAll = {"X-Forwarded-For", "X-Real-IP", "Forwarded", "X-User-Id",
                                       "X-API-Key"};

Expected<Identity> Identified(std::string_view peer, const std::vector<http::Header>& headers,
                              const std::vector<std::string>& proxies,
                              const std::vector<std::string>& names) {
  const ClientOptions options{.trusted_proxies = *net::CidrSet::Parse(proxies),
                              .trusted_headers = *net::TrustedHeaders::Parse(names)};
  http::Request request;
  request.peer = boost::asio::ip::make_address(peer);
  request.headers = headers;
  auto identity = Identify(request, options);
  if (identity) {
    EXPECT_EQ(ClientAddress(request, options), identity->ip);
  }
  return identity;
}

Identity Of(std::string_view peer, const std::vector<http::Header>& headers,
            const std::vector<std::string>& proxies = {},
            const std::vector<std::string>& names = kDefault) {
  return Identified(peer, headers, proxies, names).value();
}

TEST(Identify, BelievesNobodyByDefault) {
  const Identity identity = Of("192.0.2.1",
                               {{"X-Forwarded-For", "198.51.100.1"},
                                {"X-Real-IP", "198.51.100.2"},
                                {"X-User-Id", "root"},
                                {"X-API-Key", "stolen"}},
                               {}, kAll);
  EXPECT_EQ(identity.ip, "192.0.2.1");
  EXPECT_EQ(identity.user_id, "");
  EXPECT_EQ(identity.api_key, "");
}

TEST(Identify, BelievesEachHeaderOnItsOwn) {
  const std::vector<http::Header> headers = {{"X-Forwarded-For", "198.51.100.1"},
                                             {"X-Real-IP", "198.51.100.2"},
                                             {"Forwarded", "for=198.51.100.3"},
                                             {"X-User-Id", "alice"},
                                             {"X-API-Key", "k"}};
  struct Case {
    std::vector<std::string> names;
    std::string_view ip;
    std::string_view user_id;
    std::string_view api_key;
  };
  const std::vector<Case> cases = {{kDefault, "198.51.100.1", "", ""},
                                   {{}, "10.0.0.1", "", ""},
                                   {{"x-forwarded-for"}, "198.51.100.1", "", ""},
                                   {{"X-Real-IP"}, "198.51.100.2", "", ""},
                                   {{"Forwarded"}, "198.51.100.3", "", ""},
                                   {{"X-User-Id"}, "10.0.0.1", "alice", ""},
                                   {{"X-API-Key"}, "10.0.0.1", "", "k"},
                                   {kAll, "198.51.100.1", "alice", "k"}};
  for (const Case& each : cases) {
    const Identity identity = Of("10.0.0.1", headers, {"10.0.0.0/8"}, each.names);
    EXPECT_EQ(identity.ip, each.ip);
    EXPECT_EQ(identity.user_id, each.user_id);
    EXPECT_EQ(identity.api_key, each.api_key);
  }
}

TEST(Identify, BelievesTrustedPeers) {
  const Identity identity = Of("10.0.0.1",
                               {{"x-forwarded-for", "6.6.6.6, 198.51.100.1"},
                                {"X-Forwarded-For", "10.0.0.2"},
                                {"x-user-id", "alice"},
                                {"X-Api-Key", "k"}},
                               {"10.0.0.0/8"}, kAll);
  EXPECT_EQ(identity.ip, "198.51.100.1") << "defect 14: the leftmost is forgeable";
  EXPECT_EQ(identity.user_id, "alice");
  EXPECT_EQ(identity.api_key, "k");
}

TEST(Identify, RefusesTwoUsersOrKeys) {
  for (const std::string_view name : {"X-User-Id", "X-API-Key"}) {
    const std::vector<http::Header> two = {{name, "mine"}, {name, "yours"}};
    const auto refused = Identified("10.0.0.1", two, {"10.0.0.0/8"}, kAll);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidRequest);
    EXPECT_TRUE(Identified("10.0.0.1", {{name, "mine"}, {name, "mine"}}, {"10.0.0.0/8"}, kAll));
    EXPECT_TRUE(Identified("10.0.0.1", two, {"10.0.0.0/8"}, kDefault)) << "they do not matter";
    EXPECT_TRUE(Identified("192.0.2.1", two, {"10.0.0.0/8"}, kAll));
  }
}

TEST(Identify, BelievesForwardedOnlyWhereProxiesWriteIt) {
  const std::vector<http::Header> headers = {{"Forwarded", "for=6.6.6.6"},
                                             {"forwarded", "for=\"198.51.100.1:80\";proto=https"}};
  EXPECT_EQ(Of("10.0.0.1", headers, {"10.0.0.0/8"}).ip, "10.0.0.1");
  EXPECT_EQ(Of("10.0.0.1", headers, {"10.0.0.0/8"}, {"Forwarded"}).ip, "198.51.100.1");
  EXPECT_EQ(Of("192.0.2.1", headers, {"10.0.0.0/8"}, {"Forwarded"}).ip, "192.0.2.1");
}

TEST(TrustedHeaders, AreThoseThatAreKnown) {
  const auto wrong = net::TrustedHeaders::Parse(std::vector<std::string>{"X-Client-IP"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            "\"X-Client-IP\": expected X-Forwarded-For, X-Real-IP, Forwarded, X-User-Id or "
            "X-API-Key");
}

Expected<ForwardedRequest> Forwarded(const std::vector<http::Header>& headers) {
  http::Request request;
  request.headers = headers;
  return ReadForwardedRequest(request);
}

TEST(ForwardedRequest, IsWhatTheProxyWrites) {
  const auto traefik = Forwarded({{"X-Forwarded-Method", "POST"},
                                  {"x-forwarded-uri", "/a?b"},
                                  {"X-Forwarded-Host", "shop.example"},
                                  {"X-Original-Method", ""}});
  ASSERT_TRUE(traefik);
  EXPECT_EQ(traefik->method, "POST");
  EXPECT_EQ(traefik->uri, "/a?b");
  EXPECT_EQ(traefik->host, "shop.example");
  const auto nginx = Forwarded({{"X-Original-Method", "GET"}, {"X-Original-URL", "http://h/a"}});
  ASSERT_TRUE(nginx);
  EXPECT_EQ(nginx->method, "GET");
  EXPECT_EQ(nginx->uri, "http://h/a");
  EXPECT_EQ(Forwarded({}).value().uri, "");
}

// There is no way to tell which of them the proxy wrote, and which it passed on.
TEST(ForwardedRequest, IsRefusedIfItSaysTwoThings) {
  const std::vector<std::string_view> uris = {"X-Forwarded-Uri", "X-Original-URI",
                                              "X-Original-URL"};
  for (const std::string_view one : uris) {
    for (const std::string_view other : uris) {
      EXPECT_FALSE(Forwarded({{one, "/orders"}, {other, "/free"}})) << one << " " << other;
      EXPECT_FALSE(Forwarded({{one, "/orders"}, {other, ""}})) << one << " " << other;
      EXPECT_TRUE(Forwarded({{one, "/orders"}, {other, "/orders"}})) << one << " " << other;
    }
  }
  EXPECT_FALSE(Forwarded({{"X-Forwarded-Method", "POST"}, {"X-Original-Method", "GET"}}));
  EXPECT_FALSE(Forwarded({{"X-Forwarded-Host", "a"}, {"X-Forwarded-Host", "b"}}));
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

TEST(AddAttributes, BelievesTrustedPeersAlone) {
  const std::vector<std::string> names = {"X-Plan", "Tenant", "x-plan"};
  const std::vector<std::string> proxies = {"10.0.0.0/8"};
  const ClientOptions options{.trusted_proxies = *net::CidrSet::Parse(proxies),
                              .trusted_headers = {},
                              .attribute_headers = *net::ParseAttributeHeaders(names)};
  const auto ask = [&](std::string_view peer, const std::vector<http::Header>& headers) {
    http::Request request;
    request.peer = boost::asio::ip::make_address(peer);
    request.headers = headers;
    std::vector<rules::Attribute> attributes;
    const auto added = AddAttributes(request, options, attributes);
    if (!added) return added.error().message;
    std::string shown;
    for (const auto& [name, value] : attributes)
      shown.append(name).append("=").append(value) += ' ';
    return shown;
  };
  const std::vector<http::Header> headers = {{"x-PLAN", "free"}, {"X-Other", "o"}, {"tenant", ""}};
  EXPECT_EQ(ask("10.0.0.1", headers), "x-plan=free ");
  EXPECT_EQ(ask("192.0.2.1", headers), "");
  // One of them may be the client's own.
  EXPECT_EQ(ask("10.0.0.1", {{"Tenant", "a"}, {"tenant", "b"}}).substr(0, 21),
            "tenant is given twice");
  EXPECT_EQ(ask("10.0.0.1", {{"Tenant", "a"}, {"tenant", "a"}}), "tenant=a ");
}

TEST(ParseAttributeHeaders, RefusesWhatIsNoHeader) {
  for (const char* bad : {"", "a b", "Host", "x:y", "caf\xC3\xA9"}) {
    EXPECT_FALSE(net::ParseAttributeHeaders(std::vector<std::string>{bad})) << bad;
  }
  EXPECT_FALSE(net::ParseAttributeHeaders(std::vector<std::string>(33, "a")));
}

}  // namespace
}  // namespace sluice::api
