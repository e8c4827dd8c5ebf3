// SPDX-License-Identifier: Apache-2.0
#include "api/check_document.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/permits.h"
#include "core/parse_json.h"
#include "core/text.h"

namespace sluice::api {
namespace {

namespace json = boost::json;

std::unexpected<Error> Invalid(std::string message) {
  return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
}

Expected<void> ReadText(std::string_view& out, std::string_view name, const json::value& value) {
  if (value.is_null()) return {};
  if (!value.is_string()) return Invalid(text::Cat(name, ": expected a string"));
  out = value.get_string();
  return {};
}

// Budgets are kept under it, so it is held to what keys are held to elsewhere.
Expected<void> CheckIdentity(std::string_view name, std::string_view value) {
  if (std::ranges::none_of(value, [](unsigned char c) { return c < ' ' || c == 0x7f; })) return {};
  return std::unexpected(Error{
      ErrorCode::kInvalidKey,
      text::Cat(name, " ", text::Quote(value), ": expected a text without control characters")});
}

Expected<void> ReadAttributes(CheckDocument& document, const json::value& value) {
  if (value.is_null()) return {};
  if (!value.is_object() || value.get_object().size() > kAttributesMax) {
    return Invalid(text::Cat("context.attributes: expected an object of at most ", kAttributesMax,
                             " strings"));
  }
  for (const auto& [name, attribute] : value.get_object()) {
    if (!attribute.is_string()) {
      return Invalid(text::Cat("context.attributes.", text::Quote(name), ": expected a string"));
    }
    document.attributes.push_back({name, std::string_view(attribute.get_string())});
  }
  return {};
}

Expected<void> ReadContext(CheckDocument& document, const json::value& value) {
  if (value.is_null()) return {};
  if (!value.is_object()) return Invalid("context: expected an object");
  rules::Context& context = document.context;
  const std::array fields = {std::pair(std::string_view("ip"), &context.ip),
                             std::pair(std::string_view("userId"), &context.user_id),
                             std::pair(std::string_view("apiKey"), &context.api_key),
                             std::pair(std::string_view("method"), &context.method)};
  for (const auto& [name, member] : value.get_object()) {
    if (name == "attributes") {
      if (auto read = ReadAttributes(document, member); !read) return read;
      continue;
    }
    if (name == "path") {
      // One that is empty is a path all the same.
      std::string_view path;
      if (auto read = ReadText(path, "context.path", member); !read) return read;
      if (!member.is_null()) context.path = path;
      continue;
    }
    bool known = false;
    for (const auto& [field, out] : fields) {
      if (field != std::string_view(name)) continue;
      known = true;
      if (auto read = ReadText(*out, text::Cat("context.", field), member); !read) return read;
    }
    if (!known) {
      return Invalid(text::Cat("context has no field ", text::Quote(name),
                               "; expected ip, userId, apiKey, method, path or attributes"));
    }
  }
  if (auto valid = CheckIdentity("context.ip", context.ip); !valid) return valid;
  if (auto valid = CheckIdentity("context.userId", context.user_id); !valid) return valid;
  return CheckIdentity("context.apiKey", context.api_key);
}

}  // namespace

Expected<CheckDocument> CheckDocument::Read(const json::value& value) {
  if (!value.is_object()) return Invalid("expected an object such as {\"ruleSet\": \"api\"}");
  CheckDocument document;
  for (const auto& [name, member] : value.get_object()) {
    Expected<void> read;
    if (name == "ruleSet") {
      read = ReadText(document.rule_set, "ruleSet", member);
    } else if (name == "permits") {
      if (!member.is_int64() || member.get_int64() < 0) {
        return Invalid(text::Cat("permits: ", kPermitsExpected));
      }
      document.permits = member.get_int64();
    } else if (name == "context") {
      read = ReadContext(document, member);
    } else {
      return Invalid(text::Cat("there is no field ", text::Quote(name),
                               "; expected ruleSet, permits or context"));
    }
    if (!read) return std::unexpected(read.error());
  }
  if (document.rule_set.empty()) return Invalid("ruleSet: expected the id of a rule set");
  document.context.attributes = document.attributes;
  return document;
}

Expected<json::value> ParseJson(std::string_view body) {
  constexpr std::size_t kDepthMax = 16;
  auto value = core::ParseJson(body, kDepthMax);
  if (!value) return Invalid(text::Cat("the body: ", value.error().message));
  return value;
}

}  // namespace sluice::api
