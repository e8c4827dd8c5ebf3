// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sluice/error.h"
#include "sluice/store.h"

namespace sluice::replay {

// A request as it was recorded. Texts are valid until the next line is parsed.
struct Record {
  std::int64_t timestamp_us;
  std::string_view key;
  std::int64_t cost;

  // Only in JSON lines.
  Action action = Action::kCheck;
  bool names_op = false;
  std::string_view hold_id = {};  // Empty: of a hold without one, or of what has no hold.
  Micros ttl{0};
  OnExpiry on_expiry = OnExpiry::kCharge;
};

enum class Format { kDetect, kCsv, kJsonLines };

// Turns lines into records:
//   CSV         timestamp_us,key[,cost]; fields may be quoted; a header line may name and reorder
//               the columns, and then further columns are skipped
//   JSON lines  {"timestamp_us": 1, "key": "a", "cost": 1}; further members are skipped, except
//               "op" (check, hold, settle, release, extend, give, reset) with "id", "ttl_us" and
//               "on_expiry" (charge, release)
// Unless a format is given, the first valid line decides.
class RecordParser {
 public:
  explicit RecordParser(Format format = Format::kDetect) : format_(format) {}

  // Nothing for a blank line or a header. Errors, all kInvalidInput, name the field, its value and
  // what was expected.
  Expected<std::optional<Record>> Parse(std::string_view line);

 private:
  Expected<std::optional<Record>> ParseCsv(std::string_view line);
  Expected<std::optional<Record>> ParseJson(std::string_view line);
  Expected<void> SplitCsv(std::string_view line);
  bool ReadHeader();

  static constexpr std::size_t kFieldsMax = 64;
  static constexpr std::size_t kAbsent = kFieldsMax;

  Format format_;
  bool first_line_ = true;

  // CSV: which columns hold what, and the current line's fields.
  std::size_t timestamp_column_ = 0;
  std::size_t key_column_ = 1;
  std::size_t cost_column_ = 2;
  std::size_t columns_ = 0;  // In the header; 0 without one.
  std::array<std::string, kFieldsMax> fields_;
  std::size_t field_count_ = 0;

  std::string key_;
  std::string hold_id_;
};

}  // namespace sluice::replay
