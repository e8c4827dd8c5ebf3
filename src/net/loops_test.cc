// SPDX-License-Identifier: Apache-2.0
#include "net/loops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <set>
#include <thread>

namespace sluice::net {
namespace {

TEST(Loops, RunEachOnItsOwnThread) {
  Loops loops(3);
  loops.Start();
  std::array<std::thread::id, 3> ids;
  loops.RunOnAll([&](std::size_t loop) { ids[loop] = std::this_thread::get_id(); });
  EXPECT_EQ((std::set<std::thread::id>{ids[0], ids[1], ids[2], std::this_thread::get_id()}).size(),
            4U);

  std::promise<std::thread::id> posted;
  boost::asio::post(loops.context(1), [&] { posted.set_value(std::this_thread::get_id()); });
  EXPECT_EQ(posted.get_future().get(), ids[1]);
}

TEST(Loops, RunWorkHereWhileNoThreadDoes) {
  Loops loops(2);
  std::array<std::thread::id, 2> ids;
  const auto note = [&](std::size_t loop) { ids[loop] = std::this_thread::get_id(); };
  loops.RunOnAll(note);
  EXPECT_THAT(ids, ::testing::Each(std::this_thread::get_id()));

  loops.Start();
  loops.Stop();
  ids = {};
  loops.RunOnAll(note);
  EXPECT_THAT(ids, ::testing::Each(std::this_thread::get_id()));
}

TEST(Loops, DropWhatStillWaitsWhenTheyStop) {
  const auto held = std::make_shared<int>(1);
  {
    Loops loops(1);
    boost::asio::post(loops.context(0), [held] {});
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Loops, HaveAMailboxEach) {
  Loops loops(2);
  loops.Start();
  std::array<Mailbox*, 2> mailboxes{};
  std::array<std::thread::id, 2> ids;
  loops.RunOnAll([&](std::size_t loop) {
    mailboxes.at(loop) = Mailbox::Here();
    ids.at(loop) = std::this_thread::get_id();
  });
  EXPECT_NE(mailboxes[0], mailboxes[1]);
  for (std::size_t loop = 0; loop < 2; ++loop) {
    ASSERT_NE(mailboxes.at(loop), nullptr);
    std::promise<std::thread::id> posted;
    mailboxes.at(loop)->Post([&] { posted.set_value(std::this_thread::get_id()); });
    EXPECT_EQ(posted.get_future().get(), ids.at(loop));
  }
}

TEST(Loops, RunWhatWasPostedBeforeTheyStopAndDropTheRest) {
  const auto held = std::make_shared<int>(1);
  {
    Loops loops(1);
    loops.Start();
    Mailbox* mailbox = nullptr;
    loops.RunOnAll([&](std::size_t) { mailbox = Mailbox::Here(); });
    int ran = 0;
    for (int i = 0; i < 100; ++i) mailbox->Post([&ran] { ++ran; });
    loops.Stop();
    EXPECT_EQ(ran, 100);
    mailbox->Post([held, &ran] { ++ran; });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Loops, MayHoldWhatBelongsToOthersUntilTheEnd) {
  for (const std::size_t holder : {0U, 1U}) {
    Loops loops(2);
    const auto timer = std::make_shared<boost::asio::steady_timer>(loops.context(1 - holder),
                                                                   std::chrono::hours(1));
    timer->async_wait([](auto) {});
    boost::asio::post(loops.context(holder), [timer] {});
  }
}

}  // namespace
}  // namespace sluice::net
