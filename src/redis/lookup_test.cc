// SPDX-License-Identifier: Apache-2.0
// Names that the system takes long to look up, as when a DNS server is gone. This program has its
// own getaddrinfo, which answers when the test lets it.
#include "redis/lookup.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <boost/asio/error.hpp>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <string_view>

#include "sluice/redis_store.h"
#include "support/eventually.h"
#include "support/redis_cluster.h"
#include "support/redis_server.h"

namespace {

// What the system knows about names.
class Names {
 public:
  // Threads may still wait for it when the program ends.
  static Names& Get() {
    static Names& names = *new Names;
    return names;
  }

  // Does what getaddrinfo does.
  int Find(std::string_view name, const char* service, const addrinfo* hints, addrinfo** found) {
    {
      std::unique_lock lock(mutex_);
      ++asked_;
      if (name.starts_with("slow")) changed_.wait(lock, [&] { return answering_; });
    }
    if (name == "unknown") return EAI_NONAME;
    if (name != "two") return Literal("127.0.0.1", service, hints, found);
    // Nothing listens at the first of them.
    if (const int error = Literal("127.0.0.2", service, hints, found)) return error;
    return Literal("127.0.0.1", service, hints, &(*found)->ai_next);
  }

  int asked() {
    const std::scoped_lock lock(mutex_);
    return asked_;
  }

  // Whether slow names are answered.
  void set_answering(bool answering) {
    const std::scoped_lock lock(mutex_);
    answering_ = answering;
    changed_.notify_all();
  }

 private:
  static int Literal(const char* address, const char* service, const addrinfo* hints,
                     addrinfo** found) {
    static const auto next =
        reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    return next(address, service, hints, found);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0;
  bool answering_ = false;
};

}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  return Names::Get().Find(name, service, hints, found);
}

namespace sluice::redis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::Eventually;
using testing_support::FreePort;
using testing_support::RedisCluster;
using testing_support::RedisServer;

const Limit kMany = *Limit::Parse("algorithm=fixed_window,limit=1000000,window=1d");

std::unique_ptr<RedisStore> Open(const std::string& uri) {
  return RedisStore::Create({.uri = uri}).value();
}

Expected<Decision> Check(RedisStore& store) { return store.Check({.key = "k", .limit = &kMany}); }

std::string At(const std::string& host, const RedisServer& server, const std::string& query = "") {
  return "redis://" + host + ":" + std::to_string(server.port()) +
         "?timeout=60s&connect_timeout=60s" + query;
}

class LookupTest : public testing::Test {
 protected:
  LookupTest() { names_.set_answering(false); }
  ~LookupTest() override { names_.set_answering(true); }

  Names& names_ = Names::Get();
};

TEST_F(LookupTest, FindsAllAddressesInTheirOrder) {
  const auto lookup = Lookup::Of("two");
  ASSERT_TRUE(Eventually([&] { return lookup->done(); }));
  EXPECT_FALSE(lookup->error());
  EXPECT_THAT(lookup->addresses(), ElementsAre(boost::asio::ip::make_address("127.0.0.2"),
                                               boost::asio::ip::make_address("127.0.0.1")));
}

TEST_F(LookupTest, SaysThatANameIsUnknown) {
  const auto lookup = Lookup::Of("unknown");
  ASSERT_TRUE(Eventually([&] { return lookup->done(); }));
  EXPECT_EQ(lookup->error(), boost::asio::error::host_not_found);
}

TEST_F(LookupTest, AsksForANameOnceAtATime) {
  const int before = names_.asked();
  const auto first = Lookup::Of("slow-once");
  const auto second = Lookup::Of("slow-once");
  const auto other = Lookup::Of("other");
  EXPECT_TRUE(Eventually([&] { return other->done() && names_.asked() == before + 2; }));
  EXPECT_FALSE(first->done());
  EXPECT_EQ(first, second);
  names_.set_answering(true);
  EXPECT_TRUE(Eventually([&] { return first->done(); }));
  EXPECT_EQ(first->addresses().size(), 1U);
  const auto later = Lookup::Of("slow-once");
  EXPECT_NE(later, first) << "it may have changed";
  EXPECT_TRUE(Eventually([&] { return later->done(); }));
  EXPECT_EQ(names_.asked(), before + 3);
}

TEST_F(LookupTest, AddressesAreNotLookedUp) {
  const int before = names_.asked();
  const RedisServer server;
  EXPECT_TRUE(Check(*Open(At("127.0.0.1", server))));
  const RedisServer server6({.host = "::1"});
  EXPECT_TRUE(Check(*Open(At("[::1]", server6))));
  EXPECT_EQ(names_.asked(), before);
}

TEST_F(LookupTest, EveryAddressOfANameIsTried) {
  const RedisServer server;
  EXPECT_TRUE(Check(*Open(At("two", server))));
}

TEST_F(LookupTest, AnUnknownNameIsUnavailable) {
  const auto unknown = Check(*Open("redis://unknown?timeout=60s&connect_timeout=60s"));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(unknown.error().message, "Redis at unknown:6379: Host not found (authoritative)");
}

TEST_F(LookupTest, AStoreWaitsForASlowNameWithinTheConnectTimeout) {
  const RedisServer server;
  const int before = names_.asked();
  const auto store = Open(At("slow", server));
  auto decision = std::async(std::launch::async, [&] { return Check(*store); });
  EXPECT_TRUE(Eventually([&] { return names_.asked() > before; }));
  names_.set_answering(true);
  EXPECT_TRUE(decision.get());
}

TEST_F(LookupTest, AStoreAnswersAndEndsWithoutTheName) {
  const int before = names_.asked();
  for (int i = 0; i < 3; ++i) {
    const auto store = Open("redis://slow-forever?timeout=60s&connect_timeout=20ms");
    const auto decision = Check(*store);
    ASSERT_FALSE(decision);
    EXPECT_EQ(decision.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(decision.error().message,
                HasSubstr("no connection within 20 ms; its name is still being looked up"));
  }
  EXPECT_EQ(names_.asked(), before + 1) << "the later ones join the first";
}

TEST_F(LookupTest, ANameThatIsNotFoundInTimeLeavesTheOtherSeedsOfACluster) {
  RedisCluster cluster({.replicas = false});
  const std::string live = "127.0.0.1:" + std::to_string(cluster.node(1).port());
  const int before = names_.asked();
  // They are asked in any order.
  do {
    const auto store =
        Open("redis://slow-a,slow-b,slow-c," + live + "?timeout=60s&connect_timeout=200ms");
    EXPECT_TRUE(Eventually([&] { return Check(*store).has_value(); }));
  } while (names_.asked() == before);
}

TEST_F(LookupTest, ANameThatIsNotFoundInTimeLeavesTheOtherSentinels) {
  const RedisServer server;
  const int port = FreePort();
  const std::string config = "/tmp/sluice-sentinel-" + std::to_string(port) + ".conf";
  std::ofstream(config) << "port " << port << "\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 "
                        << server.port() << " 1\n";
  const RedisServer sentinel({.port = port, .sentinel_config = config});
  const int before = names_.asked();
  const auto store = Open("redis-sentinel://slow-sentinel:1,127.0.0.1:" + std::to_string(port) +
                          "/main?timeout=60s&connect_timeout=200ms");
  EXPECT_TRUE(Eventually([&] { return Check(*store).has_value(); }));
  EXPECT_EQ(names_.asked(), before + 1);
  std::filesystem::remove(config);
}

}  // namespace
}  // namespace sluice::redis
