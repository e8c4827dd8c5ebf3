// SPDX-License-Identifier: Apache-2.0
// Appends JSON to a string. The result is valid whatever bytes the texts hold.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hex.h"
#include "base/utf8.h"

namespace sluice {

// Appends the digits of a whole number without allocating for them.
template <std::integral Number>
void AppendNumber(std::string& out, Number number) {
  std::array<char, 24> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  out.append(digits.data(), static_cast<std::size_t>(end - digits.data()));
}

// Appends what goes between the quotes of a JSON string. Bytes that are not UTF-8 become U+FFFD.
void AppendJsonEscaped(std::string& out, std::string_view text);

// Like AppendJsonEscaped, but for arbitrary bytes, such as a key: no two of them look alike. A byte
// that is not UTF-8 becomes U+FFFD and its two hexadecimal digits, and so does each byte of U+FFFD
// itself.
void AppendJsonBytes(std::string& out, std::string_view bytes);

//   JsonWriter json(body);
//   json.BeginObject().Field("allowed", true).Field("remaining", 9).Key("rules").BeginArray();
//   json.String("per-ip").EndArray().EndObject();
//
// It places the commas. The caller must end what it began, and give objects keys. Holds only a
// reference to the string.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }

  JsonWriter& Key(std::string_view name) {
    Quoted(name);
    out_ += ':';
    comma_ = false;
    return *this;
  }

  JsonWriter& String(std::string_view text) {
    Quoted(text);
    comma_ = true;
    return *this;
  }

  // Like AppendJsonBytes.
  JsonWriter& Bytes(std::string_view bytes) {
    Separate();
    out_ += '"';
    AppendJsonBytes(out_, bytes);
    out_ += '"';
    return *this;
  }

  template <std::integral Type>
    requires(!std::same_as<Type, char> && !std::same_as<Type, bool>)
  JsonWriter& Number(Type number) {
    Separate();
    AppendNumber(out_, number);
    return *this;
  }

  JsonWriter& Bool(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Null() { return Raw("null"); }

  // One value that is already JSON.
  JsonWriter& Raw(std::string_view json) {
    Separate();
    out_ += json;
    return *this;
  }

  JsonWriter& Field(std::string_view name, std::string_view text) { return Key(name).String(text); }
  JsonWriter& BytesField(std::string_view name, std::string_view bytes) {
    return Key(name).Bytes(bytes);
  }
  JsonWriter& Field(std::string_view name, const char* text) { return Key(name).String(text); }
  JsonWriter& Field(std::string_view name, std::same_as<bool> auto value) {
    return Key(name).Bool(value);
  }
  template <std::integral Type>
    requires(!std::same_as<Type, char> && !std::same_as<Type, bool>)
  JsonWriter& Field(std::string_view name, Type number) {
    return Key(name).Number(number);
  }

 private:
  void Separate() {
    if (comma_) out_ += ',';
    comma_ = true;
  }
  JsonWriter& Begin(char bracket) {
    Separate();
    out_ += bracket;
    comma_ = false;
    return *this;
  }
  JsonWriter& End(char bracket) {
    out_ += bracket;
    comma_ = true;
    return *this;
  }
  void Quoted(std::string_view text) {
    Separate();
    out_ += '"';
    AppendJsonEscaped(out_, text);
    out_ += '"';
  }

  std::string& out_;
  bool comma_ = false;  // Whether the next value or key follows another one.
};

namespace internal {

// Whether a byte goes into a JSON string unchanged.
inline constexpr auto kJsonPlain = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

enum class NotUtf8 : std::uint8_t { kReplaced, kToldApart };

template <NotUtf8 not_utf8>
void AppendEscaped(std::string& out, std::string_view text) {
  constexpr bool kToldApart = not_utf8 == NotUtf8::kToldApart;
  std::size_t run = 0;  // Where the bytes that are copied unchanged begin.
  std::size_t i = 0;
  const auto flush = [&] { out.append(text.substr(run, i - run)); };
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (internal::kJsonPlain[byte]) {
      ++i;
      continue;
    }
    const std::string_view rest = text.substr(i);
    if (const std::size_t length = byte < 0x80 ? 0 : text::Utf8Length(rest);
        length > 0 && !(kToldApart && rest.starts_with(text::kReplacementCharacter))) {
      i += length;
      continue;
    }
    flush();
    if (byte >= 0x80) {
      out += text::kReplacementCharacter;
      if (kToldApart) text::AppendHex(out, byte, text::kUpperHex);
    } else if (byte == '"' || byte == '\\') {
      out += {'\\', text[i]};
    } else if (byte == '\n') {
      out += "\\n";
    } else {
      out += "\\u00";
      text::AppendHex(out, byte);
    }
    run = ++i;
  }
  flush();
}

}  // namespace internal

inline void AppendJsonEscaped(std::string& out, std::string_view text) {
  internal::AppendEscaped<internal::NotUtf8::kReplaced>(out, text);
}

inline void AppendJsonBytes(std::string& out, std::string_view bytes) {
  internal::AppendEscaped<internal::NotUtf8::kToldApart>(out, bytes);
}

}  // namespace sluice
