// SPDX-License-Identifier: Apache-2.0
#include "zones/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "support/temporary_folder.h"

namespace sluice::zones {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSystem = "/usr/share/zoneinfo";

class DatabaseTest : public testing::Test {
 protected:
  DatabaseTest() { fs::create_directories(folder_ / "Europe"); }

  // As a package manager does: the file is replaced as a whole.
  void Put(const std::string& name, const std::string& system_name) {
    fs::remove(folder_ / name);
    fs::copy_file(fs::canonical(fs::path(kSystem) / system_name), folder_ / name);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  const testing_support::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

TEST_F(DatabaseTest, KnowsUtcWithoutAnyFile) {
  Database database((folder_ / "missing").string());
  ASSERT_TRUE(database.Find("UTC"));
  EXPECT_EQ((*database.Find("UTC"))->offsets(), Offsets());
  EXPECT_EQ(*database.FindKey(Zone::KeyOf("UTC")), *database.Find("UTC"));
  EXPECT_THAT(database.Find("Europe/Berlin").error().message,
              HasSubstr("there is no time zone in"));
}

TEST_F(DatabaseTest, FindsZonesByNameAndByNumber) {
  Database database(kSystem);
  const auto berlin = database.Find("Europe/Berlin");
  ASSERT_TRUE(berlin);
  EXPECT_EQ((*berlin)->name(), "Europe/Berlin");
  EXPECT_EQ(*database.Find("Europe/Berlin"), *berlin);
  EXPECT_EQ(*database.FindKey((*berlin)->key()), *berlin);
  Database other(kSystem);
  EXPECT_EQ((*other.FindKey((*berlin)->key()))->name(), "Europe/Berlin");
  EXPECT_FALSE(database.FindKey(12345));
}

TEST_F(DatabaseTest, EveryNameHasItsOwnNumber) {
  Database database(kSystem);
  std::set<std::uint64_t> keys;
  const auto names = database.Names();
  EXPECT_GT(names.size(), 300u);
  for (const std::string& name : names) {
    EXPECT_TRUE(keys.insert(Zone::KeyOf(name)).second) << name;
    EXPECT_TRUE(database.Find(name)) << name;
  }
}

TEST_F(DatabaseTest, NumbersStayAsTheyAreInSnapshots) {
  EXPECT_EQ(Zone::KeyOf("UTC"), 111042966949);
  EXPECT_EQ(Zone::KeyOf("Europe/Berlin"), 145815759047);
}

TEST_F(DatabaseTest, NamesWhatComesClose) {
  Database database(kSystem);
  const auto message = [&](std::string_view name) {
    const auto zone = database.Find(name);
    EXPECT_FALSE(zone) << name;
    return zone ? std::string() : zone.error().message;
  };
  EXPECT_EQ(message("Europe/Berln"),
            "zone=\"Europe/Berln\" is not a time zone; did you mean Europe/Berlin? expected a name "
            "such as Europe/Berlin or UTC");
  EXPECT_THAT(message("berlin"), HasSubstr("did you mean Europe/Berlin?"));
  EXPECT_THAT(message("europe/berlin"), HasSubstr("did you mean Europe/Berlin?"));
  EXPECT_THAT(message("utc"), HasSubstr("did you mean"));
  EXPECT_THAT(message("nowhere at all"), Not(HasSubstr("did you mean")));
  message("");
  message(std::string(10'000, 'x'));
}

TEST_F(DatabaseTest, StaysInItsFolder) {
  Write("Europe/outside", "TZif");
  Database database((folder_ / "Europe").string());
  for (const std::string_view name :
       {"../Europe/outside", "/etc/localtime", "..", ".", "a/../outside", "right/Europe/Berlin",
        "posix/Europe/Berlin", "localtime", "posixrules"}) {
    EXPECT_FALSE(database.Find(name)) << name;
  }
  Database system(kSystem);
  EXPECT_FALSE(system.Find("right/Europe/Berlin")) << "it counts leap seconds";
  EXPECT_FALSE(system.Find("Europe"));
  EXPECT_FALSE(system.Find("tzdata.zi"));
}

TEST_F(DatabaseTest, SeesNewDataWhenItIsReadAgain) {
  Put("Europe/Berlin", "Europe/Berlin");
  Database database(folder_.string());
  const Zone* const zone = *database.Find("Europe/Berlin");
  const Offsets& before = zone->offsets();
  constexpr std::int64_t kSummer = 1'720'000'000;
  EXPECT_EQ(before.At(kSummer), 7200);

  EXPECT_EQ(database.Reload().changed, 0u) << "nothing has changed";
  Put("Europe/Berlin", "Asia/Tokyo");
  Put("Europe/Paris", "Europe/Paris");
  EXPECT_EQ(zone->offsets().At(kSummer), 7200);
  EXPECT_EQ(database.Reload().changed, 1u);
  EXPECT_EQ(zone->offsets().At(kSummer), 9 * 3600) << "of the same zone";
  EXPECT_EQ(before.At(kSummer), 7200) << "whoever looks at it may go on";
  EXPECT_TRUE(database.Find("Europe/Paris"));
}

TEST_F(DatabaseTest, KeepsAZoneWhoseFileBecameUnreadable) {
  Put("Europe/Berlin", "Europe/Berlin");
  Put("Europe/Paris", "Europe/Paris");
  Database database(folder_.string());
  const Zone* const berlin = *database.Find("Europe/Berlin");
  const Zone* const paris = *database.Find("Europe/Paris");
  const Offsets before = berlin->offsets();
  Write("Europe/Berlin", "nonsense");
  Put("Europe/Paris", "Asia/Tokyo");
  const auto reloaded = database.Reload();
  EXPECT_THAT(reloaded.problems, testing::ElementsAre(HasSubstr("Europe/Berlin stays as it was")));
  EXPECT_EQ(berlin->offsets(), before);
  EXPECT_EQ(paris->offsets().At(0), 9 * 3600);
  EXPECT_THAT(Database(folder_.string()).Find("Europe/Berlin").error().message,
              HasSubstr("is not a time zone"));
}

}  // namespace
}  // namespace sluice::zones
