// SPDX-License-Identifier: Apache-2.0
#include "reload/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <utility>

#include "support/eventually.h"
#include "support/temporary_folder.h"

namespace sluice::reload {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Eventually;

constexpr std::string_view kOne =
    "ruleSets: [{id: one, rules: [{id: r, scope: GLOBAL, bands: [{limit: 1, window: 1m}]}]}]\n";
constexpr std::string_view kTwo =
    "ruleSets: [{id: two, rules: [{id: r, scope: GLOBAL, bands: [{limit: 2, window: 1m}]}]}]\n";
constexpr std::string_view kManaged =
    "{id: three, rules: [{id: r, scope: GLOBAL, bands: [{limit: 3, window: 1m}]}]}";

// Like Redis: it can be away, lose what it holds, and be changed by others between two steps.
class LossyStore final : public RuleSetStore {
 public:
  Expected<Stored> Load() override {
    if (away) return std::unexpected(Error{ErrorCode::kUnavailable, "it is away"});
    return store.Load();
  }
  Expected<Changed> Apply(const Change& change) override {
    if (const auto others = std::exchange(before_apply, nullptr)) others();
    if (silent) return std::unexpected(Error{ErrorCode::kOutcomeUnknown, "no answer"});
    return store.Apply(change);
  }
  Expected<bool> Restore(const Restoration& restoration) override {
    if (read_only) return std::unexpected(Error{ErrorCode::kAccessDenied, "read only"});
    return store.Restore(restoration);
  }
  void Watch(std::function<void()>) override {}
  std::string_view Description() const override { return "a test"; }

  // Like somebody with redis-cli.
  void Write(const std::string& id, std::string_view document) {
    Stored stored = *store.Load();
    stored.documents.insert_or_assign(id, std::string(document));
    ASSERT_TRUE(*store.Restore({.marker = stored.marker,
                                .revision = Revision::Parse(stored.marker).value_or(Revision{}),
                                .documents = stored.documents,
                                .mode = Restoration::Mode::kReplace}));
  }

  ProcessRuleSetStore store;
  bool away = false;
  bool silent = false;
  bool read_only = false;
  std::function<void()> before_apply;  // Once.
};

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() { Write("rules.yaml", kOne); }

  // Like editors: a new file replaces the old one.
  void Write(const std::string& name, std::string_view text) {
    std::ofstream(folder_ / (name + ".new")) << text;
    fs::rename(folder_ / (name + ".new"), folder_ / name);
  }

  Problems Open(const std::string& rules) {
    keeper_.emplace(
        Keeper::Options{.places = {.config = {}, .rules = (folder_ / rules).string(), .rls = {}},
                        .poll_interval = 1h,  // So that only watching helps.
                        .settle = settle_,
                        .keep_file = keep_file_,
                        .publish =
                            [this](auto catalog) {
                              const std::scoped_lock lock(mutex_);
                              catalog_ = std::move(catalog);
                              changed_.notify_all();
                            }},
        Keeper::Parts{.managed = managed_, .logger = logger_, .metrics = metrics_});
    Problems problems = keeper_->Load();
    if (problems.empty()) keeper_->Start();
    return problems;
  }

  bool Comes(std::string_view id) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 60s, [&] { return catalog_->rules->Find(id) != nullptr; });
  }

  template <typename Ask>
  Keeper::Outcome Await(Ask ask) {
    std::promise<Keeper::Outcome> promise;
    ask([&](Keeper::Outcome outcome) { promise.set_value(std::move(outcome)); });
    return promise.get_future().get();
  }

  Keeper::Outcome Create(const std::string& id, std::string_view document) {
    return Await([&](auto done) { keeper_->Create(id, std::string(document), std::move(done)); });
  }

  Keeper::Outcome Save(const std::string& id, std::string_view document,
                       Keeper::Condition condition = nullptr) {
    return Await([&](auto done) {
      keeper_->Save(id, std::string(document), std::move(condition), std::move(done));
    });
  }

  // Makes it look at all sources.
  void Look() {
    static_cast<void>(Await([&](auto done) { keeper_->Reload(std::move(done)); }));
  }

  // Runs a task on the keeper's thread.
  void Do(std::move_only_function<void()> task) {
    std::promise<void> done;
    keeper_->Post([&] {
      task();
      done.set_value();
    });
    done.get_future().get();
  }

  std::shared_ptr<const service::Catalog> catalog() {
    const std::scoped_lock lock(mutex_);
    return catalog_;
  }

  const testing_support::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
  telemetry::Registry registry_;
  service::ServiceMetrics metrics_{registry_};
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  LossyStore managed_;
  Micros settle_ = 10ms;
  std::string keep_file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const service::Catalog> catalog_;
  std::optional<Keeper> keeper_;
};

TEST_F(KeeperTest, SeesAFileChange) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_EQ(catalog()->generation, 1U);
  Write("rules.yaml", kTwo);
  EXPECT_TRUE(Comes("two"));
  EXPECT_EQ(catalog()->generation, 2U);
  EXPECT_EQ(catalog()->rules->Find("one"), nullptr);
}

TEST_F(KeeperTest, SeesKubernetesSwapItsSymlink) {
  const auto version = [&](const std::string& name, std::string_view text) {
    fs::create_directory(folder_ / name);
    std::ofstream(folder_ / name / "rules.yaml") << text;
    fs::create_symlink(name, folder_ / "..data_tmp");
    fs::rename(folder_ / "..data_tmp", folder_ / "..data");
  };
  fs::remove(folder_ / "rules.yaml");
  version("..v1", kOne);
  fs::create_symlink("..data/rules.yaml", folder_ / "rules.yaml");
  ASSERT_TRUE(Open("").empty());
  ASSERT_TRUE(Comes("one"));
  version("..v2", kTwo);
  EXPECT_TRUE(Comes("two"));
}

TEST_F(KeeperTest, TakesWhatOthersManageWhateverBecomesOfTheFiles) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  const auto save = [&](const std::string& id) {
    const std::string rules = "rules: [{id: r, scope: GLOBAL, bands: [{limit: 3, window: 1m}]}]";
    EXPECT_TRUE(managed_.store.Apply({.id = id, .document = "{id: " + id + ", " + rules + "}"}));
  };
  keeper_->Post([&] {
    save("three");
    Write("rules.yaml", "ruleSets: [{id: one, rulez: []}]");
  });
  EXPECT_TRUE(Comes("three"));
  keeper_->Post([&] {
    save("four");
    fs::remove(folder_ / "rules.yaml");
  });
  EXPECT_TRUE(Comes("four"));
  EXPECT_NE(catalog()->rules->Find("one"), nullptr) << "as it was";
}

TEST_F(KeeperTest, CreatesWhatOthersHaveRemoved) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  const auto save = [&](auto done) {
    keeper_->Save("three", std::string(kManaged), nullptr, std::move(done));
  };
  ASSERT_TRUE(Await(save).result);
  const auto saved = Await([&](auto done) {
    keeper_->Post([&, done = std::move(done)]() mutable {
      EXPECT_TRUE(managed_.store.Apply({.id = "three", .document = std::nullopt}));
      // The next call comes before the keeper has looked.
      keeper_->Remove("three", nullptr, [](const Keeper::Outcome& outcome) {
        EXPECT_EQ(outcome.result.error().code, ErrorCode::kNotFound);
      });
      save(std::move(done));
    });
  });
  EXPECT_TRUE(saved.result);
}

TEST_F(KeeperTest, KeepsTheOldRulesWhenTheNewOnesAreNotValid) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  Write("rules.yaml", "ruleSets: [{id: one, rulez: []}]");
  const auto outcome = Await([&](auto done) { keeper_->Reload(std::move(done)); });
  EXPECT_FALSE(outcome.result);
  ASSERT_EQ(outcome.problems.size(), 1U);
  EXPECT_THAT(outcome.problems.front().ToString(), HasSubstr("rules.yaml:1:"));
  EXPECT_EQ(catalog()->generation, 1U);
  EXPECT_THAT(registry_.Text(), Not(HasSubstr(R"(sluice_reloads_total{result="invalid"} 0)")));
  fs::remove(folder_ / "rules.yaml");
  EXPECT_FALSE(Await([&](auto done) { keeper_->Reload(std::move(done)); }).result);
  EXPECT_EQ(catalog()->generation, 1U) << "a missing file is no empty one";
  Write("rules.yaml", kTwo);
  EXPECT_TRUE(Comes("two"));
}

TEST_F(KeeperTest, CountsEveryInvalidFileOnceThatItSees) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  const auto counted = [&](int times) {
    const std::string line = R"(sluice_reloads_total{result="invalid"} )" + std::to_string(times);
    return registry_.Text().contains(line + "\n");
  };
  // All with the same mistake at the same position.
  for (int i = 1; i <= 3; ++i) {
    Write("rules.yaml", "ruleSets: 5 # " + std::to_string(i));
    EXPECT_TRUE(Eventually([&] { return counted(i); })) << i;
  }
  Write("rules.yaml", kTwo);
  ASSERT_TRUE(Comes("two"));
  Write("rules.yaml", "ruleSets: 5 # 3");
  EXPECT_TRUE(Eventually([&] { return counted(4); })) << "it is new again";
  // Unchanged files are not counted again, unless somebody asks.
  Write("other", "");
  EXPECT_FALSE(Await([&](auto done) { keeper_->Reload(std::move(done)); }).result);
  EXPECT_TRUE(counted(5)) << registry_.Text();
}

TEST_F(KeeperTest, DoesNotStartOnWhatIsNotValid) {
  Write("rules.yaml", "ruleSets: 5");
  EXPECT_FALSE(Open("rules.yaml").empty());
  EXPECT_FALSE(Open("missing.yaml").empty());
}

TEST_F(KeeperTest, TakesAnEmptiedFileForAMistake) {
  for (const std::string_view text : {"", "\n# nothing\n", "---\n", "{}", "ruleSets:\n"}) {
    Write("rules.yaml", kOne);
    ASSERT_TRUE(Open("rules.yaml").empty());
    Write("rules.yaml", text);
    const auto outcome = Await([&](auto done) { keeper_->Reload(std::move(done)); });
    ASSERT_EQ(outcome.problems.size(), 1U) << text;
    EXPECT_THAT(outcome.problems.front().ToString(),
                AllOf(HasSubstr("rules.yaml:"), HasSubstr("ruleSets"), HasSubstr("expected")));
    EXPECT_NE(catalog()->rules->Find("one"), nullptr) << text;
    EXPECT_FALSE(Open("rules.yaml").empty()) << "nor does it start with: " << text;
  }
  Write("rules.yaml", "ruleSets: []");
  EXPECT_TRUE(Open("rules.yaml").empty());
}

TEST_F(KeeperTest, LeavesFilesAloneUntilTheyStayTheSame) {
  settle_ = 1h;
  ASSERT_TRUE(Open("rules.yaml").empty());
  Write("rules.yaml", kTwo);
  for (int i = 0; i < 3; ++i) {
    std::promise<void> looked;  // It looks after each task.
    keeper_->Post([&] { looked.set_value(); });
    looked.get_future().get();
    EXPECT_EQ(catalog()->generation, 1U);
  }
  // Whoever asks for a reload knows that they are complete.
  EXPECT_TRUE(Await([&](auto done) { keeper_->Reload(std::move(done)); }).result);
  EXPECT_NE(catalog()->rules->Find("two"), nullptr);
}

TEST_F(KeeperTest, ChangesManagedRuleSetsWithoutTakingFiles) {
  settle_ = 1h;
  ASSERT_TRUE(Open("rules.yaml").empty());
  Write("rules.yaml", kTwo);
  EXPECT_TRUE(Await([&](auto done) {
                keeper_->Save("three", std::string(kManaged), nullptr, std::move(done));
              }).result);
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  EXPECT_NE(catalog()->rules->Find("one"), nullptr);
}

TEST_F(KeeperTest, ChangesARuleSetAsItIsWhenItsTurnComes) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_TRUE(Await([&](auto done) {
                keeper_->Save("three", std::string(kManaged), nullptr, std::move(done));
              }).result);
  // Both are requested before either is done.
  std::promise<void> asked;
  keeper_->Post([&] { asked.get_future().wait(); });
  keeper_->Save("three", "{id: three, description: newer}", nullptr, [](const auto&) {});
  const auto changed = Await([&](auto done) {
    keeper_->Change(
        "three",
        [](const rules::RuleSet& rule_set) {
          EXPECT_EQ(rule_set.spec().description, "newer");
          return std::string("{id: three, description: changed}");
        },
        nullptr, std::move(done));
    asked.set_value();
  });
  EXPECT_TRUE(changed.result);
  EXPECT_EQ(catalog()->rules->Find("three")->spec().description, "changed");
  const auto no_edit = [](const rules::RuleSet&) { return std::string(); };
  for (const auto& [id, code] :
       {std::pair("one", ErrorCode::kConflict), std::pair("nine", ErrorCode::kNotFound)}) {
    const auto refused =
        Await([&](auto done) { keeper_->Change(id, no_edit, nullptr, std::move(done)); });
    EXPECT_EQ(refused.result.error().code, code);
  }
}

TEST_F(KeeperTest, ManagesRuleSetsBesideThoseOfFiles) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_TRUE(Await([&](auto done) {
                keeper_->Save("three", std::string(kManaged), nullptr, std::move(done));
              }).result);
  ASSERT_NE(catalog()->rules->Find("three"), nullptr);
  EXPECT_TRUE(catalog()->managed.contains("three"));
  const auto conflict =
      Await([&](auto done) { keeper_->Save("one", "{id: one}", nullptr, std::move(done)); });
  EXPECT_EQ(conflict.result.error().code, ErrorCode::kConflict);
  EXPECT_EQ(Await([&](auto done) { keeper_->Remove("one", nullptr, std::move(done)); })
                .result.error()
                .code,
            ErrorCode::kConflict);
  const auto invalid = Await(
      [&](auto done) { keeper_->Save("four", "{id: four, rules: 5}", nullptr, std::move(done)); });
  EXPECT_FALSE(invalid.problems.empty());
  EXPECT_TRUE(Await([&](auto done) { keeper_->Remove("three", nullptr, std::move(done)); }).result);
  EXPECT_EQ(catalog()->rules->Find("three"), nullptr);
  EXPECT_EQ(Await([&](auto done) { keeper_->Remove("three", nullptr, std::move(done)); })
                .result.error()
                .code,
            ErrorCode::kNotFound);
}

TEST_F(KeeperTest, ChangesOnlyTheRuleSetThatTheConditionWants) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  const auto save = [&](Keeper::Condition condition) {
    return Await([&](auto done) {
      keeper_->Save("three", std::string(kManaged), std::move(condition), std::move(done));
    });
  };
  const auto remove = [&](Keeper::Condition condition) {
    return Await(
        [&](auto done) { keeper_->Remove("three", std::move(condition), std::move(done)); });
  };
  using Hash = std::optional<std::string_view>;
  const auto any = [](Hash found) { return found.has_value(); };
  const auto none = [](Hash found) { return !found.has_value(); };
  EXPECT_EQ(save(any).result.error().code, ErrorCode::kPreconditionFailed) << "there is none";
  EXPECT_TRUE(save(none).created);
  EXPECT_EQ(save(none).result.error().code, ErrorCode::kPreconditionFailed);
  EXPECT_FALSE(save(nullptr).created);
  const std::string hash = catalog()->rules->Find("three")->hash();
  const auto other = [](Hash) { return false; };
  EXPECT_EQ(save(other).result.error().code, ErrorCode::kPreconditionFailed);
  EXPECT_EQ(remove(other).result.error().code, ErrorCode::kPreconditionFailed);
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  const auto same = [&](Hash found) { return found == hash; };
  EXPECT_TRUE(save(same).result);
  EXPECT_TRUE(remove(same).result);
}

TEST_F(KeeperTest, KeepsTheRulesOfAStoreThatWasEmptiedAndWritesThemBack) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  const Stored before = *managed_.store.Load();
  Do([&] { managed_.store = {}; });
  Look();
  EXPECT_EQ(managed_.store.Load()->documents, before.documents);
  EXPECT_EQ(managed_.store.Load()->marker, before.marker);
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  EXPECT_EQ(keeper_->status().restored, 1U);
  EXPECT_FALSE(keeper_->status().degraded());
}

TEST_F(KeeperTest, SaysThatItCannotWriteBackWhatAStoreHasLost) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  Do([&] {
    managed_.store = {};
    managed_.read_only = true;
  });
  Look();
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  EXPECT_TRUE(keeper_->status().degraded());
  EXPECT_TRUE(keeper_->status().ready);
  EXPECT_THAT(keeper_->status().problem, AllOf(HasSubstr("lost"), HasSubstr("read only")));
  // A change would turn the lost store into a new one.
  EXPECT_EQ(Create("four", "{id: four}").result.error().code, ErrorCode::kAccessDenied);
  EXPECT_TRUE(managed_.store.Load()->documents.empty());
  Do([&] { managed_.read_only = false; });
  Look();
  EXPECT_FALSE(keeper_->status().degraded());
  EXPECT_TRUE(managed_.store.Load()->documents.contains("three"));
}

TEST_F(KeeperTest, LetsTheLastRuleSetGoIfSomebodyRemovesIt) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  EXPECT_TRUE(Await([&](auto done) { keeper_->Remove("three", nullptr, std::move(done)); }).result);
  Look();
  EXPECT_TRUE(managed_.store.Load()->documents.empty());
  EXPECT_EQ(catalog()->rules->Find("three"), nullptr);
  EXPECT_EQ(keeper_->status().restored, 0U);
}

TEST_F(KeeperTest, BringsAStoreForwardThatWentBackInTime) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  const ProcessRuleSetStore backup = managed_.store;
  ASSERT_TRUE(Create("four", "{id: four}").result);
  EXPECT_TRUE(Await([&](auto done) { keeper_->Remove("three", nullptr, std::move(done)); }).result);
  const Stored newest = *managed_.store.Load();
  Do([&] { managed_.store = backup; });
  Look();
  EXPECT_EQ(managed_.store.Load()->documents, newest.documents) << "what was removed stays so";
  EXPECT_EQ(managed_.store.Load()->marker, newest.marker);
  EXPECT_EQ(keeper_->status().restored, 1U);
}

TEST_F(KeeperTest, PutsWhatWasLostBesideWhatOthersBeganAnew) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  Do([&] {
    managed_.store = {};
    ASSERT_TRUE(managed_.store.Apply({.id = "four", .document = "{id: four}"}));
  });
  Look();
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  EXPECT_NE(catalog()->rules->Find("four"), nullptr);
  EXPECT_TRUE(managed_.store.Load()->documents.contains("three"));
  const std::string marker = managed_.store.Load()->marker;
  Look();
  EXPECT_EQ(managed_.store.Load()->marker, marker) << "once";
  EXPECT_EQ(keeper_->status().restored, 1U);
}

TEST_F(KeeperTest, NeverChangesAStoreThatHasJustLostWhatItHeld) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  managed_.before_apply = [&] { managed_.store = {}; };
  EXPECT_TRUE(Create("four", "{id: four}").created);
  EXPECT_THAT(managed_.store.Load()->documents,
              testing::ElementsAre(testing::Key("four"), testing::Key("three")));
}

TEST_F(KeeperTest, LeavesOutADocumentThatIsNotValidAndHoldsUpNothingElse) {
  managed_.Write("bad", "{id: bad, rules: 5}");
  managed_.Write("binary", "\xff\xfe");
  managed_.Write("large", std::string((8U << 20U) + 1, ' '));
  managed_.Write("named", "{id: other}");
  managed_.Write("newer", "{id: newer, fieldOfTomorrow: 1}");
  ASSERT_TRUE(Open("rules.yaml").empty()) << "it starts";
  RulesStatus status = keeper_->status();
  EXPECT_TRUE(status.ready && status.degraded());
  ASSERT_EQ(status.rejected_count, 5U);
  EXPECT_EQ(status.rejected.front().id, "bad");
  EXPECT_FALSE(status.rejected.front().has_last_good);
  // Others can be changed, files are taken, and it can be removed.
  EXPECT_TRUE(Create("three", kManaged).created);
  Write("rules.yaml", kTwo);
  EXPECT_TRUE(Comes("two"));
  EXPECT_EQ(Create("bad", "{id: bad}").result.error().code, ErrorCode::kConflict);
  for (const char* id : {"bad", "binary", "large", "named"}) {
    EXPECT_TRUE(Await([&](auto done) { keeper_->Remove(id, nullptr, std::move(done)); }).result);
  }
  EXPECT_EQ(keeper_->status().rejected_count, 1U);
  EXPECT_TRUE(Save("newer", "{id: newer}").result);
  EXPECT_FALSE(keeper_->status().degraded());
}

TEST_F(KeeperTest, KeepsTheLastGoodVersionOfADocumentThatIsNotValid) {
  keep_file_ = (folder_ / "kept").string();
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  Do([&] { managed_.Write("three", "{id: three, rules: 5}"); });
  Look();
  for (const bool restarted : {false, true}) {
    if (restarted) {
      ASSERT_TRUE(Open("rules.yaml").empty());
    }
    ASSERT_NE(catalog()->rules->Find("three"), nullptr) << restarted;
    EXPECT_EQ(catalog()->rules->Find("three")->rules().size(), 1U);
    ASSERT_EQ(keeper_->status().rejected_count, 1U);
    EXPECT_TRUE(keeper_->status().rejected.front().has_last_good);
  }
  // The tag of what is in force is not the tag of what is stored.
  const std::string hash = catalog()->rules->Find("three")->hash();
  EXPECT_EQ(Save("three", kManaged, [&](auto found) { return found == hash; }).result.error().code,
            ErrorCode::kPreconditionFailed);
  const auto edit = [](const rules::RuleSet&) { return std::string("{id: three}"); };
  EXPECT_EQ(Await([&](auto done) { keeper_->Change("three", edit, nullptr, std::move(done)); })
                .result.error()
                .code,
            ErrorCode::kConflict);
  EXPECT_TRUE(Save("three", "{id: three, description: mended}").result);
  EXPECT_EQ(catalog()->rules->Find("three")->spec().description, "mended");
  EXPECT_EQ(keeper_->status().rejected_count, 0U);
}

TEST_F(KeeperTest, TakesAFileThatDefinesAManagedRuleSet) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("two", "{id: two, description: managed}").result);
  Write("rules.yaml", kTwo);
  ASSERT_TRUE(Eventually([&] { return catalog()->rules->Find("two")->rules().size() == 1; }));
  EXPECT_FALSE(catalog()->managed.contains("two"));
  EXPECT_TRUE(Eventually([&] { return keeper_->status().rejected_count == 1; }));
  EXPECT_FALSE(keeper_->status().rejected.front().has_last_good);
  EXPECT_TRUE(Await([&](auto done) { keeper_->Remove("two", nullptr, std::move(done)); }).result);
  EXPECT_EQ(keeper_->status().rejected_count, 0U);
  EXPECT_NE(catalog()->rules->Find("two"), nullptr) << "that of the file";
}

TEST_F(KeeperTest, IsNotReadyBeforeItKnowsTheRulesOfItsStore) {
  managed_.away = true;
  ASSERT_TRUE(Open("rules.yaml").empty()) << "it starts";
  EXPECT_FALSE(keeper_->status().ready);
  EXPECT_THAT(keeper_->status().problem, HasSubstr("it is away"));
  EXPECT_EQ(Create("three", kManaged).result.error().code, ErrorCode::kUnavailable);
  Do([&] { managed_.away = false; });
  Look();
  EXPECT_TRUE(keeper_->status().ready);
  Do([&] { managed_.away = true; });
  Look();
  EXPECT_TRUE(keeper_->status().ready) << "what was read once is known";
  EXPECT_TRUE(keeper_->status().degraded());
}

TEST_F(KeeperTest, StartsWithWhatItKept) {
  keep_file_ = (folder_ / "kept").string();
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  const Stored before = *managed_.store.Load();
  keeper_.reset();
  EXPECT_EQ(fs::status(keep_file_).permissions(), fs::perms::owner_read | fs::perms::owner_write);

  managed_.away = true;
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  EXPECT_TRUE(keeper_->status().ready && keeper_->status().degraded());
  // When it comes back empty, it gets them back; nobody else may know them.
  Do([&] {
    managed_.store = {};
    managed_.away = false;
  });
  Look();
  EXPECT_EQ(managed_.store.Load()->documents, before.documents);
  EXPECT_EQ(managed_.store.Load()->marker, before.marker);
}

TEST_F(KeeperTest, DoesNotPutWhatItKeptOfOneStoreIntoAnother) {
  keep_file_ = (folder_ / "kept").string();
  ASSERT_TRUE(Open("rules.yaml").empty());
  ASSERT_TRUE(Create("three", kManaged).result);
  keeper_.reset();
  managed_.store = {};
  ASSERT_TRUE(managed_.store.Apply({.id = "four", .document = "{id: four}"}));
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_EQ(catalog()->rules->Find("three"), nullptr);
  EXPECT_NE(catalog()->rules->Find("four"), nullptr);
  EXPECT_FALSE(managed_.store.Load()->documents.contains("three"));
}

TEST_F(KeeperTest, SetsADamagedFileAsideAndStarts) {
  keep_file_ = (folder_ / "kept").string();
  Write("kept", "sluice-rules 1 0000\n\n");
  managed_.away = true;
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_FALSE(keeper_->status().ready);
  EXPECT_THAT(keeper_->status().keep_problem, HasSubstr("set aside"));
  EXPECT_FALSE(fs::exists(keep_file_));
  EXPECT_TRUE(fs::exists(keep_file_ + ".damaged"));
  Do([&] { managed_.away = false; });
  Look();
  EXPECT_FALSE(keeper_->status().degraded()) << "it was written anew";
  EXPECT_TRUE(fs::exists(keep_file_));
}

TEST_F(KeeperTest, GoesOnWithoutAFileThatCannotBeWritten) {
  keep_file_ = (folder_ / "missing" / "kept").string();
  ASSERT_TRUE(Open("rules.yaml").empty());
  EXPECT_TRUE(Create("three", kManaged).created);
  EXPECT_TRUE(keeper_->status().degraded());
  EXPECT_GE(keeper_->status().keep_failures, 1U);
  fs::create_directory(folder_ / "missing");
  Look();
  Look();
  EXPECT_FALSE(keeper_->status().degraded());
}

TEST_F(KeeperTest, NeverOverwritesUnseenWhatAnotherInstanceWrote) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  const auto others = [&](std::string document) {
    managed_.before_apply = [this, document = std::move(document)] {
      ASSERT_TRUE(managed_.store.Apply({.id = "three", .document = document}));
    };
  };
  others("{id: three, description: first}");
  EXPECT_EQ(Create("three", kManaged).result.error().code, ErrorCode::kConflict);
  const auto is = [&](std::string_view description) {
    return catalog()->rules->Find("three")->spec().description == description;
  };
  Look();
  ASSERT_TRUE(is("first"));
  const std::string hash = catalog()->rules->Find("three")->hash();
  const auto same = [&](auto found) { return found == hash; };
  others("{id: three, description: second}");
  EXPECT_EQ(Save("three", kManaged, same).result.error().code, ErrorCode::kPreconditionFailed);
  others("{id: three, description: third}");
  EXPECT_EQ(Await([&](auto done) { keeper_->Remove("three", same, std::move(done)); })
                .result.error()
                .code,
            ErrorCode::kPreconditionFailed);
  // An edit is repeated on what the other wrote.
  others("{id: three, description: fourth}");
  const auto edit = [](const rules::RuleSet& found) {
    return "{id: three, description: edited " + found.spec().description + "}";
  };
  EXPECT_TRUE(
      Await([&](auto done) { keeper_->Change("three", edit, nullptr, std::move(done)); }).result);
  EXPECT_TRUE(is("edited fourth"));
  // Without a condition the last one wins; `created` is what the step found.
  managed_.before_apply = [this] {
    ASSERT_TRUE(managed_.store.Apply({.id = "three", .document = std::nullopt}));
  };
  EXPECT_TRUE(Save("three", kManaged).created);
  managed_.before_apply = [this] {
    ASSERT_TRUE(managed_.store.Apply({.id = "three", .document = std::nullopt}));
  };
  EXPECT_EQ(Await([&](auto done) { keeper_->Remove("three", nullptr, std::move(done)); })
                .result.error()
                .code,
            ErrorCode::kNotFound);
}

TEST_F(KeeperTest, SaysThatItDoesNotKnowWhatBecameOfAChange) {
  ASSERT_TRUE(Open("rules.yaml").empty());
  managed_.silent = true;
  const auto outcome = Create("three", kManaged);
  EXPECT_EQ(outcome.result.error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_THAT(outcome.result.error().message, HasSubstr("may have been changed or not"));
  EXPECT_EQ(catalog()->rules->Find("three"), nullptr);
}

}  // namespace
}  // namespace sluice::reload
