// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "redis/resp.h"
#include "service/service_metrics.h"
#include "sluice/error.h"

namespace sluice::resp {

enum class Protocol : std::uint8_t { kResp2 = 2, kResp3 = 3 };

// Appends replies in the peer's protocol: types that RESP2 lacks are converted as Redis does it.
// Aggregates announce how many elements follow.
class ReplyWriter {
 public:
  ReplyWriter(std::string& out, Protocol protocol, const service::ServiceMetrics& metrics)
      : out_(out), protocol_(protocol), metrics_(metrics) {}

  void Ok() { out_ += "+OK\r\n"; }
  void Simple(std::string_view text) { redis::AppendSimpleString(out_, text); }
  void Bulk(std::string_view text) { redis::AppendBulkString(out_, text); }
  // Text for people.
  void Verbatim(std::string_view text) {
    IsResp3() ? redis::AppendVerbatimString(out_, text) : redis::AppendBulkString(out_, text);
  }
  void Integer(std::int64_t number) { redis::AppendInteger(out_, number); }
  void Null() { out_ += IsResp3() ? "_\r\n" : "$-1\r\n"; }
  void Array(std::size_t elements) { redis::AppendArrayHeader(out_, elements); }
  void Map(std::size_t pairs) {
    IsResp3() ? redis::AppendMapHeader(out_, pairs) : redis::AppendArrayHeader(out_, 2 * pairs);
  }
  void Set(std::size_t elements) {
    IsResp3() ? redis::AppendSetHeader(out_, elements) : redis::AppendArrayHeader(out_, elements);
  }

  // Starts with its code, such as "ERR no such thing".
  void Error(std::string_view text) {
    metrics_.Failed(text.substr(0, text.find(' ')));
    redis::AppendError(out_, text);
  }

  // "UNAVAILABLE ..." and so on for what the store could not do, COST_EXCEEDS_LIMIT, and ERR for
  // everything else that is wrong with the request.
  void Error(const sluice::Error& error);

  void Field(std::string_view name, std::int64_t value) {
    Bulk(name);
    Integer(value);
  }
  void Field(std::string_view name, std::string_view value) {
    Bulk(name);
    Bulk(value);
  }

 private:
  bool IsResp3() const { return protocol_ == Protocol::kResp3; }

  std::string& out_;
  const Protocol protocol_;
  const service::ServiceMetrics& metrics_;
};

}  // namespace sluice::resp
