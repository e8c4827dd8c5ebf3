// SPDX-License-Identifier: Apache-2.0
// The store with real servers: whatever goes wrong with them leads to a typed error or a recovery.
#include "sluice/redis_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <csignal>

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "sluice/asio.h"
#include "support/certificate.h"
#include "support/documented_acl.h"
#include "support/eventually.h"
#include "support/fixed_answer_server.h"
#include "support/redis_server.h"
#include "support/temporary_folder.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Certificate;
using testing_support::DocumentedAcl;
using testing_support::Eventually;
using testing_support::FixedAnswerServer;
using testing_support::FreePort;
using testing_support::RedisServer;
using testing_support::TemporaryFolder;

const Limit kFive = *Limit::Parse("algorithm=fixed_window,limit=5,window=1d");
const Limit kMany = *Limit::Parse("algorithm=token_bucket,capacity=1000000,refill=1,period=1h");

// With timeouts that a busy machine meets, unless the test is about them.
std::unique_ptr<RedisStore> Open(std::string uri) {
  for (const std::string option : {"timeout=10s", "connect_timeout=10s"}) {
    const std::string name = option.substr(0, option.find('=') + 1);
    if (uri.contains("?" + name) || uri.contains("&" + name)) continue;
    uri += (uri.contains('?') ? "&" : "?") + option;
  }
  auto store = RedisStore::Create({.uri = uri});
  EXPECT_TRUE(store) << store.error().message;
  return *std::move(store);
}

Expected<Decision> Check(RedisStore& store, const Limit& limit = kMany,
                         std::string_view key = "k") {
  return store.Check({.key = key, .limit = &limit});
}

// Sends several at once, in one call of the script if they fit.
std::vector<Expected<Decision>> Together(
    Store& store, const std::vector<std::pair<std::string, const Limit*>>& asked) {
  std::vector<Charge> charges;
  for (const auto& [key, limit] : asked) charges.push_back({.key = key, .limit = limit});
  std::vector<Request> requests;
  for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
  std::promise<void> done;
  store.Apply(requests, [&] { done.set_value(); });
  done.get_future().wait();
  std::vector<Expected<Decision>> outcomes;
  for (Request& request : requests) outcomes.push_back(std::move(request.outcome));
  return outcomes;
}

// Waits until it decides again, for as long as a server may take to come back.
bool Recovers(RedisStore& store) {
  return Eventually([&] { return Check(store).has_value(); });
}

// Eventually: on a busy machine a timeout may pass before there was anything to report.
bool FailsSaying(RedisStore& store, std::string_view what) {
  return Eventually([&] {
    const auto refused = Check(store);
    return !refused && refused.error().code == ErrorCode::kUnavailable &&
           refused.error().message.contains(what);
  });
}

TEST(RedisStore, DecidesAndResets) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Check(*store, kFive)->allowed);
  EXPECT_FALSE(Check(*store, kFive)->allowed);
  EXPECT_TRUE(store->Reset({.key = "k", .limit = &kFive}).value());
  EXPECT_FALSE(store->Reset({.key = "k", .limit = &kFive}).value());
  EXPECT_TRUE(Check(*store, kFive)->allowed);
  EXPECT_GT(store->Ping()->count(), 0);
  EXPECT_EQ(Check(*store, kFive, "").error().code, ErrorCode::kInvalidKey);
}

// A state from the future looks the same as one from before the server's clock was set back.
TEST(RedisStore, DecidesCalendarsByTheServersTime) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  const Limit month = *Limit::Calendar(
      {.limit = 2, .every = Every::kMonth, .zone = "Europe/Berlin", .anchor = "15"});
  const Limit day = *Limit::Calendar({.limit = 5, .every = Every::kDay});
  // Together with others, in one call.
  for (const bool allowed : {true, true, false}) {
    const auto outcomes = Together(*store, {{"a", &month}, {"a", &kFive}, {"b", &day}});
    EXPECT_EQ(outcomes[0]->allowed, allowed);
    EXPECT_TRUE(outcomes[1]->allowed && outcomes[2]->allowed);
  }
  const auto denied = Check(*store, month, "a");
  EXPECT_EQ(denied->retry_after, denied->reset_after);
  EXPECT_GT(denied->retry_after, 0us);
  EXPECT_LE(denied->retry_after, std::chrono::days(31) + 1h);
  EXPECT_EQ(Check(*store, day, "b")->remaining, 1);
  // Another instance, which knows nothing of the server's time yet.
  EXPECT_FALSE(Check(*Open(server.Uri()), month, "a")->allowed);
  EXPECT_TRUE(store->Reset({.key = "a", .limit = &month}).value());
  EXPECT_EQ(Check(*store, month, "a")->remaining, 1);
  EXPECT_EQ(server.Cli("eval \"local n = 0 for _, k in ipairs(redis.call('KEYS', '*')) do if "
                       "redis.call('PTTL', k) < 0 then n = n + 1 end end return n\" 0"),
            "0\n");
}

TEST(RedisStore, AClockSetBackLocksNobodyOutForMoreThanAWindow) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  for (const std::string_view text : {"algorithm=token_bucket,capacity=10,refill=1,period=1m",
                                      "algorithm=fixed_window,limit=10,window=10m",
                                      "algorithm=sliding_window,limit=10,window=10m",
                                      "algorithm=sliding_window_counter,limit=10,window=10m"}) {
    SCOPED_TRACE(text);
    const Limit limit = *Limit::Parse(text);
    const auto take = [&](std::string_view key, std::int64_t cost, std::optional<TimePoint> now) {
      return store->Check({.key = key, .limit = &limit, .cost = cost}, now).value();
    };
    const TimePoint now = SystemClock().Now();
    ASSERT_TRUE(take("near", 10, now + 8min).allowed);
    EXPECT_EQ(take("near", 0, {}).remaining, 0) << "time is held for it";
    ASSERT_TRUE(take("far", 10, now + 1h).allowed);
    EXPECT_EQ(take("far", 0, {}).remaining, 10);
    ASSERT_TRUE(take("far", 10, {}).allowed);
    EXPECT_FALSE(take("far", 1, {}).allowed) << "it is a budget like any other";
    server.Cli("flushall");
  }
}

TEST(RedisStore, SharesStateBetweenInstancesAndOutlivesThem) {
  const RedisServer server;
  EXPECT_EQ(Check(*Open(server.Uri()), kFive)->remaining, 4);
  EXPECT_EQ(Check(*Open(server.Uri()), kFive)->remaining, 3);
  EXPECT_EQ(Check(*Open(server.Uri("?prefix=other")), kFive)->remaining, 4);
}

TEST(RedisStore, ManyClientsNeverExceedTheLimitAndReachIt) {
  const RedisServer server;
  const Limit limit = *Limit::TokenBucket({.capacity = 2'000, .refill = 1'000, .period = 1s});
  using Clock = std::chrono::steady_clock;
  std::atomic<int> admitted = 0;
  std::mutex mutex;
  Clock::time_point first = Clock::time_point::max();  // All had been taken once by then.
  Clock::time_point last = Clock::time_point::min();   // All had been taken again by then.
  std::atomic<bool> emptied = false;
  const auto start = Clock::now();
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        const auto store = Open(server.Uri());
        while (Clock::now() - start < (emptied ? 1500ms : 1min)) {
          const auto asked = Clock::now();
          const Charge charge{.key = "k", .limit = &limit};
          std::vector<Request> requests(64, Request{.charges = {&charge, 1}});
          std::promise<void> done;
          store->Apply(requests, [&] { done.set_value(); });
          done.get_future().wait();
          for (const Request& request : requests) {
            ASSERT_TRUE(request.outcome);
            admitted += request.outcome->allowed;
          }
          if (requests.back().outcome->allowed) continue;
          const std::lock_guard lock(mutex);
          first = std::min(first, Clock::now());
          last = std::max(last, asked);
          emptied = true;
        }
      });
    }
  }
  ASSERT_LT(first, last);
  EXPECT_LE(admitted, 2'000 + (Clock::now() - start) / 1ms + 1);
  EXPECT_GE(admitted, (2'000 + (last - first) / 1ms) * 99 / 100);
}

TEST(RedisStore, GathersAndFoldsUnderLoad) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  ASSERT_TRUE(Check(*store));
  const Charge charge{.key = "hot", .limit = &kFive};
  std::vector<Request> requests(1000, Request{.charges = {&charge, 1}});
  std::promise<void> done;
  store->Apply(requests, [&] { done.set_value(); });
  done.get_future().wait();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].outcome->allowed, i < 5) << "dealt out in the order of arrival";
  }
  EXPECT_LT(store->GetStats().calls, 20);
}

TEST(RedisStore, TellsHowLongRedisTookForEachCallThatItGot) {
  std::atomic<int> told = 0;
  const auto open = [&](const std::string& uri) {
    return *RedisStore::Create({.uri = uri, .on_call = [&](std::chrono::nanoseconds took) {
                                  EXPECT_GT(took.count(), 0);
                                  ++told;
                                }});
  };
  {
    const auto nobody = open("redis://127.0.0.1:" + std::to_string(FreePort()));
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(Check(*nobody));
    EXPECT_EQ(nobody->GetStats().calls, 0);
    EXPECT_EQ(told, 0) << "a refused connection is no quick call";
  }
  const RedisServer server;
  {
    const auto store = open(server.Uri("?timeout=60s"));
    std::vector<std::pair<std::string, const Limit*>> asked;
    for (int i = 0; i < 1'000; ++i) asked.emplace_back(std::to_string(i), &kMany);
    for (const auto& outcome : Together(*store, asked)) EXPECT_TRUE(outcome);
    EXPECT_EQ(told, store->GetStats().calls);
    EXPECT_GT(told, 0);
    EXPECT_LT(told, 1'000) << "not for each request";
  }
  {
    const auto store = open(server.Uri("?timeout=100ms"));
    ASSERT_TRUE(Recovers(*store));
    server.Cli("client pause 60000 write");
    const int before = told;
    EXPECT_TRUE(Eventually([&] {
      const auto unknown = Check(*store);
      return !unknown && unknown.error().code == ErrorCode::kOutcomeUnknown;
    }));
    EXPECT_GT(told, before) << "one that is given up is slow, too";
    server.Cli("client unpause");
  }
}

// Functions, and scripts where functions may not be used.
TEST(RedisStore, LoadsItsProgramAgainWhenTheServerForgotIt) {
  for (const bool functions : {true, false}) {
    const RedisServer server;
    if (!functions) server.Cli("acl setuser default -fcall");
    const auto store = Open(server.Uri());
    for (int i = 0; i < 20; ++i) {
      server.Cli("function flush");
      server.Cli("script flush");
      std::vector<std::string> keys;
      for (int k = 0; k < 300; ++k) keys.push_back(std::to_string(k));
      std::vector<Charge> charges;
      for (const std::string& key : keys) charges.push_back({.key = key, .limit = &kMany});
      std::vector<Request> requests;
      for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
      std::promise<void> done;
      store->Apply(requests, [&] { done.set_value(); });
      done.get_future().wait();
      for (const Request& request : requests) ASSERT_TRUE(request.outcome);
      ASSERT_EQ(requests[7].outcome->remaining, 1'000'000 - i - 1) << "and charges once";
    }
    // Where functions are used, the calls that miss them are scripts, which are missing, too.
    const auto times = functions ? 40 : 20;
    EXPECT_GE(store->GetStats().script_loads, times - 2);
    EXPECT_LE(store->GetStats().script_loads, times + 1) << "once, however many calls fail";
  }
}

TEST(RedisStore, StartsWithoutAServerAndFindsItLater) {
  const int port = FreePort();
  const auto store = Open("redis://127.0.0.1:" + std::to_string(port));
  const auto refused = Check(*store);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(refused.error().transient());
  const RedisServer server({.port = port});
  EXPECT_TRUE(Recovers(*store));
}

TEST(RedisStore, RecoversFromAServerThatIsKilled) {
  RedisServer server({.arguments = {"--appendonly", "yes", "--appendfsync", "always"}});
  const auto store = Open(server.Uri());
  ASSERT_EQ(Check(*store, kFive)->remaining, 4);
  server.Kill();
  EXPECT_THAT(Check(*store).error().code,
              AnyOf(ErrorCode::kUnavailable, ErrorCode::kOutcomeUnknown));
  server.Start();
  ASSERT_TRUE(Recovers(*store));
  EXPECT_EQ(Check(*store, kFive)->remaining, 3) << "with persistence, state survives";
  EXPECT_GE(store->GetStats().connects, 2);
}

TEST(RedisStore, AnswersInTimeWhenTheServerDoesNot) {
  const RedisServer server;
  const auto store = Open(server.Uri("?timeout=100ms"));
  ASSERT_TRUE(Recovers(*store));
  server.Cli("client pause 60000 write");
  EXPECT_TRUE(Eventually([&] {
    const auto unknown = Check(*store);
    return !unknown && unknown.error().code == ErrorCode::kOutcomeUnknown;
  })) << "it may have been charged";
  server.Cli("client unpause");
  EXPECT_TRUE(Recovers(*store));
  // A stopped server: the connection is given up and made again.
  server.Signal(SIGSTOP);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Check(*store));
  server.Signal(SIGCONT);
  EXPECT_TRUE(Recovers(*store));
}

TEST(RedisStore, SaysWhatIsWrongWithCredentials) {
  const RedisServer server({.arguments = {"--requirepass", "s3cret"}, .auth = ":s3cret"});
  EXPECT_TRUE(Check(*Open(server.Uri())));
  const std::string address = "127.0.0.1:" + std::to_string(server.port());
  for (const std::string& uri :
       {"redis://" + address, "redis://:wr0ng@" + address, "redis://nobody:wr0ng@" + address}) {
    const auto store = Open(uri);
    const auto denied = Check(*store);
    ASSERT_FALSE(denied);
    EXPECT_EQ(denied.error().code, ErrorCode::kAccessDenied);
    EXPECT_THAT(denied.error().message, Not(HasSubstr("wr0ng")));
    EXPECT_THAT(store->Description(), Not(HasSubstr("wr0ng")));
  }
}

TEST(RedisStore, NeverShowsAPasswordThatAServerRepeats) {
  const RedisServer server({.arguments = {"--rename-command", "AUTH", ""}});
  ASSERT_THAT(server.Cli("auth wr0ng"), HasSubstr("wr0ng")) << "otherwise nothing is tested";
  const auto denied = Check(*Open("redis://:wr0ng@127.0.0.1:" + std::to_string(server.port())));
  ASSERT_FALSE(denied);
  EXPECT_EQ(denied.error().code, ErrorCode::kAccessDenied);
  EXPECT_THAT(denied.error().message, AllOf(HasSubstr("AUTH"), Not(HasSubstr("wr0ng"))));
}

TEST(RedisStore, FollowsCredentialsAndPermissionsThatChange) {
  const RedisServer server;
  const std::string address = "127.0.0.1:" + std::to_string(server.port());
  ASSERT_EQ(server.Cli("acl setuser app on '>one' '~*' +@all"), "OK\n");
  const auto store = Open("redis://app:one@" + address);
  ASSERT_TRUE(Check(*store));
  server.Cli("acl setuser app -evalsha -fcall");
  EXPECT_EQ(Check(*store).error().code, ErrorCode::kAccessDenied);
  server.Cli("acl setuser app +evalsha +fcall");
  EXPECT_TRUE(Check(*store));
  // Open connections stay; the next one needs the new password.
  server.Cli("acl setuser app resetpass '>two'");
  server.Cli("client kill type normal");
  EXPECT_TRUE(Eventually([&] {
    const auto decision = Check(*store);
    return !decision && decision.error().code == ErrorCode::kAccessDenied;
  }));
  server.Cli("acl setuser app '>one'");
  EXPECT_TRUE(Recovers(*store));
}

TEST(RedisStore, SaysThatAServerTakesNoMoreClients) {
  const RedisServer server;
  auto first = Open(server.Uri());
  ASSERT_TRUE(Check(*first));
  ASSERT_EQ(server.Cli("config set maxclients 1"), "OK\n");
  const auto second = Open(server.Uri());
  // The server hangs up while we send, so its error may get lost now and then.
  EXPECT_TRUE(Eventually([&] {
    const auto refused = Check(*second);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    return refused.error().message.contains("max number of clients");
  }));
  first.reset();
  EXPECT_TRUE(Recovers(*second));
}

TEST(RedisStore, RefusesAServerThatIsNoRedis) {
  using namespace std::string_literals;
  const std::string nested = [] {
    std::string bytes;
    for (int i = 0; i < 1'000; ++i) bytes += "*1\r\n";
    return bytes;
  }();
  for (const std::string& answer :
       {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"s, "\0\xff\x16\x03garbage"s,
        "$536870912\r\n"s, nested, "*-2\r\n"s, "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n"s,
        ":1\r\n:2\r\n:3\r\n"s, "$100\r\nhalf a reply"s, ""s}) {
    const FixedAnswerServer server(answer);
    const auto refused = Check(*Open(server.Uri("?timeout=300ms&connect_timeout=200ms")));
    ASSERT_FALSE(refused) << answer;
    EXPECT_THAT(refused.error().code, AnyOf(ErrorCode::kUnavailable, ErrorCode::kStoreError))
        << refused.error().message;
    EXPECT_THAT(refused.error().message, Not(HasSubstr("garbage")));
  }
}

TEST(RedisStore, RefusesMoreThanMayWait) {
  const RedisServer server;
  const auto store = Open(server.Uri("?timeout=5s&batch=10&in_flight=1&waiting=100"));
  ASSERT_TRUE(Check(*store));
  server.Cli("client pause 60000 write");
  std::vector<std::string> keys;
  for (int i = 0; i < 100'000; ++i) keys.push_back(std::to_string(i));
  std::vector<Charge> charges;
  for (const std::string& key : keys) charges.push_back({.key = key, .limit = &kMany});
  std::vector<Request> requests;
  for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
  std::promise<void> done;
  store->Apply(requests, [&] { done.set_value(); });
  done.get_future().wait();
  const auto count = [&](ErrorCode code, std::string_view text) {
    return std::ranges::count_if(requests, [&](const Request& request) {
      return !request.outcome && request.outcome.error().code == code &&
             request.outcome.error().message.contains(text);
    });
  };
  EXPECT_EQ(count(ErrorCode::kUnavailable, "100 requests wait for Redis already"), 99'900);
  EXPECT_EQ(count(ErrorCode::kUnavailable, "could not be sent"), 90)
      << "waited, and were never sent";
  EXPECT_EQ(count(ErrorCode::kOutcomeUnknown, "no answer"), 10) << "one batch";
  // The same for commands other than the script.
  server.Signal(SIGSTOP);
  auto patient = Open(server.Uri("?timeout=60s"));
  constexpr std::int64_t kPings = 15'000;
  std::atomic<std::int64_t> refused = 0;
  std::atomic<std::int64_t> answered = 0;
  for (std::int64_t i = 0; i < kPings; ++i) {
    patient->Ping([&](const Expected<Micros>& took) {
      if (!took && took.error().message.contains("10000 commands wait")) ++refused;
      ++answered;
    });
  }
  patient.reset();
  EXPECT_EQ(answered, kPings);
  EXPECT_EQ(refused, 5'000);
  server.Signal(SIGCONT);
  server.Cli("client unpause");
  EXPECT_TRUE(Recovers(*store));
}

// Requests that the store's thread has not seen yet are bounded, too.
TEST(RedisStore, RefusesMoreThanMayWaitForItsThread) {
  const RedisServer server;
  const auto store = Open(server.Uri("?timeout=60s&waiting=5"));
  const Charge charge{.key = "k", .limit = &kMany};
  std::vector<Request> requests(10, Request{.charges = {&charge, 1}});
  std::promise<void> busy;
  std::promise<void> go_on;
  Request first{.charges = {&charge, 1}};
  store->Apply({&first, 1}, [&] {
    busy.set_value();
    go_on.get_future().wait();
  });
  busy.get_future().wait();
  std::promise<void> all;
  std::atomic<int> open = 10;
  for (Request& request : requests) {
    store->Apply({&request, 1}, [&] {
      if (--open == 0) all.set_value();
    });
  }
  EXPECT_EQ(open, 5) << "were refused at once";
  go_on.set_value();
  all.get_future().wait();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].outcome.has_value(), i < 5) << i;
    if (i >= 5) {
      EXPECT_EQ(requests[i].outcome.error().code, ErrorCode::kUnavailable);
      EXPECT_EQ(requests[i].outcome.error().message, "5 requests wait for Redis already");
    }
  }
  EXPECT_EQ(store->GetStats().requests, 11);
  EXPECT_EQ(store->GetStats().unavailable, 5);
}

// The first call on a server finds that the function is missing, and is repeated.
void LoadFunction(const RedisServer& server) {
  const auto store = Open(server.Uri());
  ASSERT_TRUE(Check(*store));
  ASSERT_TRUE(Eventually([&] { return server.Cli("function list").contains("sluice_"); }));
}

TEST(RedisStore, SendsAsMuchAtOnceAsTheUriSays) {
  const RedisServer server;
  LoadFunction(server);
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i) keys.push_back(std::to_string(i));
  std::vector<Charge> charges;
  for (const std::string& key : keys) charges.push_back({.key = key, .limit = &kMany});
  for (const auto& [batch, calls] : {std::pair{"1", 200}, std::pair{"50", 4}}) {
    const auto store = Open(server.Uri(std::string("?in_flight=1&batch=") + batch));
    std::vector<Request> requests;
    for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
    std::promise<void> done;
    store->Apply(requests, [&] { done.set_value(); });
    done.get_future().wait();
    for (const Request& request : requests) ASSERT_TRUE(request.outcome);
    EXPECT_EQ(store->GetStats().calls, calls);
  }
}

// With one request in one call and all others in the next, Redis and the client would take turns.
TEST(RedisStore, SharesWhatIsOpenBetweenTheCalls) {
  const RedisServer server;
  LoadFunction(server);
  for (const auto& [in_flight, calls] : {std::pair{"1", 1}, std::pair{"2", 2}, std::pair{"4", 4}}) {
    const auto store = Open(server.Uri(std::string("?in_flight=") + in_flight));
    const Charge charge{.key = "k", .limit = &kMany};
    std::vector<Request> requests(100, Request{.charges = {&charge, 1}});
    std::promise<void> done;
    store->Apply(requests, [&] { done.set_value(); });
    done.get_future().wait();
    for (const Request& request : requests) ASSERT_TRUE(request.outcome);
    EXPECT_EQ(store->GetStats().calls, calls);
  }
}

TEST(RedisStore, NeedsNoMoreThanTheDocumentedAcl) {
  const RedisServer server;
  ASSERT_EQ(server.Cli(DocumentedAcl("sluice", "pw")), "OK\n");
  const auto store = Open("redis://sluice:pw@127.0.0.1:" + std::to_string(server.port()));
  for (const char* text : {"algorithm=token_bucket,capacity=5,refill=1,period=1s",
                           "algorithm=fixed_window,limit=5,window=1d",
                           "algorithm=sliding_window,limit=5,window=1d", "limit=5,window=1d"}) {
    const Limit limit = *Limit::Parse(text);
    for (int i = 0; i < 5; ++i) {
      const auto decision = store->Check({.key = "k", .limit = &limit, .name = "n", .cost = 2});
      ASSERT_TRUE(decision) << decision.error().message;
    }
  }
  const auto heard = std::make_shared<std::atomic<int>>(0);
  store->Watch([heard](const Charge* charge) { *heard += charge ? 1 : 0; });
  ASSERT_TRUE(Eventually([&] { return store->GetStats().listening == 1; }));
  EXPECT_TRUE(store->Reset({.key = "k", .limit = &kFive, .name = "n"}).value());
  EXPECT_TRUE(Eventually([&] { return *heard == 1; }));
  EXPECT_TRUE(store->Ping());
  EXPECT_TRUE(store->Purge("*", false));
  // With less it does not work: the error is clear, and no budget is ever full again and again.
  EXPECT_TRUE(Check(*store));
  for (const auto& [without, with] : {std::pair{"-evalsha -fcall", "+evalsha +fcall"},
                                      {"-time", "+time"},
                                      {"-get -mget", "+get +mget"},
                                      {"-psetex", "+psetex"}}) {
    server.Cli("acl setuser sluice "s + without);
    const auto denied = Check(*store);
    ASSERT_FALSE(denied) << without;
    EXPECT_EQ(denied.error().code, ErrorCode::kAccessDenied) << denied.error().message;
    server.Cli("acl setuser sluice "s + with);
    EXPECT_TRUE(Check(*store)) << with;
  }
  // No state is left that never expires.
  server.Cli("flushall");
  server.Cli("acl setuser sluice -pexpire");
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=5,window=1d");
  EXPECT_EQ(Check(*store, log).error().code, ErrorCode::kAccessDenied);
  EXPECT_EQ(server.Cli("dbsize"), "0\n");
  // Requests that do not need the missing command are decided, even in the same call.
  const auto outcomes = Together(*store, {{"a", &kMany}, {"b", &log}, {"c", &kMany}});
  EXPECT_TRUE(outcomes[0] && outcomes[2]);
  EXPECT_EQ(outcomes[1].error().code, ErrorCode::kAccessDenied);
}

TEST(RedisStore, ADenialAndALookWriteNothing) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  const auto changes = [&] {
    const std::string info = server.Cli("info persistence");
    return info.substr(info.find("rdb_changes_since_last_save:"), 40);
  };
  for (const char* text :
       {"algorithm=token_bucket,capacity=5,refill=1,period=1d",
        "algorithm=leaky_bucket,capacity=5,leak=1,period=1d",
        "algorithm=gcra,burst=4,count=1,period=1d", "algorithm=fixed_window,limit=5,window=365d",
        "algorithm=sliding_window,limit=5,window=1d",
        "algorithm=sliding_window_counter,limit=5,window=365d"}) {
    SCOPED_TRACE(text);
    const Limit limit = *Limit::Parse(text);
    ASSERT_TRUE(store->Check({.key = "k", .limit = &limit, .cost = 5}).value().allowed);
    const std::string before = changes();
    const Charge other{.key = "other", .limit = &limit};
    const Charge one{.key = "k", .limit = &limit};
    const Charge look{.key = "k", .limit = &limit, .cost = 0};
    EXPECT_FALSE(store->Check(one).value().allowed);
    EXPECT_FALSE(store->CheckAll(std::vector<Charge>{other, one}).value().allowed);
    EXPECT_TRUE(store->Check(look).value().allowed);
    EXPECT_EQ(changes(), before);
  }
}

TEST(RedisStore, AScratchIsBelowThePrefixAndOfNoConcernToOthers) {
  const RedisServer server;
  ASSERT_EQ(server.Cli(DocumentedAcl("sluice", "pw")), "OK\n");
  const std::string uri =
      "redis://sluice:pw@127.0.0.1:" + std::to_string(server.port()) + "?timeout=10s";
  const auto shared = Open(uri);
  // Prefix and scratch together may be longer than a prefix.
  const std::string prefix = "sluice:" + std::string(57, 'p');
  const auto longest =
      *RedisStore::Create({.uri = uri, .prefix = prefix, .scratch = std::string(64, 's')});
  const auto scratch = *RedisStore::Create({.uri = uri, .scratch = "try:1"});
  for (RedisStore* store : {shared.get(), longest.get(), scratch.get()}) {
    EXPECT_EQ(Check(*store, kFive)->remaining, 4);
    EXPECT_EQ(Check(*store, kFive, "k2")->remaining, 4);
  }
  EXPECT_THAT(server.Cli("keys 'sluice:try:1:{k}:*'"), HasSubstr("sluice:try:1:{k}:"));
  // The user has no access to the channel of a scratch.
  EXPECT_TRUE(scratch->Reset({.key = "k2", .limit = &kFive}).value());
  for (RedisStore* store : {scratch.get(), longest.get(), shared.get()}) {
    const std::int64_t held = store == scratch.get() ? 1 : 2;
    EXPECT_EQ(store->Purge("*", true)->matched, held);
    const auto purged = store->Purge("*", false);
    ASSERT_TRUE(purged) << purged.error().message;
    EXPECT_EQ(purged->matched, held);
  }
  EXPECT_EQ(server.Cli("dbsize"), "0\n");
  EXPECT_EQ(server.Cli("acl log"), "\n") << "nothing was tried that is not allowed";
  const auto wrong = RedisStore::Create({.uri = uri, .scratch = "a{b"});
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidInput);
}

TEST(RedisStore, LeavesAloneWhatIsNotItsOwn) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  for (const std::string command : {"set 'sluice:{k}:n' text", "lpush 'sluice:{k}:n' x"}) {
    ASSERT_NE(server.Cli(command), "");
    const std::string before = server.Cli("dump 'sluice:{k}:n'");
    for (const char* text : {"algorithm=fixed_window,limit=5,window=1d",
                             "algorithm=sliding_window,limit=5,window=1d"}) {
      const Limit limit = *Limit::Parse(text);
      const auto refused = store->Check({.key = "k", .limit = &limit, .name = "n"});
      ASSERT_FALSE(refused) << command;
      EXPECT_EQ(refused.error().code, ErrorCode::kForeignState) << refused.error().message;
      EXPECT_EQ(server.Cli("dump 'sluice:{k}:n'"), before);
    }
    server.Cli("del 'sluice:{k}:n'");
  }
}

// A key that holds something else fails its own request, and no other in the same call.
TEST(RedisStore, OneForeignKeyIsNobodyElsesBusiness) {
  const RedisServer server;
  const auto store = Open(server.Uri("?in_flight=1"));
  const Limit window = *Limit::Parse("algorithm=fixed_window,limit=5,window=1d");
  const Limit log = *Limit::Parse("algorithm=sliding_window,limit=5,window=1d");
  for (const std::string command :
       {"set 'sluice:{bad}:n' text", "lpush 'sluice:{bad}:n' x", "zadd 'sluice:{bad}:n' 1 x",
        "eval \"return redis.call('set', KEYS[1], 'w:5:86400000000:1:1 1 x')\" 1 'sluice:{bad}:n'",
        "eval \"return redis.call('set', KEYS[1], 'w:5:86400000000:1:1 1 2;x')\" 1 "
        "'sluice:{bad}:n'",
        "set 'sluice:{bad}:n' 'z:5:1:1:1 5 7'", "set 'sluice:{bad}:n' 'l:5:1:1:1 5 7'",
        "set 'sluice:{bad}:n' 'c:5:1:1:1 5 7'", "set 'sluice:{bad}:n' 'b:5:0:0:0 5 7'"}) {
    SCOPED_TRACE(command);
    server.Cli("flushall");
    ASSERT_NE(server.Cli(command), "");
    const std::string before = server.Cli("dump 'sluice:{bad}:n'");
    for (const Limit* limit : {&window, &log}) {
      std::vector<std::string> keys;
      for (int i = 0; i < 60; ++i) keys.push_back(i == 30 ? "bad" : std::to_string(i));
      std::vector<Charge> charges;
      for (const std::string& key : keys) {
        charges.push_back({.key = key, .limit = limit, .name = key == "bad" ? "n" : "m"});
      }
      std::vector<Request> requests;
      for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
      // And one request over several limits.
      const std::vector<Charge> group = {charges[1], charges[30], charges[2]};
      requests.push_back({.charges = group});
      std::promise<void> done;
      store->Apply(requests, [&] { done.set_value(); });
      done.get_future().wait();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const bool bad = i == 30 || i == 60;
        ASSERT_EQ(requests[i].outcome.has_value(), !bad) << i;
        if (!bad) continue;
        EXPECT_EQ(requests[i].outcome.error().code, ErrorCode::kForeignState);
        EXPECT_THAT(requests[i].outcome.error().message, HasSubstr("sluice:{bad}:n"));
      }
      EXPECT_EQ(server.Cli("dump 'sluice:{bad}:n'"), before);
      EXPECT_EQ(Check(*store, *limit, "1").value().remaining, 4) << "the group took nothing";
      server.Cli(
          "eval \"for _, k in ipairs(redis.call('keys', '*')) do if k ~= KEYS[1] then "
          "redis.call('del', k) end end\" 1 'sluice:{bad}:n'");
    }
  }
}

TEST(RedisStore, TellsAFullServerApart) {
  const RedisServer server({.arguments = {"--maxmemory-policy", "noeviction"}});
  const auto store = Open(server.Uri());
  ASSERT_TRUE(Check(*store));
  ASSERT_TRUE(store->Check({.key = "exhausted", .limit = &kFive, .cost = 5}).value().allowed);
  server.Cli("config set maxmemory 1");
  const auto full = Check(*store, kMany, "new");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kStoreFull);
  // Requests that need no memory are decided, even in the same call.
  const auto outcomes = Together(*store, {{"new", &kFive}, {"exhausted", &kFive}, {"k", &kMany}});
  EXPECT_EQ(outcomes[0].error().code, ErrorCode::kStoreFull);
  ASSERT_TRUE(outcomes[1]) << outcomes[1].error().message;
  EXPECT_FALSE(outcomes[1]->allowed);
  EXPECT_EQ(outcomes[2].error().code, ErrorCode::kStoreFull);
  server.Cli("config set maxmemory 0");
  EXPECT_TRUE(Check(*store, kMany, "new"));
}

TEST(RedisStore, LeavesAReplica) {
  const RedisServer master;
  const RedisServer replica(
      {.arguments = {"--replicaof", "127.0.0.1 " + std::to_string(master.port())}});
  const auto store = Open(replica.Uri());
  const auto refused = Check(*store);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  replica.Cli("replicaof no one");
  EXPECT_TRUE(Recovers(*store));
}

TEST(RedisStore, SpeaksOverUnixSocketsAndOtherDatabases) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "redis.sock";
  const RedisServer server({.arguments = {"--unixsocket", path}});
  EXPECT_EQ(Check(*Open("unix://" + path), kFive)->remaining, 4);
  EXPECT_EQ(Check(*Open(server.Uri("/3")), kFive)->remaining, 4);
  EXPECT_EQ(Check(*Open(server.Uri("/3")), kFive)->remaining, 3);
  EXPECT_EQ(server.Cli("-n 3 dbsize"), "1\n");
}

TEST(RedisStore, SpeaksTlsAndInsistsOnTheRightCertificate) {
  const Certificate own;
  const Certificate other;
  const RedisServer server(
      {.arguments = {"--tls-cert-file", own.cert(), "--tls-key-file", own.key(),
                     "--tls-ca-cert-file", own.cert(), "--tls-auth-clients", "no"},
       .scheme = "rediss"});
  EXPECT_TRUE(Check(*Open(server.Uri("?ca=" + own.cert()))));
  EXPECT_TRUE(Check(*Open(server.Uri("?verify=no"))));
  for (const std::string& query : {"?ca=" + other.cert(), "?ca=" + other.cert() + ".missing",
                                   "?ca=" + own.cert() + "&sni=elsewhere", std::string("")}) {
    const auto refused = Check(*Open(server.Uri(query)));
    ASSERT_FALSE(refused) << query;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(refused.error().message, HasSubstr("TLS"));
  }
  const auto plain = Open("redis://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_TRUE(FailsSaying(*plain, "if this port speaks TLS, use rediss://"));

  const RedisServer strict(
      {.arguments = {"--tls-cert-file", own.cert(), "--tls-key-file", own.key(),
                     "--tls-ca-cert-file", other.cert(), "--tls-auth-clients", "yes"},
       .scheme = "rediss",
       .wait = false});
  const std::string query = "?ca=" + own.cert();
  const auto known = Open(strict.Uri(query + "&cert=" + other.cert() + "&key=" + other.key()));
  EXPECT_TRUE(Recovers(*known));
  const auto unknown = Check(*Open(strict.Uri(query)));
  ASSERT_FALSE(unknown) << "it wants to see a certificate";
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnavailable) << unknown.error().message;
}

// Redis takes a handshake for a command and waits for the rest; others answer something.
TEST(RedisStore, SaysThatAPortDoesNotSpeakTls) {
  const RedisServer server;
  const FixedAnswerServer other("-ERR unknown command\r\n");
  for (const std::string& uri : {server.Uri(), other.Uri()}) {
    for (const std::string mode : {"", "&mode=cluster"}) {
      // Whichever timeout ends first.
      for (const std::string times :
           {"&timeout=100ms&connect_timeout=60s", "&timeout=60s&connect_timeout=100ms"}) {
        const auto store = Open("rediss" + uri.substr(5) + "?verify=no" + times + mode);
        EXPECT_TRUE(FailsSaying(*store, "if this port does not speak TLS, use redis://"))
            << uri << times << mode;
        EXPECT_TRUE(FailsSaying(*store, "TLS: ")) << uri << times << mode;
      }
    }
  }
}

// A master with two replicas, watched by three Sentinels.
class SentinelGroup {
 public:
  SentinelGroup() {
    for (int i = 0; i < 3; ++i) {
      RedisServer::Options options;
      if (i > 0) options.arguments = {"--replicaof", "127.0.0.1 " + std::to_string(port(0))};
      options.arguments.insert(options.arguments.end(), {"--repl-diskless-sync-delay", "0"});
      servers_.push_back(std::make_unique<RedisServer>(options));
    }
    for (int i = 0; i < 3; ++i) {
      const int at = FreePort();
      configs_.push_back("/tmp/sluice-sentinel-" + std::to_string(at) + ".conf");
      std::ofstream(configs_.back())
          << "port " << at << "\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 " << port(0)
          << " 2\nsentinel down-after-milliseconds main 1000\n"
             "sentinel failover-timeout main 3000\n";
      sentinels_.push_back(std::make_unique<RedisServer>(
          RedisServer::Options{.port = at, .sentinel_config = configs_.back()}));
      addresses_ += (i == 0 ? "" : ",") + ("127.0.0.1:" + std::to_string(at));
    }
    // Until the Sentinels know the replicas, they cannot fail over.
    for (int i = 0; i < 800 && !Ready(); ++i) std::this_thread::sleep_for(25ms);
  }
  ~SentinelGroup() {
    for (const std::string& config : configs_) std::filesystem::remove(config);
  }

  std::string Uri(const std::string& rest = "/main") const {
    return "redis-sentinel://" + addresses_ + rest;
  }
  RedisServer& server(std::size_t number) { return *servers_[number]; }
  RedisServer& sentinel(std::size_t number) { return *sentinels_[number]; }
  int port(std::size_t number) const { return servers_[number]->port(); }

 private:
  bool Ready() const {
    return std::ranges::all_of(sentinels_, [](const auto& sentinel) {
      const std::string master = sentinel->Cli("sentinel master main");
      return master.find("num-slaves\n2") != std::string::npos &&
             master.find("num-other-sentinels\n2") != std::string::npos;
    });
  }

  std::vector<std::unique_ptr<RedisServer>> servers_;
  std::vector<std::unique_ptr<RedisServer>> sentinels_;
  std::vector<std::string> configs_;
  std::string addresses_;
};

TEST(RedisSentinel, SurvivesAMasterThatIsKilledUnderLoad) {
  SentinelGroup group;
  const auto store = Open(group.Uri("/main?timeout=1s"));
  ASSERT_TRUE(Recovers(*store));
  constexpr std::int64_t kBudget = 200;
  constexpr int kKeys = 20;
  const Limit limit = *Limit::Parse("algorithm=fixed_window,limit=200,window=1d");
  std::vector<std::atomic<std::int64_t>> admitted(kKeys);
  std::atomic<std::int64_t> asked = 0;
  std::atomic<std::int64_t> answered = 0;
  std::atomic<std::int64_t> errors = 0;
  std::atomic<bool> stop = false;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        while (!stop) {
          const auto number = static_cast<std::size_t>(asked++ % kKeys);
          const auto decision = Check(*store, limit, "key" + std::to_string(number));
          ++answered;
          if (decision) {
            admitted[number] += decision->allowed;
          } else {
            ++errors;
            EXPECT_TRUE(decision.error().transient()) << decision.error().message;
            std::this_thread::sleep_for(1ms);
          }
        }
      });
    }
    while (answered < 500) std::this_thread::sleep_for(1ms);
    group.server(0).Kill();
    while (errors == 0) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(Recovers(*store));
    const std::int64_t then = answered;
    while (answered < then + 10'000) std::this_thread::sleep_for(1ms);
    stop = true;
  }
  EXPECT_EQ(asked, answered) << "every request is answered";
  for (const auto& count : admitted) {
    EXPECT_GE(count, kBudget - errors);
    EXPECT_LE(count, 2 * kBudget) << "at most what the dead master had not told its replicas";
  }
  const auto unknown = Check(*Open(group.Uri("/nosuch")));
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("knows no master \"nosuch\""));
}

TEST(RedisSentinel, GoesToTheNewMasterWhenTheSentinelsSaySo) {
  SentinelGroup group;
  const auto store = Open(group.Uri());
  ASSERT_TRUE(Recovers(*store));
  const auto before = store->GetStats().connects;
  ASSERT_TRUE(
      Eventually([&] { return group.sentinel(0).Cli("sentinel failover main") == "OK\n"; }));
  // Makes no request that the old master, which is still alive, could refuse.
  EXPECT_TRUE(Eventually([&] { return store->GetStats().connects > before; }));
  EXPECT_TRUE(Recovers(*store));
}

TEST(RedisSentinel, HasCredentialsOfItsOwnAndNeedsNoMoreThanTheDocumentedAcls) {
  const RedisServer server({.arguments = {"--requirepass", "r00t"}, .auth = ":r00t"});
  const int port = FreePort();
  const std::string config = "/tmp/sluice-sentinel-" + std::to_string(port) + ".conf";
  std::ofstream(config) << "port " << port << "\nbind 127.0.0.1\nrequirepass w4tch\n"
                        << "sentinel monitor main 127.0.0.1 " << server.port() << " 1\n"
                        << "sentinel auth-pass main r00t\n";
  const RedisServer sentinel({.port = port, .auth = ":w4tch", .sentinel_config = config});
  ASSERT_EQ(server.Cli(DocumentedAcl("sluice", "s3cret") + "+role"), "OK\n");
  ASSERT_EQ(sentinel.Cli(DocumentedAcl("sluice-sentinel", "s3ntinel")), "OK\n");

  const std::string at = "127.0.0.1:" + std::to_string(port) + "/main";
  const std::string user = "redis-sentinel://sluice:s3cret@" + at;
  const auto store = Open(user + "/2?sentinel_user=sluice-sentinel&sentinel_password=s3ntinel");
  const auto decision = Check(*store);
  ASSERT_TRUE(decision) << decision.error().message;
  EXPECT_EQ(server.Cli("-n 2 dbsize"), "1\n");
  // It also listens to the Sentinel.
  EXPECT_TRUE(Eventually([&] {
    return testing::Value(sentinel.Cli("client list"),
                          testing::ContainsRegex(" sub=1 [^\n]* user=sluice-sentinel "));
  }));
  EXPECT_TRUE(Check(*Open("redis-sentinel://:r00t@" + at + "?sentinel_password=w4tch")))
      << "passwords alone";
  for (const std::string& uri :
       {user, user + "?sentinel_password=wr0ng",
        "redis-sentinel://sluice:wr0ng@" + at + "?sentinel_password=w4tch"}) {
    const auto denied = Check(*Open(uri));
    ASSERT_FALSE(denied) << uri;
    EXPECT_EQ(denied.error().code, ErrorCode::kAccessDenied) << denied.error().message;
    EXPECT_THAT(denied.error().message, Not(HasSubstr("wr0ng")));
  }
  std::filesystem::remove(config);
}

TEST(RedisStore, ReachesAServerByIpv6AndByName) {
  const RedisServer server({.host = "::1"});
  EXPECT_TRUE(Check(*Open(server.Uri())));
  const RedisServer named;
  const auto store = Open("redis://localhost:" + std::to_string(named.port()) + "?name=my-api");
  EXPECT_TRUE(Check(*store));
  EXPECT_THAT(named.Cli("client list"), HasSubstr(" name=my-api "));
}

TEST(RedisStore, WaitsForAServerThatLoads) {
  // Loads for minutes unless told otherwise, and answers us after each of the larger keys.
  RedisServer server(
      {.arguments = {"--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024",
                     "--rdbcompression", "no"}});
  const auto store = Open(server.Uri());
  ASSERT_EQ(Check(*store, kFive)->remaining, 4);
  server.Cli(
      "eval \"for i = 1, 10000 do redis.call('set', 'filler' .. i, string.rep('x', 1024)) end\" 0");
  server.Cli("save");
  server.Kill();
  server.StartWithoutWaiting();
  EXPECT_TRUE(Eventually([&] {
    const auto decision = Check(*store);
    if (decision) return false;
    EXPECT_TRUE(decision.error().transient());
    return decision.error().message.contains("LOADING");
  }));
  EXPECT_EQ(server.Cli("config set key-load-delay 0"), "OK\n");
  EXPECT_TRUE(Recovers(*store));
  EXPECT_EQ(Check(*store, kFive)->remaining, 3);
}

TEST(RedisStore, KeepsItsDeadlines) {
  const RedisServer server;
  const auto store = Open(server.Uri("?timeout=300ms"));
  ASSERT_TRUE(Recovers(*store));
  using Clock = std::chrono::steady_clock;
  // However busy the machine is, at least one of several is hardly later than a timer.
  auto least = Clock::duration::max();
  auto least_late = Clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    server.Cli("client pause 60000 write");
    auto timer = std::async(std::launch::async, [] {
      const auto start = Clock::now();
      std::this_thread::sleep_for(300ms);
      return Clock::now() - start;
    });
    const auto start = Clock::now();
    EXPECT_FALSE(Check(*store));
    const auto took = Clock::now() - start;
    least = std::min(least, took);
    least_late = std::min(least_late, took - timer.get());
    server.Cli("client unpause");
    ASSERT_TRUE(Recovers(*store));
  }
  EXPECT_GE(least, 299ms);
  EXPECT_LT(least_late, 50ms);
}

TEST(RedisStore, GivesUpOnAServerThatTakesConnectionsAndSaysNothing) {
  const RedisServer server;
  server.Signal(SIGSTOP);
  const auto store = Open(server.Uri("?timeout=100ms&connect_timeout=200ms"));
  bool said = false;
  for (int i = 0; i < 100 && !said; ++i) {
    const auto silent = Check(*store);
    ASSERT_FALSE(silent);
    EXPECT_EQ(silent.error().code, ErrorCode::kUnavailable);
    said = silent.error().message.find("no connection within 200 ms") != std::string::npos;
  }
  EXPECT_TRUE(said);
  server.Signal(SIGCONT);
  EXPECT_TRUE(Recovers(*store));
}

TEST(RedisStore, KeepsStateForTheWholeWindow) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  for (const char* text :
       {"algorithm=token_bucket,capacity=1,refill=1,period=30d",
        "algorithm=fixed_window,limit=1,window=30d", "algorithm=sliding_window,limit=1,window=30d",
        "algorithm=sliding_window_counter,limit=1,window=30d"}) {
    SCOPED_TRACE(text);
    const Limit month = *Limit::Parse(text);
    const auto decision = store->Check({.key = "k", .limit = &month, .name = text}).value();
    const long long whole_in = decision.reset_after.count() / 1'000;
    const long long ttl =
        std::stoll(server.Cli("eval \"return redis.call('pttl', redis.call('keys', '*')[1])\" 0"));
    EXPECT_GE(ttl, whole_in - 60'000) << "defect 6: a cap forgets longer windows";
    EXPECT_LE(ttl, whole_in + 1'000);
    server.Cli("flushall");
  }
}

TEST(RedisStore, KeepsHostileKeysApart) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  using namespace std::string_literals;
  for (const std::string& key : {"a"s, "{a}"s, "a}:x"s, "a b"s, "a\r\nFLUSHALL\r\n"s, "a\0b"s,
                                 "\xc3\xa9"s, "\xff"s, std::string(1024, 'k')}) {
    EXPECT_EQ(Check(*store, kFive, key)->remaining, 4) << key;
  }
  EXPECT_EQ(Check(*store, kFive, std::string(1 << 20, 'k')).error().code, ErrorCode::kInvalidKey);
}

TEST(RedisStore, PurgesStatesAndNothingElse) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  for (int i = 0; i < 2'500; ++i) {
    ASSERT_TRUE(Check(*store, kMany, "user:" + std::to_string(i)));
    if (i % 10 == 0) {
      ASSERT_TRUE(Check(*store, kMany, "ip:" + std::to_string(i)));
    }
  }
  server.Cli("set sluice:rules:main x");
  server.Cli("set other:{user:1}:n x");
  EXPECT_EQ(store->Purge("user:*", true)->matched, 2'500);
  EXPECT_EQ(store->CountKeys().value(), 2'500 + 250 + 2);
  EXPECT_EQ(store->Purge("user:*", false)->matched, 2'500);
  EXPECT_EQ(store->Purge("user:*", false)->matched, 0);
  EXPECT_EQ(store->Purge("[iI]p*", false)->matched, 0) << "only * and ? are special";
  EXPECT_EQ(store->Purge("*", false)->matched, 250);
  EXPECT_EQ(server.Cli("dbsize"), "2\n");
}

TEST(RedisStore, PurgesByTheKeyAndNotByWhatIsStoredForIt) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  const std::string long_key(300, 'k');
  const std::vector<std::string> keys = {"{",   "foo ",   "José", "a[b]", "a\\b",
                                         "abc", long_key, "\xff", "%7b"};
  for (const std::string& key : keys) ASSERT_TRUE(Check(*store, kMany, key));
  const auto left = [&] { return store->CountKeys().value(); };
  const auto all = static_cast<std::int64_t>(keys.size());
  for (const std::string_view pattern : {"*0", "*9", "*5*", "#*", "kkk*", "a[*c]", "a?c?"}) {
    EXPECT_EQ(store->Purge(pattern, true)->matched, 0) << pattern;
    EXPECT_EQ(store->Purge(pattern, false)->matched, 0) << pattern;
  }
  EXPECT_EQ(store->Purge("*b", true)->matched, 2) << "a\\b and %7b, but not {";
  EXPECT_EQ(left(), all);
  std::int64_t removed = 0;
  for (const std::string& pattern :
       {"Jos?"s, "foo?"s, "a[b*"s, "a\\*"s, long_key, "%*"s, "\xff"s, "{*"s, "???"s}) {
    EXPECT_EQ(store->Purge(pattern, true)->matched, 1) << pattern;
    EXPECT_EQ(store->Purge(pattern, false)->matched, 1) << pattern;
    EXPECT_EQ(left(), all - ++removed);
  }
}

TEST(AsyncApply, CompletesAsTheTokenSays) {
  const RedisServer server;
  const auto store = Open(server.Uri());
  const Charge charge{.key = "k", .limit = &kFive};
  Request request{.charges = {&charge, 1}};

  EXPECT_EQ(AsyncApply(*store, request, boost::asio::use_future).get()->remaining, 4);

  // Outstanding operations count as work: run() returns when they have completed.
  boost::asio::io_context context;
  std::optional<std::int64_t> by_callback;
  AsyncApply(*store, request, boost::asio::bind_executor(context, [&](Expected<Decision> decision) {
    by_callback = decision->remaining;
  }));
  context.run();
  EXPECT_EQ(by_callback, 3);

  std::optional<std::int64_t> by_coroutine;
  boost::asio::co_spawn(
      context,
      [&]() -> boost::asio::awaitable<void> {
        const auto decision = co_await AsyncApply(*store, request, boost::asio::use_awaitable);
        by_coroutine = decision->remaining;
      },
      boost::asio::detached);
  context.restart();
  context.run();
  EXPECT_EQ(by_coroutine, 2);
}

TEST(RedisStore, AnswersAllThatIsOutstandingWhenItIsDestroyed) {
  const RedisServer server;
  auto store = Open(server.Uri());
  ASSERT_TRUE(Check(*store));
  server.Cli("client pause 60000 write");
  // Some are in flight, most of them wait.
  std::vector<std::string> keys;
  for (int i = 0; i < 1'000; ++i) keys.push_back(std::to_string(i));
  std::vector<Charge> charges;
  for (const std::string& key : keys) charges.push_back({.key = key, .limit = &kMany});
  std::vector<Request> requests;
  for (const Charge& charge : charges) requests.push_back({.charges = {&charge, 1}});
  std::atomic<int> done = 0;
  store->Apply(requests, [&] { ++done; });
  Request reset{.charges = {charges.data(), 1}, .action = Action::kReset};
  store->Apply({&reset, 1}, [] {});
  Request request{.charges = {charges.data(), 1}};
  auto by_future = AsyncApply(*store, request, boost::asio::use_future);
  boost::asio::io_context context;
  Request awaited{.charges = {charges.data(), 1}};
  std::optional<ErrorCode> by_coroutine;
  boost::asio::co_spawn(
      context,
      [&]() -> boost::asio::awaitable<void> {
        const auto decision = co_await AsyncApply(*store, awaited, boost::asio::use_awaitable);
        by_coroutine = decision.error().code;
      },
      boost::asio::detached);
  context.run_one();

  store.reset();
  const auto is_lost = AnyOf(ErrorCode::kUnavailable, ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(done, 1);
  for (const Request& each : requests) ASSERT_THAT(each.outcome.error().code, is_lost);
  EXPECT_THAT(reset.outcome.error().code, is_lost);
  EXPECT_THAT(by_future.get().error().code, is_lost);
  context.run();
  EXPECT_THAT(by_coroutine.value(), is_lost);
}

TEST(RedisStore, AnswersWhatIsAskedForWhileItIsDestroyed) {
  const RedisServer server;
  auto store = Open(server.Uri());
  ASSERT_TRUE(Check(*store));
  server.Cli("client pause 60000 write");
  RedisStore& alive = *store;
  const Charge charge{.key = "k", .limit = &kMany};
  Request first{.charges = {&charge, 1}};
  Request second{.charges = {&charge, 1}};
  Request third{.charges = {&charge, 1}};
  std::atomic<bool> done = false;
  Request reset{.charges = {&charge, 1}, .action = Action::kReset};
  alive.Apply({&first, 1}, [&] {
    alive.Apply({&reset, 1}, [] {});
    alive.Watch([](const Charge*) {});
    alive.Apply({&second, 1}, [&] { alive.Apply({&third, 1}, [&] { done = true; }); });
  });
  store.reset();
  ASSERT_TRUE(done);
  EXPECT_EQ(second.outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(third.outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(reset.outcome.error().code, ErrorCode::kUnavailable);
}

TEST(RedisStore, RefusesAUriThatIsWrong) {
  EXPECT_EQ(RedisStore::Create({.uri = "http://x"}).error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(RedisStore::Create({.uri = ""}).error().code, ErrorCode::kInvalidInput);
}

}  // namespace
}  // namespace sluice
