// SPDX-License-Identifier: Apache-2.0
#include "replay/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "sluice/time.h"

namespace sluice::replay {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A record that outlives the parser's next line.
struct Kept {
  std::int64_t timestamp_us;
  std::string key;
  std::int64_t cost;

  friend bool operator==(const Kept&, const Kept&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Kept& kept) {
    return out << "{" << kept.timestamp_us << ", " << ::testing::PrintToString(kept.key) << ", "
               << kept.cost << "}";
  }
};

constexpr std::string_view kTimeMaxText = "4503599627370495";
static_assert(kTimeMax.time_since_epoch().count() == 4'503'599'627'370'495);

// Nothing for a blank line or a header.
std::optional<Kept> Parse(RecordParser& parser, std::string_view line) {
  const auto parsed = parser.Parse(line);
  if (!parsed) {
    ADD_FAILURE() << ::testing::PrintToString(line) << ": " << parsed.error().message;
    return std::nullopt;
  }
  if (!*parsed) return std::nullopt;
  return Kept{(*parsed)->timestamp_us, std::string((*parsed)->key), (*parsed)->cost};
}

std::string ErrorOf(RecordParser& parser, std::string_view line) {
  const auto parsed = parser.Parse(line);
  if (parsed) {
    ADD_FAILURE() << ::testing::PrintToString(line) << " is accepted";
    return "";
  }
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidInput);
  return parsed.error().message;
}

// The only line of an input.
std::optional<Kept> Parse(std::string_view line) {
  RecordParser parser;
  return Parse(parser, line);
}

std::string ErrorOf(std::string_view line) {
  RecordParser parser;
  return ErrorOf(parser, line);
}

// A line after this header.
std::optional<Kept> ParseUnder(std::string_view header, std::string_view line) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, header), std::nullopt);
  return Parse(parser, line);
}

std::string ErrorUnder(std::string_view header, std::string_view line) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, header), std::nullopt);
  return ErrorOf(parser, line);
}

TEST(CsvRecord, HasTimestampKeyAndCost) {
  EXPECT_EQ(Parse("1700000000000000,user:1,5"), (Kept{1'700'000'000'000'000, "user:1", 5}));
}

TEST(CsvRecord, CostIsOneUnlessGiven) {
  EXPECT_EQ(Parse("1,a"), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse("1,a,"), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse("1,a,  "), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse("1,a,\"\""), (Kept{1, "a", 1}));
}

TEST(CsvRecord, CostZeroIsAPeek) { EXPECT_EQ(Parse("1,a,0"), (Kept{1, "a", 0})); }

TEST(CsvRecord, BlanksAroundNumbersDoNotCount) {
  EXPECT_EQ(Parse(" 1\t,a, 2 "), (Kept{1, "a", 2}));
}

TEST(CsvRecord, KeyIsTakenAsItStands) {
  EXPECT_EQ(Parse("1, a b ,2"), (Kept{1, " a b ", 2}));
  EXPECT_EQ(Parse("1,\xff\xfe"), (Kept{1, "\xff\xfe", 1}));
  EXPECT_EQ(Parse("1,a\0b,2"s), (Kept{1, "a\0b"s, 2}));
  EXPECT_EQ(Parse("1,it's,2"), (Kept{1, "it's", 2}));
  EXPECT_EQ(Parse("1,6\" pipe,2"), (Kept{1, "6\" pipe", 2}));
}

TEST(CsvRecord, EmptyKeyIsLeftToTheStoreToRefuse) { EXPECT_EQ(Parse("1,,2"), (Kept{1, "", 2})); }

TEST(CsvRecord, QuotedFieldMayHoldCommasAndQuotes) {
  EXPECT_EQ(Parse(R"(1,"a,b",2)"), (Kept{1, "a,b", 2}));
  EXPECT_EQ(Parse(R"(1,"say ""hi"", then go",2)"), (Kept{1, R"(say "hi", then go)", 2}));
  EXPECT_EQ(Parse(R"(1,"""",2)"), (Kept{1, "\"", 2}));
  EXPECT_EQ(Parse(R"(1,"",2)"), (Kept{1, "", 2}));
  EXPECT_EQ(Parse(R"("1","a","2")"), (Kept{1, "a", 2}));
  EXPECT_EQ(Parse(R"(1,"a")"), (Kept{1, "a", 1}));
}

TEST(CsvRecord, CarriageReturnAtTheEndDoesNotCount) {
  EXPECT_EQ(Parse("1,a\r"), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse("1,a,2\r"), (Kept{1, "a", 2}));
  EXPECT_EQ(Parse("1,\"a\"\r"), (Kept{1, "a", 1}));
  EXPECT_EQ(ParseUnder("timestamp_us,key\r", "1,a\r"), (Kept{1, "a", 1}));
}

TEST(CsvRecord, FieldsOfOneLineLeaveNoTraceInTheNext) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, "1,long key,9"), (Kept{1, "long key", 9}));
  EXPECT_EQ(Parse(parser, "2,b"), (Kept{2, "b", 1}));
  EXPECT_EQ(Parse(parser, R"("3","c","4")"), (Kept{3, "c", 4}));
}

TEST(CsvRecord, TimestampReachesFromTheEpochToTheLargestTime) {
  EXPECT_EQ(Parse("0,a"), (Kept{0, "a", 1}));
  EXPECT_EQ(Parse("4503599627370495,a"), (Kept{4'503'599'627'370'495, "a", 1}));
}

TEST(CsvRecord, TimestampMustBeWholeMicrosecondsInRange) {
  for (const std::string text :
       {"-1", "4503599627370496", "9223372036854775807", "9223372036854775808",
        "99999999999999999999999", "1.5", "1.0", "1e6", "1E6", "0x10", "+1", "1_000", "1 2", "now",
        "--1", "-", "2023-11-14T22:13:20Z"}) {
    EXPECT_THAT(ErrorOf(text + ",a"), AllOf(HasSubstr("timestamp_us \"" + text + "\""),
                                            HasSubstr("whole microseconds since the epoch"),
                                            HasSubstr("0 to " + std::string(kTimeMaxText))))
        << text;
  }
}

TEST(CsvRecord, TimestampMustNotBeEmpty) {
  EXPECT_THAT(ErrorOf(",a"), HasSubstr("timestamp_us \"\""));
  EXPECT_THAT(ErrorOf("  ,a"), HasSubstr("timestamp_us \"\""));
}

TEST(CsvRecord, LargestCostIsALimitsBusiness) {
  EXPECT_EQ(Parse("1,a,9223372036854775807"), (Kept{1, "a", 9'223'372'036'854'775'807}));
}

TEST(CsvRecord, CostMustBeAWholeNumberOfAtLeastZero) {
  for (const std::string text :
       {"-1", "-9223372036854775808", "9223372036854775808", "99999999999999999999999", "0.5",
        "1.0", "1e3", "0x1", "+1", "many", "1 1"}) {
    EXPECT_THAT(ErrorOf("1,a," + text),
                AllOf(HasSubstr("cost \"" + text + "\""),
                      HasSubstr("expected a whole number, 0 to 9223372036854775807")))
        << text;
  }
}

TEST(CsvRecord, EmbeddedNulInANumberIsNoNumber) {
  EXPECT_THAT(ErrorOf("1\0,a"s), HasSubstr(R"(timestamp_us "1\x00")"));
  EXPECT_THAT(ErrorOf("1,a,2\0"s), HasSubstr(R"(cost "2\x00")"));
}

TEST(CsvRecord, BytesThatHarmATerminalAreEscapedInErrors) {
  EXPECT_THAT(ErrorOf("\x1b[31m,a"), AllOf(HasSubstr(R"("\x1b[31m")"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(ErrorOf("1,a,\x7f"), AllOf(HasSubstr(R"("\x7f")"), Not(HasSubstr("\x7f"))));
}

TEST(CsvRecord, LongValuesAreCutInErrors) {
  const std::string error = ErrorOf(std::string(100'000, '7') + ",a");
  EXPECT_THAT(error, StartsWith("timestamp_us \"777"));
  EXPECT_LT(error.size(), 300U);
}

TEST(CsvRecord, HasTwoOrThreeFields) {
  EXPECT_THAT(ErrorOf("1"), AllOf(HasSubstr("1 field;"), HasSubstr("timestamp_us,key[,cost]")));
  EXPECT_THAT(ErrorOf("1,a,2,3"),
              AllOf(HasSubstr("4 fields;"), HasSubstr("timestamp_us,key[,cost]")));
  EXPECT_THAT(ErrorOf("1,a,2,"), HasSubstr("4 fields;"));
  EXPECT_THAT(ErrorOf("1;a;2"), HasSubstr("1 field;"));
}

TEST(CsvRecord, QuoteMustBeClosedOnItsLine) {
  for (const std::string_view line : {R"(1,"a)", R"(1,")", R"(1,"a"")", R"(1,"a,2)", R"(")"}) {
    EXPECT_THAT(ErrorOf(line), HasSubstr("quote is not closed")) << line;
  }
}

TEST(CsvRecord, NothingButACommaFollowsAClosingQuote) {
  for (const std::string_view line : {R"(1,"a"b,2)", R"(1,"a" ,2)", R"("1"0,a)"}) {
    EXPECT_THAT(ErrorOf(line), HasSubstr("follows a closing quote")) << line;
  }
}

TEST(CsvRecord, BadLineDoesNotSpoilTheNext) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, "1,a"), (Kept{1, "a", 1}));
  ErrorOf(parser, "1,\"a");
  ErrorOf(parser, "x,a");
  ErrorOf(parser, "1,a,2,3,4,5");
  EXPECT_EQ(Parse(parser, "2,b,3"), (Kept{2, "b", 3}));
}

TEST(CsvHeader, IsNoRecord) {
  EXPECT_EQ(ParseUnder("timestamp_us,key", "1,a"), (Kept{1, "a", 1}));
  EXPECT_EQ(ParseUnder("timestamp_us,key,cost", "1,a,2"), (Kept{1, "a", 2}));
}

TEST(CsvHeader, NamesColumnsInAnyOrder) {
  EXPECT_EQ(ParseUnder("key,timestamp_us", "a,1"), (Kept{1, "a", 1}));
  EXPECT_EQ(ParseUnder("cost,key,timestamp_us", "2,a,1"), (Kept{1, "a", 2}));
}

TEST(CsvHeader, FurtherColumnsAreSkipped) {
  EXPECT_EQ(ParseUnder("host,key,status,timestamp_us,,cost,note", "h,a,200,1,,2,\"x,y\""),
            (Kept{1, "a", 2}));
  EXPECT_EQ(ParseUnder("timestamp_us,key,bytes", "1,a,99"), (Kept{1, "a", 1}));
}

TEST(CsvHeader, NamesMayBeQuotedOrInUpperCaseOrAmongBlanks) {
  EXPECT_EQ(ParseUnder("\"key\",\"timestamp_us\"", "a,1"), (Kept{1, "a", 1}));
  EXPECT_EQ(ParseUnder("KEY,Timestamp_US,COST", "a,1,2"), (Kept{1, "a", 2}));
  EXPECT_EQ(ParseUnder(" key ,\ttimestamp_us, cost", "a,1,2"), (Kept{1, "a", 2}));
}

TEST(CsvHeader, ComesAfterBlankLinesToo) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, ""), std::nullopt);
  EXPECT_EQ(Parse(parser, "  "), std::nullopt);
  EXPECT_EQ(Parse(parser, "key,timestamp_us"), std::nullopt);
  EXPECT_EQ(Parse(parser, "a,1"), (Kept{1, "a", 1}));
}

TEST(CsvHeader, IsKnownOnTheFirstLineOnly) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, "1,a"), (Kept{1, "a", 1}));
  EXPECT_THAT(ErrorOf(parser, "timestamp_us,key"), HasSubstr("timestamp_us \"timestamp_us\""));

  EXPECT_THAT(ErrorUnder("timestamp_us,key", "timestamp_us,key"),
              HasSubstr("timestamp_us \"timestamp_us\""));
}

TEST(CsvHeader, IsNotLookedForAfterABadFirstLine) {
  RecordParser parser;
  ErrorOf(parser, "rubbish");
  ErrorOf(parser, "timestamp_us,key");
  EXPECT_EQ(Parse(parser, "1,a"), (Kept{1, "a", 1}));
}

TEST(CsvHeader, WithoutBothNamesIsABadLine) {
  EXPECT_THAT(ErrorOf("time,key"), HasSubstr("timestamp_us \"time\""));
  EXPECT_THAT(ErrorOf("timestamp_us,user"), HasSubstr("timestamp_us \"timestamp_us\""));
}

TEST(CsvHeader, FixesTheNumberOfFields) {
  EXPECT_THAT(ErrorUnder("timestamp_us,key", "1,a,2"),
              AllOf(HasSubstr("3 fields"), HasSubstr("expected 2 as in the header")));
  EXPECT_THAT(ErrorUnder("host,timestamp_us,cost,key", "h,1,a"),
              AllOf(HasSubstr("3 fields"), HasSubstr("expected 4 as in the header")));
}

TEST(CsvHeader, LeavesALastCostOptionalLineByLine) {
  RecordParser parser;
  ASSERT_TRUE(parser.Parse("host,timestamp_us,key,cost"));
  EXPECT_EQ((*parser.Parse("h,1,a"))->cost, 1);
  EXPECT_EQ((*parser.Parse("h,1,a,5"))->cost, 5);
}

TEST(CsvHeader, ErrorsNameTheFieldWhereverItsColumnIs) {
  EXPECT_THAT(ErrorUnder("cost,key,timestamp_us", "2,a,later"),
              HasSubstr("timestamp_us \"later\""));
  EXPECT_THAT(ErrorUnder("cost,key,timestamp_us", "much,a,1"), HasSubstr("cost \"much\""));
}

std::string Columns(std::size_t count) {
  std::string columns = "timestamp_us";
  for (std::size_t i = 2; i < count; ++i) columns += ",x";
  return columns + ",key";
}

TEST(CsvHeader, MayHaveSixtyFourColumns) {
  std::string line = "1";
  for (int i = 0; i < 62; ++i) line += ",5";
  EXPECT_EQ(ParseUnder(Columns(64), line + ",a"), (Kept{1, "a", 1}));
}

TEST(CsvHeader, MoreThanSixtyFourFieldsAreAnError) {
  EXPECT_THAT(ErrorOf(Columns(65)), HasSubstr("more than 64 fields"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, ',')), HasSubstr("more than 64 fields"));
  EXPECT_THAT(ErrorUnder(Columns(64), "1" + std::string(64, ',')),
              HasSubstr("more than 64 fields"));
}

TEST(JsonRecord, HasTimestampKeyAndCost) {
  EXPECT_EQ(Parse(R"({"timestamp_us": 1700000000000000, "key": "user:1", "cost": 5})"),
            (Kept{1'700'000'000'000'000, "user:1", 5}));
}

TEST(JsonRecord, CostIsOneUnlessGiven) {
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":"a"})"), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":"a","cost":0})"), (Kept{1, "a", 0}));
}

TEST(JsonRecord, MembersComeInAnyOrderAndFurtherOnesAreSkipped) {
  EXPECT_EQ(Parse(R"({"cost":2,"tags":["a",{"key":"no"}],"key":"a","x":null,"timestamp_us":1})"),
            (Kept{1, "a", 2}));
}

TEST(JsonRecord, BlanksMakeNoDifference) {
  EXPECT_EQ(Parse("  { \"timestamp_us\" :\t1 , \"key\" : \"a\" }  \r"), (Kept{1, "a", 1}));
}

TEST(JsonRecord, EscapesInKeysAreUndone) {
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":"\"\\\/\b\f\n\r\t\u0041"})"),
            (Kept{1, "\"\\/\b\f\n\r\tA", 1}));
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":"\u00e9\ud83d\ude00"})"),
            (Kept{1, "\xc3\xa9\xf0\x9f\x98\x80", 1}));
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":"a\u0000b"})"), (Kept{1, "a\0b"s, 1}));
  EXPECT_EQ(Parse(R"({"timestamp\u005fus":1,"\u006bey":"a"})"), (Kept{1, "a", 1}));
}

TEST(JsonRecord, KeyMayBeAnyUtf8) {
  EXPECT_EQ(Parse("{\"timestamp_us\":1,\"key\":\"\xc3\xa9\"}"), (Kept{1, "\xc3\xa9", 1}));
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":""})"), (Kept{1, "", 1}));
}

TEST(JsonRecord, HasEachMemberOnce) {
  EXPECT_THAT(ErrorOf(R"({"timestamp_us":1,"key":"a","key":"b"})"),
              HasSubstr("member \"key\" is given twice"));
}

TEST(JsonRecord, TimestampReachesFromTheEpochToTheLargestTime) {
  EXPECT_EQ(Parse(R"({"timestamp_us":0,"key":"a"})"), (Kept{0, "a", 1}));
  EXPECT_EQ(Parse(R"({"timestamp_us":4503599627370495,"key":"a"})"),
            (Kept{4'503'599'627'370'495, "a", 1}));
}

TEST(JsonRecord, TimestampMustBeWholeMicrosecondsInRange) {
  for (const std::string text :
       {"-1", "4503599627370496", "9223372036854775807", "9223372036854775808",
        "18446744073709551615", "99999999999999999999999", "1.5", "1.0", "1e6", "\"1\"", "null",
        "true", "[1]", "{\"us\":1}"}) {
    EXPECT_THAT(ErrorOf(R"({"key":"a","timestamp_us":)" + text + "}"),
                AllOf(StartsWith("timestamp_us "), HasSubstr("whole microseconds since the epoch"),
                      HasSubstr("0 to " + std::string(kTimeMaxText))))
        << text;
  }
}

TEST(JsonRecord, CostMustBeAWholeNumberOfAtLeastZero) {
  for (const std::string text : {"-1", "9223372036854775808", "99999999999999999999999", "0.5",
                                 "1.0", "1e3", "\"1\"", "true", "[1]", "{}"}) {
    EXPECT_THAT(
        ErrorOf(R"({"timestamp_us":1,"key":"a","cost":)" + text + "}"),
        AllOf(StartsWith("cost "), HasSubstr("expected a whole number, 0 to 9223372036854775807")))
        << text;
  }
}

TEST(JsonRecord, ErrorsNameTheWholeNumberThatIsOutOfRange) {
  EXPECT_THAT(ErrorOf(R"({"timestamp_us":-7,"key":"a"})"), HasSubstr("timestamp_us \"-7\""));
  EXPECT_THAT(ErrorOf(R"({"timestamp_us":18446744073709551615,"key":"a"})"),
              HasSubstr("timestamp_us \"18446744073709551615\""));
  EXPECT_THAT(ErrorOf(R"({"timestamp_us":1,"key":"a","cost":-7})"), HasSubstr("cost \"-7\""));
}

TEST(JsonRecord, KeyMustBeAString) {
  for (const std::string text : {"1", "null", "false", "[]", "{}"}) {
    EXPECT_THAT(ErrorOf(R"({"timestamp_us":1,"key":)" + text + "}"),
                AllOf(HasSubstr("key \"" + text + "\""), HasSubstr("expected a string")))
        << text;
  }
}

TEST(JsonRecord, NeedsTimestampAndKey) {
  EXPECT_EQ(ErrorOf(R"({"key":"a"})"), "timestamp_us is missing");
  EXPECT_EQ(ErrorOf(R"({"timestamp_us":1})"), "key is missing");
  EXPECT_EQ(ErrorOf(R"({"timestamp_us":1,"Key":"a"})"), "key is missing");
  EXPECT_EQ(ErrorOf("{}"), "timestamp_us is missing");
}

TEST(JsonRecord, MustBeJson) {
  for (const std::string_view line :
       {R"({"timestamp_us":1,"key":"a")", R"({"timestamp_us":1,"key":"a"}})",
        R"({"timestamp_us":1,"key":"a"} x)", R"({"timestamp_us":1,"key":"a"}{})",
        R"({"timestamp_us":1,"key":"a",})", R"({'timestamp_us':1,'key':'a'})",
        R"({"timestamp_us":01,"key":"a"})", R"({"timestamp_us":+1,"key":"a"})",
        R"({"timestamp_us":NaN,"key":"a"})", R"({"timestamp_us":1,"key":"\x41"})",
        R"({"timestamp_us":1,"key":"\ud800"})", "{\"timestamp_us\":1,\"key\":\"\xff\"}",
        "{\"timestamp_us\":1,\"key\":\"a\tb\"}", "{", "{]"}) {
    EXPECT_THAT(ErrorOf(line), StartsWith("not JSON: ")) << line;
  }
  EXPECT_THAT(ErrorOf("{\"timestamp_us\":1,\"key\":\"a\"}\0"s), StartsWith("not JSON: "));
}

TEST(JsonRecord, MustBeAnObject) {
  for (const std::string_view line : {"[]", "1", "\"a\"", "null", "[{\"timestamp_us\":1}]"}) {
    RecordParser parser(Format::kJsonLines);
    EXPECT_THAT(ErrorOf(parser, line), HasSubstr("expected an object such as {\"timestamp_us\""))
        << line;
  }
}

TEST(JsonRecord, DeepNestingIsAnErrorAndNoCrash) {
  const std::string nested = std::string(400'000, '[') + std::string(400'000, ']');
  EXPECT_THAT(ErrorOf(R"({"timestamp_us":1,"key":"a","x":)" + nested + "}"),
              HasSubstr("32 levels"));
  EXPECT_EQ(Parse(R"({"timestamp_us":1,"key":"a","x":[[[[[[[[{"y":{}}]]]]]]]]})"),
            (Kept{1, "a", 1}));
}

TEST(JsonRecord, BadLineDoesNotSpoilTheNext) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, R"({"timestamp_us":1,"key":"a","cost":2})"), (Kept{1, "a", 2}));
  ErrorOf(parser, R"({"timestamp_us":)");
  ErrorOf(parser, "1,a");
  EXPECT_EQ(Parse(parser, R"({"timestamp_us":2,"key":"b"})"), (Kept{2, "b", 1}));
}

TEST(RecordFormat, FirstLineThatIsNotBlankDecides) {
  RecordParser json;
  EXPECT_EQ(Parse(json, " \t"), std::nullopt);
  EXPECT_EQ(Parse(json, R"(  {"timestamp_us":1,"key":"a"})"), (Kept{1, "a", 1}));
  EXPECT_THAT(ErrorOf(json, "2,b"), StartsWith("not JSON: "));

  RecordParser csv;
  EXPECT_EQ(Parse(csv, "\r"), std::nullopt);
  EXPECT_EQ(Parse(csv, "1,a"), (Kept{1, "a", 1}));
  EXPECT_THAT(ErrorOf(csv, R"({"timestamp_us":1,"key":"a"})"), Not(HasSubstr("JSON")));
}

TEST(RecordFormat, GivenFormatHoldsWhateverTheLineLooksLike) {
  RecordParser csv(Format::kCsv);
  EXPECT_EQ(Parse(csv, "{id},timestamp_us,key"), std::nullopt);
  EXPECT_EQ(Parse(csv, "{7},1,a"), (Kept{1, "a", 1}));

  RecordParser json(Format::kJsonLines);
  EXPECT_THAT(ErrorOf(json, "timestamp_us,key"), StartsWith("not JSON: "));
  EXPECT_EQ(Parse(json, R"({"timestamp_us":1,"key":"a"})"), (Kept{1, "a", 1}));
}

TEST(RecordFormat, BlankLinesAreNoRecordsAnywhere) {
  for (const Format format : {Format::kDetect, Format::kCsv, Format::kJsonLines}) {
    RecordParser parser(format);
    for (const std::string_view blank : {"", " ", "\t", " \t ", "\r", " \r"}) {
      EXPECT_EQ(Parse(parser, blank), std::nullopt);
    }
  }
  RecordParser parser;
  EXPECT_EQ(Parse(parser, "1,a"), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse(parser, ""), std::nullopt);
  EXPECT_EQ(Parse(parser, "2,a"), (Kept{2, "a", 1}));
}

TEST(RecordFormat, ByteOrderMarkAtTheStartDoesNotCount) {
  EXPECT_EQ(Parse("\xef\xbb\xbf"
                  "1,a"),
            (Kept{1, "a", 1}));
  EXPECT_EQ(Parse("\xef\xbb\xbf{\"timestamp_us\":1,\"key\":\"a\"}"), (Kept{1, "a", 1}));
  EXPECT_EQ(ParseUnder("\xef\xbb\xbfkey,timestamp_us", "a,1"), (Kept{1, "a", 1}));
  EXPECT_EQ(Parse("\xef\xbb\xbf\r"), std::nullopt);
}

TEST(RecordFormat, ByteOrderMarkElsewhereIsPartOfTheLine) {
  RecordParser parser;
  EXPECT_EQ(Parse(parser, "1,a"), (Kept{1, "a", 1}));
  EXPECT_THAT(ErrorOf(parser,
                      "\xef\xbb\xbf"
                      "2,a"),
              HasSubstr(R"(timestamp_us "\xef\xbb\xbf2")"));
}

}  // namespace
}  // namespace sluice::replay
