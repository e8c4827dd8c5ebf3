// SPDX-License-Identifier: Apache-2.0
#include "replay/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/time.h"

namespace sluice::replay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kStart = 1'700'000'000 * kSecond;  // 2023-11-14T22:13:20Z
constexpr const char* kBucket = "algorithm=token_bucket,capacity=2,refill=1,period=1s";
constexpr const char* kWindow = "algorithm=fixed_window,limit=3,window=1m";

std::vector<Limit> Limits(std::initializer_list<const char*> texts) {
  std::vector<Limit> limits;
  for (const char* text : texts) limits.push_back(Limit::Parse(text).value());
  return limits;
}

// Adds requests with given decisions.
class Recorder {
 public:
  explicit Recorder(std::initializer_list<const char*> limits = {kBucket})
      : limits_(limits.size()), summary_(Limits(limits)) {}

  Recorder& Allow(std::int64_t time_us, std::string_view key, int times = 1) {
    return Decide(time_us, key, std::vector(limits_, true), times);
  }
  // Denied by every limit.
  Recorder& Deny(std::int64_t time_us, std::string_view key, int times = 1) {
    return Decide(time_us, key, std::vector(limits_, false), times);
  }
  Recorder& Decide(std::int64_t time_us, std::string_view key, const std::vector<bool>& allowed,
                   int times = 1) {
    Decision overall{.allowed = true};
    std::vector<Decision> each;
    for (const bool one : allowed) {
      each.push_back({.allowed = one});
      overall.allowed = overall.allowed && one;
    }
    for (int i = 0; i < times; ++i) {
      summary_.Add({.timestamp_us = time_us, .key = key, .cost = 1}, overall, each);
    }
    return *this;
  }

  Summary& summary() { return summary_; }
  std::string Text() const { return summary_.ToText(); }
  boost::json::object Json() const {
    const std::string text = summary_.ToJson();
    EXPECT_THAT(text, EndsWith("}\n"));
    EXPECT_EQ(text.find('\n'), text.size() - 1) << "more than one line";
    boost::json::error_code error;
    const boost::json::value value = boost::json::parse(text, error);
    EXPECT_FALSE(error) << error.message() << ": " << text;
    return error ? boost::json::object() : value.as_object();
  }

 private:
  std::size_t limits_;
  Summary summary_;
};

std::vector<std::string> TopKeys(const Recorder& recorder) {
  std::vector<std::string> keys;
  const boost::json::object json = recorder.Json();
  for (const boost::json::value& entry : json.at("top_denied").as_array()) {
    keys.emplace_back(entry.at("key").as_string());
  }
  return keys;
}

std::string Repeat(char c, std::size_t count) { return std::string(count, c); }

TEST(SummaryText, SaysWhatAReplayCameTo) {
  Recorder recorder({kBucket, kWindow});
  recorder.Allow(kStart, "a", 8)
      .Decide(kStart, "b", {false, true}, 2)
      .Decide(kStart, "a", {false, false}, 2)
      .Decide(kStart + 2, "c\xff", {true, false}, 3);
  recorder.summary().AddBadLine();

  EXPECT_EQ(recorder.Text(),
            "requests  15\n"
            "allowed    8  53.3 %\n"
            "denied     7  46.7 %\n"
            "bad lines  1  skipped\n"
            "from      2023-11-14T22:13:20.000000Z\n"
            "to        2023-11-14T22:13:20.000002Z\n"
            "\n"
            "denied by\n"
            "   4  algorithm=token_bucket,capacity=2,refill=1,period=1s\n"
            "   5  algorithm=fixed_window,limit=3,window=1m\n"
            "\n"
            "top denied keys\n"
            "   3  \"c\\xff\"\n"
            "   2  \"a\"\n"
            "   2  \"b\"\n"
            "\n"
            "over time, 1 us a row   # allowed  - denied\n"
            "  2023-11-14T22:13:20.000000Z   8  4  " +
                Repeat('#', 32) + Repeat('-', 16) +
                "\n"
                "  2023-11-14T22:13:20.000001Z   0  0\n"
                "  2023-11-14T22:13:20.000002Z   0  3  " +
                Repeat('-', 12) + "\n");
}

TEST(SummaryText, LeavesOutWhatDidNotHappen) {
  Recorder recorder;
  recorder.Allow(0, "a");
  EXPECT_EQ(recorder.Text(),
            "requests  1\n"
            "allowed   1  100.0 %\n"
            "denied    0  0.0 %\n"
            "from      1970-01-01T00:00:00.000000Z\n"
            "to        1970-01-01T00:00:00.000000Z\n"
            "\n"
            "denied by\n"
            "  0  algorithm=token_bucket,capacity=2,refill=1,period=1s\n"
            "\n"
            "over time, 1 us a row   # allowed  - denied\n"
            "  1970-01-01T00:00:00.000000Z  1 0  " +
                Repeat('#', 48) + "\n");
}

TEST(SummaryText, WithoutRequestsIsShort) {
  Recorder recorder;
  EXPECT_EQ(recorder.Text(),
            "requests  0\n"
            "allowed   0  0.0 %\n"
            "denied    0  0.0 %\n");
  recorder.summary().AddBadLine();
  EXPECT_THAT(recorder.Text(), EndsWith("bad lines 1  skipped\n"));
}

TEST(SummaryText, SharesAreRoundedToTheNearestTenth) {
  EXPECT_THAT(Recorder().Allow(0, "a").Deny(0, "a", 2).Text(),
              AllOf(HasSubstr("  33.3 %"), HasSubstr("  66.7 %")));
  EXPECT_THAT(Recorder().Allow(0, "a", 7).Deny(0, "a").Text(),
              AllOf(HasSubstr("  87.5 %"), HasSubstr("  12.5 %")));
  EXPECT_THAT(Recorder().Allow(0, "a", 9'996).Deny(0, "a", 4).Text(), HasSubstr("  0.0 %"));
  EXPECT_THAT(Recorder().Allow(0, "a", 9'995).Deny(0, "a", 5).Text(), HasSubstr("  0.1 %"));
}

TEST(SummaryText, SingleDenialAmongThousandsIsSeenInItsBar) {
  const std::string text = Recorder().Allow(0, "a", 10'000).Deny(0, "a").Text();
  EXPECT_THAT(text, EndsWith("#-\n"));
}

TEST(SummaryText, FromAndToAreTheEarliestAndTheLatestWhateverTheOrder) {
  const std::string text =
      Recorder().Allow(kStart + 5, "a").Deny(kStart + 9, "a").Allow(kStart + 1, "a").Text();
  EXPECT_THAT(text, HasSubstr("from      2023-11-14T22:13:20.000001Z\n"
                              "to        2023-11-14T22:13:20.000009Z\n"));
}

TEST(SummaryText, TheLastMomentHasADate) {
  const std::int64_t last_us = kTimeMax.time_since_epoch().count();
  EXPECT_THAT(Recorder().Allow(last_us, "a").Text(),
              HasSubstr("to        2112-09-17T23:53:47.370495Z\n"));
}

TEST(SummaryText, RowsAreNamedInTheLargestUnitThatFits) {
  const auto width = [](std::int64_t span_us) {
    const std::string text = Recorder().Allow(0, "a").Allow(span_us, "a").Text();
    const auto begin = text.find("over time, ") + 11;
    return text.substr(begin, text.find(" a row") - begin);
  };
  EXPECT_EQ(width(1), "1 us");
  EXPECT_EQ(width(10'000), "1 ms");
  EXPECT_EQ(width(kSecond), "100 ms");
  EXPECT_EQ(width(10 * kSecond), "1 s");
  EXPECT_EQ(width(60 * kSecond), "10 s");
  EXPECT_EQ(width(600 * kSecond), "1 min");
  EXPECT_EQ(width(20 * 3'600 * kSecond), "1 h");
  EXPECT_EQ(width(20 * 86'400 * kSecond), "1 d");
}

TEST(SummaryText, ChartNeverHasMoreThanItsRowsAndNoBlankAtAnEnd) {
  for (const std::int64_t span_us : {24L, 999L, 123'456L, 86'400 * kSecond, 1'000'000 * kSecond}) {
    const std::string text = Recorder().Allow(7, "a").Deny(7 + span_us, "a").Text();
    const std::string chart = text.substr(text.find("over time"));
    EXPECT_LE(std::ranges::count(chart, '\n'), 1 + Timeline::kRowsMax);
    EXPECT_THAT(text, Not(HasSubstr(" \n")));
  }
}

TEST(SummaryText, KeysAreEscapedAndCut) {
  const std::string text =
      Recorder().Deny(0, "a\n\x1b[0m\"\\", 2).Deny(0, Repeat('k', 1'024)).Text();
  EXPECT_THAT(text, AllOf(HasSubstr("  2  \"a\\x0a\\x1b[0m\\\"\\\\\"\n"),
                          HasSubstr("  1  \"" + Repeat('k', 64) + "\"...\n")));
}

TEST(SummaryCounts, RequestsAndBadLinesAreCountedApart) {
  Recorder recorder;
  recorder.Allow(0, "a", 2).Deny(0, "a", 3);
  recorder.summary().AddBadLine();
  recorder.summary().AddBadLine();
  EXPECT_EQ(recorder.summary().requests(), 5);
  EXPECT_EQ(recorder.summary().bad_lines(), 2);
}

TEST(SummaryJson, SaysWhatAReplayCameTo) {
  Recorder recorder({kBucket, kWindow});
  recorder.Allow(kStart, "a", 8)
      .Decide(kStart, "b", {false, true}, 2)
      .Decide(kStart, "a", {false, false}, 2)
      .Decide(kStart + 2, "c", {true, false}, 3);
  recorder.summary().AddBadLine();

  EXPECT_EQ(recorder.Json(), boost::json::parse(R"({
    "requests": 15, "allowed": 8, "denied": 7, "bad_lines": 1,
    "first_us": 1700000000000000, "last_us": 1700000000000002,
    "limits": [
      {"limit": "algorithm=token_bucket,capacity=2,refill=1,period=1s", "denied": 4},
      {"limit": "algorithm=fixed_window,limit=3,window=1m", "denied": 5}],
    "top_denied": [
      {"key": "c", "denied": 3}, {"key": "a", "denied": 2}, {"key": "b", "denied": 2}],
    "timeline_width_us": 1,
    "timeline": [
      {"start_us": 1700000000000000, "allowed": 8, "denied": 4},
      {"start_us": 1700000000000002, "allowed": 0, "denied": 3}]
  })"));
}

TEST(SummaryJson, WithoutRequestsHasAllMembers) {
  const boost::json::object json = Recorder().Json();
  for (const char* member : {"requests", "allowed", "denied", "bad_lines"}) {
    EXPECT_EQ(json.at(member), 0) << member;
  }
  EXPECT_EQ(json.at("limits").as_array().size(), 1U);
  EXPECT_THAT(json.at("top_denied").as_array(), IsEmpty());
  EXPECT_THAT(json.at("timeline").as_array(), IsEmpty());
}

TEST(SummaryJson, RowsStartOnTheirWidth) {
  const boost::json::object json =
      Recorder().Allow(kStart + 123, "a").Deny(kStart + 60 * kSecond, "a").Json();
  EXPECT_EQ(json.at("timeline_width_us"), 10 * kSecond);
  const boost::json::array& rows = json.at("timeline").as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("start_us"), kStart);
  EXPECT_EQ(rows[1].at("start_us"), kStart + 60 * kSecond);
}

TEST(SummaryTopKeys, AreThoseDeniedMostOften) {
  Recorder recorder;
  recorder.Allow(0, "never", 100).Deny(0, "once").Deny(0, "often", 3).Deny(0, "twice", 2);
  EXPECT_THAT(TopKeys(recorder), ElementsAre("often", "twice", "once"));
}

TEST(SummaryTopKeys, EqualOnesGoByKey) {
  Recorder recorder;
  for (const char* key : {"d", "b", "aa", "c", "a", "B"}) recorder.Deny(0, key);
  EXPECT_THAT(TopKeys(recorder), ElementsAre("B", "a", "aa", "b", "c", "d"));
}

TEST(SummaryTopKeys, AreTenAtMostAndTheSameInAnyOrderOfArrival) {
  Recorder up;
  Recorder down;
  for (int i = 0; i < 1'000; ++i) {
    const std::string key = std::to_string(1'000 + i);
    up.Deny(0, key, 1 + i % 2);
  }
  for (int i = 999; i >= 0; --i) {
    const std::string key = std::to_string(1'000 + i);
    down.Deny(0, key, 1 + i % 2);
  }
  EXPECT_THAT(TopKeys(up), ElementsAre("1001", "1003", "1005", "1007", "1009", "1011", "1013",
                                       "1015", "1017", "1019"));
  EXPECT_EQ(TopKeys(up), TopKeys(down));
  EXPECT_EQ(up.Text(), down.Text());
}

TEST(SummaryTopKeys, OutliveTheRecordsTheyCameFrom) {
  Recorder recorder;
  {
    std::string key = "a key that is too long for a small string";
    recorder.Deny(0, key);
    key.assign(key.size(), 'x');
  }
  EXPECT_THAT(TopKeys(recorder), ElementsAre("a key that is too long for a small string"));
}

TEST(SummaryTopKeys, Utf8AndControlBytesComeBackFromJsonUnchanged) {
  using namespace std::string_literals;
  for (const std::string& key :
       {"\xc3\xa9\xf0\x9f\x98\x80"s, "a\0b"s, "\n\t\x1b\x7f"s, "\"\\/"s, std::string(1'024, 'k')}) {
    EXPECT_THAT(TopKeys(Recorder().Deny(0, key)), ElementsAre(key));
  }
}

TEST(SummaryTopKeys, KeysThatAreNotUtf8StillGiveValidJson) {
  // A lone byte, a truncated sequence, an overlong one, a surrogate, and one beyond the last code
  // point.
  for (const std::string_view key :
       {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80\"\\"}) {
    const std::vector<std::string> keys = TopKeys(Recorder().Deny(0, key));
    ASSERT_EQ(keys.size(), 1U);
    EXPECT_THAT(keys[0], HasSubstr("\\x"));
  }
}

TEST(SummaryTopKeys, KeysThatAreNotUtf8StayApart) {
  Recorder recorder;
  recorder.Deny(0, "\xff", 3).Deny(0, "\xfe", 2).Deny(0, "\xff\xfe");
  const std::vector<std::string> keys = TopKeys(recorder);
  EXPECT_THAT(keys, ElementsAre(HasSubstr("\\xff"), HasSubstr("\\xfe"), HasSubstr("\\xff\\xfe")));
}

}  // namespace
}  // namespace sluice::replay
