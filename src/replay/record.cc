// SPDX-License-Identifier: Apache-2.0
#include "replay/record.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <limits>
#include <utility>

#include "base/parse_json.h"
#include "base/text.h"
#include "sluice/time.h"

namespace sluice::replay {
namespace {

std::unexpected<Error> Bad(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

// `text` is the original, used only in the message.
Expected<std::int64_t> CheckTimestamp(std::optional<std::int64_t> value, std::string_view text) {
  const std::int64_t max = kTimeMax.time_since_epoch().count();
  if (value && *value >= 0 && *value <= max) return *value;
  return Bad(text::Cat("timestamp_us ", text::Quote(text),
                       ": expected whole microseconds since the epoch, 0 to ", max));
}

Expected<std::int64_t> CheckCost(std::optional<std::int64_t> value, std::string_view text) {
  if (value && *value >= 0) return *value;
  return Bad(text::Cat("cost ", text::Quote(text), ": expected a whole number, 0 to ",
                       std::numeric_limits<std::int64_t>::max()));
}

std::optional<std::int64_t> IntegerOf(const boost::json::value& value) {
  if (value.is_int64()) return value.get_int64();
  return std::nullopt;  // A uint64 here exceeds int64, and a double is not an integer.
}

struct Op {
  std::string_view name;
  Action action;
};

constexpr std::array kOps = {
    Op{"check", Action::kCheck},    Op{"hold", Action::kHold},     Op{"settle", Action::kSettle},
    Op{"release", Action::kSettle}, Op{"extend", Action::kExtend}, Op{"give", Action::kGive},
    Op{"reset", Action::kReset},
};

// The text of a member; empty if it is absent or null.
Expected<std::string_view> TextIn(const boost::json::object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  if (!value || value->is_null()) return std::string_view();
  if (value->is_string()) return std::string_view(value->get_string());
  return Bad(
      text::Cat(name, " ", text::Quote(boost::json::serialize(*value)), ": expected a string"));
}

// What a line says besides time, key and cost. `hold_id` keeps the text of the id.
Expected<void> ReadOp(const boost::json::object& object, Record& record, std::string& hold_id) {
  const auto op = TextIn(object, "op");
  if (!op) return std::unexpected(op.error());
  if (op->empty()) return {};
  const auto* const known = std::ranges::find(kOps, *op, &Op::name);
  if (known == kOps.end()) {
    return Bad(text::Cat("op ", text::Quote(*op),
                         ": expected check, hold, settle, release, extend, give or reset"));
  }
  record.names_op = true;
  record.action = known->action;
  if (*op == "release") record.cost = 0;
  const auto id = TextIn(object, "id");
  if (!id) return std::unexpected(id.error());
  hold_id = *id;
  record.hold_id = hold_id;
  const bool ends = record.action == Action::kSettle || record.action == Action::kExtend;
  if (ends && hold_id.empty()) return Bad(text::Cat(*op, " needs the id of a hold"));
  if (const auto* ttl = object.if_contains("ttl_us"); ttl && !ttl->is_null()) {
    const auto value = IntegerOf(*ttl);
    if (!value || *value < kHoldTtlMin.count() || *value > kHoldTtlMax.count()) {
      return Bad(text::Cat("ttl_us ", boost::json::serialize(*ttl),
                           ": expected whole microseconds, ", kHoldTtlMin.count(), " to ",
                           kHoldTtlMax.count()));
    }
    record.ttl = Micros{*value};
  }
  const auto on_expiry = TextIn(object, "on_expiry");
  if (!on_expiry) return std::unexpected(on_expiry.error());
  if (!on_expiry->empty() && *on_expiry != "charge" && *on_expiry != "release") {
    return Bad(text::Cat("on_expiry ", text::Quote(*on_expiry), ": expected charge or release"));
  }
  record.on_expiry = *on_expiry == "release" ? OnExpiry::kRelease : OnExpiry::kCharge;
  return {};
}

}  // namespace

Expected<std::optional<Record>> RecordParser::Parse(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (first_line_ && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  if (text::Trim(line).empty()) return std::nullopt;
  Format format = format_;
  if (format == Format::kDetect) {
    format = text::Trim(line).starts_with('{') ? Format::kJsonLines : Format::kCsv;
  }
  auto record = format == Format::kCsv ? ParseCsv(line) : ParseJson(line);
  // A bad line decides nothing: later ones may have the other format.
  if (record) format_ = format;
  first_line_ = false;
  return record;
}

// Splits into fields_, undoing quotes: "a ""b"", c" is one field.
Expected<void> RecordParser::SplitCsv(std::string_view line) {
  field_count_ = 0;
  while (true) {
    if (field_count_ == kFieldsMax) return Bad(text::Cat("more than ", kFieldsMax, " fields"));
    std::string& field = fields_[field_count_++];
    field.clear();
    if (line.starts_with('"')) {
      line.remove_prefix(1);
      while (true) {
        const auto quote = line.find('"');
        if (quote == std::string_view::npos) return Bad("a quote is not closed on its line");
        field += line.substr(0, quote);
        line.remove_prefix(quote + 1);
        if (!line.starts_with('"')) break;
        field += '"';
        line.remove_prefix(1);
      }
      if (!line.empty() && line.front() != ',') {
        return Bad("text follows a closing quote; expected a comma or the end of the line");
      }
    } else {
      field = line.substr(0, line.find(','));
      line.remove_prefix(field.size());
    }
    if (line.empty()) return {};
    line.remove_prefix(1);
  }
}

bool RecordParser::ReadHeader() {
  std::size_t timestamp = kAbsent;
  std::size_t key = kAbsent;
  std::size_t cost = kAbsent;
  for (std::size_t i = 0; i < field_count_; ++i) {
    const std::string_view name = text::Trim(fields_[i]);
    if (text::EqualsIgnoreCase(name, "timestamp_us")) timestamp = i;
    if (text::EqualsIgnoreCase(name, "key")) key = i;
    if (text::EqualsIgnoreCase(name, "cost")) cost = i;
  }
  if (timestamp == kAbsent || key == kAbsent) return false;
  timestamp_column_ = timestamp;
  key_column_ = key;
  cost_column_ = cost;
  columns_ = field_count_;
  return true;
}

Expected<std::optional<Record>> RecordParser::ParseCsv(std::string_view line) {
  if (const auto split = SplitCsv(line); !split) return std::unexpected(split.error());
  if (first_line_ && ReadHeader()) return std::nullopt;
  const bool only_cost_is_missing = field_count_ + 1 == columns_ && field_count_ == cost_column_;
  if (columns_ > 0 && field_count_ != columns_ && !only_cost_is_missing) {
    return Bad(text::Cat(field_count_, " fields; expected ", columns_, " as in the header"));
  }
  if (columns_ == 0 && (field_count_ < 2 || field_count_ > 3)) {
    return Bad(text::Cat(field_count_, field_count_ == 1 ? " field" : " fields",
                         "; expected timestamp_us,key[,cost]"));
  }
  const std::string_view time_text = text::Trim(fields_[timestamp_column_]);
  const auto timestamp = CheckTimestamp(text::ParseInteger(time_text), time_text);
  if (!timestamp) return std::unexpected(timestamp.error());

  // An empty field means no cost.
  const std::string_view cost_text =
      cost_column_ < field_count_ ? text::Trim(fields_[cost_column_]) : std::string_view();
  const auto cost = cost_text.empty() ? 1 : CheckCost(text::ParseInteger(cost_text), cost_text);
  if (!cost) return std::unexpected(cost.error());
  return Record{.timestamp_us = *timestamp, .key = fields_[key_column_], .cost = *cost};
}

Expected<std::optional<Record>> RecordParser::ParseJson(std::string_view line) {
  constexpr std::size_t kDepthMax = 32;
  boost::json::monotonic_resource memory;
  const auto value = sluice::ParseJson(line, kDepthMax, &memory);
  if (!value) return std::unexpected(value.error());
  const auto* object = value->if_object();
  if (!object) {
    return Bad(R"(expected an object such as {"timestamp_us": 1, "key": "a", "cost": 1})");
  }
  const auto* timestamp_value = object->if_contains("timestamp_us");
  const auto* key_value = object->if_contains("key");
  if (!timestamp_value || !key_value) {
    return Bad(text::Cat(timestamp_value ? "key" : "timestamp_us", " is missing"));
  }
  const auto timestamp =
      CheckTimestamp(IntegerOf(*timestamp_value), boost::json::serialize(*timestamp_value));
  if (!timestamp) return std::unexpected(timestamp.error());
  if (!key_value->is_string()) {
    return Bad(
        text::Cat("key ", text::Quote(boost::json::serialize(*key_value)), ": expected a string"));
  }
  key_ = std::string_view(key_value->get_string());

  std::int64_t cost = 1;
  if (const auto* cost_value = object->if_contains("cost"); cost_value && !cost_value->is_null()) {
    const auto checked = CheckCost(IntegerOf(*cost_value), boost::json::serialize(*cost_value));
    if (!checked) return std::unexpected(checked.error());
    cost = *checked;
  }
  Record record{.timestamp_us = *timestamp, .key = key_, .cost = cost};
  if (auto op = ReadOp(*object, record, hold_id_); !op) return std::unexpected(op.error());
  return record;
}

}  // namespace sluice::replay
