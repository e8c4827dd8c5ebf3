// SPDX-License-Identifier: Apache-2.0
#include "reload/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>

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

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() { Write("rules.yaml", kOne); }

  // As editors do: a new file in the place of the old one.
  void Write(const std::string& name, std::string_view text) {
    std::ofstream(folder_ / (name + ".new")) << text;
    fs::rename(folder_ / (name + ".new"), folder_ / name);
  }

  Problems Open(const std::string& rules) {
    keeper_.emplace(
        Keeper::Options{.places = {.config = {}, .rules = (folder_ / rules).string(), .rls = {}},
                        .poll_interval = 1h,  // So that only watching helps.
                        .settle = settle_,
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

  std::shared_ptr<const service::Catalog> catalog() {
    const std::scoped_lock lock(mutex_);
    return catalog_;
  }

  const testing_support::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
  telemetry::Registry registry_;
  telemetry::ServiceMetrics metrics_{registry_};
  telemetry::Logger logger_{{.level = telemetry::LogLevel::kOff}};
  ProcessRuleSetStore managed_;
  Micros settle_ = 10ms;
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
    EXPECT_TRUE(managed_.Save(id, "{id: " + id + ", " + rules + "}"));
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
      EXPECT_TRUE(managed_.Remove("three"));
      // What follows comes before the keeper has looked.
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
  // All with the same mistake at the same place.
  for (int i = 1; i <= 3; ++i) {
    Write("rules.yaml", "ruleSets: 5 # " + std::to_string(i));
    EXPECT_TRUE(Eventually([&] { return counted(i); })) << i;
  }
  Write("rules.yaml", kTwo);
  ASSERT_TRUE(Comes("two"));
  Write("rules.yaml", "ruleSets: 5 # 3");
  EXPECT_TRUE(Eventually([&] { return counted(4); })) << "it is new again";
  // What did not change is not counted anew, unless somebody asks.
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
  // Whoever asks for it knows that they are whole.
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
  // Both are asked for before either is done.
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
       {std::pair("one", ErrorCode::kInvalidRequest), std::pair("nine", ErrorCode::kNotFound)}) {
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
  EXPECT_EQ(conflict.result.error().code, ErrorCode::kInvalidRequest);
  EXPECT_EQ(Await([&](auto done) { keeper_->Remove("one", nullptr, std::move(done)); })
                .result.error()
                .code,
            ErrorCode::kInvalidRequest);
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
  const auto any = [](std::string_view found) { return !found.empty(); };
  const auto none = [](std::string_view found) { return found.empty(); };
  EXPECT_TRUE(save(any).is_other) << "there is none";
  ASSERT_TRUE(save(none).result);
  EXPECT_TRUE(save(none).is_other) << "there is one now";
  const std::string hash = catalog()->rules->Find("three")->hash();
  const auto other = [](std::string_view) { return false; };
  EXPECT_TRUE(save(other).is_other);
  EXPECT_TRUE(remove(other).is_other);
  EXPECT_NE(catalog()->rules->Find("three"), nullptr);
  const auto same = [&](std::string_view found) { return found == hash; };
  EXPECT_TRUE(save(same).result);
  EXPECT_TRUE(remove(same).result);
}

}  // namespace
}  // namespace sluice::reload
