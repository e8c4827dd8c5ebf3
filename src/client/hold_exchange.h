// SPDX-License-Identifier: Apache-2.0
// What is said about holds over HTTP, as docs/reference/http-api.md has it. No I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/hold_run.h"
#include "sluice/error.h"
#include "sluice/time.h"

namespace sluice::client {

// What to hold: a limit and a key, or a rule set and a context.
struct HoldWish {
  std::string limit = {};
  std::string key = {};
  std::string rule_set = {};
  std::vector<std::pair<std::string, std::string>> context = {};
  std::int64_t permits = 1;
  Micros ttl{0};
};

// "userId=ann". Names that a context does not have are those of attributes. Error: kInvalidInput.
Expected<std::pair<std::string, std::string>> ParseContext(std::string_view text);

struct Response {
  int status = 0;
  std::string body = {};
};

// The body of POST /api/v1/holds.
std::string MakeBody(const HoldWish& wish, std::string_view id);

// Its answer, with what ends the hold if it was made.
struct Made {
  Answer answer = {};
  std::string ticket = {};
};
Made ReadMade(const Response& response);

// The body of POST /api/v1/holds/{id}/extend, and its answer or that of what ends a hold.
std::string ExtendBody(const HoldWish& wish);
Answer ReadChanged(const Response& response);

}  // namespace sluice::client
