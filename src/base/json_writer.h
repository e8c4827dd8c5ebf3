// SPDX-License-Identifier: Apache-2.0
// Appends JSON to a string. The result is valid whatever bytes the texts hold.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/hex.h"
#include "base/utf8.h"

namespace sluice {

// Appends the digits of a whole number without allocating for them.
template <std::integral Number>
void AppendNumber(std::string& out, Number number) {
  if (number >= 0 && number < 10) {  // As most numbers of an answer are.
    out += static_cast<char>('0' + number);
    return;
  }
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
    out_ += comma_ ? ",\"" : "\"";
    AppendJsonEscaped(out_, text);
    out_ += '"';
    comma_ = true;
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

// How many bytes at the start go into a JSON string unchanged, rounded down to whole words. Nearly
// all text is plain, and this looks at eight bytes at a time.
inline std::size_t PlainWords(std::string_view text) {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  const auto has_less = [](std::uint64_t word, std::uint64_t bound) {
    return (word - kEach * bound) & ~word;  // In the highest bit of each byte, up to the first.
  };
  std::size_t i = 0;
  for (std::uint64_t word; i + sizeof(word) <= text.size(); i += sizeof(word)) {
    std::memcpy(&word, text.data() + i, sizeof(word));
    const std::uint64_t special = word | has_less(word, ' ') | has_less(word ^ (kEach * '"'), 1) |
                                  has_less(word ^ (kEach * '\\'), 1);
    if ((special & (kEach * 0x80)) != 0) break;
  }
  return i;
}

enum class NotUtf8 : std::uint8_t { kReplaced, kToldApart };

template <NotUtf8 not_utf8>
void AppendEscaped(std::string& out, std::string_view text) {
  constexpr bool kToldApart = not_utf8 == NotUtf8::kToldApart;
  std::size_t run = 0;  // Where the bytes that are copied unchanged begin.
  std::size_t i = PlainWords(text);
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
