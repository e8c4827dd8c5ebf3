// SPDX-License-Identifier: Apache-2.0
// The body of POST /api/v1/check.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "rules/context.h"
#include "sluice/error.h"

namespace sluice::api {

// A string, or null, which changes nothing. Error: kInvalidInput, which names the field.
Expected<void> ReadText(std::string_view& out, std::string_view name,
                        const boost::json::value& value);

std::unexpected<Error> InvalidDocument(std::string message);

// Views into a JSON document.
struct CheckDocument {
  std::string_view rule_set;
  std::int64_t permits = 1;
  rules::Context context;
  std::vector<rules::Attribute> attributes;  // What the context points to.

  // Whole numbers as ids or attributes become texts, in the JSON itself. Errors: kInvalidInput,
  // which names the field and what was expected; kInvalidKey for an identity that cannot be a key.
  // Unknown fields are errors: a misspelt one would silently select other rules.
  static Expected<CheckDocument> Read(boost::json::value& json);

  // Reads one of its fields. Returns false if there is no such field.
  Expected<bool> ReadField(std::string_view name, boost::json::value& member);

  // After the last field.
  void Finish() { context.attributes = attributes; }
};

// Parses a body; bounded in depth, each member once. Error: kInvalidInput.
Expected<boost::json::value> ParseJson(std::string_view body);

}  // namespace sluice::api
