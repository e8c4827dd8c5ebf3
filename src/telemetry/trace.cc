// SPDX-License-Identifier: Apache-2.0
#include "telemetry/trace.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/hex.h"

namespace sluice::telemetry {
namespace {

bool IsRequestIdByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("-_.:/+=@~").find(c) != std::string_view::npos;
}

}  // namespace

bool IsTraceparent(std::string_view field) {
  constexpr std::size_t kSize = 55;  // Of version 00: <version>-<trace id>-<parent id>-<flags>.
  if (field.size() < kSize || field[2] != '-' || field[35] != '-' || field[52] != '-') return false;
  const std::string_view version = field.substr(0, 2);
  const std::string_view trace_id = field.substr(3, 32);
  const std::string_view parent_id = field.substr(36, 16);
  for (const std::string_view part : {version, trace_id, parent_id, field.substr(53, 2)}) {
    // In lower case, by the specification.
    if (part.find_first_not_of(text::kLowerHex) != std::string_view::npos) return false;
  }
  for (const std::string_view id : {trace_id, parent_id}) {
    if (id.find_first_not_of('0') == std::string_view::npos) return false;
  }
  if (version == "ff") return false;
  // A later version may have more, after another dash.
  return field.size() == kSize || (version != "00" && field[kSize] == '-');
}

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
  // SplitMix64, as the authors of the generator recommend.
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
    const std::uint64_t bits = Next();
    for (const std::uint64_t half : {bits, bits >> 32}) {
      std::ranges::copy(text::HexDigits(static_cast<std::uint32_t>(half)), &id.bytes_[id.size_]);
      id.size_ += 8;
    }
  }
  return id;
}

}  // namespace sluice::telemetry
