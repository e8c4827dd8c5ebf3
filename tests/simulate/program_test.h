// SPDX-License-Identifier: Apache-2.0
// Tests of the store's program in each of its forms, as LuaRedis runs it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/traffic.h"
#include "simulate/lua_redis.h"
#include "store/redis/script.h"

namespace sluice::simulate {

class ProgramTest : public testing::TestWithParam<redis::ProgramForm> {
 protected:
  ProgramTest() {
    const bool is_function = GetParam() == redis::ProgramForm::kFunction;
    Execute({is_function ? "FUNCTION" : "SCRIPT", "LOAD", redis::ProgramAs(GetParam()).source});
  }

  std::string Execute(const std::vector<std::string>& words) {
    return redis_.Execute(words, now_us_);
  }

  LuaRedis redis_;
  std::int64_t now_us_ = kStartUs;
};

}  // namespace sluice::simulate
