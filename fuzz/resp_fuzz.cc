// SPDX-License-Identifier: Apache-2.0
// However any bytes are split, they are the same messages, the same wait or the same error. The
// first byte selects the limits and how many lengths follow, which split the rest over and over.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "redis/resp.h"

namespace {

using sluice::redis::RespLimits;
using sluice::redis::RespNode;
using sluice::redis::RespParser;
using sluice::redis::RespType;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

struct Node {
  RespType type;
  std::int64_t number;
  std::string text;
  bool operator==(const Node&) const = default;
};

struct Outcome {
  std::vector<std::vector<Node>> messages;
  std::vector<std::size_t> consumed;
  RespParser::Status last{};
  std::string error;
  bool operator==(const Outcome&) const = default;
};

// The nodes are exactly one value with everything in it, within the limits, and their texts are
// within what was consumed.
std::vector<Node> Checked(const RespParser& parser, std::string_view bytes,
                          const RespLimits& limits) {
  Expect(parser.consumed() > 0 && parser.consumed() <= bytes.size());
  Expect(parser.nodes().size() <= limits.nodes_max);
  std::vector<Node> nodes;
  std::vector<std::int64_t> due = {1};
  for (const RespNode& node : parser.nodes()) {
    while (due.back() == 0) due.pop_back();
    Expect(!due.empty());
    --due.back();
    Expect(node.text.size() <= limits.text_bytes_max);
    if (!node.text.empty()) {
      Expect(node.text.data() > bytes.data());
      Expect(node.text.data() + node.text.size() < bytes.data() + parser.consumed());
    }
    if (node.type >= RespType::kArray) {
      Expect(node.number >= 0);
      due.push_back(node.number);
      Expect(due.size() - 1 <= limits.depth_max);
    }
    nodes.push_back({node.type, node.number, std::string(node.text)});
  }
  for (const std::int64_t left : due) Expect(left == 0);
  return nodes;
}

// Without lengths: all at once. Every call sees its own buffer, so that nothing can be kept of the
// one before and nothing read past its end.
Outcome Run(std::string_view stream, std::string_view lengths, const RespLimits& limits) {
  RespParser parser(limits);
  Outcome outcome;
  std::size_t start = 0;
  std::size_t fed = lengths.empty() ? stream.size() : 0;
  for (std::size_t turn = 0;; ++turn) {
    const std::size_t size = fed - start;
    const std::unique_ptr<char[]> copy(new char[size]);
    stream.copy(copy.get(), size, start);
    const std::string_view bytes(copy.get(), size);
    outcome.last = parser.Parse(bytes);
    if (outcome.last == RespParser::Status::kMessage) {
      outcome.messages.push_back(Checked(parser, bytes, limits));
      outcome.consumed.push_back(parser.consumed());
      start += parser.consumed();
      continue;
    }
    outcome.error = parser.error();
    Expect(outcome.error.empty() == (outcome.last == RespParser::Status::kIncomplete));
    Expect(outcome.error.size() < 200);
    if (!outcome.error.empty() || fed == stream.size()) return outcome;
    const auto length = static_cast<std::uint8_t>(lengths[turn % lengths.size()]);
    fed += std::min<std::size_t>(stream.size() - fed, std::size_t{length} + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Every call copies, which is quadratic in what is not consumed.
  if (size == 0 || size > 4096) return 0;
  std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const RespLimits limits = data[0] % 2 == 0
                                ? RespLimits{}
                                : RespLimits{.text_bytes_max = 8, .nodes_max = 9, .depth_max = 2};
  const std::string_view lengths = stream.substr(0, data[0] / 2 % 16);
  stream.remove_prefix(lengths.size());

  const Outcome whole = Run(stream, {}, limits);
  Expect(Run(stream, std::string_view("\0", 1), limits) == whole);
  if (!lengths.empty()) Expect(Run(stream, lengths, limits) == whole);
  return 0;
}
