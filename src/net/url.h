// SPDX-License-Identifier: Apache-2.0
// Request targets and hosts: percent-encoding, query strings, names. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice::net {

inline constexpr std::size_t kQueryParametersMax = 64;

enum class Plus : std::uint8_t { kPlus, kSpace };  // What '+' means: in paths; in queries.

// Appends `text` with each %XX replaced by its byte. Returns false if a '%' is not followed by two
// hexadecimal digits; `out` then ends with what came before it.
[[nodiscard]] bool AppendDecoded(std::string& out, std::string_view text, Plus plus);

// The canonical name of a host: `Shop.example.:80` is `shop.example`.
std::string HostName(std::string_view host);

// One name=value of a query, not decoded.
struct RawParameter {
  std::string_view name;
  std::string_view value;  // Empty also if there is no '='.
};

// Iterates over name=value&name=value. Skips empty pieces.
class QueryReader {
 public:
  explicit QueryReader(std::string_view query) : rest_(query) {}
  std::optional<RawParameter> Next();

 private:
  std::string_view rest_;
};

// A parameter to look for, and its value. Values are decoded; they point into the query or into the
// scratch text, and are valid as long as both are.
struct WantedParameter {
  std::string_view name;
  std::optional<std::string_view> value = {};
};

// Finds all wanted parameters in one pass; others are ignored. A wanted parameter given twice is an
// error, because a proxy before us may have looked at the other one. So are a bad %XX anywhere and
// more than kQueryParametersMax parameters. Error: kInvalidInput. Allocates only if something must
// be decoded; `scratch` is overwritten.
Expected<void> ReadQuery(std::string_view query, std::span<WantedParameter> wanted,
                         std::string& scratch);

}  // namespace sluice::net
