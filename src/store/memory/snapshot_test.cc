// SPDX-License-Identifier: Apache-2.0
#include "store/memory/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "sluice/memory_store.h"
#include "support/temporary_folder.h"

namespace sluice {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr TimePoint kStart{Micros{1'700'000'000'000'000}};

class SnapshotTest : public testing::Test {
 protected:
  // One budget of each algorithm for each key, used in part.
  std::unique_ptr<MemoryStore> MakeStore(int keys) {
    auto store = std::make_unique<MemoryStore>(options_);
    for (int i = 0; i < keys; ++i) {
      for (const Limit& limit : limits_) {
        for (int n = 0; n < i % 4; ++n) {
          clock_.Advance(3us);
          store->Check({.key = std::to_string(i), .limit = &limit, .cost = 1 + n}).value();
        }
      }
    }
    return store;
  }

  std::vector<Decision> PeekAll(MemoryStore& store, int keys) {
    std::vector<Decision> decisions;
    for (int i = 0; i < keys; ++i) {
      for (const Limit& limit : limits_) {
        decisions.push_back(
            store.Check({.key = std::to_string(i), .limit = &limit, .cost = 0}).value());
      }
    }
    return decisions;
  }

  std::string ReadFile() {
    std::ifstream file(path_, std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }

  void WriteFile(std::string_view bytes) {
    std::ofstream file(path_, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  Expected<std::unique_ptr<MemoryStore>> Restore() { return MemoryStore::Restore(path_, options_); }

  // Without the file system, for the many damaged variants.
  Expected<std::unique_ptr<MemoryStore::Impl>> Read(std::string bytes) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        ::fmemopen(bytes.data(), bytes.size(), "rb"), &std::fclose);
    return memory::ReadSnapshot(file.get(), options_);
  }

  const testing_support::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "snapshot";
  ManualClock clock_{kStart};
  MemoryStore::Options options_{.clock = &clock_};
  std::vector<Limit> limits_ = {*Limit::TokenBucket({10, 1, 1h}),
                                *Limit::LeakyBucket({10, 7, 3h}),
                                *Limit::Gcra({9, 1, 1h}),
                                *Limit::FixedWindow({10, 24h}),
                                *Limit::SlidingWindow({10, 24h}),
                                *Limit::SlidingWindowCounter({10, 24h}),
                                *Limit::Calendar({10, Every::kMonth, "Europe/Berlin", "15"})};
};

TEST_F(SnapshotTest, RestoresEveryBudgetExactly) {
  const auto store = MakeStore(1000);
  const auto before = PeekAll(*store, 1000);
  const std::int64_t keys = store->GetStats().keys;
  EXPECT_EQ(store->Save(path_).value(), keys);
  auto restored = Restore();
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ((*restored)->GetStats().keys, keys);
  EXPECT_EQ(PeekAll(**restored, 1000), before);
  // Once more, with everything in another place.
  EXPECT_EQ((*restored)->Save(path_).value(), keys);
  EXPECT_EQ(PeekAll(*Restore().value(), 1000), before);
}

TEST_F(SnapshotTest, RestoresAnEmptyStore) {
  EXPECT_EQ(MemoryStore(options_).Save(path_).value(), 0);
  EXPECT_EQ(Restore().value()->GetStats().keys, 0);
}

// As if the clock was ten years ahead when the states were written.
TEST_F(SnapshotTest, DropsStatesThatNoClockThatIsRightHasWritten) {
  const std::vector<Limit> limits = {
      *Limit::TokenBucket({10, 10, 60s}), *Limit::LeakyBucket({10, 10, 60s}),
      *Limit::Gcra({9, 10, 60s}),         *Limit::FixedWindow({10, 60s}),
      *Limit::SlidingWindow({10, 60s}),   *Limit::SlidingWindowCounter({10, 60s})};
  // No further ahead than its window, or less than a second: such states are kept.
  const Limit day = *Limit::TokenBucket({10, 10, 24h});
  const Limit quick = *Limit::FixedWindow({10, 1ms});
  MemoryStore store(options_);
  for (const Limit& limit : limits) {
    store.Check({.key = "k", .limit = &limit, .cost = 10}).value();
  }
  store.Check({.key = "k", .limit = &day, .cost = 10}).value();
  EXPECT_EQ(store.Save(path_).value(), 7);

  clock_.Advance(-1h);
  const auto restored = MemoryStore::Restore(path_, options_).value();
  EXPECT_EQ(restored->GetStats().keys, 1);
  EXPECT_EQ(restored->GetStats().dropped_ahead, 6);
  for (const Limit& limit : limits) {
    EXPECT_TRUE(restored->Check({.key = "k", .limit = &limit, .cost = 10})->allowed)
        << limit.ToString();
  }
  EXPECT_FALSE(restored->Check({.key = "k", .limit = &day})->allowed);

  restored->Check({.key = "k", .limit = &quick, .cost = 10}).value();
  ASSERT_TRUE(restored->Save(path_));
  clock_.Advance(-900ms);
  const auto again = MemoryStore::Restore(path_, options_).value();
  EXPECT_EQ(again->GetStats().dropped_ahead, 0);
  EXPECT_FALSE(again->Check({.key = "k", .limit = &quick})->allowed);
}

TEST_F(SnapshotTest, IsReadableByItsOwnerAlone) {
  MakeStore(10)->Save(path_).value();
  const auto owner_alone = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  EXPECT_EQ(std::filesystem::status(path_).permissions(), owner_alone);
  // Also if another file is in the way.
  const std::filesystem::path temporary = path_.native() + ".tmp";
  std::ofstream(temporary) << "old";
  std::filesystem::permissions(temporary, std::filesystem::perms::all);
  MakeStore(10)->Save(path_).value();
  EXPECT_EQ(std::filesystem::status(path_).permissions(), owner_alone);
  ASSERT_EQ(::mkfifo(temporary.c_str(), 0600), 0);
  EXPECT_FALSE(MakeStore(10)->Save(path_)) << "nor does a pipe make it wait";
}

TEST_F(SnapshotTest, AMissingFileIsAnErrorOfItsOwn) {
  EXPECT_EQ(Restore().error().code, ErrorCode::kNotFound);
}

TEST_F(SnapshotTest, APipeIsAnErrorAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Restore().error().code, ErrorCode::kIo);
}

TEST_F(SnapshotTest, AFailedSaveLeavesTheOldSnapshot) {
  MakeStore(10)->Save(path_).value();
  const std::string old = ReadFile();
  // Another process is writing.
  const std::string temporary = path_.native() + ".tmp";
  const int fd = ::open(temporary.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const auto refused = MakeStore(20)->Save(path_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_THAT(refused.error().message, HasSubstr("already being written"));
  EXPECT_EQ(ReadFile(), old);
  ::close(fd);
  // It died, and what it left behind does not matter.
  EXPECT_TRUE(MakeStore(20)->Save(path_));
  EXPECT_FALSE(std::filesystem::exists(temporary));
  // Without the folder, no snapshot.
  const auto nowhere = MakeStore(1)->Save(folder_.path() / "missing" / "snapshot");
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
}

TEST_F(SnapshotTest, ADamagedFileIsSetAside) {
  MakeStore(10)->Save(path_).value();
  const std::string damaged = ReadFile().substr(0, 1000);
  WriteFile(damaged);
  const auto refused = Restore();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kSnapshotDamaged);
  EXPECT_THAT(refused.error().message, HasSubstr("set aside as " + path_.native() + ".damaged"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  path_ += ".damaged";
  EXPECT_EQ(ReadFile(), damaged);
}

TEST_F(SnapshotTest, EveryTruncationIsRefused) {
  MakeStore(20)->Save(path_).value();
  const std::string good = ReadFile();
  ASSERT_TRUE(Read(good));
  for (std::size_t size = 1; size < good.size(); ++size) {
    const auto refused = Read(good.substr(0, size));
    ASSERT_FALSE(refused) << size;
    ASSERT_EQ(refused.error().code, ErrorCode::kSnapshotDamaged);
  }
  EXPECT_FALSE(Read(good + '\0'));
}

TEST_F(SnapshotTest, EveryFlippedBitIsRefused) {
  MakeStore(20)->Save(path_).value();
  const std::string good = ReadFile();
  std::mt19937_64 random(3);
  for (int i = 0; i < 5'000; ++i) {
    std::string bad = good;
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    }
    ASSERT_TRUE(bad == good || !Read(bad));
  }
}

TEST_F(SnapshotTest, SwappedBlocksAreRefused) {
  MakeStore(0)->Save(path_).value();
  const std::string good = ReadFile();
  // Without states, all shard blocks differ only in their number: 16 + 12 + 8 bytes.
  constexpr std::size_t kHeaderBlock = 16 + 32 + 8;
  constexpr std::size_t kShardBlock = 16 + 12 + 8;
  std::string bad = good;
  std::swap_ranges(bad.begin() + kHeaderBlock, bad.begin() + kHeaderBlock + kShardBlock,
                   bad.begin() + kHeaderBlock + kShardBlock);
  EXPECT_FALSE(Read(bad));
}

// A file with valid checksums and invalid contents, written by a bug or by an attacker.
class ForgedSnapshotTest : public SnapshotTest {
 protected:
  template <typename Number>
  static void Put(std::string& out, Number number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  static std::string Block(std::uint32_t kind, std::uint32_t index, const std::string& payload) {
    std::string block;
    Put(block, kind);
    Put(block, index);
    Put(block, static_cast<std::uint64_t>(payload.size()));
    block += payload;
    Put(block, memory::BlockChecksum(kind, index, payload));
    return block;
  }

  // A file whose first shard is `shard`.
  static std::string File(const std::string& shard, std::uint64_t states,
                          std::uint32_t version = 1) {
    std::string header = "SLUICESN";
    Put(header, version);
    Put(header, std::uint32_t{256});
    Put(header, std::uint64_t{1});
    Put(header, std::uint64_t{2});
    std::string file = Block(1, 0, header) + Block(2, 0, shard);
    for (std::uint32_t i = 1; i < 256; ++i) file += Block(2, i, std::string(12, '\0'));
    std::string end;
    Put(end, states);
    return file + Block(3, 0, end);
  }

  struct State {
    std::uint64_t hash;
    std::uint16_t limit;
    std::uint64_t b;
    std::uint64_t c;
  };

  static std::string Shard(Algorithm algorithm, std::int64_t amount, std::int64_t refill,
                           std::int64_t span_us, const std::vector<State>& states,
                           const std::vector<std::int64_t>& records = {}) {
    std::string shard;
    Put(shard, std::uint32_t{1});
    Put(shard, static_cast<std::uint8_t>(algorithm));
    Put(shard, amount);
    Put(shard, refill);
    Put(shard, span_us);
    Put(shard, static_cast<std::uint64_t>(states.size()));
    for (const State& state : states) {
      Put(shard, state.hash);
      Put(shard, std::uint32_t{0});
      Put(shard, state.limit);
      Put(shard, std::uint16_t{0});
      Put(shard, state.b);
      Put(shard, state.c);
    }
    for (const std::int64_t number : records) Put(shard, number);
    return shard;
  }

  std::string Refusal(const std::string& file) {
    const auto store = Read(file);
    return store ? "not refused" : store.error().message;
  }
};

TEST_F(ForgedSnapshotTest, TheForgerWritesValidFilesWhenItWants) {
  EXPECT_TRUE(Read(File(std::string(12, '\0'), 0)));
  EXPECT_TRUE(Read(File(Shard(Algorithm::kTokenBucket, 10, 1, 1000, {{5, 0, 10'000, 7}}), 1)));
  EXPECT_TRUE(
      Read(File(Shard(Algorithm::kSlidingWindow, 10, 0, 1000, {{5, 0, 2, 0}}, {1, 1, 2, 1}), 1)));
}

TEST_F(ForgedSnapshotTest, RefusesContentsThatTheArithmeticCouldNotTrust) {
  using enum Algorithm;
  const auto bucket = [&](std::vector<State> states) {
    return Shard(kTokenBucket, 10, 1, 1000, states);
  };
  EXPECT_THAT(Refusal(File(std::string(12, '\0'), 0, 3)), HasSubstr("version 3; expected 1 to 2"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 1, 1}}), 2)), HasSubstr("states are missing"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 10'001, 1}}), 1)), HasSubstr("out of range"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 1ull << 63, 1}}), 1)), HasSubstr("out of range"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 1, 1ull << 52}}), 1)), HasSubstr("out of range"));
  EXPECT_THAT(Refusal(File(bucket({{5, 1, 1, 1}}), 1)), HasSubstr("out of place"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 1, 1}, {4, 0, 1, 1}}), 2)), HasSubstr("out of place"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 1, 1}, {5, 0, 1, 1}}), 2)), HasSubstr("out of place"));
  EXPECT_THAT(Refusal(File(bucket({{5, 0, 1, 1}}) + "x", 1)), HasSubstr("a hold is"));
  std::vector<State> crowd;
  for (std::uint64_t i = 20'000; i > 0; --i) crowd.push_back({~0ull - i, 0, 1, 1});
  EXPECT_THAT(Refusal(File(bucket(crowd), crowd.size())), HasSubstr("out of place"));
  EXPECT_THAT(Refusal(File(Shard(kTokenBucket, 0, 1, 1000, {}), 0)), HasSubstr("capacity=0"));
  EXPECT_THAT(Refusal(File(Shard(kGcra, std::numeric_limits<std::int64_t>::min(), 1, 1000, {}), 0)),
              HasSubstr("burst=-1"));
  EXPECT_THAT(Refusal(File(Shard(static_cast<Algorithm>(99), 1, 1, 1000, {}), 0)),
              HasSubstr("unknown algorithm"));
  EXPECT_THAT(Refusal(File(Shard(kFixedWindow, 10, 0, 1000, {{5, 0, 1, 1}}), 1)),
              HasSubstr("out of range"))
      << "not the start of a window";
  EXPECT_THAT(Refusal(File(Shard(kFixedWindow, 10, 0, 1000, {{5, 0, 1000, 1ull << 53}}), 1)),
              HasSubstr("out of range"));
  EXPECT_THAT(Refusal(File(Shard(kSlidingWindowCounter, 10, 0, 1000, {{5, 0, 1ull << 51, 0}}), 1)),
              HasSubstr("out of range"));
  const std::int64_t day = Limit::Calendar({10, Every::kDay})->refill();
  EXPECT_THAT(Refusal(File(Shard(kCalendar, 10, day, 1000, {{5, 0, 0, 0}}), 1)),
              HasSubstr("out of range"))
      << "a window of no length";
  EXPECT_THAT(Refusal(File(Shard(kCalendar, 10, 0, 1000, {}), 0)), HasSubstr("no time zone"));
  EXPECT_THAT(Refusal(File(Shard(kCalendar, 10, -1, 1000, {}), 0)),
              HasSubstr("does not stand for a calendar"));
  const auto log = [&](std::uint64_t entries, std::vector<std::int64_t> records) {
    return File(Shard(kSlidingWindow, 10, 0, 1000, {{5, 0, entries, 0}}, records), 1);
  };
  EXPECT_THAT(Refusal(log(2, {2, 1, 1, 1})), HasSubstr("not in order"));
  EXPECT_THAT(Refusal(log(2, {1, 1, 1, 1})), HasSubstr("not in order"));
  EXPECT_THAT(Refusal(log(1, {1, 0})), HasSubstr("not in order"));
  EXPECT_THAT(Refusal(log(1, {-1, 1})), HasSubstr("not in order"));
  EXPECT_THAT(Refusal(log(2, {1, 1})), HasSubstr("not in order"));
  EXPECT_THAT(Refusal(log(~0ull, {1, 1})), HasSubstr("not in order"));
  EXPECT_THAT(Refusal(log(0, {1, 1})), HasSubstr("a hold is"));
  std::string many_limits;
  Put(many_limits, ~std::uint32_t{0});
  EXPECT_THAT(Refusal(File(many_limits, 0)), HasSubstr("capacity=0"));
  std::string many_states(4, '\0');
  Put(many_states, ~std::uint64_t{0});
  EXPECT_THAT(Refusal(File(many_states, 0)), HasSubstr("more states"));
}

}  // namespace
}  // namespace sluice
