// SPDX-License-Identifier: Apache-2.0
#include "grpc/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <chrono>
#include <string>
#include <vector>

#include "grpc/metadata.h"
#include "support/h2_client.h"

namespace sluice::grpc {
namespace {

using namespace std::chrono_literals;  // NOLINT
using namespace std::string_literals;  // NOLINT
using test::Framed;
using test::H2Client;
using test::Headers;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Method kOne = {"/test.Service/One", Method::Requests::kOne};
constexpr Method kMany = {"/test.Service/Many", Method::Requests::kMany};

// Echoes what it is sent, unless told to wait.
class Echo : public Session::Handler {
 public:
  const Method* FindMethod(std::string_view path) override {
    return path == kOne.path ? &kOne : path == kMany.path ? &kMany : nullptr;
  }
  void OnMessage(StreamId id, const Method& method, std::string_view message) override {
    messages.emplace_back(message);
    if (wait) {
      waiting.push_back(id);
    } else if (&method == &kOne) {
      session->ReplyAndFinish(id, reply.empty() ? message : reply);
    } else {
      session->Reply(id, reply.empty() ? message : reply);
    }
  }
  void OnHalfClose(StreamId id, const Method&) override { session->Finish(id, {}); }
  void OnAbandoned(StreamId id, const Method&) override { abandoned.push_back(id); }

  Session* session = nullptr;
  bool wait = false;
  std::string reply;
  std::vector<std::string> messages;
  std::vector<StreamId> waiting;
  std::vector<StreamId> abandoned;
};

class SessionTest : public testing::Test {
 protected:
  explicit SessionTest(const Session::Limits& limits = {}) : session_(echo_, limits, counters_) {
    echo_.session = &session_;
  }

  // Runs until neither side has anything to send.
  void Exchange() {
    while (true) {
      const std::string request = client_.Take();
      if (!request.empty()) session_.Receive(request, now_);
      std::string answer;
      session_.Produce(answer, SIZE_MAX);
      if (!answer.empty()) client_.Feed(answer);
      if (request.empty() && answer.empty()) return;
    }
  }

  const H2Client::Stream& Run(const Headers& headers, std::string body, bool end = true) {
    const std::int32_t id = client_.Start(headers, std::move(body), end);
    Exchange();
    return client_.stream(id);
  }
  const H2Client::Stream& Run(std::string body, bool end = true) {
    return Run(H2Client::CallHeaders(kOne.path), std::move(body), end);
  }
  static Headers With(std::string name, std::string value) {
    Headers headers = H2Client::CallHeaders(kOne.path);
    headers.emplace_back(std::move(name), std::move(value));
    return headers;
  }
  static Headers Instead(std::string_view name, std::string value) {
    Headers headers = H2Client::CallHeaders(kOne.path);
    for (auto& [key, held] : headers) {
      if (key == name) held = value;
    }
    return headers;
  }

  Counters counters_;
  Echo echo_;
  Session session_;
  H2Client client_;
  SteadyTime now_{1h};
};

template <std::size_t kResets, std::size_t kQuiet>
Session::Limits FloodLimits() {
  return {.resets_max = kResets, .quiet_frames_max = kQuiet};
}

class SmallSessionTest : public SessionTest {
 protected:
  SmallSessionTest()
      : SessionTest({.message_bytes_max = 1000,
                     .unpacked_bytes_max = 1000,
                     .buffered_bytes_max = 1500,
                     .reply_bytes_max = 2000,
                     .streams_max = 4,
                     .header_bytes_max = 1000,
                     .resets_max = 10,
                     .quiet_frames_max = 10,
                     .quiet_frames_a_call = 2,
                     .flood_window = 1s,
                     .receive_timeout = 100ms,
                     .next_message_timeout = 500ms,
                     .send_timeout = 200ms}) {}
};

std::string Frame(std::uint8_t type, std::uint8_t flags, std::uint32_t id,
                  const std::string& payload) {
  const auto byte = [](std::size_t number, unsigned shift) {
    return static_cast<char>(number >> shift & 255U);
  };
  return std::string{byte(payload.size(), 16),
                     byte(payload.size(), 8),
                     byte(payload.size(), 0),
                     static_cast<char>(type),
                     static_cast<char>(flags),
                     byte(id, 24),
                     byte(id, 16),
                     byte(id, 8),
                     byte(id, 0)} +
         payload;
}

TEST_F(SessionTest, AnswersACall) {
  const auto& stream = Run(Framed("hello"));
  EXPECT_EQ(stream.Field(":status"), "200");
  EXPECT_EQ(stream.Field("content-type"), "application/grpc");
  EXPECT_THAT(stream.Messages(), ElementsAre("hello"));
  EXPECT_THAT(stream.trailers, ElementsAre(testing::Pair("grpc-status", "0")));
  EXPECT_TRUE(stream.closed);
  EXPECT_EQ(stream.close_code, NGHTTP2_NO_ERROR);
  EXPECT_EQ(session_.open_calls(), 0U);
  EXPECT_EQ(counters_.calls.value(), 1U);
}

TEST(Session, DoesNotCareHowBytesAreCut) {
  H2Client recorder;
  recorder.Call(kOne.path, "first");
  const std::int32_t second = recorder.Start(H2Client::CallHeaders(kMany.path), Framed("a"), false);
  std::string bytes = recorder.Take();
  // Two that are left out, however they are split, as is the frame after them.
  bytes += Frame(NGHTTP2_RST_STREAM, 0, 5, "\0\0\0\x8"s) + Frame(NGHTTP2_RST_STREAM, 0, 7, "8888");
  recorder.Send(second, Framed("bc"), true);
  bytes += recorder.Take();

  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    Echo echo;
    Counters counters;
    Session session(echo, {}, counters);
    echo.session = &session;
    std::string answer;
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      // A copy, to detect reading beyond it or keeping a part of it.
      const std::vector<char> part(
          bytes.begin() + static_cast<std::ptrdiff_t>(at),
          bytes.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, bytes.size())));
      session.Receive({part.data(), part.size()}, SteadyTime{});
      session.Produce(answer, SIZE_MAX);
    }
    H2Client client;
    client.Call(kOne.path, "first");
    client.Start(H2Client::CallHeaders(kMany.path), "", false);
    client.Take();
    client.Feed(answer);
    EXPECT_THAT(client.stream(1).Messages(), ElementsAre("first")) << size;
    EXPECT_THAT(client.stream(3).Messages(), ElementsAre("a", "bc")) << size;
    EXPECT_EQ(client.stream(3).grpc_status(), "0") << size;
  }
}

TEST_F(SessionTest, ProducesNoMoreThanAskedFor) {
  echo_.reply = std::string(100'000, 'x');
  const std::int32_t id = client_.Call(kOne.path, "");
  session_.Receive(client_.Take(), now_);
  std::string out;
  session_.Produce(out, 1000);
  EXPECT_LT(out.size(), 20'000U);  // At most one more frame.
  client_.Feed(out);
  Exchange();
  EXPECT_EQ(client_.stream(id).data.size(), 100'005U);
}

TEST_F(SessionTest, RefusesWhatIsNotGrpc) {
  EXPECT_EQ(Run(Instead("content-type", "application/json"), Framed("x")).Field(":status"), "415");
  EXPECT_EQ(Run(Instead("content-type", "application/grpc-web"), Framed("x")).Field(":status"),
            "415");
  EXPECT_EQ(Run(Instead(":method", "GET"), "").Field(":status"), "405");
  EXPECT_EQ(Run(Instead("content-type", "application/grpc+proto"), Framed("x")).grpc_status(), "0");
  EXPECT_THAT(echo_.messages, ElementsAre("x"));
}

TEST_F(SessionTest, UnknownMethodsAreUnimplemented) {
  const auto& stream = Run(Instead(":path", "/test.Service/\xC3\xA4%"), Framed("x"));
  EXPECT_EQ(stream.Field(":status"), "200");
  EXPECT_EQ(stream.grpc_status(), "12");
  EXPECT_THAT(stream.grpc_message(), HasSubstr("unknown method"));
  EXPECT_THAT(stream.grpc_message(), HasSubstr("%25"));
  EXPECT_THAT(stream.trailers, IsEmpty());  // A single frame holds everything.
  EXPECT_TRUE(stream.data.empty());
}

TEST_F(SessionTest, EndsStreamsOfWhichItWantsNoMore) {
  const auto& stream = Run(Instead(":path", "/nowhere"), Framed("x"), false);
  EXPECT_EQ(stream.grpc_status(), "12");
  EXPECT_TRUE(stream.closed);
  EXPECT_EQ(stream.close_code, NGHTTP2_NO_ERROR);
  EXPECT_EQ(counters_.resets.value(), 0U);
}

TEST_F(SessionTest, RefusesMessagesThatAreNotOne) {
  EXPECT_EQ(Run("").grpc_status(), "12");
  EXPECT_EQ(Run(Framed("one") + Framed("two")).grpc_status(), "12");
  EXPECT_EQ(Run(Framed("cut off").substr(0, 8)).grpc_status(), "13");
  EXPECT_EQ(Run(Framed("cut off").substr(0, 3)).grpc_status(), "13");
  EXPECT_EQ(Run(Framed("strange", 2)).grpc_status(), "13");
  EXPECT_THAT(echo_.messages, IsEmpty());
  EXPECT_EQ(counters_.refused.value(), 5U);
}

TEST_F(SessionTest, UnpacksGzip) {
  const std::string text(50'000, 'x');
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed(test::Gzip(text), 1)).grpc_status(), "0");
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed("as it is", 0)).grpc_status(), "0");
  EXPECT_EQ(Run(With("grpc-encoding", "identity"), Framed("as it is")).grpc_status(), "0");
  EXPECT_THAT(echo_.messages, ElementsAre(text, "as it is", "as it is"));

  const std::string packed = test::Gzip(text);
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed("no gzip", 1)).grpc_status(), "13");
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed("", 1)).grpc_status(), "13");
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed(packed + "more", 1)).grpc_status(), "13");
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed(packed.substr(0, packed.size() - 1), 1))
                .grpc_status(),
            "13");
  EXPECT_EQ(Run(Framed(packed, 1)).grpc_status(), "13");
  const auto& unknown = Run(With("grpc-encoding", "br"), Framed("x", 1));
  EXPECT_EQ(unknown.grpc_status(), "12");
  EXPECT_EQ(unknown.Field("grpc-accept-encoding"), "identity,gzip");
  EXPECT_EQ(echo_.messages.size(), 3U);
}

TEST_F(SmallSessionTest, RefusesWhatUnpacksIntoTooMuch) {
  const std::string bomb = test::Gzip(std::string(1 << 20, '\0'));
  ASSERT_GT(bomb.size(), 1000U);
  const std::string small_bomb = test::Gzip(std::string(1001, '\0'));
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed(small_bomb, 1)).grpc_status(), "8");
  const std::string just_fits = test::Gzip(std::string(1000, '\0'));
  EXPECT_EQ(Run(With("grpc-encoding", "gzip"), Framed(just_fits, 1)).grpc_status(), "0");
}

TEST_F(SmallSessionTest, RefusesLargeMessagesBeforeTheyHaveCome) {
  EXPECT_EQ(Run(Framed(std::string(1000, 'x'))).grpc_status(), "0");
  EXPECT_EQ(Run(Framed(std::string(1001, 'x'))).grpc_status(), "8");
  const auto& announced = Run(Framed(std::string(1 << 20, 'x')).substr(0, 5), false);
  EXPECT_EQ(announced.grpc_status(), "8");
  EXPECT_TRUE(announced.closed);
  EXPECT_EQ(echo_.messages.size(), 1U);
}

TEST_F(SmallSessionTest, BoundsWhatUnfinishedMessagesHold) {
  const std::string part = Framed(std::string(900, 'x')).substr(0, 800);
  const auto& first = Run(part, false);
  EXPECT_EQ(first.grpc_status(), "");
  EXPECT_EQ(Run(part, false).grpc_status(), "8");
  // Cancelling the first one frees what it holds.
  client_.Cancel(1);
  Exchange();
  EXPECT_EQ(Run(part, false).grpc_status(), "");
}

TEST_F(SmallSessionTest, BoundsRepliesThatAreNotTaken) {
  H2Client slow({.window = 0});
  const std::int32_t id = slow.Start(H2Client::CallHeaders(kMany.path), "", false);
  echo_.reply = std::string(900, 'x');
  for (int i = 0; i < 3; ++i) slow.Send(id, Framed("x"), false);
  session_.Receive(slow.Take(), now_);
  std::string out;
  session_.Produce(out, SIZE_MAX);
  slow.Feed(out);
  EXPECT_EQ(slow.stream(id).data, "");
  EXPECT_EQ(echo_.messages.size(), 3U);
  EXPECT_FALSE(session_.finished());
  // Sending more does not change that.
  slow.Send(id, Framed("x"), false);
  session_.Receive(slow.Take(), now_);
  EXPECT_EQ(echo_.messages.size(), 3U);
}

// A client that reads replies, but never all of them.
TEST_F(SmallSessionTest, KeepsNoRepliesThatWereTaken) {
  H2Client slow({.window = 1000, .auto_window_update = false});
  const std::int32_t id = slow.Start(H2Client::CallHeaders(kMany.path), Framed("x"), false);
  echo_.reply = std::string(900, 'x');
  for (int i = 0; i < 100; ++i) {
    slow.Send(id, Framed("x"), false);
    session_.Receive(slow.Take(), now_);
    std::string out;
    session_.Produce(out, SIZE_MAX);
    slow.Feed(out);
    slow.Consume(id, 905);
    now_ += 1s;
    EXPECT_LE(session_.held_bytes(), 4000U);
  }
  EXPECT_EQ(echo_.messages.size(), 101U);
}

TEST_F(SmallSessionTest, EndsCallsWhoseRepliesAreNotTaken) {
  H2Client slow({.window = 0});
  // One that goes on, and one that only waits for its reply to be sent.
  const std::int32_t many = slow.Start(H2Client::CallHeaders(kMany.path), Framed("x"), false);
  const std::int32_t one = slow.Call(kOne.path, "x");
  const auto exchange = [&] {
    session_.Receive(slow.Take(), now_);
    std::string out;
    session_.Produce(out, SIZE_MAX);
    slow.Feed(out);
  };
  exchange();
  EXPECT_EQ(session_.open_calls(), 2U);
  EXPECT_FALSE(session_.ExpireReplies(now_));
  EXPECT_FALSE(session_.ExpireReplies(now_ + 199ms));
  EXPECT_TRUE(session_.ExpireReplies(now_ + 200ms));
  EXPECT_FALSE(session_.ExpireReplies(now_ + 200ms));  // Once.
  exchange();
  EXPECT_EQ(slow.stream(many).close_code, NGHTTP2_CANCEL);
  EXPECT_EQ(slow.stream(one).close_code, NGHTTP2_CANCEL);
  EXPECT_EQ(session_.open_calls(), 0U);
  EXPECT_EQ(session_.held_bytes(), 0U);
  EXPECT_THAT(echo_.abandoned, ElementsAre(many));
  EXPECT_EQ(counters_.deadlines_exceeded.value(), 2U);
}

TEST_F(SmallSessionTest, TellsWhatItHolds) {
  EXPECT_EQ(session_.held_bytes(), 0U);
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kMany.path), "", false);
  Exchange();
  const std::size_t call = session_.held_bytes();
  EXPECT_GT(call, 0U);
  client_.Send(id, Framed(std::string(500, 'x')).substr(0, 300), false);
  Exchange();
  EXPECT_EQ(session_.held_bytes(), call + 300);
  client_.Cancel(id);
  Exchange();
  EXPECT_EQ(session_.held_bytes(), 0U);
}

TEST_F(SessionTest, SendsAsMuchAsTheWindowAllows) {
  H2Client slow({.window = 1000, .auto_window_update = false});
  echo_.reply = std::string(2500, 'x');
  const std::int32_t id = slow.Call(kOne.path, "");
  const auto exchange = [&] {
    session_.Receive(slow.Take(), now_);
    std::string out;
    session_.Produce(out, SIZE_MAX);
    slow.Feed(out);
  };
  exchange();
  EXPECT_EQ(slow.stream(id).data.size(), 1000U);
  EXPECT_EQ(slow.stream(id).grpc_status(), "");
  slow.Consume(id, 1000);
  exchange();
  EXPECT_EQ(slow.stream(id).data.size(), 2000U);
  slow.Consume(id, 1000);
  exchange();
  EXPECT_EQ(slow.stream(id).data.size(), 2505U);
  EXPECT_EQ(slow.stream(id).grpc_status(), "0");
}

TEST_F(SessionTest, TakesMessagesLargerThanTheWindow) {
  const std::string large(3 << 20, 'x');
  echo_.reply = "taken";
  const auto& stream = Run(Framed(large));
  EXPECT_EQ(stream.grpc_status(), "0");
  EXPECT_THAT(stream.Messages(), ElementsAre("taken"));
  ASSERT_EQ(echo_.messages.size(), 1U);
  EXPECT_TRUE(echo_.messages.front() == large);
}

TEST_F(SessionTest, StreamsManyMessages) {
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kMany.path), Framed("a"), false);
  Exchange();
  EXPECT_THAT(client_.stream(id).Messages(), ElementsAre("a"));
  client_.Send(id, Framed("b") + Framed("c").substr(0, 3), false);
  Exchange();
  EXPECT_THAT(client_.stream(id).Messages(), ElementsAre("a", "b"));
  client_.Send(id, Framed("c").substr(3), true);
  Exchange();
  EXPECT_THAT(client_.stream(id).Messages(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(client_.stream(id).grpc_status(), "0");
  EXPECT_TRUE(client_.stream(id).closed);
}

TEST_F(SessionTest, EndsAStreamThatIsCutOff) {
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kMany.path), Framed("a"), false);
  Exchange();
  client_.Send(id, Framed("b").substr(0, 3), true);
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "13");
  EXPECT_THAT(echo_.abandoned, ElementsAre(id));
}

TEST_F(SessionTest, KeepsDeadlines) {
  echo_.wait = true;
  const std::int32_t id = client_.Start(With("grpc-timeout", "50m"), Framed("x"));
  const std::int32_t patient = client_.Call(kOne.path, "x");
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), now_ + 50ms);
  session_.Expire(now_ + 50ms - std::chrono::nanoseconds{1});
  Exchange();
  EXPECT_FALSE(client_.stream(id).closed);
  session_.Expire(now_ + 50ms);
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "4");
  EXPECT_THAT(echo_.abandoned, ElementsAre(id));
  EXPECT_EQ(session_.NextExpiry(), std::nullopt);
  // A late answer is dropped.
  session_.ReplyAndFinish(id, "late");
  session_.ReplyAndFinish(patient, "in time");
  Exchange();
  EXPECT_THAT(client_.stream(patient).Messages(), ElementsAre("in time"));
  EXPECT_EQ(counters_.deadlines_exceeded.value(), 1U);
}

TEST_F(SessionTest, DoesNoWorkAfterTheDeadline) {
  EXPECT_EQ(Run(With("grpc-timeout", "0n"), Framed("x")).grpc_status(), "4");
  const std::int32_t id = client_.Start(With("grpc-timeout", "50m"), "", false);
  Exchange();
  now_ += 50ms;
  client_.Send(id, Framed("x"), true);
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "4");
  EXPECT_THAT(echo_.messages, IsEmpty());
}

TEST_F(SmallSessionTest, DoesNotWaitForeverForAMessage) {
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kOne.path), "", false);
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), now_ + 100ms);
  session_.Expire(now_ + 100ms);
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "4");
  EXPECT_THAT(echo_.abandoned, IsEmpty());
}

TEST_F(SmallSessionTest, DoesNotWaitForeverForAnyOfManyMessages) {
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kMany.path), "", false);
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), now_ + 100ms);
  // The next may come later,
  client_.Send(id, Framed("first"), false);
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), now_ + 500ms);
  // but has to be complete in time once it has begun,
  now_ += 400ms;
  const SteadyTime begun = now_;
  client_.Send(id, Framed("second").substr(0, 2), false);
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), begun + 100ms);
  // however many pieces it comes in.
  now_ += 90ms;
  client_.Send(id, Framed("second").substr(2, 2), false);
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), begun + 100ms);
  session_.Expire(begun + 100ms);
  Exchange();
  EXPECT_EQ(client_.stream(id).grpc_status(), "4");
  EXPECT_THAT(echo_.abandoned, ElementsAre(id));
}

TEST_F(SmallSessionTest, LetsThoseWaitWhoWatch) {
  echo_.wait = true;
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kOne.path), Framed("x"));
  Exchange();
  session_.Reply(id, "first");
  Exchange();
  EXPECT_EQ(session_.NextExpiry(), std::nullopt);
  EXPECT_FALSE(session_.ExpireReplies(now_ + 1h));
  EXPECT_EQ(session_.open_calls(), 1U);
}

TEST(Metadata, ReadsTimeouts) {
  EXPECT_EQ(ParseTimeout("1H"), 1h);
  EXPECT_EQ(ParseTimeout("2M"), 2min);
  EXPECT_EQ(ParseTimeout("3S"), 3s);
  EXPECT_EQ(ParseTimeout("4m"), 4ms);
  EXPECT_EQ(ParseTimeout("5u"), std::chrono::microseconds{5});
  EXPECT_EQ(ParseTimeout("12345678n"), std::chrono::nanoseconds{12345678});
  EXPECT_GT(ParseTimeout("99999999H"), 24h * 364);
  for (const auto* text : {"", "S", "1", "1s", "-1S", "123456789S", "1.5S", "1 S", "S1"}) {
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
  }
}

TEST_F(SessionTest, RefusesMalformedTimeouts) {
  EXPECT_EQ(Run(With("grpc-timeout", "soon"), Framed("x")).grpc_status(), "13");
}

TEST_F(SessionTest, TellsOfCancelledCalls) {
  echo_.wait = true;
  const std::int32_t id = client_.Call(kOne.path, "x");
  Exchange();
  client_.Cancel(id);
  Exchange();
  EXPECT_THAT(echo_.abandoned, ElementsAre(id));
  EXPECT_EQ(session_.open_calls(), 0U);
  session_.ReplyAndFinish(id, "late");
  Exchange();
  EXPECT_EQ(client_.stream(id).data, "");
  EXPECT_EQ(counters_.resets.value(), 1U);
}

TEST_F(SessionTest, AnswersPings) {
  client_.Ping();
  Exchange();
  EXPECT_EQ(client_.pongs(), 1);
}

TEST_F(SmallSessionTest, RefusesMoreStreamsThanItSaid) {
  echo_.wait = true;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(client_.Call(kOne.path, "x"));
  Exchange();
  EXPECT_EQ(session_.open_calls(), 4U);
  EXPECT_EQ(client_.stream(ids[4]).close_code, NGHTTP2_REFUSED_STREAM);
  EXPECT_EQ(client_.stream(ids[5]).close_code, NGHTTP2_REFUSED_STREAM);
  EXPECT_EQ(echo_.messages.size(), 4U);
  EXPECT_EQ(client_.goaway(), std::nullopt);
}

TEST_F(SmallSessionTest, EndsFloodsOfStreamsThatAreRefused) {
  echo_.wait = true;
  std::string answers;  // The client reads none of them, so it never learns the maximum.
  const auto open = [&](int streams) {
    for (int i = 0; i < streams; ++i) {
      client_.Call(kOne.path, "x");
      session_.Receive(client_.Take(), now_);
      session_.Produce(answers, SIZE_MAX);
    }
  };
  open(4 + 10);
  EXPECT_FALSE(session_.finished());
  now_ += 1s;
  open(11);
  client_.Feed(answers);
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_EQ(counters_.floods.value(), 1U);
}

TEST_F(SmallSessionTest, EndsFloodsOfPings) {
  for (int i = 0; i < 8; ++i) client_.Ping();  // After SETTINGS and its ACK.
  Exchange();
  EXPECT_EQ(client_.goaway(), std::nullopt);
  for (int i = 0; i < 2; ++i) client_.Ping();
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_TRUE(session_.finished());
  EXPECT_EQ(counters_.floods.value(), 1U);
}

TEST_F(SmallSessionTest, AllowsForQuietFramesWithEveryCallAndWindow) {
  for (int i = 0; i < 100; ++i) {
    client_.Ping();
    Run(Framed("x"));
  }
  EXPECT_EQ(client_.goaway(), std::nullopt);
  for (int i = 0; i < 100; ++i) {
    client_.Ping();
    Exchange();
    now_ += 200ms;
  }
  EXPECT_EQ(client_.goaway(), std::nullopt);
}

TEST_F(SmallSessionTest, DoesNotAllowForAnyNumberOfQuietFramesACall) {
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 6; ++j) client_.Ping();
    Run(Framed("x"));
  }
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(SmallSessionTest, EndsRapidResets) {
  for (int i = 0; i < 10; ++i) {
    client_.Cancel(client_.Call(kOne.path, "x"));
    Exchange();
  }
  EXPECT_EQ(client_.goaway(), std::nullopt);
  now_ += 1s;
  for (int i = 0; i < 11; ++i) {
    const std::int32_t id = client_.Start(H2Client::CallHeaders(kOne.path), "", false);
    Exchange();
    client_.Cancel(id);
    Exchange();
  }
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_TRUE(session_.finished());
}

// gRPC's C core does this when a call is cancelled before its headers are written.
TEST_F(SmallSessionTest, LeavesOutResetsOfStreamsThatNeverWere) {
  echo_.wait = true;
  const std::int32_t id = client_.Call(kOne.path, "x");
  Exchange();
  const auto reset = [&](std::uint32_t stream) {
    session_.Receive(Frame(NGHTTP2_RST_STREAM, 0, stream, "\0\0\0\x8"s), now_);
    Exchange();
  };
  for (std::uint32_t i = 1; i <= 10; ++i) reset(static_cast<std::uint32_t>(id) + 2 * i);
  EXPECT_EQ(client_.goaway(), std::nullopt);
  EXPECT_EQ(counters_.resets.value(), 10U);
  session_.ReplyAndFinish(id, "y");
  Exchange();
  EXPECT_THAT(client_.stream(id).Messages(), ElementsAre("y"));

  reset(99);
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(SessionTest, EndsOnResetsOfStreamsThatAreNotTheClients) {
  Exchange();
  session_.Receive(Frame(NGHTTP2_RST_STREAM, 0, 2, "\0\0\0\x8"s), now_);
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_PROTOCOL_ERROR);
}

TEST_F(SmallSessionTest, CountsResetsThatTheClientProvokes) {
  echo_.wait = true;
  for (int i = 0; i < 11; ++i) {
    const std::int32_t id = client_.Start(H2Client::CallHeaders(kOne.path), "", false);
    Exchange();
    // A window that overflows is a stream error.
    session_.Receive(
        Frame(NGHTTP2_WINDOW_UPDATE, 0, static_cast<std::uint32_t>(id), "\x7f\xff\xff\xff"), now_);
    Exchange();
    now_ += 50ms;
  }
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(SmallSessionTest, EndsFloodsOfEmptyFrames) {
  const std::int32_t id = client_.Start(H2Client::CallHeaders(kOne.path), "", false);
  Exchange();
  for (int i = 0; i < 11; ++i) {
    session_.Receive(Frame(NGHTTP2_DATA, 0, static_cast<std::uint32_t>(id), ""), now_);
  }
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
}

// nghttp2 silently ignores most of these.
TEST_F(SmallSessionTest, EndsFloodsOfFramesThatAskForNothing) {
  constexpr std::uint8_t kPriorityUpdate = 16;
  constexpr std::uint8_t kUnknown = 200;
  const std::string number("\0\0\0\1", 4);
  const std::string padding("\7\0\0\0\0\0\0\0", 8);
  const std::vector<std::string> frames = {
      Frame(NGHTTP2_PRIORITY, 0, 1, number + "x"),
      Frame(NGHTTP2_PRIORITY, 0, 99, number + "x"),  // A stream that never existed.
      Frame(kPriorityUpdate, 0, 0, number + "u=1"),
      Frame(kUnknown, 0, 0, ""),
      Frame(kUnknown, 0, 1, "anything"),
      Frame(NGHTTP2_ALTSVC, 0, 0, std::string("\0\1oa", 4)),
      Frame(NGHTTP2_WINDOW_UPDATE, 0, 0, number),
      Frame(NGHTTP2_WINDOW_UPDATE, 0, 1, number),
      Frame(NGHTTP2_PING, 0, 0, std::string(8, 'x')),
      Frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, std::string(8, 'x')),
      Frame(NGHTTP2_DATA, 0, 1, ""),
      Frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, padding),
      Frame(NGHTTP2_GOAWAY, 0, 0, std::string(8, '\0')),
  };
  for (const std::string& frame : frames) {
    SCOPED_TRACE(static_cast<int>(frame[3]));
    Echo echo;
    Counters counters;
    Session session(echo, {.quiet_frames_max = 10}, counters);
    echo.session = &session;
    H2Client client;
    client.Start(H2Client::CallHeaders(kMany.path), "", false);
    const auto exchange = [&](const std::string& bytes) {
      // However they are split.
      for (const char byte : bytes) session.Receive({&byte, 1}, now_);
      std::string out;
      session.Produce(out, SIZE_MAX);
      client.Feed(out);
    };
    exchange(client.Take());  // With SETTINGS; an ACK of ours stays unsent.
    for (int i = 0; i < 9; ++i) exchange(frame);
    EXPECT_EQ(client.goaway(), std::nullopt);
    exchange(frame);
    EXPECT_EQ(client.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
    EXPECT_EQ(counters.floods.value(), 1U);
  }
}

TEST_F(SmallSessionTest, EndsFloodsOfSettings) {
  Exchange();
  for (int i = 0; i < 11; ++i) session_.Receive(Frame(NGHTTP2_SETTINGS, 0, 0, ""), now_);
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(SessionTest, EndsFloodsOfContinuations) {
  Exchange();
  std::string bytes = Frame(NGHTTP2_HEADERS, 0, 1, "\x83");
  for (int i = 0; i < 1000; ++i) bytes += Frame(NGHTTP2_CONTINUATION, 0, 1, "\x86");
  session_.Receive(bytes, now_);
  std::string out;
  session_.Produce(out, SIZE_MAX);
  EXPECT_TRUE(session_.finished());
}

TEST_F(SmallSessionTest, BoundsHeaders) {
  const auto& stream = Run(With("x-large", std::string(1000, 'x')), Framed("x"));
  EXPECT_EQ(stream.grpc_status(), "8");
  EXPECT_THAT(echo_.messages, IsEmpty());
  Headers many = H2Client::CallHeaders(kOne.path);
  for (int i = 0; i < 40; ++i) many.emplace_back("x", "y");
  EXPECT_EQ(Run(many, Framed("x")).grpc_status(), "8");
}

TEST_F(SessionTest, GivesUpWhatIsNotHttp2) {
  session_.Receive("GET / HTTP/1.1\r\nHost: x\r\n\r\n", now_);
  EXPECT_TRUE(session_.finished());
  EXPECT_FALSE(session_.greeted());
}

TEST_F(SessionTest, EndsOnFramesThatAreErrors) {
  Exchange();
  session_.Receive(Frame(NGHTTP2_PING, 0, 0, "short"), now_);
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_FRAME_SIZE_ERROR);
  EXPECT_TRUE(session_.finished());
}

TEST_F(SessionTest, DrainsWithoutLosingACall) {
  echo_.wait = true;
  const std::int32_t before = client_.Call(kOne.path, "before");
  Exchange();
  session_.Drain();
  // The client does not know yet when it sends another one.
  const std::int32_t meanwhile = client_.Call(kOne.path, "meanwhile");
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_NO_ERROR);
  EXPECT_EQ(client_.goaway_last_stream(), meanwhile);
  EXPECT_FALSE(session_.finished());
  for (const StreamId id : echo_.waiting) session_.ReplyAndFinish(id, "done");
  Exchange();
  EXPECT_THAT(client_.stream(before).Messages(), ElementsAre("done"));
  EXPECT_THAT(client_.stream(meanwhile).Messages(), ElementsAre("done"));
  EXPECT_TRUE(session_.finished());
}

TEST_F(SessionTest, DrainsAtOnceWithoutCalls) {
  Exchange();
  session_.Drain();
  Exchange();
  EXPECT_EQ(client_.goaway(), NGHTTP2_NO_ERROR);
  EXPECT_TRUE(session_.finished());
}

}  // namespace
}  // namespace sluice::grpc
