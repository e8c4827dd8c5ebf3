// SPDX-License-Identifier: Apache-2.0
#include "redis/uri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Endpoint Parse(std::string_view uri) {
  auto endpoint = Endpoint::Parse(uri);
  EXPECT_TRUE(endpoint) << uri << ": " << endpoint.error().message;
  return endpoint ? *std::move(endpoint) : Endpoint{};
}

std::string ParseError(std::string_view uri) {
  const auto endpoint = Endpoint::Parse(uri);
  if (endpoint) return "no error: " + endpoint->ToString();
  EXPECT_EQ(endpoint.error().code, ErrorCode::kInvalidInput);
  return endpoint.error().message;
}

std::vector<std::string> Addresses(const Endpoint& endpoint) {
  std::vector<std::string> shown;
  shown.reserve(endpoint.addresses.size());
  for (const Address& address : endpoint.addresses) shown.push_back(address.ToString());
  return shown;
}

TEST(Uri, ReadsAStandaloneServer) {
  const Endpoint least = Parse("redis://localhost");
  EXPECT_EQ(least.mode, Mode::kStandalone);
  EXPECT_THAT(least.addresses, ElementsAre(Address{.host = "localhost", .port = 6379}));
  EXPECT_TRUE(least.credentials.empty());
  EXPECT_EQ(least.tls, Tls{});
  EXPECT_EQ(least.database, 0);
  EXPECT_EQ(least.connect_timeout, 1s);
  EXPECT_EQ(least.command_timeout, 500ms);
  EXPECT_EQ(least.client_name, "sluice");
  EXPECT_EQ(least.prefix, "sluice");
  EXPECT_THAT(least.warnings, IsEmpty());

  const Endpoint most = Parse("redis://ann:secret@db-1.example.com:7000/3?timeout=50ms");
  EXPECT_THAT(Addresses(most), ElementsAre("db-1.example.com:7000"));
  EXPECT_EQ(most.credentials, (Credentials{"ann", "secret"}));
  EXPECT_EQ(most.database, 3);
  EXPECT_EQ(most.command_timeout, 50ms);
  EXPECT_EQ(Parse("REDIS://localhost"), least);
  EXPECT_EQ(Parse("redis://localhost/"), least);
  EXPECT_EQ(Parse("redis://localhost/?"), least);
}

TEST(Uri, ReadsTls) {
  const Endpoint plain = Parse("rediss://host");
  EXPECT_TRUE(plain.tls.enabled && plain.tls.verify);
  EXPECT_THAT(Addresses(plain), ElementsAre("host:6379"));

  const Endpoint full = Parse(
      "rediss://host?ca=/etc/ca.pem&cert=/etc/c%20c.pem&key=/etc/k.pem&sni=redis.local&verify=yes");
  EXPECT_EQ(full.tls, (Tls{.enabled = true,
                           .verify = true,
                           .ca_file = "/etc/ca.pem",
                           .cert_file = "/etc/c c.pem",
                           .key_file = "/etc/k.pem",
                           .server_name = "redis.local"}));
  const Endpoint lax = Parse("rediss://host?verify=no");
  EXPECT_FALSE(lax.tls.verify);
  EXPECT_THAT(lax.warnings, ElementsAre(HasSubstr("verify=no")));

  EXPECT_THAT(ParseError("redis://host?ca=/etc/ca.pem"), HasSubstr("need TLS"));
  EXPECT_THAT(ParseError("redis://host?verify=no"), HasSubstr("need TLS"));
  EXPECT_THAT(ParseError("unix:///run/redis.sock?sni=host"), HasSubstr("need TLS"));
  EXPECT_THAT(ParseError("rediss://host?cert=/etc/c.pem"), HasSubstr("both or none"));
  EXPECT_THAT(ParseError("rediss://host?verify=maybe"), HasSubstr("expected yes or no"));
  EXPECT_THAT(ParseError("rediss://host?sni=a/b"), HasSubstr("expected a host name"));
}

TEST(Uri, ReadsACluster) {
  const Endpoint cluster = Parse("redis://a:1,b:2,c");
  EXPECT_EQ(cluster.mode, Mode::kCluster);
  EXPECT_THAT(Addresses(cluster), ElementsAre("a:1", "b:2", "c:6379"));
  EXPECT_EQ(Parse("rediss://a:1,b:2").mode, Mode::kCluster);
  EXPECT_EQ(Parse("redis://a:1/0?mode=cluster").mode, Mode::kCluster);
  EXPECT_THAT(ParseError("redis://a:1,b:2/1"), HasSubstr("only database 0"));
  EXPECT_THAT(ParseError("redis://a:1?mode=cluster&db=1"), HasSubstr("only database 0"));
}

TEST(Uri, ReadsSentinels) {
  const Endpoint sentinel = Parse(
      "redis-sentinel://ann:secret@a,[::1]:2/my%2Fmaster/"
      "3?sentinel_user=s&sentinel_password=p%26q");
  EXPECT_EQ(sentinel.mode, Mode::kSentinel);
  EXPECT_THAT(Addresses(sentinel), ElementsAre("a:26379", "[::1]:2"));
  EXPECT_EQ(sentinel.master_name, "my/master");
  EXPECT_EQ(sentinel.database, 3);
  EXPECT_EQ(sentinel.credentials, (Credentials{"ann", "secret"}));
  EXPECT_EQ(sentinel.sentinel_credentials, (Credentials{"s", "p&q"}));
  EXPECT_FALSE(sentinel.tls.enabled);
  EXPECT_TRUE(Parse("rediss-sentinel://a/m").tls.enabled);
  EXPECT_EQ(Parse("redis-sentinel://a/m/").database, 0);

  for (const std::string uri : {"redis-sentinel://a:1", "redis-sentinel://a:1/",
                                "redis-sentinel://a:1//0", "redis://a:1?mode=sentinel"}) {
    EXPECT_THAT(ParseError(uri), HasSubstr("no master name")) << uri;
  }
  EXPECT_THAT(ParseError("redis-sentinel://a/m/x"), HasSubstr("database \"x\""));
  EXPECT_THAT(ParseError("redis-sentinel://a/m/1/2"), HasSubstr("database \"1/2\""));
  EXPECT_THAT(ParseError("redis-sentinel://a/m%2"), HasSubstr("master name \"m%2\""));
  EXPECT_THAT(ParseError("redis://a?sentinel_user=s"), HasSubstr("mode=sentinel"));
}

TEST(Uri, ReadsSockets) {
  const Endpoint plain = Parse("unix:///run/redis%20@1.sock?db=1");
  EXPECT_THAT(plain.addresses,
              ElementsAre(Address{.host = "/run/redis @1.sock", .unix_socket = true}));
  EXPECT_EQ(plain.mode, Mode::kStandalone);
  EXPECT_EQ(plain.database, 1);
  EXPECT_THAT(Addresses(plain), ElementsAre("unix:/run/redis @1.sock"));

  const Endpoint login = Parse("redis+unix://ann:secret@/run/redis.sock");
  EXPECT_EQ(login.addresses.front().host, "/run/redis.sock");
  EXPECT_EQ(login.credentials, (Credentials{"ann", "secret"}));
  EXPECT_EQ(Parse("unix://:secret@/s").credentials, (Credentials{"", "secret"}));

  EXPECT_THAT(ParseError("unix://run/redis.sock"), HasSubstr("not absolute"));
  EXPECT_THAT(ParseError("unix:///"), HasSubstr("unix:///path/to/socket"));
  EXPECT_THAT(ParseError("unix://"), HasSubstr("unix:///path/to/socket"));
  EXPECT_THAT(ParseError("unix:///a%00b"), HasSubstr("\"/a%00b\""));
  EXPECT_THAT(ParseError("unix:///" + std::string(107, 'x')), HasSubstr("at most 107 bytes"));
  EXPECT_THAT(ParseError("unix:///a,unix:///b"), HasSubstr("expected one socket"));
  EXPECT_THAT(ParseError("unix:///a?mode=cluster"), HasSubstr("expected one socket"));
}

TEST(Uri, ReadsIpv6InBrackets) {
  EXPECT_THAT(Parse("redis://[::1]").addresses, ElementsAre(Address{.host = "::1"}));
  EXPECT_THAT(Addresses(Parse("redis://u:p@[2001:db8::7]:7000,[::ffff:1.2.3.4]")),
              ElementsAre("[2001:db8::7]:7000", "[::ffff:1.2.3.4]:6379"));
  EXPECT_THAT(ParseError("redis://::1"), HasSubstr("[IPv6 address]"));
  EXPECT_THAT(ParseError("redis://2001:db8::7"), HasSubstr("brackets"));
  EXPECT_THAT(ParseError("redis://[::1"), HasSubstr("no host"));
  EXPECT_THAT(ParseError("redis://[]"), HasSubstr("an IPv6 address"));
  EXPECT_THAT(ParseError("redis://[1.2.3.4]"), HasSubstr("\"1.2.3.4\""));
  EXPECT_THAT(ParseError("redis://[::1]6379"), HasSubstr("port"));
  EXPECT_THAT(ParseError(std::string_view("redis://[::1\0]", 14)), HasSubstr("\"::1\\x00\""));
}

TEST(Uri, ReadsUsersAndPasswords) {
  EXPECT_EQ(Parse("redis://:secret@host").credentials, (Credentials{"", "secret"}));
  EXPECT_EQ(Parse("redis://ann:secret@host").credentials, (Credentials{"ann", "secret"}));
  EXPECT_EQ(Parse("redis://@host").credentials, Credentials{});
  EXPECT_EQ(Parse("redis://:@host").credentials, Credentials{});
  for (const std::string uri : {"redis://ann@host", "redis://ann:@host"}) {
    EXPECT_EQ(Parse(uri).credentials, (Credentials{"ann", ""}));
    EXPECT_THAT(Parse(uri).warnings, ElementsAre(HasSubstr("without a password")));
  }
}

TEST(Uri, DecodesUsersAndPasswords) {
  EXPECT_EQ(Parse("redis://a%3Ab:p%40%3a%2F%25%3F%2C@host").credentials,
            (Credentials{"a:b", "p@:/%?,"}));
  EXPECT_EQ(Parse("redis://:p:q#r@host").credentials.password, "p:q#r");
  const Endpoint raw = Parse("redis://ann:p@ss@word@host:1");
  EXPECT_EQ(raw.credentials, (Credentials{"ann", "p@ss@word"}));
  EXPECT_THAT(Addresses(raw), ElementsAre("host:1"));
}

TEST(Uri, ReadsListsOfUris) {
  EXPECT_EQ(Parse("redis://a:1,redis://b:2,c:3"), Parse("redis://a:1,b:2,c:3"));
  EXPECT_EQ(Parse("rediss://a:1/0?timeout=1s,rediss://b:2/0"),
            Parse("rediss://a:1,b:2?timeout=1s"));
  EXPECT_EQ(Parse("redis-sentinel://a:1,redis-sentinel://b:2/m"),
            Parse("redis-sentinel://a:1,b:2/m"));
  EXPECT_THAT(ParseError("redis://a:1,rediss://b:2"),
              AllOf(HasSubstr("\"rediss\""), HasSubstr("the same one")));
  EXPECT_THAT(ParseError("redis://a:1/1,redis://b:2/2"), HasSubstr("different paths"));
  EXPECT_THAT(ParseError("redis://a?db=0,redis://b?db=0"), HasSubstr("db is given twice"));
}

TEST(Uri, AppliesCredentialsOfOneAddressToAll) {
  const Endpoint first = Parse("redis://:secret@a:1,b:2");
  EXPECT_EQ(first.credentials.password, "secret");
  EXPECT_THAT(Addresses(first), ElementsAre("a:1", "b:2"));
  EXPECT_EQ(Parse("redis://a:1,:secret@b:2"), first);
  EXPECT_EQ(Parse("redis://a:1,redis://:secret@b:2"), first);
  EXPECT_EQ(Parse("redis://:secret@a:1,redis://:secret@b:2"), first);
  EXPECT_THAT(ParseError("redis://:secret@a:1,:hidden@b:2"),
              AllOf(HasSubstr("different"), Not(HasSubstr("secret")), Not(HasSubstr("hidden"))));
}

TEST(Uri, LetsTheModeOptionWin) {
  EXPECT_EQ(Parse("redis://a/m?mode=sentinel"), Parse("redis-sentinel://a/m"));
  EXPECT_EQ(Parse("redis-sentinel://a/1?mode=standalone"), Parse("redis://a/1"));
  EXPECT_EQ(Parse("redis-sentinel://a,b?mode=cluster"), Parse("redis://a,b"));
  const Endpoint one = Parse("redis://a:1,b:2,c:3/4?mode=standalone");
  EXPECT_EQ(one.mode, Mode::kStandalone);
  EXPECT_THAT(Addresses(one), ElementsAre("a:1"));
  EXPECT_EQ(one.database, 4);
  EXPECT_THAT(one.warnings, ElementsAre(AllOf(HasSubstr("first of 3"), HasSubstr("a:1"))));
  EXPECT_THAT(ParseError("redis://a?mode=ring"),
              AllOf(HasSubstr("\"ring\""), HasSubstr("standalone, sentinel or cluster")));
}

TEST(Uri, ReadsTheDatabase) {
  EXPECT_EQ(Parse("redis://h?db=5").database, 5);
  EXPECT_EQ(Parse("redis://h/5?db=5").database, 5);
  EXPECT_EQ(Parse("redis://h/2147483647").database, 2147483647);
  EXPECT_THAT(ParseError("redis://h/5?db=6"), HasSubstr("different databases"));
  EXPECT_THAT(ParseError("redis://h/0?db=6"), HasSubstr("different databases"));
  for (const std::string text : {"-1", "+1", "x", "1x", "1/2", "2147483648", "%31"}) {
    EXPECT_THAT(ParseError("redis://h/" + text),
                AllOf(HasSubstr("\"" + text + "\""), HasSubstr("0 to 2147483647")));
  }
  EXPECT_THAT(ParseError("redis://h?db="), HasSubstr("0 to 2147483647"));
  EXPECT_THAT(ParseError("redis://h?db=-1"), HasSubstr("db=\"-1\""));
}

TEST(Uri, RefusesBadPortsAndHosts) {
  EXPECT_EQ(Parse("redis://h:65535").addresses.front().port, 65535);
  for (const std::string port : {"0", "65536", "99999999999", "-1", "+1", "x", "1x", "", " 1"}) {
    EXPECT_THAT(ParseError("redis://h:" + port),
                AllOf(HasSubstr("port of host \"h\""), HasSubstr("1 to 65535")))
        << port;
  }
  for (const std::string uri : {"redis://", "redis:///0", "redis://:6379", "redis://u:p@",
                                "redis://u:p@:1", "redis://a,", "redis://,a", "redis://a,,b"}) {
    EXPECT_THAT(ParseError(uri), HasSubstr("has no host")) << uri;
  }
  EXPECT_THAT(ParseError("redis://a,,b"), HasSubstr("address 2"));
  EXPECT_THAT(ParseError("redis://a b"), HasSubstr("host \"a b\""));
  EXPECT_THAT(ParseError("redis://a%41"), HasSubstr("host \"a%41\""));
  EXPECT_THAT(ParseError("redis://" + std::string(254, 'a')), HasSubstr("host"));
}

TEST(Uri, ReadsDurations) {
  EXPECT_EQ(Parse("redis://h?timeout=50ms&connect_timeout=2s").command_timeout, 50ms);
  EXPECT_EQ(Parse("redis://h?timeout=50ms&connect_timeout=2s").connect_timeout, 2s);
  EXPECT_EQ(Parse("redis://h?timeout=2000us").command_timeout, 2ms);
  EXPECT_EQ(Parse("redis://h?timeout=1us").command_timeout, 1ms) << "rounded up";
  EXPECT_EQ(Parse("redis://h?timeout=3600s").command_timeout, 1h);
  EXPECT_EQ(Parse("redis://h?timeout=1m").command_timeout, 1min) << "as durations are elsewhere";
  for (const std::string text : {"", "50", "ms", "0ms", "-1ms", "1.5s", "61m", "1 ms", "3601s",
                                 "99999999999999999999s", "18446744073709551615us"}) {
    EXPECT_THAT(ParseError("redis://h?timeout=" + text),
                AllOf(HasSubstr("timeout=\"" + text + "\""), HasSubstr("such as 50ms")));
  }
}

TEST(Uri, LeavesTheTimeoutToTheCallerUnlessItHasOne) {
  EXPECT_EQ(Endpoint::Parse("redis://h", 30s)->command_timeout, 30s);
  EXPECT_EQ(Endpoint::Parse("redis://h?timeout=50ms", 30s)->command_timeout, 50ms);
  EXPECT_EQ(Endpoint::Parse("redis://h?timeout=500ms", 30s)->command_timeout, 500ms);
  for (const std::chrono::milliseconds timeout : {-1ms, 0ms, 3'600'001ms}) {
    EXPECT_THAT(Endpoint::Parse("redis://h", timeout).error().message, HasSubstr("an hour"));
  }
}

TEST(Uri, ChecksNamesAndPrefixes) {
  EXPECT_EQ(Parse("redis://h?name=api-1%2Feu").client_name, "api-1/eu");
  EXPECT_EQ(Parse("redis://h?name=").client_name, "");
  EXPECT_EQ(Parse("redis://h?prefix=My.App_1:rl-").prefix, "My.App_1:rl-");
  EXPECT_EQ(Parse("redis://h?prefix=" + std::string(64, 'a')).prefix.size(), 64u);
  for (const std::string name : {"a%20b", "a%0Ab", "%7F", "%C3%A4"}) {
    EXPECT_THAT(ParseError("redis://h?name=" + name), HasSubstr("printable ASCII")) << name;
  }
  EXPECT_THAT(ParseError("redis://h?name=" + std::string(65, 'a')), HasSubstr("at most 64"));
  for (const std::string prefix : {"", "{a}", "a}", "a/b", "a%20b", "%C3%A4"}) {
    EXPECT_THAT(ParseError("redis://h?prefix=" + prefix), HasSubstr("1 to 64 characters"));
  }
  EXPECT_THAT(ParseError("redis://h?prefix=" + std::string(65, 'a')), HasSubstr("1 to 64"));
}

TEST(Uri, BoundsWhatIsSentAtOnce) {
  const Endpoint small = Parse("redis://h?batch=1&in_flight=1&waiting=1");
  EXPECT_EQ(small.batch_max, 1u);
  EXPECT_EQ(small.in_flight_max, 1u);
  EXPECT_EQ(small.waiting_max, 1u);
  EXPECT_EQ(small.ToString(), "redis://h:6379?batch=1&in_flight=1&waiting=1");
  EXPECT_EQ(Parse("redis://h?batch=1024&in_flight=64&waiting=1048576").batch_max, 1024u);
  for (const std::string bad : {"0", "-1", "x", "", "1048577", "99999999999999999999"}) {
    EXPECT_THAT(ParseError("redis://h?batch=" + bad), HasSubstr("from 1 to 1024")) << bad;
    EXPECT_THAT(ParseError("redis://h?in_flight=" + bad), HasSubstr("from 1 to 64")) << bad;
    EXPECT_THAT(ParseError("redis://h?waiting=" + bad), HasSubstr("from 1 to 1048576")) << bad;
  }
}

TEST(Uri, ErrorsListWhatIsKnown) {
  EXPECT_THAT(ParseError("http://h"),
              AllOf(HasSubstr("unknown scheme \"http\""),
                    HasSubstr("redis, rediss, redis-sentinel, rediss-sentinel, unix, redis+unix")));
  EXPECT_THAT(ParseError("redis://h?retries=3"),
              AllOf(HasSubstr("unknown option \"retries\""), Not(HasSubstr("3")),
                    HasSubstr("mode, db, timeout, connect_timeout, name, prefix, batch, in_flight, "
                              "waiting, verify, ca, cert, key, sni, sentinel_user, "
                              "sentinel_password")));
  EXPECT_THAT(ParseError("redis://h?db=1&db=1"), HasSubstr("db is given twice"));
  EXPECT_THAT(ParseError("redis://h?db"), HasSubstr("db: expected a value"));
  EXPECT_THAT(ParseError(""), AllOf(HasSubstr("empty"), HasSubstr("redis://localhost:6379")));
  for (const std::string uri : {"localhost", "localhost:6379", "://h", "redis:/h", "a b://h"}) {
    EXPECT_THAT(ParseError(uri), HasSubstr("no scheme")) << uri;
  }
}

TEST(Uri, RefusesBadPercentEncoding) {
  for (const std::string bad : {"%", "%4", "%zz", "%4x", "%-1", "%00"}) {
    EXPECT_THAT(ParseError("redis://u" + bad + ":p@h"), HasSubstr("bad percent-encoding"));
    EXPECT_THAT(ParseError("redis://u:p" + bad + "@h"),
                AllOf(HasSubstr("bad percent-encoding"), Not(HasSubstr(bad + "@"))));
    EXPECT_THAT(ParseError("rediss://h?ca=x" + bad), HasSubstr("ca=\"x" + bad + "\""));
    EXPECT_THAT(ParseError("redis-sentinel://h/m?sentinel_password=p" + bad),
                AllOf(HasSubstr("bad percent-encoding"), HasSubstr("(not shown)")));
  }
}

TEST(Uri, BoundsItsSize) {
  std::string uri = "redis://h0";
  for (int i = 1; i < 64; ++i) uri += text::Cat(",h", i);
  EXPECT_EQ(Parse(uri).addresses.size(), 64u);
  EXPECT_THAT(ParseError(uri + ",h64"), HasSubstr("more than 64 addresses"));
  const std::string start = "rediss://h?ca=";
  EXPECT_TRUE(Endpoint::Parse(start + std::string(4000, 'x')));
  EXPECT_THAT(ParseError(start + std::string(4083, 'x')), HasSubstr("expected at most 4096"));
  EXPECT_THAT(ParseError(start + std::string(4000, '\x01')), HasSubstr("percent-encoded"));
}

// Each of these is wrong in a way that makes part of a password look like something else.
TEST(Uri, ErrorsNeverContainAPassword) {
  for (const std::string uri :
       {"redis://:hunter2@", "redis://:hunter2@host:x", "redis://:hunter2@host/x",
        "redis://:hunter2@host?x=1", "redis://:hunter2@ho st", "http://:hunter2@host",
        "redis://ann:hunter2@[::1", "redis://:%zzhunter2@host", ":hunter2@host", "hunter2@host",
        "redis:hunter2@host", "redis//:hunter2@host",
        // Not encoded.
        "redis://:a/hunter2@host", "redis://:hunter2/b@host", "redis://ann:hunter2/b@host",
        "redis://ann:1/hunter2@host", "redis://:a?hunter2@host", "redis://:hunter2?b@host",
        "redis://:a@b/hunter2@host", "redis://:a@b?hunter2@host", "redis://:a,hunter2@:1",
        "redis://:hunter2,b@host", "redis://ann:hunter2,b@host", "redis://hunter2 ,b@host",
        "redis://:a,hunter2://b@host", "redis-sentinel://ann:1/hunter2@host/m",
        "redis+unix://:a/hunter2@/run/redis.sock", "redis+unix://:hunter2/b@/run/redis.sock",
        "unix://hunter2@/",
        // Without a host.
        "redis://ann:hunter2", "redis://:hunter2", "redis://ann:1:hunter2",
        // In options.
        "redis://h?password=hunter2", "redis://h?PASSWORD=hunter2&hunter2=1",
        "redis://h?sentinel_password=hunter2", "redis-sentinel://h/m?sentinel_password=%hunter2",
        "redis-sentinel://h/m?sentinel_password=a&hunter2",
        "redis-sentinel://h/m?sentinel_password=a&db=hunter2",
        "redis-sentinel://h/m?sentinel_password=a,hunter2://b"}) {
    EXPECT_THAT(ParseError(uri), AllOf(Not(HasSubstr("hunter2")), Not(HasSubstr("no error"))))
        << uri;
  }
}

TEST(Uri, TellsHowToWriteAPasswordWithASlash) {
  EXPECT_THAT(ParseError("redis://:a/b@host"), HasSubstr("%2F for '/'"));
  EXPECT_THAT(ParseError("redis://:a,b@host"), HasSubstr("%2C for ','"));
}

TEST(Uri, MasksPasswords) {
  EXPECT_EQ(Parse("redis://:secret@host").ToString(), "redis://:***@host:6379");
  EXPECT_EQ(Parse("redis://a%40b:secret@host").ToString(), "redis://a%40b:***@host:6379");
  EXPECT_EQ(Parse("redis://a:p@secret@host").ToString(), "redis://a:***@host:6379");
  EXPECT_EQ(Parse("redis+unix://:secret@/s").ToString(), "redis+unix://:***@/s");
  EXPECT_EQ(Parse("redis-sentinel://h/m?sentinel_password=secret").ToString(),
            "redis-sentinel://h:26379/m?sentinel_password=***");
}

TEST(Uri, SurvivesTheRoundTrip) {
  for (const std::string uri :
       {"redis://localhost:6379", "redis://h:1/2", "redis://ann@h:1", "rediss://:***@[::1]:1",
        "redis://a:***@h:1,g:2", "redis://h:1?mode=cluster", "unix:///run/re%20dis@1?db=3",
        "redis+unix://a:***@/s", "redis-sentinel://:***@a:1,b:2/m%2F%40/3",
        "redis://h:1?timeout=50ms&connect_timeout=2000ms&name=%26a%2Cb://&prefix=a:b",
        "rediss://a:1?verify=no&ca=/a%20b&cert=/c&key=/k&sni=h",
        "redis-sentinel://a:1/m?sentinel_user=%C3%A4&sentinel_password=***"}) {
    const Endpoint endpoint = Parse(uri);
    EXPECT_EQ(Parse(endpoint.ToString()), endpoint) << endpoint.ToString();
  }
  EXPECT_EQ(Parse("rediss://h:1/2?timeout=50ms&prefix=a:b&ca=/c").ToString(),
            "rediss://h:1/2?timeout=50ms&prefix=a:b&ca=/c");
}

TEST(Uri, NamesModes) {
  EXPECT_EQ(ToString(Mode::kStandalone), "standalone");
  EXPECT_EQ(ToString(Mode::kSentinel), "sentinel");
  EXPECT_EQ(ToString(Mode::kCluster), "cluster");
}

}  // namespace
}  // namespace sluice::redis
