// SPDX-License-Identifier: Apache-2.0
#include "telemetry/trace.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <span>

namespace sluice::telemetry {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

// The field is in lower case by its specification.
std::optional<unsigned> HexDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  return std::nullopt;
}

bool ReadHex(std::string_view text, std::span<std::uint8_t> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto high = HexDigit(text[2 * i]);
    const auto low = HexDigit(text[2 * i + 1]);
    if (!high || !low) return false;
    bytes[i] = static_cast<std::uint8_t>(*high << 4 | *low);
  }
  return true;
}

void AppendHex(std::string& out, std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) {
    out += kHexDigits[byte >> 4];
    out += kHexDigits[byte & 15];
  }
}

bool AllZero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

bool IsRequestIdByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("-_.:/+=@~").find(c) != std::string_view::npos;
}

}  // namespace

std::optional<TraceContext> TraceContext::Parse(std::string_view field) {
  if (field.size() < kTextSize || field[2] != '-' || field[35] != '-' || field[52] != '-') {
    return std::nullopt;
  }
  std::array<std::uint8_t, 1> version;
  std::array<std::uint8_t, 1> flags;
  TraceContext context;
  if (!ReadHex(field, version) || !ReadHex(field.substr(3), context.trace_id) ||
      !ReadHex(field.substr(36), context.parent_id) || !ReadHex(field.substr(53), flags)) {
    return std::nullopt;
  }
  if (version[0] == 0xff || AllZero(context.trace_id) || AllZero(context.parent_id)) {
    return std::nullopt;
  }
  // A later version may say more, after another dash.
  if (field.size() > kTextSize && (version[0] == 0 || field[kTextSize] != '-')) {
    return std::nullopt;
  }
  // Only the first flag is defined in version 00, which is what we pass on.
  context.flags = flags[0] & 1U;
  return context;
}

void TraceContext::AppendTo(std::string& out) const {
  out += "00-";
  AppendHex(out, trace_id);
  out += '-';
  AppendHex(out, parent_id);
  out += '-';
  AppendHex(out, std::span(&flags, 1));
}

void TraceContext::AppendTraceIdTo(std::string& out) const { AppendHex(out, trace_id); }

std::optional<RequestId> RequestId::Parse(std::string_view field) {
  if (field.empty() || field.size() > kBytesMax || !std::ranges::all_of(field, IsRequestIdByte)) {
    return std::nullopt;
  }
  RequestId id;
  id.size_ = static_cast<std::uint8_t>(field.size());
  std::ranges::copy(field, id.bytes_.begin());
  return id;
}

IdSource::IdSource() {
  if (::getentropy(state_.data(), sizeof(state_)) != 0) std::abort();
  state_[0] |= 1;  // Not all zero.
}

IdSource::IdSource(std::uint64_t seed) {
  // SplitMix64, as the authors of the generator advise.
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

IdSource& IdSource::OfThisThread() {
  thread_local IdSource source;
  return source;
}

// xoshiro256++ (Blackman and Vigna).
std::uint64_t IdSource::Next() {
  const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

RequestId IdSource::NewRequestId() {
  RequestId id;
  for (int word = 0; word < 2; ++word) {
    std::uint64_t bits = Next();
    for (int digit = 0; digit < 16; ++digit, bits >>= 4) {
      id.bytes_[id.size_++] = kHexDigits[bits & 15];
    }
  }
  return id;
}

TraceContext IdSource::NewTrace() {
  TraceContext context;
  const std::array<std::uint64_t, 2> id = {Next() | 1, Next()};  // Never all zero.
  static_assert(sizeof(id) == sizeof(context.trace_id));
  std::memcpy(context.trace_id.data(), id.data(), sizeof(id));
  return Child(context);
}

TraceContext IdSource::Child(const TraceContext& parent) {
  TraceContext child = parent;
  const std::uint64_t id = Next() | 1;
  std::memcpy(child.parent_id.data(), &id, sizeof(id));
  return child;
}

}  // namespace sluice::telemetry
