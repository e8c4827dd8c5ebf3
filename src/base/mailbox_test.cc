// SPDX-License-Identifier: Apache-2.0
#include "base/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

namespace sluice {
namespace {

using ::testing::ElementsAre;

class MailboxTest : public ::testing::Test {
 protected:
  void Post(int number) {
    mailbox_.Post([this, number] { ran_.push_back(number); });
  }

  int wakes_ = 0;
  Mailbox mailbox_{[this] { ++wakes_; }};
  std::vector<int> ran_;
};

TEST_F(MailboxTest, WakesTheLoopOnceForAllThatItFinds) {
  for (const int number : {1, 2, 3}) Post(number);
  EXPECT_EQ(wakes_, 1);
  EXPECT_THAT(ran_, ElementsAre());
  mailbox_.Run();
  EXPECT_THAT(ran_, ElementsAre(1, 2, 3));
  Post(4);
  EXPECT_EQ(wakes_, 2);
  mailbox_.Run();
  EXPECT_THAT(ran_, ElementsAre(1, 2, 3, 4));
  mailbox_.Run();
  EXPECT_THAT(ran_, ElementsAre(1, 2, 3, 4));
}

TEST_F(MailboxTest, LeavesWhatIsPostedMeanwhileForTheNextTime) {
  mailbox_.Post([this] { Post(3); });
  Post(1);
  Post(2);
  mailbox_.Run();
  EXPECT_THAT(ran_, ElementsAre(1, 2));
  EXPECT_EQ(wakes_, 2);
  mailbox_.Run();
  EXPECT_THAT(ran_, ElementsAre(1, 2, 3));
}

TEST_F(MailboxTest, DestroysEachTaskBeforeTheNextRuns) {
  const auto held = std::make_shared<int>(0);
  mailbox_.Post([held] { EXPECT_EQ(held.use_count(), 3); });
  mailbox_.Post([held] { EXPECT_EQ(held.use_count(), 2); });
  mailbox_.Run();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(MailboxTest, DropsWithoutRunning) {
  const auto held = std::make_shared<int>(0);
  mailbox_.Post([this, held] { Post(1); });
  mailbox_.Drop();
  EXPECT_EQ(held.use_count(), 1);
  mailbox_.Run();
  EXPECT_THAT(ran_, ElementsAre());
  {
    Mailbox gone([] {});
    gone.Post([held] {});
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(MailboxTest, IsThatOfTheThreadItIsMadeFor) {
  EXPECT_EQ(Mailbox::Here(), nullptr);
  {
    const Mailbox::Home home(mailbox_);
    EXPECT_EQ(Mailbox::Here(), &mailbox_);
    std::thread([] { EXPECT_EQ(Mailbox::Here(), nullptr); }).join();
  }
  EXPECT_EQ(Mailbox::Here(), nullptr);
}

TEST(Mailbox, KeepsTheOrderOfEachOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 20'000;
  std::counting_semaphore<> woken(0);
  Mailbox mailbox([&] { woken.release(); });
  std::array<int, kThreads> next{};
  int ran = 0;
  int misplaced = 0;
  std::vector<std::jthread> posters;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    posters.emplace_back([&, thread] {
      for (int i = 0; i < kTasks; ++i) {
        mailbox.Post([&, thread, i] {
          if (next.at(thread)++ != i) ++misplaced;
          ++ran;
        });
      }
    });
  }
  // A missing wake would leave this waiting.
  while (ran < kThreads * kTasks) {
    woken.acquire();
    mailbox.Run();
  }
  EXPECT_EQ(misplaced, 0);
}

}  // namespace
}  // namespace sluice
