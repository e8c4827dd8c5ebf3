// SPDX-License-Identifier: Apache-2.0
#include "http/response_writer.h"

#include <array>
#include <charconv>
#include <chrono>

#include "base/text.h"

namespace sluice::http {
namespace {

constexpr std::size_t kNumberBytesMax = 20;

class Writer {
 public:
  explicit Writer(char* to) : to_(to) {}

  void Put(std::string_view text) { to_ += text.copy(to_, text.size()); }
  void Put(std::size_t number) { to_ = std::to_chars(to_, to_ + kNumberBytesMax, number).ptr; }
  void PutTwoDigits(unsigned number) {
    *to_++ = static_cast<char>('0' + number / 10 % 10);
    *to_++ = static_cast<char>('0' + number % 10);
  }

  char* to() const { return to_; }

 private:
  char* to_;
};

std::string_view ConnectionLine(Delivery::Persistence persistence) {
  switch (persistence) {
    case Delivery::Persistence::kDefault:
      return "";
    case Delivery::Persistence::kKeepAlive:
      return "Connection: keep-alive\r\n";
    case Delivery::Persistence::kClose:
      return "Connection: close\r\n";
  }
  return "";
}

}  // namespace

void AppendResponse(std::string& out, const Response& response, const Delivery& delivery) {
  constexpr std::size_t kFixedBytesMax = 256;  // Everything not counted below.
  const std::string_view reason = ReasonPhrase(response.status);
  const bool has_content = response.status != 204 && response.status != 304;
  const std::string_view body = delivery.head_only || !has_content ? "" : response.body;
  const std::size_t before = out.size();
  const std::size_t size_max = before + kFixedBytesMax + reason.size() +
                               delivery.common_headers.size() + response.content_type.size() +
                               response.headers.size() + body.size();
  out.resize_and_overwrite(size_max, [&](char* start, std::size_t) {
    Writer writer(start + before);
    writer.Put("HTTP/1.1 ");
    writer.Put(static_cast<std::size_t>(response.status));
    writer.Put(" ");
    writer.Put(reason);
    writer.Put("\r\n");
    writer.Put(delivery.common_headers);
    if (!response.content_type.empty()) {
      writer.Put("Content-Type: ");
      writer.Put(response.content_type);
      writer.Put("\r\n");
    }
    if (has_content) {
      writer.Put("Content-Length: ");
      writer.Put(response.body.size());
      writer.Put("\r\n");
    }
    writer.Put(ConnectionLine(delivery.persistence));
    writer.Put(response.headers);
    writer.Put("\r\n");
    writer.Put(body);
    return writer.to() - start;
  });
}

std::string ErrorBody(std::string_view code, std::string_view message) {
  return text::Cat(R"({"error":{"code":")", code, R"(","message":")", message, R"("}})");
}

std::string HttpDate(TimePoint time) {
  using std::string_view;
  constexpr std::array<string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  const auto year = static_cast<unsigned>(static_cast<int>(date.year()));
  std::array<char, 29> text;
  Writer writer(text.data());
  writer.Put(kDays[std::chrono::weekday(day).c_encoding()]);
  writer.Put(", ");
  writer.PutTwoDigits(static_cast<unsigned>(date.day()));
  writer.Put(" ");
  writer.Put(kMonths[static_cast<unsigned>(date.month()) - 1]);
  writer.Put(" ");
  writer.PutTwoDigits(year / 100);
  writer.PutTwoDigits(year);
  writer.Put(" ");
  writer.PutTwoDigits(static_cast<unsigned>(clock.hours().count()));
  writer.Put(":");
  writer.PutTwoDigits(static_cast<unsigned>(clock.minutes().count()));
  writer.Put(":");
  writer.PutTwoDigits(static_cast<unsigned>(clock.seconds().count()));
  writer.Put(" GMT");
  return {text.data(), text.size()};
}

}  // namespace sluice::http
