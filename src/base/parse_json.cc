// SPDX-License-Identifier: Apache-2.0
#include "base/parse_json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace sluice {
namespace {

namespace json = boost::json;
using json::error_code;

// Builds the value from the parser's events, as Boost's own handler does, and keeps the member
// names of all open objects.
class Handler {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the parser asks for these names.
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();
  // NOLINTEND(readability-identifier-naming)

  explicit Handler(json::storage_ptr memory) { stack_.reset(std::move(memory)); }

  json::value Release() { return stack_.release(); }
  const std::string* repeated() const { return repeated_; }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open_.push_back(members_.size());
    return true;
  }
  bool on_object_end(std::size_t count, error_code& error) {
    const auto members = std::span(members_).subspan(open_.back());
    std::ranges::sort(members);
    if (const auto found = std::ranges::adjacent_find(members); found != members.end()) {
      repeated_ = &*found;
      error = json::error::syntax;
      return false;
    }
    members_.resize(open_.back());
    open_.pop_back();
    stack_.push_object(count);
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t count, error_code&) {
    stack_.push_array(count);
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, error_code&) {
    key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view rest, std::size_t, error_code&) {
    key_.append(rest.data(), rest.size());
    members_.push_back(std::exchange(key_, {}));
    stack_.push_key(rest);
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, error_code&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view rest, std::size_t, error_code&) {
    stack_.push_string(rest);
    return true;
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(std::int64_t number, json::string_view, error_code&) {
    stack_.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, json::string_view, error_code&) {
    stack_.push_uint64(number);
    return true;
  }
  bool on_double(double number, json::string_view, error_code&) {
    stack_.push_double(number);
    return true;
  }
  bool on_bool(bool value, error_code&) {
    stack_.push_bool(value);
    return true;
  }
  bool on_null(error_code&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

 private:
  json::value_stack stack_;
  std::string key_;                   // The one being read.
  std::vector<std::string> members_;  // Of one open object after another.
  std::vector<std::size_t> open_;     // Where the members of each begin.
  const std::string* repeated_ = nullptr;
};

}  // namespace

Expected<json::value> ParseJson(std::string_view text, std::size_t depth_max,
                                json::storage_ptr memory) {
  json::parse_options options;
  options.max_depth = depth_max;
  json::basic_parser<Handler> parser(options, std::move(memory));
  error_code error;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), error);
  if (!error && read < text.size()) error = json::error::extra_data;
  if (!error) return parser.handler().Release();
  const auto fail = [](std::string message) {
    return std::unexpected(Error{ErrorCode::kInvalidInput, std::move(message)});
  };
  if (const std::string* const repeated = parser.handler().repeated()) {
    return fail(text::Cat("member ", text::Quote(*repeated), " is given twice; expected it once"));
  }
  if (error == json::error::too_deep) {
    return fail(text::Cat("expected at most ", depth_max, " levels of lists and objects"));
  }
  return fail(text::Cat("not JSON: ", error.message()));
}

}  // namespace sluice
