// SPDX-License-Identifier: Apache-2.0
// Any bytes survive encoding and decoding; any query is read as a slow and simple reader reads it,
// or is refused.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/percent.h"
#include "base/text.h"
#include "net/url.h"

namespace {

using sluice::net::AppendDecoded;
using sluice::net::Plus;
using sluice::net::ReadQuery;
using sluice::net::WantedParameter;
using sluice::text::AppendPercentEncoded;
using sluice::text::Cat;
using sluice::text::IsUnreserved;

void Expect(bool condition) {
  if (!condition) __builtin_trap();
}

std::string Encoded(std::string_view text) {
  std::string out;
  AppendPercentEncoded(out, text, IsUnreserved);
  return out;
}

std::optional<std::string> PlainDecoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const std::string hex(text.substr(i + 1, 2));
    if (hex.size() != 2 || hex.find_first_not_of(kDigits) != std::string::npos) return std::nullopt;
    out += static_cast<char>(std::stoi(hex, nullptr, 16));
    i += 2;
  }
  return out;
}

// All values of the parameter, or nothing if the query must be refused.
std::optional<std::vector<std::string>> PlainValues(std::string_view query, std::string_view name) {
  std::vector<std::string> values;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= query.size();) {
    const std::size_t end = std::min(query.find('&', begin), query.size());
    const std::string_view piece = query.substr(begin, end - begin);
    begin = end + 1;
    if (piece.empty()) continue;
    if (++count > sluice::net::kQueryParametersMax) return std::nullopt;
    const std::size_t equals = std::min(piece.find('='), piece.size());
    const auto decoded_name = PlainDecoded(piece.substr(0, equals));
    const auto value = PlainDecoded(piece.substr(std::min(equals + 1, piece.size())));
    if (!decoded_name || !value) return std::nullopt;
    if (*decoded_name == name) values.push_back(*value);
  }
  return values;
}

void CheckQuery(std::string_view query) {
  std::array<WantedParameter, 2> wanted = {{{"key"}, {"a"}}};
  std::string scratch = "left over";
  const auto read = ReadQuery(query, wanted, scratch);
  bool expected = true;
  for (const WantedParameter& one : wanted) {
    const auto values = PlainValues(query, one.name);
    if (!values || values->size() > 1) {
      expected = false;
    } else if (read) {
      Expect(one.value.has_value() == !values->empty());
      Expect(!one.value || *one.value == values->front());
    }
  }
  Expect(read.has_value() == expected);
  Expect(read || (!read.error().message.empty() && read.error().message.size() < 1000));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Plus plus : {Plus::kPlus, Plus::kSpace}) {
    std::string back;
    Expect(AppendDecoded(back, Encoded(text), plus) && back == text);
    std::string decoded;
    const bool ok = AppendDecoded(decoded, text, plus);
    Expect(decoded.size() <= text.size());
    if (plus == Plus::kSpace) Expect(ok ? PlainDecoded(text) == decoded : !PlainDecoded(text));
  }

  CheckQuery(text);
  CheckQuery(Cat(text, "&key=1"));

  std::array<WantedParameter, 1> wanted = {{{text}}};
  std::string scratch;
  const std::string query = Cat(Encoded(text), "=", Encoded(text));
  Expect(ReadQuery(query, wanted, scratch) && wanted[0].value.value_or("") == text);
  return 0;
}
