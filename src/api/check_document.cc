// SPDX-License-Identifier: Apache-2.0
#include "api/check_document.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "api/permits.h"
#include "base/parse_json.h"
#include "base/text.h"

namespace sluice::api {
namespace {

namespace json = boost::json;

// Many databases use numbers as ids. Those that a double cannot hold exactly are refused: two of
// them could become one.
std::optional<std::string> WholeNumber(const json::value& value) {
  constexpr double kExactMax = 9'007'199'254'740'991.0;  // 2^53 - 1
  if (value.is_int64()) return std::to_string(value.get_int64());
  if (value.is_uint64()) return std::to_string(value.get_uint64());
  if (!value.is_double()) return std::nullopt;
  const double number = value.get_double();
  if (std::abs(number) > kExactMax || std::trunc(number) != number) return std::nullopt;
  return std::to_string(static_cast<std::int64_t>(number));
}

constexpr std::string_view kIdExpected = ": expected a string or a whole number";

// A text, or a whole number, which becomes one in place; otherwise nothing.
std::optional<std::string_view> IdOf(json::value& value) {
  if (value.is_number()) {
    if (const auto number = WholeNumber(value)) value = *number;
  }
  if (!value.is_string()) return std::nullopt;
  return value.get_string();
}

Expected<void> ReadId(std::string_view& out, std::string_view name, json::value& value) {
  if (value.is_null()) return {};
  const auto id = IdOf(value);
  if (!id) return InvalidDocument(text::Cat(name, kIdExpected));
  out = *id;
  return {};
}

// Budgets are kept under it, so the rules for keys apply.
Expected<void> CheckIdentity(std::string_view name, std::string_view value) {
  if (std::ranges::none_of(value, [](unsigned char c) { return c < ' ' || c == 0x7f; })) return {};
  return std::unexpected(Error{
      ErrorCode::kInvalidKey,
      text::Cat(name, " ", text::Quote(value), ": expected a text without control characters")});
}

Expected<void> ReadAttributes(CheckDocument& document, json::value& value) {
  if (value.is_null()) return {};
  if (!value.is_object() || value.get_object().size() > rules::kAttributesMax) {
    return InvalidDocument(text::Cat("context.attributes: expected an object of at most ",
                                     rules::kAttributesMax, " strings or whole numbers"));
  }
  for (auto& member : value.get_object()) {
    const std::string_view name = member.key();
    const auto id = IdOf(member.value());
    if (!id)
      return InvalidDocument(text::Cat("context.attributes.", text::Quote(name), kIdExpected));
    document.attributes.push_back({name, *id});
  }
  return {};
}

Expected<void> ReadContext(CheckDocument& document, json::value& value) {
  if (value.is_null()) return {};
  if (!value.is_object()) return InvalidDocument("context: expected an object");
  rules::Context& context = document.context;
  for (auto& pair : value.get_object()) {
    const std::string_view name = pair.key();
    json::value& member = pair.value();
    Expected<void> read;
    if (name == "ip") {
      read = ReadText(context.ip, "context.ip", member);
    } else if (name == "userId") {
      read = ReadId(context.user_id, "context.userId", member);
    } else if (name == "apiKey") {
      read = ReadId(context.api_key, "context.apiKey", member);
    } else if (name == "method") {
      read = ReadText(context.method, "context.method", member);
    } else if (name == "path") {
      // An empty path is a path, too.
      std::string_view path;
      read = ReadText(path, "context.path", member);
      if (!member.is_null()) context.path = path;
    } else if (name == "attributes") {
      read = ReadAttributes(document, member);
    } else {
      return InvalidDocument(
          text::Cat("context has no field ", text::Quote(name),
                    "; expected ip, userId, apiKey, method, path or attributes"));
    }
    if (!read) return read;
  }
  if (auto valid = CheckIdentity("context.ip", context.ip); !valid) return valid;
  if (auto valid = CheckIdentity("context.userId", context.user_id); !valid) return valid;
  return CheckIdentity("context.apiKey", context.api_key);
}

}  // namespace

std::unexpected<Error> InvalidDocument(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

Expected<void> ReadText(std::string_view& out, std::string_view name, const json::value& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return InvalidDocument(text::Cat(name, ": expected a string"));
  out = value.get_string();
  return {};
}

Expected<bool> CheckDocument::ReadField(std::string_view name, json::value& member) {
  Expected<void> read;
  if (name == "ruleSet") {
    read = ReadText(rule_set, "ruleSet", member);
  } else if (name == "permits") {
    if (!member.is_int64() || member.get_int64() < 0) {
      return InvalidDocument(text::Cat("permits: ", kPermitsExpected));
    }
    permits = member.get_int64();
  } else if (name == "context") {
    read = ReadContext(*this, member);
  } else {
    return false;
  }
  if (!read) return std::unexpected(std::move(read.error()));
  return true;
}

Expected<CheckDocument> CheckDocument::Read(json::value& value) {
  if (!value.is_object())
    return InvalidDocument("expected an object such as {\"ruleSet\": \"api\"}");
  CheckDocument document;
  for (auto& pair : value.get_object()) {
    const auto read = document.ReadField(pair.key(), pair.value());
    if (!read) return std::unexpected(read.error());
    if (!*read) {
      return InvalidDocument(text::Cat("there is no field ", text::Quote(pair.key()),
                                       "; expected ruleSet, permits or context"));
    }
  }
  if (document.rule_set.empty()) return InvalidDocument("ruleSet: expected the id of a rule set");
  document.Finish();
  return document;
}

Expected<json::value> ParseJson(std::string_view body) {
  constexpr std::size_t kDepthMax = 16;
  auto value = sluice::ParseJson(body, kDepthMax);
  if (!value) return InvalidDocument(text::Cat("the body: ", value.error().message));
  return value;
}

}  // namespace sluice::api
