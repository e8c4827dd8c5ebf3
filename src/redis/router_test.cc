// SPDX-License-Identifier: Apache-2.0
// Where commands go and how they end, as lists of events.
#include "redis/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"

namespace sluice::redis {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kTimeout = 100ms;

// Records what it receives.
class Recorder : public Exchange {
 public:
  void AppendTo(std::string& out) const override { out += "command"; }
  void OnReply(Reply reply, Moment) override {
    told.push_back(reply ? std::string(reply->front().text)
                         : std::string(ToString(reply.error().code)));
    if (!reply) message = reply.error().message;
  }
  void OnLateReply() override { told.emplace_back("late"); }

  std::vector<std::string> told;
  std::string message;
};

Address NodeAddress(int number) { return {.host = text::Cat("n", number), .port = 1}; }

class RouterTest : public testing::Test {
 protected:
  void Make(std::string_view uri) {
    router_ =
        std::make_unique<Router>(Router::Options{.endpoint = *Endpoint::Parse(uri, kTimeout)});
    Advance();
  }

  // The slots belong to the nodes in turn.
  void MakeCluster(int nodes) {
    Make("redis://n0:1?mode=cluster");
    ASSERT_EQ(asked_slots_, 1);
    router_->OnSlots(MapOf(nodes), now_);
    Advance();
    for (int i = 0; i < nodes; ++i) Up(i);
  }

  static SlotMap MapOf(int nodes) {
    SlotMap map;
    for (int i = 0; i < nodes; ++i) map.masters.push_back(NodeAddress(i));
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      map.owner[slot] = static_cast<std::uint16_t>(slot % static_cast<std::size_t>(nodes));
    }
    return map;
  }

  NodeId Node(int number) {
    for (NodeId id = 0; id < 100; ++id) {
      if (std::ranges::find(connected_, std::pair(id, NodeAddress(number))) != connected_.end()) {
        return id;
      }
    }
    ADD_FAILURE() << "nobody connects to node " << number;
    return kNoNode;
  }

  void Up(int number) {
    router_->OnUp(Node(number), NodeAddress(number), now_);
    Advance();
  }

  void Advance(std::chrono::milliseconds by = 0ms) {
    now_ += by;
    router_->Advance(now_);
    for (auto& action : router_->TakeActions()) {
      if (auto* transmit = std::get_if<Router::Transmit>(&action)) sent_.push_back(*transmit);
      if (auto* connect = std::get_if<Router::Connect>(&action)) {
        connected_.emplace_back(connect->node, connect->address);
      }
      if (auto* reconnect = std::get_if<Router::Reconnect>(&action)) {
        dropped_.push_back(reconnect->node);
      }
      if (auto* leave = std::get_if<Router::Leave>(&action)) left_.push_back(leave->node);
      if (std::holds_alternative<Router::AskSlots>(action)) ++asked_slots_;
    }
  }

  std::shared_ptr<Recorder> Send(std::uint16_t slot, std::chrono::milliseconds pause = 0ms) {
    return SendTo(slot, pause);
  }
  std::shared_ptr<Recorder> SendTo(Target target, std::chrono::milliseconds pause = 0ms) {
    auto exchange = std::make_shared<Recorder>();
    router_->Send(exchange, std::move(target), now_ + kTimeout, now_, now_ + pause);
    Advance();
    return exchange;
  }

  void Answer(Exchange& exchange, std::string_view text, RespType type = RespType::kSimpleString) {
    const RespNode node{type, 0, text};
    router_->OnReply(exchange, std::span(&node, 1), now_);
    Advance();
  }
  void AnswerError(Exchange& exchange, std::string_view text) {
    Answer(exchange, text, RespType::kError);
  }
  void Break(Exchange& exchange, ErrorCode code) {
    router_->OnReply(exchange, std::unexpected(Error{code, "it broke"}), now_);
    Advance();
  }

  std::unique_ptr<Router> router_;
  Moment now_ = Moment{} + 1h;
  std::vector<Router::Transmit> sent_;
  std::vector<std::pair<NodeId, Address>> connected_;
  std::vector<NodeId> dropped_;
  std::vector<NodeId> left_;
  int asked_slots_ = 0;
};

class RouterServer : public RouterTest {
 protected:
  void SetUp() override { Make("redis://n0:1"); }
  void Connect() {
    router_->OnUp(Router::kOnlyNode, NodeAddress(0), now_);
    Advance();
  }
};

TEST_F(RouterServer, GetsWhatWaitedForItInOrder) {
  const auto first = Send(0);
  const auto second = Send(0);
  EXPECT_THAT(sent_, IsEmpty());
  Connect();
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].exchange, first.get());
  EXPECT_EQ(sent_[1].exchange, second.get());
  Answer(*first, "OK");
  EXPECT_THAT(first->told, ElementsAre("OK"));
  EXPECT_THAT(second->told, IsEmpty());
}

TEST_F(RouterServer, DoesNotGetWhatWasGivenUpBefore) {
  const auto late = Send(0);
  Advance(kTimeout - 1ms);
  EXPECT_THAT(late->told, IsEmpty());
  EXPECT_EQ(router_->NextWake(), now_ + 1ms);
  Advance(1ms);
  EXPECT_THAT(late->told, ElementsAre("UNAVAILABLE"));
  EXPECT_FALSE(late->sent());
  Connect();
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(RouterServer, LeavesTheOutcomeUnknownIfItDoesNotAnswer) {
  Connect();
  const auto slow = Send(0);
  Advance(kTimeout);
  EXPECT_THAT(slow->told, ElementsAre("OUTCOME_UNKNOWN"));
  EXPECT_TRUE(slow->sent());
  Answer(*slow, "OK");
  EXPECT_THAT(slow->told, ElementsAre("OUTCOME_UNKNOWN", "late"));
}

TEST_F(RouterServer, IsLeftIfItDoesNotAnswerForLong) {
  Connect();
  const auto slow = Send(0);
  Advance(kTimeout);
  Advance(2 * kTimeout - 1ms);
  EXPECT_THAT(dropped_, IsEmpty());
  Advance(1ms);
  EXPECT_THAT(dropped_, ElementsAre(Router::kOnlyNode));
  const auto next = Send(0);
  EXPECT_EQ(sent_.size(), 1u);  // It waits for the next connection.
  router_->OnLost(Router::kOnlyNode, now_);
  Break(*slow, ErrorCode::kOutcomeUnknown);
  EXPECT_THAT(slow->told, ElementsAre("OUTCOME_UNKNOWN", "late"));
  Connect();
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].exchange, next.get());
}

TEST_F(RouterServer, GetsAgainWhatDidNotLeaveAndNothingElse) {
  Connect();
  const auto unsent = Send(0);
  const auto unknown = Send(0);
  const auto expired = Send(0);
  router_->OnLost(Router::kOnlyNode, now_);
  Break(*unknown, ErrorCode::kOutcomeUnknown);
  Break(*unsent, ErrorCode::kUnavailable);
  Advance(kTimeout / 2);
  Connect();
  ASSERT_EQ(sent_.size(), 4u);
  EXPECT_EQ(sent_[3].exchange, unsent.get());
  EXPECT_THAT(unknown->told, ElementsAre("OUTCOME_UNKNOWN"));
  Advance(kTimeout);
  Break(*expired, ErrorCode::kUnavailable);
  EXPECT_THAT(expired->told, ElementsAre("OUTCOME_UNKNOWN", "late"));
  EXPECT_EQ(sent_.size(), 4u);
}

TEST_F(RouterServer, FailsAtOnceWhileNoConnectionIsMade) {
  const auto waiting = Send(0);
  router_->OnDown(Router::kOnlyNode, {ErrorCode::kUnavailable, "refused"}, now_);
  Advance();
  EXPECT_THAT(waiting->told, ElementsAre("UNAVAILABLE"));
  EXPECT_EQ(Send(0)->message, "refused");
  router_->OnConnecting(Router::kOnlyNode);
  EXPECT_THAT(Send(0)->told, IsEmpty());
}

TEST_F(RouterServer, IsLeftWhenItIsAReplica) {
  Connect();
  const auto write = Send(0);
  AnswerError(*write, "READONLY You can't write");
  EXPECT_THAT(write->told, ElementsAre("READONLY You can't write"));
  EXPECT_THAT(dropped_, ElementsAre(Router::kOnlyNode));
}

TEST_F(RouterServer, OfAClusterIsAMistake) {
  Connect();
  const auto command = Send(0);
  AnswerError(*command, "MOVED 1 n1:1");
  EXPECT_THAT(command->told, ElementsAre("STORE_ERROR"));
  EXPECT_THAT(command->message, HasSubstr("mode=cluster"));
}

TEST_F(RouterServer, GetsWhatPausesWhenThePauseIsOver) {
  Connect();
  const auto paused = Send(0, 10ms);
  EXPECT_EQ(router_->NextWake(), now_ + 10ms);
  EXPECT_THAT(sent_, IsEmpty());
  Advance(10ms);
  EXPECT_EQ(sent_.size(), 1u);
  // A pause longer than the deadline.
  const auto late = Send(0, 2 * kTimeout);
  Advance(kTimeout);
  EXPECT_THAT(late->told, ElementsAre("UNAVAILABLE"));
}

TEST_F(RouterServer, AnswersAllWhenItIsStopped) {
  const auto waiting = Send(0);
  const auto paused = Send(0, 10ms);
  router_->Stop();
  Advance();
  EXPECT_THAT(left_, ElementsAre(Router::kOnlyNode));
  EXPECT_THAT(waiting->told, ElementsAre("UNAVAILABLE"));
  EXPECT_THAT(paused->told, ElementsAre("UNAVAILABLE"));
  EXPECT_EQ(Send(0)->message, "the store is closed");
}

TEST_F(RouterServer, SendsNothingAgainOnceItIsStopped) {
  Connect();
  const auto unsent = Send(0);
  const auto sent = Send(0);
  router_->Stop();
  Break(*sent, ErrorCode::kOutcomeUnknown);
  Break(*unsent, ErrorCode::kUnavailable);
  EXPECT_THAT(sent->told, ElementsAre("OUTCOME_UNKNOWN"));
  EXPECT_THAT(unsent->told, ElementsAre("UNAVAILABLE"));
  EXPECT_FALSE(unsent->sent());
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(RouterServer, ReconnectsToNobodyOnceItIsStopped) {
  Connect();
  const auto silent = Send(0);
  Advance(kTimeout);
  EXPECT_THAT(silent->told, ElementsAre("OUTCOME_UNKNOWN"));
  router_->Stop();
  Advance(10 * kTimeout);
  EXPECT_THAT(left_, ElementsAre(Router::kOnlyNode));
  EXPECT_THAT(dropped_, IsEmpty());
}

class RouterCluster : public RouterTest {};

TEST_F(RouterCluster, HoldsCommandsUntilTheFirstMap) {
  Make("redis://n0:1?mode=cluster");
  const auto early = Send(0);
  EXPECT_THAT(early->told, IsEmpty());
  router_->OnSlots(MapOf(2), now_);
  Advance();
  EXPECT_EQ(connected_.size(), 2u);
  Up(0);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].node, Node(0));
}

TEST_F(RouterCluster, FailsWithoutAMapAndAsksAgain) {
  Make("redis://n0:1?mode=cluster");
  const auto early = Send(0);
  router_->OnSlots(std::unexpected(Error{ErrorCode::kOutcomeUnknown, "no answer"}), now_);
  Advance();
  EXPECT_THAT(early->told, ElementsAre("UNAVAILABLE"));
  EXPECT_EQ(early->message, "no answer");
  EXPECT_EQ(asked_slots_, 1);
  Advance(1s);
  EXPECT_EQ(asked_slots_, 2);
  EXPECT_THAT(Send(0)->told, IsEmpty());  // It waits for the answer.
}

TEST_F(RouterCluster, FailsWhatNobodyServesAndAsksAgain) {
  Make("redis://n0:1?mode=cluster");
  SlotMap map = MapOf(1);
  map.owner[7] = SlotMap::kNobody;
  router_->OnSlots(map, now_);
  Advance();
  Up(0);
  EXPECT_EQ(Send(7)->message, "no master of the Cluster serves slot 7");
  Advance(100ms);
  EXPECT_EQ(asked_slots_, 2);
}

TEST_F(RouterCluster, FollowsASlotThatHasMoved) {
  MakeCluster(2);
  const auto command = Send(0);
  AnswerError(*command, "MOVED 0 n5:1");
  EXPECT_THAT(command->told, IsEmpty());
  EXPECT_EQ(sent_.size(), 1u);
  Up(5);
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].node, Node(5));
  EXPECT_FALSE(sent_[1].asking);
  Send(0);
  EXPECT_EQ(sent_[2].node, Node(5));
  Send(2);
  EXPECT_EQ(sent_[3].node, Node(0));
  Advance(100ms);
  EXPECT_EQ(asked_slots_, 2);
}

TEST_F(RouterCluster, AsksANodeThatASlotIsMovingTo) {
  MakeCluster(2);
  const auto command = Send(0);
  AnswerError(*command, "ASK 0 n1:1");
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].node, Node(1));
  EXPECT_TRUE(sent_[1].asking);
  Send(0);
  EXPECT_EQ(sent_[2].node, Node(0));
  EXPECT_FALSE(sent_[2].asking);
}

TEST_F(RouterCluster, DoesNotFollowForEver) {
  MakeCluster(2);
  const auto command = Send(0);
  for (int i = 0; i < 20 && command->told.empty(); ++i) {
    AnswerError(*command, text::Cat("MOVED 0 n", 1 - i % 2, ":1"));
  }
  EXPECT_EQ(sent_.size(), 17u);
  EXPECT_EQ(command->told.size(), 1u);
}

TEST_F(RouterCluster, DoesNotFollowWhatWasGivenUpButLearnsFromIt) {
  MakeCluster(2);
  const auto late = Send(0);
  Advance(kTimeout);
  AnswerError(*late, "MOVED 0 n1:1");
  EXPECT_THAT(late->told, ElementsAre("OUTCOME_UNKNOWN", "late"));
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_EQ(router_->OwnerOf(0), Node(1));
}

TEST_F(RouterCluster, DoesNotFollowWhatIsMeantForOneServer) {
  MakeCluster(2);
  const auto command = SendTo(NodeAddress(1));
  EXPECT_EQ(sent_[0].node, Node(1));
  AnswerError(*command, "MOVED 0 n0:1");
  EXPECT_THAT(command->told, ElementsAre("MOVED 0 n0:1"));
}

TEST_F(RouterCluster, AsksForTheMapWhenAServerIsOfNoUse) {
  for (const char* const error : {"READONLY", "CLUSTERDOWN", "LOADING"}) {
    asked_slots_ = 0;
    connected_.clear();
    MakeCluster(1);
    const auto command = Send(0);
    AnswerError(*command, error);
    EXPECT_THAT(command->told, ElementsAre(error));
    Advance(100ms);
    EXPECT_EQ(asked_slots_, 2) << error;
  }
}

TEST_F(RouterCluster, SendsToTheReplacementOfAMasterThatIsGone) {
  MakeCluster(2);
  const auto unsent = Send(0);
  const NodeId gone = Node(0);
  router_->OnLost(gone, now_);
  Break(*unsent, ErrorCode::kUnavailable);
  SlotMap map = MapOf(2);
  map.masters[0] = NodeAddress(9);
  Advance(50ms);
  router_->OnSlots(map, now_);
  Advance();
  EXPECT_THAT(left_, ElementsAre(gone));
  Up(9);
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].node, Node(9));
}

TEST_F(RouterCluster, LeavesAFormerMasterWhenItHasAnswered) {
  MakeCluster(2);
  const auto command = Send(1);
  router_->OnSlots(MapOf(1), now_);
  Advance();
  EXPECT_THAT(left_, IsEmpty());
  Answer(*command, "OK");
  router_->OnSlots(MapOf(1), now_);
  Advance();
  EXPECT_THAT(left_, ElementsAre(Node(1)));
  EXPECT_THAT(router_->Masters(), ElementsAre(NodeAddress(0)));
}

}  // namespace
}  // namespace sluice::redis
