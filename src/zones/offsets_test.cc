// SPDX-License-Identifier: Apache-2.0
#include "zones/offsets.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::zones {
namespace {

constexpr std::int64_t kHour = 3600;

std::string BigEndian(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = bytes; i-- > 0;) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

std::string Header(char version, std::uint64_t leaps, std::uint64_t times, std::uint64_t types) {
  std::string text = std::string("TZif") + version + std::string(15, '\0');
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{0}, leaps, times, types, std::uint64_t{0}}) {
    text += BigEndian(size, 4);
  }
  return text;
}

// A file with one change, from UTC to an hour later.
std::string File(std::string_view rule, std::int64_t change = 0) {
  std::string file = Header('2', 0, 0, 0) + Header('2', 0, 1, 2);
  file += BigEndian(static_cast<std::uint64_t>(change), 8) + '\1';
  file += BigEndian(0, 4) + std::string(2, '\0') + BigEndian(kHour, 4) + std::string(2, '\0');
  return file + '\n' + std::string(rule) + '\n';
}

Offsets Read(std::string_view rule) {
  auto offsets = Offsets::FromTzif(File(rule));
  EXPECT_TRUE(offsets) << rule << ": " << offsets.error();
  return offsets.value_or(Offsets());
}

TEST(Offsets, OfUtcAreNone) {
  EXPECT_EQ(Offsets().At(1'700'000'000), 0);
  EXPECT_EQ(Offsets().FirstMoment(1'700'000'000), 1'700'000'000);
}

TEST(Offsets, ATimeThatIsSkippedBeginsAfterTheGap) {
  const Offsets forward(0, {{1'000'000, 3600}});
  EXPECT_EQ(forward.At(999'999), 0);
  EXPECT_EQ(forward.At(1'000'000), 3600);
  EXPECT_EQ(forward.FirstMoment(999'999), 999'999);
  EXPECT_EQ(forward.FirstMoment(1'000'000), 1'000'000);
  EXPECT_EQ(forward.FirstMoment(1'000'000 + 3599), 1'000'000);
  EXPECT_EQ(forward.FirstMoment(1'000'000 + 3601), 1'000'001);
}

TEST(Offsets, ATimeThatComesTwiceBeginsWithTheFirst) {
  const Offsets back(3600, {{1'000'000, 0}});
  EXPECT_EQ(back.FirstMoment(1'000'000 + 3599), 999'999);
  EXPECT_EQ(back.FirstMoment(1'000'000), 1'000'000 - 3600);
  EXPECT_EQ(back.FirstMoment(1'000'000 + 3600), 1'000'000 + 3600);
}

TEST(Offsets, ManyChangesWithinADayAreTakenInTurn) {
  const Offsets clocks(0, {{1000, 7200}, {2000, -7200}, {3000, 0}});
  EXPECT_EQ(clocks.FirstMoment(1000), 1000);
  EXPECT_EQ(clocks.FirstMoment(8300), 1100);
  EXPECT_EQ(clocks.FirstMoment(9200), 9200) << "the clocks went back before they showed it";
}

TEST(Tzif, AppliesTheRuleForTheFutureToEveryYear) {
  const Offsets berlin = Read("CET-1CEST,M3.5.0,M10.5.0/3");
  EXPECT_EQ(berlin.At(2'550'704'399), 2 * kHour);  // 2050-10-30T00:59:59Z
  EXPECT_EQ(berlin.At(2'550'704'400), kHour);
  EXPECT_EQ(berlin.At(2'540'250'000), 2 * kHour);  // July 2050.
  EXPECT_EQ(berlin.At(4'100'000'000), kHour);      // December 2099.
  EXPECT_EQ(berlin.At(4'118'000'000), 2 * kHour);  // June 2100.
}

TEST(Tzif, ReadsEveryFormOfRule) {
  EXPECT_EQ(Read("<+0330>-3:30").At(2'000'000'000), kHour) << "what the changes say";
  EXPECT_EQ(Read("AAA0BBB,J60/0,J61/0").At(1'709'251'200), kHour);  // 1 March 2024.
  EXPECT_EQ(Read("AAA0BBB,J60/0,J61/0").At(1'709'251'199), 0) << "29 February is not counted";
  EXPECT_EQ(Read("AAA0BBB,59/0,60/0").At(1'709'164'800), kHour) << "29 February is day 59";
  EXPECT_EQ(Read("IST-1GMT0,M10.5.0,M3.5.0/1").At(2'540'250'000), kHour);
  EXPECT_EQ(Read("IST-1GMT0,M10.5.0,M3.5.0/1").At(2'524'608'000), 0) << "summer is the standard";
  // Daylight saving time all year.
  EXPECT_EQ(Read("XXX3EDT4,0/0,J365/23").At(2'524'608'000), -4 * kHour);
  EXPECT_EQ(Read("XXX3EDT4,0/0,J365/23").At(2'540'250'000), -4 * kHour);
  // The last Sunday's Saturday evening, as in Nuuk.
  EXPECT_EQ(Read("<-02>2<-01>,M3.5.0/-1,M10.5.0/0").At(2'540'250'000), -1 * kHour);
}

TEST(Tzif, RefusesWhatItCannotTrust) {
  EXPECT_FALSE(Offsets::FromTzif(""));
  EXPECT_FALSE(Offsets::FromTzif("TZif"));
  EXPECT_EQ(Offsets::FromTzif(Header('\0', 0, 0, 0)).error(),
            "it is in version 1 of TZif; expected version 2");
  EXPECT_EQ(Offsets::FromTzif(Header('2', 0, 0, 0) + Header('2', 3, 0, 1)).error(),
            "its times count leap seconds");
  const std::string whole = File("CET-1CEST,M3.5.0,M10.5.0/3");
  ASSERT_TRUE(Offsets::FromTzif(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(Offsets::FromTzif(whole.substr(0, size))) << size;
  }
  for (const std::string_view rule :
       {"CET", "CE-1", "CET-1CEST", "CET-1CEST,", "CET-1CEST,M3.5.0", "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.6.0,M10.5.0", "CET-1CEST,M3.5.7,M10.5.0", "CET-1CEST,J0,J5",
        "CET-1CEST,366,5", "CET-1CEST,M3.5.0/168,M10.5.0", "CET-25", "<CET-1",
        "CET-1CEST,M3.5.0,M10.5.0x"}) {
    EXPECT_FALSE(Offsets::FromTzif(File(rule))) << rule;
  }
  // Offsets that no clock has, a type that is not there, and times that run backwards.
  std::string damaged = whole;
  damaged[44 + 44 + 8] = '\2';
  EXPECT_FALSE(Offsets::FromTzif(damaged));
  damaged = whole;
  damaged[44 + 44 + 9] = '\1';
  EXPECT_FALSE(Offsets::FromTzif(damaged));
  damaged = whole;
  for (std::size_t i = 20; i < 44; ++i) damaged[44 + i] = '\xff';
  EXPECT_FALSE(Offsets::FromTzif(damaged)) << "sizes beyond the file";
}

}  // namespace
}  // namespace sluice::zones
