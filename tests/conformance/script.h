// SPDX-License-Identifier: Apache-2.0
// The script alone, on a real server: one call at a time, and how the library interprets its reply.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <span>
#include <string>

#include "redis/client.h"
#include "store/redis/batch.h"
#include "store/redis/script.h"
#include "support/redis_server.h"

namespace sluice {

class ScriptTest : public testing::Test {
 protected:
  void SetUp() override {
    client_ = redis::Client::Create(server_.Uri("?timeout=60s&connect_timeout=60s")).value();
    Tell(redis::ProgramAs(redis::ProgramForm::kScript).load);
    Tell(redis::ProgramAs(redis::ProgramForm::kFunction).load);
  }

  // Sends a command of any bytes; returns the text of its reply.
  std::string Tell(std::string command) {
    std::promise<std::string> answer;
    client_->Send(std::move(command), "", [&](Expected<std::span<const redis::RespNode>> reply) {
      answer.set_value(reply ? std::string(reply->front().text) : reply.error().message);
    });
    return answer.get_future().get();
  }

  // Runs one task; its outcome is in the request.
  void Run(const redis::Task& task) { RunTogether({&task, 1}); }

  // Runs several in one call of the script. Those that are refused before that are left out.
  void RunTogether(std::span<const redis::Task> tasks) {
    redis::Batch batch;
    for (const redis::Task& task : tasks) {
      ASSERT_NE(batch.Add(task, "p", tasks.size()), redis::Batch::Added::kFull);
    }
    if (batch.empty()) return;
    std::string command;
    batch.AppendCommand(command, form_);
    std::promise<std::string> problem;
    client_->Send(command, "", [&](Expected<std::span<const redis::RespNode>> reply) {
      if (!reply) return problem.set_value(reply.error().message);
      if (reply->front().type == redis::RespType::kError) {
        return problem.set_value(std::string(reply->front().text));
      }
      const auto decoded = batch.Decode(*reply);
      problem.set_value(decoded ? "" : decoded.error().message);
    });
    ASSERT_EQ(problem.get_future().get(), "");
  }

  testing_support::RedisServer server_;
  std::unique_ptr<redis::Client> client_;
  redis::ProgramForm form_ = redis::ProgramForm::kFunction;
};

}  // namespace sluice
